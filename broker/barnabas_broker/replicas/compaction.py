"""Compacts topics with `cleanup.policy=compact`: which partition next, and how fast.

Every `log.cleaner.backoff.ms` all partitions of this broker are looked at; one at a time is compacted, by each replica
for itself, the leader or not (`barnabas_raftlog.log.replica.compacting`). The work on records is done in a thread,
which takes a core, and where the walker is not compiled the interpreter from the loop: so a quarter of the time is work
and the rest is pause, and no more is read than `log.cleaner.io.max.bytes.per.second`. A large partition takes as long
as it takes. When something was written anew, a checkpoint follows, which lets the old files go.

A witness keeps only what a replica lacks: there is nothing to compact.

One event says what was compacted, another how many batches were kept as they are because they cannot be read or hold
more than is opened here. If there is no room for a partition, on the disk or in memory, an event says so, and it is
tried again in the next round; nothing is lost by that.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.partition.partition import Partition
from barnabas_broker.status.events import EventHistory
from barnabas_broker.timing.rounds import Rounds
from barnabas_broker.timing.slices import Slices
from barnabas_broker.timing.timers import Timers
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.replica.compacting import CompactionFailedError, CompactionLimits
from barnabas_raftlog.log.replica.compaction import KEY_BYTES

from .partitions import Partitions

__all__ = ["Compaction"]

REST = 3  # times as long as the work
REST_S_MAX = 1.0  # a piece of 256 KiB takes milliseconds; a longer one waited for the disk


class Compaction:
    """See the module. One round at a time; owned by the broker."""

    def __init__(
        self,
        partitions: Partitions,
        events: EventHistory,
        timers: Timers,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        config: BrokerConfig,
    ) -> None:
        self._partitions = partitions
        self._events = events
        self._rounds = Rounds(timers, spawn, config.log_cleaner_backoff_ms, self.round)
        self._resumed_s = 0.0
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Go by the settings of `config` from now on: the partition that is being compacted, as to its speed alone."""
        self._rounds.interval_ms = config.log_cleaner_backoff_ms
        self._keys_max = max(1, config.log_cleaner_dedupe_buffer_size // KEY_BYTES)
        self._bytes_per_s = config.log_cleaner_io_max_bytes_per_second

    def start(self) -> None:
        """Begin to look."""
        self._rounds.start()

    def close(self) -> None:
        self._rounds.close()

    async def round(self) -> None:
        """Look at every replica of this broker once, and compact what is due.

        Cancellation: segments that were written anew so far count.
        """
        slices = Slices()
        is_changed = False
        self._resumed_s = asyncio.get_running_loop().time()
        for partition in self._partitions:
            settings = partition.settings
            is_kept_otherwise = partition.topic_name in INTERNAL_TOPICS or partition.is_witness
            if settings is not None and settings.is_compacted and not is_kept_otherwise:
                is_changed |= await self._compact(partition)
            await slices.yield_if_due()
        if is_changed:
            self._partitions.checkpoint()

    async def _compact(self, partition: Partition) -> bool:
        settings = partition.settings
        assert settings is not None
        limits = CompactionLimits(
            keys_max=self._keys_max,
            min_dirty_ratio=settings.min_cleanable_dirty_ratio,
            min_lag_ms=settings.min_compaction_lag_ms,
            max_lag_ms=settings.max_compaction_lag_ms,
            delete_retention_ms=settings.delete_retention_ms,
        )
        try:
            done = await partition.log.compact(
                limits,
                partition.producers.commit_index,
                self._partitions.wall_ms(),
                self._pause,
                partition,
            )
        except CompactionFailedError as error:
            self._events.add("compaction failed", str(partition), str(error))
            return False
        except StorageFailedError:
            return False  # Said and mended by the scrub, if that can be done.
        if done is not None and done.unread_count:
            text = f"{done.unread_count} that cannot be read or hold too much, the first at offset {done.unread_offset}"
            self._events.add("batches not compacted", str(partition), text)
        if done is None or not done.segment_count:
            return False
        text = (
            f"{done.segment_count} segments: {done.records_after} of {done.records_before} records left,"
            f" {done.bytes_after} of {done.bytes_before} bytes"
        )
        self._events.add("log compacted", str(partition), text)
        return True

    async def _pause(self, size_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        worked_s = loop.time() - self._resumed_s
        await asyncio.sleep(max(size_bytes / self._bytes_per_s, min(worked_s * REST, REST_S_MAX)))
        self._resumed_s = loop.time()
