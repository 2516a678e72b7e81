"""Watches the high watermarks of a stream's partitions, without a request for each question.

Spark asks an idle stream for its latest offset 50 times a second. `heads` answers from memory while the watch is quiet.
To be quiet, one fetch waits at each leader, at the high watermarks of all its partitions, until there is a record or
`WAIT_MS` are over; then it is sent again. So an idle stream costs a request for each leader in `WAIT_MS`, and one for
metadata in each `metadata_age_ms`, however often it is asked, and learns of a record at once. A wait that ends brings a
record batch that nobody reads. Thus only a stream that has nothing to do waits; a busy one looks once for each
micro-batch: one ListOffsets for each leader, all at the same time.

All high watermarks come from one look, and never go back (continuation.py).

A stream of committed records goes by last stable offsets in place of high watermarks: what an open transaction has
written is not there yet.

Limits: one fetch under way at each leader, in a lane of its own. A wait that fails ends after `PAUSE_S`, so that a dead
leader is not asked in a loop.
"""

import asyncio
import re
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError, DeadlineExceededError
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas_spark.options.streams import StreamOptions
from barnabas_spark.options.values import TopicPartition

from .continuation import Heads, doubts, merged
from .offsets import NOWHERE, Offsets

__all__ = ["WAIT_MS", "Watch"]

WAIT_MS = 5_000
WAIT_LANE = "wait"
# A leader that is frozen is noticed so much later than its answer is due.
GRACE_S = 1.0
PAUSE_S = 0.5
# A leader that does not answer within this is looked for again.
LOOK_S = 5.0
# What seems to be gone must seem so in all looks of this time. It is far more than metadata takes to spread.
DOUBT_S = 1.0
DOUBT_PAUSE_S = 0.2
# Stands for the watch over the age of metadata among the waits at brokers.
CLOCK = -1
NO_ID = bytes(16)


class Watch:
    """The heads of one stream. Owned by the loop that has `cluster`; `is_quiet` and `seen` may be read anywhere."""

    def __init__(self, cluster: Cluster, options: StreamOptions) -> None:
        self.seen = Heads({}, {})
        """What the last look has shown."""
        self.is_quiet = False
        """True while `seen` is what another look would show, as far as anybody can know."""
        self._cluster = cluster
        self._options = options
        self._pattern = re.compile(options.read.topics.pattern)
        self._refreshed_at_s: float | None = None
        self._waits: dict[int, asyncio.Task[None]] = {}
        self._waited_for: dict[int, list[TopicPartition]] = {}
        self._beginnings: dict[tuple[TopicPartition, bytes], int] = {}

    async def look(self, start: Offsets = NOWHERE) -> Heads:
        """Return the heads of this moment. If something that `start` has read seems to be gone, look for `DOUBT_S`.

        Raises:
            KafkaError: a topic may not be read.
            DeadlineExceededError: some partition had no leader that could answer within `poll_timeout_ms`.
        """
        deadline = self._now() + self._options.read.poll_timeout_ms / 1000
        heads = merged(self.seen, await self._look(deadline))
        believed_at_s = self._now() + DOUBT_S
        while doubts(start, heads) and self._now() < min(believed_at_s, deadline):
            await asyncio.sleep(DOUBT_PAUSE_S)
            self._refreshed_at_s = None
            heads = merged(self.seen, await self._look(deadline))
        self.seen = heads
        return heads

    async def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the logs of partitions begin. The answer stays the same as long as a topic is the same."""
        ids = self.seen.topic_ids
        unknown = [key for key in partitions if (key, ids.get(key[0], NO_ID)) not in self._beginnings]
        if unknown:
            timeout_s = self._options.read.poll_timeout_ms / 1000
            listed = await list_offsets(self._cluster, dict.fromkeys(unknown, OffsetSpec.EARLIEST), timeout_s)
            for key in unknown:
                self._beginnings[key, ids.get(key[0], NO_ID)] = listed[key].offset
        return {key: self._beginnings[key, ids.get(key[0], NO_ID)] for key in partitions}

    def wait(self) -> None:
        """Be quiet until there is a record behind what was seen last, or something may have changed."""
        self.is_quiet = True
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in sorted(self.seen.ends):
            leader = self._cluster.view.leader(*key)
            if leader is None:
                self.is_quiet = False
                return
            by_leader.setdefault(leader.node_id, []).append(key)
        for node_id, keys in by_leader.items():
            if node_id in self._waits and self._waited_for[node_id] != keys:
                # The next request waits behind this one, which is rare enough.
                self._waits.pop(node_id).cancel()
            if node_id not in self._waits:
                self._waited_for[node_id] = keys
                self._begin(node_id, self._wait_at(node_id, {key: self.seen.ends[key] for key in keys}))
        if CLOCK not in self._waits:
            self._begin(CLOCK, self._grow_old())

    async def close(self) -> None:
        """End the waits. Cancellation: they end as well."""
        waits = list(self._waits.values())
        for task in waits:
            task.cancel()
        if waits:
            await asyncio.wait(waits)

    def _begin(self, place: int, waiting: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(waiting)
        self._waits[place] = task

        def ended(ended: "asyncio.Task[None]") -> None:
            if self._waits.get(place) is ended:
                del self._waits[place]
                self.is_quiet = False

        task.add_done_callback(ended)

    async def _grow_old(self) -> None:
        """End when the metadata are old, so that the next question brings new ones."""
        if self._refreshed_at_s is not None:
            await asyncio.sleep(max(0.0, self._refreshed_at_s + self._options.metadata_age_ms / 1000 - self._now()))

    async def _wait_at(self, node_id: int, positions: Mapping[TopicPartition, int]) -> None:
        """End when a leader has more than `positions`, or cannot be asked."""
        request = self._request(positions)
        names = {self.seen.topic_ids.get(topic): topic for topic, _ in positions}
        while True:
            try:
                # Not `ask_broker`, which asks for metadata every second while an answer takes its time.
                connection = await self._cluster.connect(node_id, LOOK_S, WAIT_LANE)
                response: FetchResponse = await connection.request(request, WAIT_MS / 1000 + GRACE_S)
            except (ClientError, KafkaError):
                await self._cluster.drop(node_id, WAIT_LANE)
                break
            rows = [
                (positions.get((topic.topic or names.get(topic.topic_id, ""), row.partition_index)), row)
                for topic in response.responses
                for row in topic.partitions
            ]
            if response.error_code or any(row.error_code or position is None for position, row in rows):
                break
            if any(row.records or self._end(row) > (position or 0) for position, row in rows):
                return
        # The next look asks who leads now.
        self._refreshed_at_s = None
        await asyncio.sleep(PAUSE_S)

    def _request(self, positions: Mapping[TopicPartition, int]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for (name, partition), offset in sorted(positions.items()):
            topic = topics.setdefault(
                name, FetchTopic(topic=name, topic_id=self.seen.topic_ids.get(name, NO_ID), partitions=[])
            )
            # The smallest answer that a broker gives: one record batch.
            topic.partitions.append(FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1))
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1,
            isolation_level=int(self._options.read.read_committed),
            topics=list(topics.values()),
        )

    def _end(self, row: PartitionData) -> int:
        """Return the end that the stream goes by. Else an open transaction would end every wait at once."""
        return row.last_stable_offset if self._options.read.read_committed else row.high_watermark

    async def _look(self, deadline: float) -> Heads:
        while True:
            try:
                keys, topic_ids = await self._partitions(deadline)
                left_s = max(0.0, deadline - self._now())
                latest = dict.fromkeys(keys, OffsetSpec.LATEST)
                ends = await list_offsets(
                    self._cluster, latest, min(LOOK_S, left_s), read_committed=self._options.read.read_committed
                )
                return Heads({key: ends[key].offset for key in keys}, topic_ids)
            except DeadlineExceededError:
                # A topic may have been deleted meanwhile.
                self._refreshed_at_s = None
                if self._now() >= deadline:
                    raise

    async def _partitions(self, deadline: float) -> tuple[list[TopicPartition], dict[str, bytes]]:
        """Return the partitions to read that exist, and the ids of their topics, `metadata_age_ms` old at most."""
        wanted = self._options.read.topics
        age_max_s = self._options.metadata_age_ms / 1000
        names = wanted.subscribe or tuple(dict.fromkeys(topic for topic, _ in wanted.assign))
        if self._refreshed_at_s is None or self._now() - self._refreshed_at_s >= age_max_s:
            timeout_s = max(0.0, deadline - self._now())
            await self._cluster.refresh(None if wanted.pattern else names, timeout_s=timeout_s)
            self._refreshed_at_s = self._now()
        view = self._cluster.view
        if wanted.pattern:
            found = [one for one in view.topics.values() if not one.is_internal and self._pattern.fullmatch(one.name)]
        else:
            found = [view.topics[name] for name in names if name in view.topics]
        there = [(topic.name, partition) for topic in found for partition in topic.partitions]
        chosen = set(wanted.assign) or set(there)
        return sorted(chosen & set(there)), {topic.name: topic.topic_id for topic in found if topic.topic_id}

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
