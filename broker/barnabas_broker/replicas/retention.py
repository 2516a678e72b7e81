"""Deletes old data by age and size, by segments, on all replicas together.

Every `log.retention.check.interval.ms` all partitions of this broker are looked at, a few milliseconds at a time; one
timer serves them all, and a partition with nothing to delete costs some microseconds. The leader of a partition decides
from its own segments what has expired (`barnabas_raftlog.log.replica.retention`). One entry of the partition's log
makes it so, as when a client asks for records to be deleted: no replica starts before the others do, and a leader that
takes over knows. Replicas need not have the same segments; each deletes its files when all that they hold is below the
start.

Every replica also closes a segment whose first record is older than `segment.ms`, or by up to `segment.jitter.ms`
younger than that, so that topics which began together do not all close their segments together. Otherwise a topic that
is written to slowly would keep its oldest record for as long as its newest.

No timestamp that a producer makes up ends this. If one is missing or lies in the future, the time of the file counts
(looked up in a thread, only then); for closing a segment it is the time since when it was seen here.

An event says what went and why. The first look comes half a minute after the start, or sooner if the interval is
shorter, so that a broker that is restarted often tidies up too.

Internal topics are kept by their writers; a witness keeps only entries that a replica lacks, and is passed over. Not
here: compaction (`compaction`).
"""

from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import Any

from barnabas_broker.partition.partition import Partition
from barnabas_broker.status.events import EventHistory
from barnabas_broker.timing.rounds import Rounds
from barnabas_broker.timing.slices import Slices
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.log.replica.retention import expired

from .partitions import Partitions

__all__ = ["Retention", "jitter_ms"]

FIRST_ROUND_MS = 30_000


def jitter_ms(segment: str, most_ms: int) -> int:
    """Return by how much earlier a segment is closed, from 0 to less than `most_ms`: always the same for one segment.

    It is drawn from what names the segment, so it needs no chance, and a restart does not draw again.
    """
    if not most_ms:
        return 0
    return int.from_bytes(blake2b(segment.encode(), digest_size=8).digest(), "big") % most_ms


class _Moving:
    """A start that is on its way to a majority (PendingAppend)."""

    is_closed = False  # It waits until it is told.

    def __init__(self, events: EventHistory, partition: Partition, cause: str) -> None:
        self.events = events
        self.partition = partition
        self.cause = cause

    def on_committed(self) -> None:
        text = f"{self.cause}; the log starts at {self.partition.log.log_start_offset}"
        self.events.add("records expired", str(self.partition), text)

    def on_failed(self, code: ErrorCode) -> None:
        """The leader of now decides again."""


class Retention:
    """See the module. One round at a time; owned by the broker."""

    def __init__(
        self,
        partitions: Partitions,
        events: EventHistory,
        timers: Timers,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        interval_ms: int,
    ) -> None:
        self._partitions = partitions
        self._events = events
        self._rounds = Rounds(timers, spawn, interval_ms, self.round, min(interval_ms, FIRST_ROUND_MS))

    def start(self) -> None:
        """Begin to look."""
        self._rounds.start()

    def close(self) -> None:
        self._rounds.close()

    async def round(self) -> None:
        """Look at every replica of this broker once; cancelled, some have not been looked at."""
        slices = Slices()
        for partition in self._partitions:
            settings = partition.settings
            if settings is not None and partition.topic_name not in INTERNAL_TOPICS and not partition.is_witness:
                now_ms = self._partitions.wall_ms()
                begun_ms = await partition.log.begun_ms(now_ms)
                roll_ms = settings.segment_ms
                if settings.is_compacted:
                    roll_ms = min(roll_ms, settings.max_compaction_lag_ms)
                roll_ms -= jitter_ms(f"{partition} {begun_ms}", min(settings.segment_jitter_ms, roll_ms))
                if begun_ms is not None and now_ms - begun_ms > roll_ms:
                    partition.log.roll()
                if settings.retention_ms >= 0 and partition.can_serve:
                    await partition.log.look_at_files(now_ms)
                self._expire(partition)
            await slices.yield_if_due()

    def _expire(self, partition: Partition) -> None:
        settings = partition.settings
        log = partition.log
        # Before leadership is confirmed, the high watermark may be older than what clients have seen.
        if settings is None or not partition.can_serve:
            return
        expiry = expired(
            log.spans(),
            log.log_start_offset,
            partition.high_watermark,
            self._partitions.wall_ms(),
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
        )
        if expiry is None or partition.state.starts.index_for(expiry.offset) is not None:
            return  # There is nothing to do, or it is being done.
        try:
            index = partition.drop_before(expiry.offset)
        except (NotLeaderError, StorageFailedError):
            return  # The next round, or the next leader, sees it again.
        moving = _Moving(self._events, partition, expiry.cause)
        if not partition.wait_for(index, moving):
            moving.on_committed()
