"""Tells clients the witnesses of a topic, in a read-only configuration. Pure.

Kafka's protocol has no place for a voter that serves nobody, and a witness among the replicas would make clients read
from it and tools count it. So `replica.witnesses` stands beside `replica.observers`: rows of `partition:broker`,
separated by commas, for those partitions that have one. A string of Kafka's protocol has at most 32,767 bytes: of some
thousand partitions the rest stands in `replica.witnesses.1` and so on. A topic without any witness does not have the
configuration at all, so users without two replicas never meet this.
"""

from collections.abc import Mapping, Sequence

from barnabas_metadata_quorum.image.image import PartitionPlacement
from barnabas_metadata_quorum.image.records import NOBODY

__all__ = ["WITNESSES", "decode_witnesses", "encode_witnesses"]

WITNESSES = "replica.witnesses"
ROWS_MAX = 2_000  # in one string: a row is five digits, a colon, and a number that is rarely longer than two


def encode_witnesses(partitions: Sequence[PartitionPlacement]) -> dict[str, str]:
    """Return the rows of a topic, by the configuration that says them; none if no partition has a witness."""
    rows = [f"{index}:{partition.witness}" for index, partition in enumerate(partitions) if partition.witness != NOBODY]
    found = {}
    for number, first in enumerate(range(0, len(rows), ROWS_MAX)):
        name = f"{WITNESSES}.{number}" if number else WITNESSES
        found[name] = ",".join(rows[first : first + ROWS_MAX])
    return found


def decode_witnesses(values: Mapping[str, str | None]) -> dict[int, int]:
    """Return the witness of each partition that has one, from all configurations of a topic.

    Raises:
        ValueError: it is something else.
    """
    texts = [text for name, text in values.items() if text and (name == WITNESSES or name.startswith(f"{WITNESSES}."))]
    rows = (row.split(":") for text in texts for row in text.split(","))
    return {int(partition): int(witness) for partition, witness in rows}
