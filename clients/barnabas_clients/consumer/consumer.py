"""`Consumer`: reads topics, alone or as a member of a group.

```python
async with Consumer("localhost:9092", topics=["orders"], group_id="billing") as consumer:
    async for record in consumer:
        print(record.topic, record.partition, record.offset, record.value)
```

docs/consumer.md is the guide: what is committed when, and how to get at-most-once, at-least-once and exactly-once. In
short: **what you were handed is yours until you ask for more.** Asking (the next turn of a `for`, the next
`get_many`) says that you have finished with what you held. Only then is it committed for you, and only then may its
partition go to another member.

Behind this class: `core.py` puts the parts together, `reader.py` hands records out, `fetcher.py` fetches them ahead,
`membership.py` and `groups/session.py` keep the membership, `decoder.py` makes records out of bytes. The class itself
holds no protocol: it checks and delegates.

*Deadlines.* Every call takes or inherits one (`timeout_s`) and raises `DeadlineExceededError` at it. Asking for records
has none of its own, for a topic may be quiet; but when no partition could be read for `timeout_s` it raises too.

*Cancellation* is safe everywhere. Asking for records, cancelled, has taken none. A commit that was cancelled may have
been stored.

*One task at a time* asks for records. The other methods may be called beside it, also from callbacks.

Limits: `buffer_bytes` of fetched and unread records; two fetches in flight to each broker.

Not here: transactions (KIP-447), the server-side group protocol (KIP-848), rack-aware assignment.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Self

from barnabas_clients.admin.offsets import ListedOffset, list_offsets
from barnabas_clients.arguments import callable_of, names, seconds, shown, whole_number
from barnabas_clients.assignors import Assignor
from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.place_arguments import offsets_of, partitions_of, timestamps_of
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .core import ConsumerCore
from .decoder import CorruptRecordsError
from .fetch_plan import FetchSettings
from .membership import Callbacks, Notify
from .record import ConsumerRecord, RecordBatch
from .settings import EARLIEST, LATEST, ConsumerSettings, assignors_of
from .subscription import NOTHING, Subscription

__all__ = ["Consumer", "ConsumerMetrics"]

Callback = Callable[["Consumer", frozenset[TopicPartition]], Awaitable[None] | None]


class ConsumerMetrics(NamedTuple):
    """What a consumer has done since it was made, and what it holds now."""

    assigned_partitions: int
    fetches: int
    fetched_bytes: int
    refusals: int
    buffered_bytes: int


class Consumer:
    """Reads records. Use it as `async with`, from one event loop; `close` ends everything it started.

    Names and meanings are Kafka's where Kafka has the setting; times are in seconds.

    Args:
        bootstrap: `host:port`, several separated by commas or as a sequence.
        topics: what to read. In a group the partitions are shared among its members; without a group all are read.
        pattern: in place of topics, a regular expression that whole names match; new topics are found
            within `metadata_max_age_s`.
        group_id: the group to be a member of.
        group_instance_id: makes the membership static (KIP-345): a restart within `session_timeout_s` keeps
            the partitions and disturbs nobody.
        client_id: tells brokers and their operators who asks.
        auto_offset_reset: where to begin when nothing is committed, or what is does not exist any more; "none"
            raises.
        auto_commit: whether finished offsets are committed every `auto_commit_interval_s`, and when partitions
            leave or the consumer closes.
        auto_commit_interval_s: more than 0.
        assignors: how a group's leader divides partitions, best first; all members must have one in common.
        session_timeout_s: a member that is silent for so long is out. Brokers have limits, 6 s to 30 min.
        heartbeat_interval_s: below a third of `session_timeout_s`.
        max_poll_interval_s: a member that does not ask for records for so long gives its partitions up.
        read_committed: leave out records of transactions that were aborted, and wait for open ones.
        fetch_max_wait_s: how long a broker may wait for `fetch_min_bytes` to be there.
        fetch_min_bytes: 1 for the least delay.
        fetch_max_bytes: of one request; a single larger batch still comes.
        partition_fetch_bytes: of one partition in a request, and about as much is kept ready ahead.
        buffer_bytes: of everything fetched and not handed out.
        client_rack: the rack this client runs in, told to the brokers (KIP-392).
        on_assigned: called with this consumer and the partitions that came, and awaited if there is something to
            await; may seek.
        on_revoked: called with those that go, while they are still owned; may commit.
        on_lost: called with those that are owned by somebody else already; default: `on_revoked`.
        metadata_max_age_s: how old the knowledge about topics may grow.
        request_timeout_s: when a broker that does not answer is given up.
        timeout_s: the deadline of calls that are not given another.

    Raises:
        TypeError, ValueError: a setting is impossible; the message names it.
    """

    def __init__(  # noqa: PLR0913 - what can be told to a consumer, by name, is told in one place
        self,
        bootstrap: str | Sequence[str],
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        client_id: str = "barnabas-consumer",
        auto_offset_reset: Literal["latest", "earliest", "none"] = "latest",
        auto_commit: bool = True,
        auto_commit_interval_s: float = 5.0,
        assignors: Sequence[str | Assignor] = ("range", "cooperative-sticky"),
        session_timeout_s: float = 45.0,
        heartbeat_interval_s: float = 3.0,
        max_poll_interval_s: float = 300.0,
        read_committed: bool = False,
        fetch_max_wait_s: float = 0.5,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 4 << 20,
        partition_fetch_bytes: int = 1 << 20,
        buffer_bytes: int = 32 << 20,
        client_rack: str = "",
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        metadata_max_age_s: float = 300.0,
        request_timeout_s: float = 30.0,
        timeout_s: float = 30.0,
    ) -> None:
        settings = ConsumerSettings(
            group_id=group_id,
            group_instance_id=group_instance_id,
            auto_offset_reset=auto_offset_reset,
            auto_commit=auto_commit,
            auto_commit_interval_s=auto_commit_interval_s,
            assignors=assignors_of(assignors),
            session_timeout_s=session_timeout_s,
            heartbeat_interval_s=heartbeat_interval_s,
            max_poll_interval_s=max_poll_interval_s,
            metadata_max_age_s=metadata_max_age_s,
            request_timeout_s=request_timeout_s,
            timeout_s=timeout_s,
            fetch=FetchSettings(
                max_wait_s=fetch_max_wait_s,
                min_bytes=fetch_min_bytes,
                max_bytes=fetch_max_bytes,
                partition_bytes=partition_fetch_bytes,
                buffer_bytes=buffer_bytes,
                read_committed=read_committed,
                rack=client_rack,
            ),
        )
        callbacks = self._callbacks(on_assigned, on_revoked, on_lost)
        self._core = ConsumerCore(bootstrap, client_id, settings, callbacks)
        given = names("topics", topics)
        self._first = Subscription.to_topics(given, pattern) if given or pattern is not None else NOTHING
        self._reader = self._core.reader

    def _callbacks(
        self, on_assigned: Callback | None, on_revoked: Callback | None, on_lost: Callback | None
    ) -> Callbacks:
        return Callbacks(
            on_assigned=self._bound("on_assigned", on_assigned),
            on_revoked=self._bound("on_revoked", on_revoked),
            on_lost=self._bound("on_lost", on_lost),
        )

    def _bound(self, name: str, callback: Callback | None) -> Notify | None:
        if callback is None:
            return None
        given = callable_of(name, callback)

        async def notify(partitions: frozenset[TopicPartition]) -> None:
            said = given(self, partitions)
            if inspect.isawaitable(said):
                await said

        return notify

    async def __aenter__(self) -> Self:
        """Connect, and subscribe to what was given; does not wait for an assignment.

        Raises:
            DeadlineExceededError: no broker answered within `timeout_s`. RuntimeError: it was opened before.
        """
        await self._core.open(self._first)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """Close. Without an exception you have finished with all you were handed; with one, not with what you held."""
        if kind is None:
            self._reader.finish()
        await self.close()

    # Records.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record, waiting for it as long as the brokers can be read from.

        Raises:
            CorruptRecordsError, NoOffsetError, LogTruncatedError, KafkaError: what stands next cannot be read; `skip`
                the first, `seek` elsewhere, and go on.
            DeadlineExceededError: no partition could be read for `timeout_s`.
            ClientClosedError: the consumer is closed.
            ValueError: there is nothing to read: neither topics, nor a pattern, nor partitions were ever named.

        Cancellation: no record is taken.
        """
        for record in self._reader.records:
            return record
        self._core.check_open()
        return await self._reader.next_record()

    async def get_many(
        self, max_records: int = 500, timeout_s: float = 1.0
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `max_records` records by partition; waits for the first of them, at most `timeout_s`.

        Empty when nothing came in time. Raises and is cancelled as `__anext__`. What was taken before something that
        cannot be read is returned; the error is raised by the next call, and records of other partitions come between.
        """
        max_records = whole_number("max_records", max_records, 1)
        limit_s = seconds("timeout_s", timeout_s)
        self._core.check_open()
        reader = self._reader
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        taken = await reader.ask(max_records, self._core.now() + limit_s)
        while taken is not None:
            reader.hand_out(taken)
            found.setdefault(taken.queue.partition, []).extend(taken.records)
            max_records -= len(taken.records)
            taken = reader.take_more(max_records) if max_records else None
        return found

    def batches(self, max_records: int = 500) -> "Batches":
        """Iterate over batches: consecutive records of one partition, at most `max_records` of them."""
        return Batches(self._core, whole_number("max_records", max_records, 1))

    # What is read.

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return frozenset(self._core.fetcher.queues)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; with a pattern, those that match it as far as is known."""
        return self._core.subscription.topics_in(self._core.cluster.view)

    async def subscribe(
        self, topics: Iterable[str] = (), *, pattern: str | None = None, timeout_s: float | None = None
    ) -> None:
        """Read these topics, in place of what was read before. Does not wait for an assignment.

        Raises:
            DeadlineExceededError: no metadata in time.

        Cancellation: the old subscription, or the new one, stands.
        """
        subscription = Subscription.to_topics(topics, pattern)
        limit_s = self._core.limit(timeout_s)
        self._core.check_open()
        await self._core.subscribe(subscription, limit_s)

    async def unsubscribe(self, *, timeout_s: float | None = None) -> None:
        """Read nothing any more, and leave the group; what was finished with is committed before."""
        limit_s = self._core.limit(timeout_s)
        self._core.check_open()
        self._reader.finish()
        await self._core.unsubscribe(limit_s)

    async def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, sharing nothing with anybody; those read already keep their place.

        With a `group_id` reading begins at the group's committed offsets, else as `auto_offset_reset` says. What was
        finished with of partitions that are left is committed before, if `auto_commit`, which may take 10 s.

        Raises:
            ValueError: the consumer is subscribed to topics; unsubscribe first.
        """
        wanted = frozenset(partitions_of("partitions", partitions))
        self._core.check_open()
        if self._core.subscription.is_by_topic:
            raise ValueError("the consumer is subscribed to topics; unsubscribe before assigning partitions")
        await self._core.assign(wanted)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand nothing of these partitions out until `resume`. Membership and position stay."""
        queues = [self._core.queue(partition) for partition in partitions]
        self._reader.withdraw()
        for queue in queues:
            queue.is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with partitions that were paused."""
        for queue in [self._core.queue(partition) for partition in partitions]:
            queue.is_paused = False
            self._core.fetcher.make_ready(queue)
        self._core.fetcher.pump()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(queue.partition for queue in self._core.fetcher.queues.values() if queue.is_paused)

    # Positions. "Without names" means: of every partition read.

    async def position(self, partition: TopicPartition, *, timeout_s: float | None = None) -> int:
        """Return the offset of the next record to be handed out, waiting until it is known.

        Raises:
            NotAssignedError: the partition is not read. NoOffsetError: there is no position.
            DeadlineExceededError: it could not be found out in time; says why.
        """
        return await self._position(partition, self._core.limit(timeout_s))

    async def _position(self, partition: TopicPartition, limit_s: float) -> int:
        deadline = self._core.now() + limit_s
        while True:
            self._core.check_open()
            queue = self._core.queue(partition)
            self._reader.settle()
            if queue.position >= 0:
                return queue.position
            if queue.failure is not None:
                raise queue.failure.with_traceback(None)
            if self._core.now() >= deadline:
                raise DeadlineExceededError(f"no position of {partition} within {limit_s:g} s: {queue.reason}")
            await self._reader.wait_news(deadline)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`; a commit from now on says so too. Never waits.

        Raises:
            NotAssignedError: the partition is not read. ValueError: the offset is negative.
        """
        offset = whole_number("offset", offset, 0)
        queue = self._core.queue(partition)
        self._reader.forget(queue)
        queue.begin_at(offset)
        self._reader.wake()
        self._core.fetcher.pump()

    async def skip(self, error: CorruptRecordsError) -> None:
        """Go on behind a batch that cannot be read, of which nobody is handed anything then. Never waits.

        As a seek to `error.next_offset`: a commit from now on says that you have finished with the batch.

        Raises:
            NotAssignedError: the partition is not read any more. TypeError: it is another error.
        """
        if not isinstance(error, CorruptRecordsError):
            raise TypeError(f"error is {shown(error)}; it must be a CorruptRecordsError")
        await self.seek(error.partition, error.next_offset)

    async def seek_to_time(
        self, timestamp_ms: int, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> None:
        """Go to the first record at or after `timestamp_ms`, or the end; without names, in every partition read."""
        timestamp_ms = whole_number("timestamp_ms", timestamp_ms, 0)
        limit_s = self._core.limit(timeout_s)
        chosen = self._chosen(partitions)
        deadline = self._core.now() + limit_s
        found = await self._list(dict.fromkeys(chosen, timestamp_ms), limit_s)
        late = [partition for partition in chosen if found[partition].offset < 0]
        ends = await self._list(dict.fromkeys(late, LATEST), self._left_s(deadline))
        await self._seek_all({**found, **ends})

    async def seek_to_beginning(self, *partitions: TopicPartition, timeout_s: float | None = None) -> None:
        """Go to the first record that is there; without names, in every partition read."""
        await self._seek_to(EARLIEST, partitions, timeout_s)

    async def seek_to_end(self, *partitions: TopicPartition, timeout_s: float | None = None) -> None:
        """Go behind the last record that can be read now; without names, in every partition read."""
        await self._seek_to(LATEST, partitions, timeout_s)

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the log of each partition starts, whether it is read by this consumer or not."""
        return await self._ends(EARLIEST, partitions, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last record that can be read of each partition."""
        return await self._ends(LATEST, partitions, timeout_s)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return the first record at or after a time in each partition; None where all are older."""
        wanted = timestamps_of("timestamps_ms", timestamps_ms, low=0)
        limit_s = self._core.limit(timeout_s)
        found = await self._list(wanted, limit_s)
        return {partition: place if place.offset >= 0 else None for partition, place in found.items()}

    async def lag(self, *, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Return how far the position of each partition read is from its end, counted in offsets.

        Offsets of markers and of compacted records count too. A partition that leaves meanwhile is left out.

        Raises:
            NoOffsetError: a partition has no position. DeadlineExceededError: not everything was told in time.
        """
        deadline = self._core.deadline(timeout_s)
        self._core.check_open()
        positions = {}
        for partition in sorted(self._core.fetcher.queues):
            if partition in self._core.fetcher.queues:
                positions[partition] = await self._position(partition, self._left_s(deadline))
        ends = await self._ends(LATEST, list(positions), self._left_s(deadline))
        return {
            partition: max(0, ends[partition] - position)
            for partition, position in positions.items()
            if partition in self._core.fetcher.queues
        }

    # Commits.

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Store offsets in the group: those given, or those behind everything that you were handed.

        With this you say that you have finished with what lies before them.

        Raises:
            CommitFailedError: the partitions, or the membership, are another's now; nothing was stored.
            DeadlineExceededError: no answer in time; it may be stored, now or later.
            ValueError: the consumer has no group.

        Cancellation: the same as a deadline.
        """
        limit_s = self._core.limit(timeout_s)
        given = None if offsets is None else offsets_of("offsets", offsets)
        self._core.check_open()
        await self._core.commit_given(self._reader.handed_offsets() if given is None else given, limit_s)

    async def committed(
        self, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has stored; without names, for every partition read. Those without are left out."""
        limit_s = self._core.limit(timeout_s)
        chosen = partitions_of("partitions", partitions)
        self._core.check_open()
        return await self._core.committed(chosen or self.assignment, limit_s)

    # Ending.

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit what was finished with (if `auto_commit`), leave the group, and close every connection.

        Ends within `timeout_s` whatever the network does; what could not be done by then is logged. A second call
        waits for the first.

        Cancellation: the rest is cut short, and nothing is left behind.
        """
        await self._core.close(self._core.limit(timeout_s))

    def metrics(self) -> ConsumerMetrics:
        """Return counters; cheap enough to be asked for every second."""
        fetcher = self._core.fetcher
        return ConsumerMetrics(
            assigned_partitions=len(fetcher.queues),
            fetches=fetcher.counts.fetches,
            fetched_bytes=fetcher.counts.fetched_bytes,
            refusals=fetcher.counts.refusals,
            buffered_bytes=fetcher.buffered_bytes,
        )

    # Inside.

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions named, all of them if none is, and see that they are read."""
        named = partitions_of("partitions", partitions)
        self._core.check_open()
        chosen = sorted(named) or sorted(self._core.fetcher.queues)
        for partition in chosen:
            self._core.queue(partition)
        return chosen

    async def _seek_to(self, end: int, partitions: Iterable[TopicPartition], timeout_s: float | None) -> None:
        limit_s = self._core.limit(timeout_s)
        await self._seek_all(await self._list(dict.fromkeys(self._chosen(partitions), end), limit_s))

    async def _seek_all(self, found: Mapping[TopicPartition, ListedOffset]) -> None:
        for partition, place in found.items():
            await self.seek(partition, place.offset)

    async def _ends(
        self, end: int, partitions: Iterable[TopicPartition], timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        named = partitions_of("partitions", partitions)
        limit_s = self._core.limit(timeout_s)
        self._core.check_open()
        found = await self._list(dict.fromkeys(named, end), limit_s)
        return {partition: place.offset for partition, place in found.items()}

    def _left_s(self, deadline: float) -> float:
        return max(0.0, deadline - self._core.now())

    async def _list(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, ListedOffset]:
        if not wanted:
            return {}
        read_committed = self._core.settings.fetch.read_committed
        return await list_offsets(self._core.cluster, wanted, timeout_s, read_committed=read_committed)


class Batches:
    """Iterates over a consumer's batches, as `Consumer.batches` says."""

    def __init__(self, core: ConsumerCore, max_records: int) -> None:
        self._core = core
        self._max_records = max_records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RecordBatch:
        """Return the next batch. Raises and is cancelled as `Consumer.__anext__`."""
        self._core.check_open()
        taken = await self._core.reader.ask(self._max_records, None)
        assert taken is not None
        self._core.reader.hand_out(taken)
        return RecordBatch(taken.queue.partition, taken.records, taken.next_offset)
