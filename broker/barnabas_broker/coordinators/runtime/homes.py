"""Finds the shard in which something lives by its name: the partition follows from the name.

Every broker computes a name's partition alike; the leader of that partition has the shard (`coordinator`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from barnabas_broker.replicas.partitions import Partitions
from barnabas_clients.protocol.error_codes import ErrorCode

from .contracts import CoordinatorShard, Table
from .coordinator import CoordinatorRuntime
from .shard import CONFIRM_S

__all__ = ["Homes"]

T = TypeVar("T", bound=Table[Any])
S = TypeVar("S", bound=CoordinatorShard[Any])


class Homes(Generic[T, S]):
    """What a coordinator says about where names live, and who has the shards. It sets `runtime` itself.

    `partition_for` returns the partition of a name among so many.
    """

    runtime: CoordinatorRuntime[T, S]

    def __init__(self, partitions: Partitions, topic_name: str, partition_for: Callable[[str, int], int]) -> None:
        self.topic_name = topic_name
        self._partitions = partitions
        self._partition_for = partition_for

    def partition_of(self, name: str) -> int | None:
        """Return the partition of a name; None while the topic does not exist."""
        hosted = self._partitions.topics.get(self.topic_name)
        return None if hosted is None else self._partition_for(name, len(hosted.topic.partitions))

    def shard_of(self, name: str) -> S | ErrorCode:
        """Return the shard of a name, or why this broker does not answer for it now."""
        index = self.partition_of(name)
        return ErrorCode.NOT_COORDINATOR if index is None else self.runtime.shard_at(index)

    async def find_shard(self, name: str) -> S | ErrorCode:
        """Return the same as `shard_of`; wait a little for a shard that is being read."""
        return await self.runtime.wait_loaded(partial(self.shard_of, name))

    async def certain_shard(self, name: str) -> S | ErrorCode:
        """Return the same as `find_shard`, when a majority has confirmed that this broker leads; else why not."""
        shard = await self.find_shard(name)
        index = self.partition_of(name)
        runtime = None if index is None else self.runtime.shards.get(index)
        if isinstance(shard, ErrorCode) or runtime is None or runtime.is_certain:
            return shard
        error = await runtime.confirm(CONFIRM_S)
        return shard if error is ErrorCode.NONE else error

    def active_shards(self) -> list[S]:
        """Return the shards that serve, by partition."""
        return self.runtime.active_shards()

    @property
    def is_loading(self) -> bool:
        """True while a partition that this broker leads is being read."""
        return self.runtime.is_loading

    async def ensure_topic(self) -> str | None:
        """Have the topic made if there is none; return None when it is there, with leaders, else why not.

        As `CoordinatorRuntime.ensure_topic`, which says how long that takes.
        """
        return None if await self.runtime.ensure_topic() else f"{self.topic_name} could not be made"
