"""Answers an operator who wants a partition to go on without a lost replica.

Only a partition in `flush.mode=page-cache` can need that: after a loss of power its replicas wait for each other, so
that nothing acknowledged is forgotten (`barnabas_raftlog.raft.uncertainty`, where the rules are). This is the one road
on which acknowledged records may be lost, so nothing here decides anything: a node says what it knows, and whether it
would give that voter up. Only a second question, which says so, lets it.

Not here: finding the nodes to ask, and the words for people (`cli.commands.topic.give_up_voter`).
"""

from typing import Any

import msgpack

from barnabas_broker.partition.partition import Partition
from barnabas_raftlog.errors import BarnabasError

from .partitions import Partitions

__all__ = ["METHOD", "LostVoters"]

METHOD = "lost voter"
LEADER_TIMEOUT_S = 10.0  # ten elections that nobody wins


class BadQuestionError(BarnabasError):
    """The body is not what this version of the command sends."""


class LostVoters:
    """Answers `METHOD`: [topic, partition, node id, really?] to a map. Owned by the node."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def answer(self, _source: int, body: bytes) -> bytes:
        """Say what is known, and give the voter up if that is really meant.

        Raises:
            BadQuestionError: the body is something else.
        """
        try:
            topic, index, node_id, really = msgpack.unpackb(body)
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
            raise BadQuestionError("not a question about a lost voter") from error
        if not (isinstance(topic, str) and type(index) is type(node_id) is int and isinstance(really, bool)):
            raise BadQuestionError("not a question about a lost voter")
        hosted = self._partitions.topics.get(topic)
        partition = hosted.partitions.get(index) if hosted else None
        found: dict[str, Any] = {"hosts": False, "refusal": "it has no replica of that partition"}
        if partition is not None:
            refusal = partition.group.give_up(node_id, really=really)
            if really and not refusal:
                await self._partitions.known_leaders.wait_while(
                    lambda: partition.group.leader_id is None, LEADER_TIMEOUT_S
                )
            found = _known(partition) | {"refusal": refusal}
        packed: bytes = msgpack.packb(found)
        return packed


def _known(partition: Partition) -> dict[str, Any]:
    core = partition.group.core
    return {
        "hosts": True,
        "voters": sorted(core.voters),
        "leader": core.leader_id,
        "may_have_forgotten": core.uncertain > 0,
        "end_offset": partition.log.log_end_offset,
        "last_term": core.log.last_term,
        "last_index": core.log.last_index,
    }
