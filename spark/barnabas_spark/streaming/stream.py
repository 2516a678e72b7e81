"""Keeps the state of one streaming query on the driver, between the calls of Spark.

Spark calls, in the process of one query: `prepare` for AvailableNow; `first` for a new checkpoint; then for each
micro-batch `latest`, which decides where it ends, and `tasks`, which cuts it. It calls `processed` when it plans the
batch after the next one, and never for the last. But the position from which `latest` is asked to go on is one that
Spark's checkpoint has, too. So that one is stored in the group, and a run of AvailableNow ends with its last position
stored: its last call is a `latest` from there.

*Except* before the first batch, when that position is the first offset. It is stored without its note only when a batch
has been planned from it, and Spark asks again.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.cluster.cluster import Cluster
from barnabas_spark.clusters import run
from barnabas_spark.options.reads import EARLIEST, LATEST, Position
from barnabas_spark.options.streams import StreamOptions
from barnabas_spark.options.values import TopicPartition
from barnabas_spark.planning.limits import backlog, cut_by_offsets, is_delayed
from barnabas_spark.planning.packing import pack_few
from barnabas_spark.planning.plan import (
    DataLossError,
    PartitionState,
    Plan,
    Snapshot,
    Split,
    make_plan,
    timestamps_needed,
)
from barnabas_spark.planning.sizes import estimated
from barnabas_spark.reading.measuring import make_tasks

from .byte_limit import ByteLimit
from .continuation import Heads, TopicRecreatedError, continued, doubts, unread
from .offsets import Offsets, from_json, to_json
from .ownership import CLOSE_S, Ownership
from .pace import Pace
from .starting import check_found, first_offsets
from .watch import Watch

__all__ = ["Stream"]

logger = logging.getLogger(__name__)

# While a batch waits for more records (minOffsetsPerTrigger), each one wakes the watch. This bounds the looks.
DELAYED_LOOK_MS = 200

Json = dict[str, Any]


class Stream:
    """One run of one query. Connects at the first call; end it with `close`. Owned by one thread."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._timeout_s = options.read.poll_timeout_ms / 1000
        self._cluster: Cluster | None = None
        self._watch: Watch
        self._byte_limit: ByteLimit | None = None
        self._ownership: Ownership | None = None
        self._first: Offsets | None = None
        self._target: Heads | None = None
        self._has_planned = False
        self._stored: Mapping[TopicPartition, int] = {}
        self._idle_at: Json | None = None
        self._is_delayed = False
        self._looked_at_ms = 0
        self._batch_at_ms: int | None = None
        self._warned: set[str] = set()
        self._pace = Pace(_now_ms)

    def prepare(self) -> None:
        """Fix the end of the run: the heads of this moment (AvailableNow)."""
        self._target = run(self._prepare(), self._timeout_s)

    def first(self) -> Json:
        """Return the first offset; the same one until a first batch is done, whoever asks."""
        if self._first is None:
            self._first = run(self._find_first(), self._timeout_s * 2)
        return to_json(self._first)

    def latest(self, start: Json, *, is_limited: bool) -> Json:
        """Return where the next batch ends; `start` itself if there is none."""
        self._pace.end()
        if self._ownership is not None:
            self._ownership.check()
        if start == self._idle_at and self._watch.is_quiet and not self._is_delayed:
            return start
        if self._is_delayed and _now_ms() - self._looked_at_ms < DELAYED_LOOK_MS:
            return start
        return run(self._latest(start, is_limited=is_limited), self._timeout_s * 2)

    def report(self) -> Json | None:
        """Return the newest heads that were seen."""
        return None if self._cluster is None else to_json(Offsets(*self._watch.seen))

    def tasks(self, start: Json, end: Json) -> Sequence[tuple[Split, ...]]:
        """Return what each task of a batch reads; nothing if it has no offsets."""
        return run(self._tasks(from_json(start), from_json(end)), self._timeout_s * 2)

    def processed(self, end: Json) -> None:
        """Note that everything before `end` is done."""
        run(self._note_processed(from_json(end)), self._timeout_s)

    def close(self) -> None:
        """Leave the group, and close every connection. Takes 2 s at most for each."""
        if self._cluster is not None:
            run(self._close(), 3 * CLOSE_S)

    # On the loop.

    async def _open(self) -> Watch:
        if self._cluster is not None:
            return self._watch
        read = self._options.read
        cluster = Cluster(
            read.bootstrap_servers,
            client_id=f"barnabas-spark-stream-{os.getpid()}",
            request_timeout_s=read.request_timeout_ms / 1000,
        )
        self._cluster = await cluster.__aenter__()
        self._watch = Watch(cluster, self._options)
        if (limit_bytes := self._options.trigger_bytes_max) is not None:
            self._byte_limit = ByteLimit(self._cluster, limit_bytes, self._timeout_s)
        try:
            heads = await self._watch.look()
            if self._options.consumer_group:
                topics = read.topics.subscribe or {topic for topic, _ in heads.ends}
                if not topics:
                    check_found(self._options, heads)
                self._ownership = Ownership(cluster, self._options.consumer_group, topics)
                await self._ownership.acquire(self._timeout_s)
        except BaseException:
            await self._close()
            raise
        return self._watch

    async def _close(self) -> None:
        assert self._cluster is not None
        try:
            await self._watch.close()
            if self._ownership is not None:
                await self._ownership.close()
        finally:
            await self._cluster.close()
            self._cluster = self._ownership = None

    async def _prepare(self) -> Heads:
        return (await self._open()).seen

    async def _find_first(self) -> Offsets:
        watch = await self._open()
        heads = self._target or watch.seen
        if self._ownership is not None and (kept := await self._ownership.first(heads, self._timeout_s)) is not None:
            return kept
        check_found(self._options, heads)
        starting = self._options.starting
        at_timestamps: dict[TopicPartition, int | None] = {}
        if wanted := timestamps_needed(starting, heads.ends):
            assert self._cluster is not None
            found = await list_offsets(
                self._cluster, wanted, self._timeout_s, read_committed=self._options.read.read_committed
            )
            at_timestamps = {key: at.offset if at.offset >= 0 else None for key, at in found.items()}
        first = first_offsets(self._options, heads, await watch.beginnings(heads.ends), at_timestamps)
        if self._ownership is not None:
            await self._ownership.keep_first(first, self._timeout_s)
        return first

    async def _latest(self, start_json: Json, *, is_limited: bool) -> Json:
        watch = await self._open()
        start = from_json(start_json)
        if self._first is None or self._has_planned:
            await self._note_processed(start)
        heads = await self._heads(start)
        found = continued(start, heads, await watch.beginnings(unread(start, heads)), self._options)
        for warning in found.warnings:
            self._warn(warning)
        available = backlog(found.starts, heads.ends)
        has_changed = doubts(start, heads)
        self._is_delayed = is_limited and self._target is None and not has_changed and self._waits_for_more(available)
        if self._is_delayed or not (available or has_changed):
            return await self._idle(start_json)
        self._batch_at_ms = _now_ms()
        ends = await self._limited(found.starts, heads.ends) if is_limited else heads.ends
        return to_json(Offsets(ends, heads.topic_ids))

    async def _idle(self, start_json: Json) -> Json:
        """Return `start_json`, and see to it that the next question costs nothing."""
        self._idle_at = start_json
        if self._ownership is not None:
            await self._ownership.flush(CLOSE_S)
        if self._target is None:
            self._watch.wait()
        return start_json

    async def _heads(self, start: Offsets) -> Heads:
        if self._target is not None:
            if doubts(start, self._target):
                self._target = await self._watch.look(start)
            return self._target
        if not self._watch.is_quiet:
            self._looked_at_ms = _now_ms()
            await self._watch.look(start)
        return self._watch.seen

    def _waits_for_more(self, available: int) -> bool:
        options = self._options
        if not available:
            return False
        if self._batch_at_ms is None:
            # As in Spark's source, the first batch of a run does not wait.
            return False
        waited_ms = _now_ms() - self._batch_at_ms
        return is_delayed(available, options.trigger_offsets_min, waited_ms, options.trigger_delay_max_ms)

    async def _limited(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        options = self._options
        if options.trigger_offsets_max is not None:
            ends = cut_by_offsets(starts, ends, options.trigger_offsets_max)
        if self._byte_limit is not None:
            ends = await self._byte_limit.ends(starts, ends)
        return ends

    async def _tasks(self, start: Offsets, end: Offsets) -> Sequence[tuple[Split, ...]]:
        plan = await self._plan(start, end)
        assert self._cluster is not None
        ranges = [split for split in plan.splits if not split.is_empty]
        if not ranges:
            return ()
        self._pace.begin()
        if self._options.is_packed and self._pace.takes_few:
            return pack_few(estimated(ranges, {}, {}), self._options.read)
        return await make_tasks(self._cluster, self._options.read, ranges, {})

    async def _plan(self, start: Offsets, end: Offsets) -> Plan:
        watch = await self._open()
        self._has_planned = True
        gone = await self._gone(end)
        new = unread(start, Heads(end.positions, end.topic_ids))
        begins = await watch.beginnings({key for key in new if key[0] not in gone})
        starting: dict[TopicPartition, int] = {}
        for key, end_offset in end.positions.items():
            start_offset = begins.get(key, end_offset) if key in new else start.positions[key]
            if key not in new and start_offset > end_offset:
                self._lost(
                    f"{key[0]}-{key[1]} would be read from {start_offset} to {end_offset}: "
                    "the first offset was decided again, and is another one"
                )
            starting[key] = end_offset if key[0] in gone else min(start_offset, end_offset)
        options = self._options.read._replace(
            starting=Position("startingOffsets", EARLIEST, offsets=starting),
            ending=Position("endingOffsets", LATEST, offsets=end.positions),
        )
        states = {
            # The tasks find out whether the records are there.
            key: PartitionState(end.topic_ids.get(key[0]), -1, starting[key], end_offset)
            for key, end_offset in end.positions.items()
        }
        return make_plan(options, Snapshot(states))

    async def _gone(self, end: Offsets) -> set[str]:
        """Return the topics of a batch that do not exist any more. They do, unless the batch is an old one.

        Raises:
            DataLossError, TopicRecreatedError: as the options say.
        """
        topics = {topic for topic, _ in end.positions}

        def missing() -> set[str]:
            ids = self._watch.seen.topic_ids
            there = {topic for topic, _ in self._watch.seen.ends}
            return {one for one in topics if one not in there or end.topic_ids.get(one, ids.get(one)) != ids.get(one)}

        if missing():
            await self._watch.look(end)
        gone = missing()
        for topic in sorted(gone):
            if topic not in {one for one, _ in self._watch.seen.ends}:
                self._lost(f"topic {topic} was deleted before a micro-batch of it was done")
            elif self._options.on_topic_recreated == "fail":
                raise TopicRecreatedError(topic)
            else:
                self._warn(f"topic {topic} was deleted and created again before a micro-batch of it was done")
        return gone

    async def _note_processed(self, end: Offsets) -> None:
        if self._ownership is None:
            return
        there = {topic for topic, _ in self._watch.seen.ends}
        positions = {key: offset for key, offset in end.positions.items() if key[0] in there}
        if positions != self._stored:
            self._ownership.store(positions)
            self._stored = positions

    def _lost(self, what: str) -> None:
        if self._options.read.fail_on_data_loss:
            raise DataLossError(what)
        self._warn(f"{what}; failOnDataLoss is false, so the stream goes on without it")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("%s", text)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
