"""skeleton"""

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from .assignors import COOPERATIVE_STICKY, NO_GENERATION, RANGE, Assignor
from .connections import Cluster
from .coordinator_client import Coordinator, Membership, commit_offsets, fetch_offsets
from .topic_partition import OffsetAndMetadata, TopicPartition

__all__ = ["GroupHandler", "GroupSession", "GroupSettings"]


class GroupSettings(NamedTuple):
    """How a member takes part. Times in seconds."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    rebalance_timeout_s: float = 300.0
    assignors: tuple[Assignor, ...] = (RANGE, COOPERATIVE_STICKY)


class GroupHandler(Protocol):
    """Whoever consumes what the session is given. Its calls are awaited one at a time, from the session's one task."""

    def subscription(self) -> frozenset[str]:
        """Return the topics wanted now; empty: leave the group."""
        ...

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions held now."""
        ...

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Give partitions up; returns when nothing of them is handed out any more and their positions are stored."""
        ...

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        """Take note that partitions belong to someone else already; storing their positions is impossible."""
        ...

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        """Take over `added`; `whole` is everything owned now."""
        ...


class GroupSession:
    """One member of one group, from `start` to `close`."""

    def __init__(self, cluster: Cluster, settings: GroupSettings, handler: GroupHandler) -> None:
        self.failure: BaseException | None = None
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self._settings = settings
        self._coordinator = Coordinator(cluster, settings.group_id)

    def start(self) -> None:
        """Begin to take part; call once, from the event loop."""
        raise NotImplementedError

    def resubscribe(self) -> None:
        """Take note that the handler's subscription has changed."""
        raise NotImplementedError

    def polled(self) -> None:
        """Take note that the user is there."""

    async def close(self, timeout_s: float) -> None:
        """Leave the group."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        """Store positions."""
        membership = Membership(self.generation_id, self.member_id, self._settings.group_instance_id)
        await commit_offsets(self._coordinator, offsets, timeout_s, membership)

    async def committed(
        self, partitions: Collection[TopicPartition] | None, timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return stored positions."""
        return await fetch_offsets(self._coordinator, partitions, timeout_s)

    async def wait_stable(self, timeout_s: float) -> None:
        """Return once the member has an assignment of a generation that goes on."""
        await asyncio.sleep(0)
