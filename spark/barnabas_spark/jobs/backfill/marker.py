"""What a back-fill leaves on the brokers of its topic, so that one which was killed can go on. Pure.

The rows of each partition of the target have one order, which follows from the version of the table and from what was
asked for. Nobody else writes to the target meanwhile. So how far its log has grown says which rows come next, and the
marker only has to say what the rows are, and where the logs ended before the first of them.

It is the metadata of a position that a consumer group has, one a partition. The group is named after the topic, and has
no members. Its offset is the end of the log before the back-fill.
"""

import json
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["Marker", "MarkerError", "group_of", "read_marker"]

METADATA_BYTES_MAX = 4096


class MarkerError(BarnabasError):
    """The topic cannot be gone on with."""


class Marker(NamedTuple):
    """What is written. `version` is that of the table, `where` an expression of Spark SQL, `partitions` keep or by-key.

    `target_id` is the id of the target, and `partition_count` the number of its partitions.
    """

    target_id: str
    lake: str
    kind: str
    version: int
    topic_id: str
    where: str
    partitions: str
    partition_count: int

    def encode(self) -> str:
        """Return it as text.

        Raises:
            MarkerError: it is too long for brokers.
        """
        text = json.dumps({"barnabas": self._asdict()}, separators=(",", ":"))
        if len(text.encode()) > METADATA_BYTES_MAX:
            raise MarkerError("the location of the lake is too long to be kept with the topic")
        return text

    def difference(self, asked: "Marker") -> str:
        """Say in which way another back-fill was begun than the one that is asked for now; "" if it is the same.

        The version does not count: a back-fill goes on with the one with which it began.
        """
        for name, mine, other in zip(self._fields, self, asked, strict=True):
            if mine != other and name != "version":
                return f"it was begun with {name} {mine!r}, and {other!r} is asked for now"
        return ""


def group_of(topic: str) -> str:
    """Return the name of the group that keeps the marker of a topic."""
    return f"barnabas-backfill-{topic}"


def read_marker(text: str | None) -> Marker | None:
    """Read what `encode` wrote; None if it is something else."""
    try:
        return Marker(**json.loads(text or "")["barnabas"])
    except (ValueError, KeyError, TypeError):
        return None
