"""Says whether members of groups of KIP-848 may store positions, for OffsetCommit and TxnOffsetCommit.

A member that is in the epoch that it says may; of an older one it may store what it has had since then, or longer: it
has been given up by nobody in between (KIP-1251). One position that it may not store is the refusal of the request.
"""

from typing import NamedTuple, Protocol

from barnabas_broker.coordinators.groups.consumer.values import Partitions
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_clients.protocol.error_codes import ErrorCode

__all__ = ["Since", "may_commit"]


class Asked(Protocol):
    """A request that names a member."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id_or_member_epoch: int


class Since(NamedTuple):
    """A member of an older epoch: which, since when it has which partitions, and what it is told of others."""

    epoch: int
    partitions: Partitions
    stale: ErrorCode

    def refusal(self, topic_id: bytes, index: int) -> ErrorCode:
        """Say why a position in one partition may not be stored, or NONE."""
        since_epoch = self.partitions.get(topic_id, {}).get(index)
        return ErrorCode.NONE if since_epoch is not None and since_epoch <= self.epoch else self.stale


def may_commit(shard: GroupShard, request: Asked, version: int | None) -> tuple[ErrorCode, Since | None]:
    """Return whether a member may store anything, and since when it has which partitions if that is to be looked at.

    `version` is that of OffsetCommit; None: it is TxnOffsetCommit.
    """
    hosted = shard.consumers.hosted(request.group_id)
    if hosted is None:  # It is being deleted.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
    epoch = request.generation_id_or_member_epoch
    found = hosted.group.commit_refusal(request.member_id, request.group_instance_id, epoch, version=version)
    if isinstance(found, ErrorCode):
        return found, None
    return ErrorCode.NONE, Since(epoch, found, hosted.group.stale(request.member_id))
