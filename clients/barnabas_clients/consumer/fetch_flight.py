"""What the fetcher has under way, and what it has done: its small values."""

import asyncio
from typing import NamedTuple

from .partition_queue import PartitionQueue

__all__ = ["FetchCounts", "Flight"]


class Flight:
    """Something under way for some partitions, which hold it as their ticket; `node_id` is -1 for a lookup."""

    __slots__ = ("bytes_max", "node_id", "queues", "watch")

    def __init__(self, queues: list[PartitionQueue], node_id: int = -1, bytes_max: int = 0) -> None:
        self.queues, self.node_id, self.bytes_max = queues, node_id, bytes_max
        self.watch: asyncio.TimerHandle | None = None
        for queue in queues:
            queue.ticket = self

    @property
    def is_wanted(self) -> bool:
        return any(queue.ticket is self for queue in self.queues)


class FetchCounts(NamedTuple):
    """Since the beginning: requests answered, bytes of records they brought, and partitions refused."""

    fetches: int = 0
    fetched_bytes: int = 0
    refusals: int = 0
