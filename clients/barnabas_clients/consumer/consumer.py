"""The asyncio consumer: reads topics, alone or as a member of a group.

```python
async with Consumer("localhost:9092", topics=["orders"], group_id="billing") as consumer:
    async for record in consumer:
        print(record.topic, record.partition, record.offset, record.value)
```

docs/consumer.md is the guide: it says what is committed when, and how to get at-most-once, at-least-once and
exactly-once. In short: **records that you were handed are yours until you ask for more.** Asking (the next turn of a
`for`, the next `get_many`) says that you have finished with the records that you held. Only then are they committed for
you, and only then may their partition go to another member.

Behind this class: `core.py` puts the parts together, `reader.py` hands records out, `fetcher.py` fetches them ahead,
`membership.py` and `groups/session.py` keep the membership, `decoder.py` makes records out of bytes. The class itself
holds no protocol: it checks and delegates.

*Deadlines.* Every call takes or inherits one (`timeout_s`) and raises `DeadlineExceededError` at it. Asking for records
has none of its own, because a topic may be quiet. But it also raises if no partition could be read for `timeout_s`.

*Cancellation* is safe everywhere. A cancelled call for records has taken none. A cancelled commit may have been stored.

*One task at a time* asks for records. The other methods may be called beside it, also from callbacks.

Limits: `buffer_bytes` of fetched and unread records; two fetches in flight to each broker.

What reads (connections, messages, decoders, the membership) is loaded with the first consumer that is made, not with
this module: a program that imports the class, or one of the errors, starts 15 ms sooner.

Not here: rack-aware assignment in classic groups.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self, overload

from barnabas_clients.admin.values import ListedOffset, OffsetSpec
from barnabas_clients.arguments import callable_of, names, seconds, shown, topic_name, whole_number
from barnabas_clients.assignors.assignor import Assignor
from barnabas_clients.errors import DeadlineExceededError, copy_of
from barnabas_clients.groups.offsets_to_send import GroupOffsets
from barnabas_clients.place_arguments import offsets_of, partitions_of, timestamps_of
from barnabas_clients.protocol.errors import ErrorCode, error_for
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .errors import CorruptRecordsError
from .metrics import ConsumerMetrics
from .record import HEADERS_AT_ONCE, ConsumerRecord, RecordBatch

if TYPE_CHECKING:
    from .core import ConsumerCore
    from .membership import Callbacks, Notify
    from .settings import ConsumerSettings
    from .subscription import Subscription

__all__ = ["Consumer", "ConsumerMetrics"]

Callback = Callable[["Consumer", frozenset[TopicPartition]], Awaitable[None] | None]


class Consumer:
    """Reads records. Use it as `async with`, or between `start` and `stop`, from one event loop.

    Names and meanings are Kafka's where Kafka has the setting; times are in seconds.

    Args:
        bootstrap: `host:port`, several separated by commas or as a sequence.
        topics: the topics to read. A group shares their partitions among its members; without a group all are read.
        pattern: in place of topics, a regular expression for whole names. New topics are found within
            `metadata_max_age_s`.
        server_pattern: in place of both, one that the group's coordinator matches, in the syntax of RE2; needs
            `group_protocol="consumer"`.
        group_id: the group to be a member of.
        group_instance_id: makes the membership static (KIP-345): a restart within `session_timeout_s` keeps
            the partitions and disturbs nobody.
        group_protocol: "classic", or "consumer" for a group whose coordinator divides the partitions (KIP-848). All
            members should have the same.
        group_remote_assignor: with "consumer", the coordinator's assignor that this member wants: "uniform" or "range".
        client_id: how brokers' logs and quotas name this client.
        auto_offset_reset: where to begin if nothing is committed, or if the committed offset does not exist any more;
            "none" raises.
        auto_commit: whether finished offsets are committed: every `auto_commit_interval_s`, when partitions leave, and
            when the consumer closes.
        auto_commit_interval_s: more than 0.
        assignors: how a classic group's leader divides the partitions, best first. All members must have one in common.
        session_timeout_s: a member that is silent for so long is out. Brokers have limits: 6 s to 30 min. Only in
            classic groups, as the next one.
        heartbeat_interval_s: below a third of `session_timeout_s`.
        max_poll_interval_s: a member that does not ask for records for so long gives its partitions up.
        read_committed: leave out the records of aborted transactions, and wait for open ones.
        fetch_max_wait_s: how long a broker may wait until it has `fetch_min_bytes`.
        fetch_min_bytes: 1 for the least delay.
        fetch_max_bytes: the most that one request brings; a single larger batch still comes.
        partition_fetch_bytes: the most of one partition in a request, and about as much is kept ready ahead.
        buffer_bytes: for everything that is fetched and not handed out.
        client_rack: the rack this client runs in, told to the brokers (KIP-392).
        on_assigned: called with this consumer and the partitions that came, and awaited if it is asynchronous. It may
            seek.
        on_revoked: called with the partitions that go, while they are still owned. It may commit.
        on_lost: called with partitions that another member owns already; default: `on_revoked`.
        metadata_max_age_s: how old the metadata of topics may grow.
        request_timeout_s: when a broker that does not answer is given up.
        timeout_s: the deadline of calls that name none.
        outage_timeout_s: how long nothing at all may be readable until asking for records raises. None is `timeout_s`;
            with `math.inf` it never does, and the log tells of the trouble instead.

    Raises:
        TypeError, ValueError: a setting is impossible; the message names it.
    """

    def __init__(  # noqa: PLR0913 - Kafka's settings
        self,
        bootstrap: str | Sequence[str],
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        server_pattern: str | None = None,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        group_protocol: Literal["classic", "consumer"] = "classic",
        group_remote_assignor: str | None = None,
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
        outage_timeout_s: float | None = None,
    ) -> None:
        from .settings import ConsumerSettings, FetchSettings, assignors_of  # noqa: PLC0415 - see the docstring above

        fetching = (fetch_max_wait_s, fetch_min_bytes, fetch_max_bytes, partition_fetch_bytes, buffer_bytes)
        settings = ConsumerSettings(
            group_id=group_id,
            group_instance_id=group_instance_id,
            group_protocol=group_protocol,
            group_remote_assignor=group_remote_assignor,
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
            outage_timeout_s=outage_timeout_s,
            fetch=FetchSettings(*fetching, read_committed, client_rack),
        )
        self._core = self._core_of(bootstrap, client_id, settings, on_assigned, on_revoked, on_lost)
        self._first = self._subscription(names("topics", topics), pattern, server_pattern)
        self._reader = self._core.reader

    def _core_of(
        self, bootstrap: str | Sequence[str], client_id: str, settings: ConsumerSettings, *callbacks: Callback | None
    ) -> ConsumerCore:
        from .core import ConsumerCore  # noqa: PLC0415 - see the docstring of the module

        return ConsumerCore(bootstrap, client_id, settings, self._callbacks(*callbacks))

    def _subscription(self, topics: Sequence[str], pattern: str | None, server_pattern: str | None) -> Subscription:
        from .subscription import NOTHING, Subscription  # noqa: PLC0415 - see the docstring of the module

        is_something = topics or pattern is not None or server_pattern is not None
        found = Subscription.to_topics(topics, pattern, server_pattern) if is_something else NOTHING
        self._core.check_pattern(found)
        return found

    def _callbacks(
        self, on_assigned: Callback | None, on_revoked: Callback | None, on_lost: Callback | None
    ) -> Callbacks:
        from .membership import Callbacks  # noqa: PLC0415 - see the docstring of the module

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
        """Connect, and subscribe to the topics or the pattern given. Does not wait for an assignment.

        Raises:
            DeadlineExceededError: no broker answered within `timeout_s`. RuntimeError: it was opened before.
            ClientClosedError: it is closed.
        """
        await self._core.open(self._first)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """Close. You have finished with all records handed out; after an exception, not with those you still held."""
        if kind is None:
            self._reader.finish()
        await self.close()

    async def start(self) -> Self:
        """Open, as the beginning of `async with` does, and return this consumer. `stop` must be called in the end."""
        return await self.__aenter__()

    async def stop(self, timeout_s: float | None = None) -> None:
        """Close; the same as `close`. Harmless before `start`, and a second time.

        Records that you hold count as unfinished, as after an exception in an `async with`: another task may be at work
        on them. `commit` first to say that they are done.
        """
        await self.close(timeout_s)

    # Records.

    @property
    def trouble(self) -> str:
        """Why nothing comes, in one line for people: nobody answers, or what is waited for; "" if all is well.

        That there is nothing to read is no trouble.
        """
        return self._core.trouble

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; waits for it as long as the brokers can be read from.

        Raises:
            CorruptRecordsError, NoOffsetError, LogTruncatedError, KafkaError: the next record cannot be read. `skip`
                the first, `seek` elsewhere after the others, and go on.
            DeadlineExceededError: no partition could be read for `timeout_s`.
            ClientClosedError: the consumer is closed.
            ValueError: there is nothing to read: no topics, no pattern and no partitions were named.

        Cancellation: no record is taken.
        """
        for record in self._reader.records:
            return record
        self._core.check_open()
        found = await self._reader.next_record()
        assert found is not None, "without a deadline it waits"
        return found

    @overload
    async def getone(self) -> ConsumerRecord: ...
    @overload
    async def getone(self, timeout_s: float | None) -> ConsumerRecord | None: ...
    async def getone(self, timeout_s: float | None = None) -> ConsumerRecord | None:
        """Return the next record; None if none came within `timeout_s`. Without `timeout_s` it waits, as `async for`.

        Calling it says that you have finished with the record before. Raises and is cancelled as `__anext__`: a call
        that was cancelled has taken no record, so `asyncio.timeout` around it loses none.
        """
        limit_s = None if timeout_s is None else seconds("timeout_s", timeout_s)
        self._core.check_open()
        for record in self._reader.records:
            return record
        return await self._reader.next_record(None if limit_s is None else self._core.now() + limit_s)

    async def get_many(
        self, max_records: int = 500, timeout_s: float = 1.0
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `max_records` records by partition; waits for the first of them, at most `timeout_s`.

        Empty if nothing came in time. Raises and is cancelled as `__anext__`. If records were taken before one that
        cannot be read, they are returned, and a later call raises the error. Records of other partitions come between.
        Records with 100,000 headers or more end an answer early, since they take much memory.
        """
        max_records = whole_number("max_records", max_records, 1)
        limit_s = seconds("timeout_s", timeout_s)
        self._core.check_open()
        reader = self._reader
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        headers = 0
        taken = await reader.ask(max_records, self._core.now() + limit_s)
        while taken is not None:
            reader.hand_out(taken)
            found.setdefault(taken.queue.partition, []).extend(taken.records)
            max_records -= len(taken.records)
            headers += taken.queue.headers_taken
            taken = reader.take_more(max_records) if max_records and headers < HEADERS_AT_ONCE else None
        return found

    def batches(self, max_records: int = 500) -> Batches:
        """Iterate over batches: consecutive records of one partition, at most `max_records` of them."""
        return Batches(self._core, whole_number("max_records", max_records, 1))

    # Topics and partitions.

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return frozenset(self._core.fetcher.queues)

    async def partitions_for_topic(self, topic: str, *, timeout_s: float | None = None) -> frozenset[int]:
        """Return the numbers of a topic's partitions, as far as is known. Brokers are asked about an unknown topic.

        Raises:
            UnknownTopicOrPartitionError, KafkaError: there is no such topic, or it is refused.
            DeadlineExceededError: no broker answered in time.
        """
        name = topic_name("topic", topic)
        limit_s = self._core.limit(timeout_s)
        self._core.check_open()
        cluster = self._core.cluster
        if name not in cluster.view.topics:
            await cluster.refresh((name,), timeout_s=limit_s)
        view = cluster.view
        if name not in view.topics:
            raise error_for(view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)
        return frozenset(view.topics[name].partitions)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the last record that can be read, as of the last fetch; None before the first.

        No broker is asked; `end_offsets` does that.

        Raises:
            NotAssignedError: the partition is not read.
        """
        known = self._core.queue(partition).high_watermark
        return known if known >= 0 else None

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; with a pattern, the known topics that match it.

        With a server's pattern, the topics of the partitions that are read.
        """
        if self._core.subscription.server_pattern is not None:
            return frozenset(partition.topic for partition in self._core.fetcher.queues)
        return self._core.subscription.topics_in(self._core.cluster.view)

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        server_pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Read these topics, in place of those read before. Does not wait for an assignment.

        Raises:
            DeadlineExceededError: no metadata in time. ValueError: not just one of the three is given, or
                `server_pattern` without `group_protocol="consumer"`.

        Cancellation: either the old subscription or the new one stands.
        """
        from .subscription import Subscription  # noqa: PLC0415 - see the docstring of the module

        subscription = Subscription.to_topics(topics, pattern, server_pattern)
        limit_s = self._core.limit(timeout_s)
        self._core.check_open()
        await self._core.subscribe(subscription, limit_s)

    async def unsubscribe(self, *, timeout_s: float | None = None) -> None:
        """Read nothing any more, and leave the group. Finished offsets are committed before."""
        limit_s = self._core.limit(timeout_s)
        self._core.check_open()
        self._reader.finish()
        await self._core.unsubscribe(limit_s)

    async def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, and share them with nobody. Partitions that are read already keep their place.

        With a `group_id` reading begins at the group's committed offsets, otherwise as `auto_offset_reset` says. With
        `auto_commit`, the finished offsets of partitions that are left are committed before, which may take 10 s.

        Raises:
            ValueError: the consumer is subscribed to topics; unsubscribe first.
        """
        wanted = frozenset(partitions_of("partitions", partitions))
        self._core.check_open()
        if self._core.subscription.is_by_topic:
            raise ValueError("the consumer is subscribed to topics; unsubscribe before assigning partitions")
        await self._core.assign(wanted)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until `resume`. Membership and position stay."""
        self._core.check_open(or_closing=True)
        queues = [self._core.queue(partition) for partition in partitions]
        self._reader.withdraw()
        for queue in queues:
            queue.is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with partitions that were paused."""
        self._core.check_open(or_closing=True)
        for queue in [self._core.queue(partition) for partition in partitions]:
            queue.is_paused = False
            self._core.fetcher.make_ready(queue)
        self._core.fetcher.pump()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(queue.partition for queue in self._core.fetcher.queues.values() if queue.is_paused)

    # Positions. "Without names" means every partition that is read.

    async def position(self, partition: TopicPartition, *, timeout_s: float | None = None) -> int:
        """Return the offset of the next record to be handed out, waiting until it is known.

        Raises:
            NotAssignedError: the partition is not read. NoOffsetError: there is no position.
            DeadlineExceededError: it could not be found in time; says why.
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
                raise copy_of(queue.failure)
            if self._core.now() >= deadline:
                raise DeadlineExceededError(f"no position of {partition} within {limit_s:g} s: {queue.reason}")
            await self._reader.wait_news(deadline)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. A commit from now on stores it too. Never waits.

        Raises:
            NotAssignedError: the partition is not read. ValueError: the offset is negative.
        """
        offset = whole_number("offset", offset, 0)
        self._core.check_open(or_closing=True)
        queue = self._core.queue(partition)
        self._reader.forget(queue)
        queue.begin_at(offset)
        self._reader.wake()
        self._core.fetcher.pump()

    async def skip(self, error: CorruptRecordsError) -> None:
        """Go on behind a batch that cannot be read; none of its records is handed out. Never waits.

        It is a seek to `error.next_offset`: a commit from now on says that you have finished with the batch.

        Raises:
            NotAssignedError: the partition is not read any more. TypeError: it is another error.
        """
        if not isinstance(error, CorruptRecordsError):
            raise TypeError(f"error is {shown(error)}; it must be a CorruptRecordsError")
        await self.seek(error.partition, error.next_offset)

    async def seek_to_time(
        self, timestamp_ms: int, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> None:
        """Go to the first record at or after `timestamp_ms`, or to the end. Without names, in every partition read."""
        timestamp_ms = whole_number("timestamp_ms", timestamp_ms, 0)
        limit_s = self._core.limit(timeout_s)
        chosen = self._chosen(partitions)
        deadline = self._core.now() + limit_s
        found = await self._list(dict.fromkeys(chosen, timestamp_ms), limit_s)
        late = [partition for partition in chosen if found[partition].offset < 0]
        ends = await self._list(dict.fromkeys(late, OffsetSpec.LATEST), self._left_s(deadline))
        await self._seek_all({**found, **ends})

    async def seek_to_beginning(self, *partitions: TopicPartition, timeout_s: float | None = None) -> None:
        """Go to the first record of the log. Without names, in every partition read."""
        await self._seek_to(OffsetSpec.EARLIEST, partitions, timeout_s)

    async def seek_to_end(self, *partitions: TopicPartition, timeout_s: float | None = None) -> None:
        """Go behind the last record that can be read now. Without names, in every partition read."""
        await self._seek_to(OffsetSpec.LATEST, partitions, timeout_s)

    async def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Go back to the group's stored positions, or where `auto_offset_reset` says. Without names, in all partitions.

        So what was read since the last commit is read again, as it must be after a transaction that was aborted. Never
        waits: the positions are looked up as after an assignment.
        """
        self._core.go_back(self._chosen(partitions))

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the start of each partition's log. The consumer need not read these partitions."""
        return await self._ends(OffsetSpec.EARLIEST, partitions, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last record that can be read, for each partition."""
        return await self._ends(OffsetSpec.LATEST, partitions, timeout_s)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return the place of the first record at or after a time, for each partition; None if all are older."""
        wanted = timestamps_of("timestamps_ms", timestamps_ms, low=0)
        limit_s = self._core.limit(timeout_s)
        found = await self._list(wanted, limit_s)
        return {partition: place if place.offset >= 0 else None for partition, place in found.items()}

    async def lag(self, *, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Return the distance from the position to the end of each partition read, in offsets.

        Offsets of markers and of compacted records count too. A partition that leaves meanwhile is left out.

        Raises:
            NoOffsetError: a partition has no position. DeadlineExceededError: not everything was answered in time.
        """
        deadline = self._core.deadline(timeout_s)
        self._core.check_open()
        positions = {}
        for partition in sorted(self._core.fetcher.queues):
            if partition in self._core.fetcher.queues:
                positions[partition] = await self._position(partition, self._left_s(deadline))
        ends = await self._ends(OffsetSpec.LATEST, list(positions), self._left_s(deadline))
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
        """Store offsets in the group: those given, or those behind all records that you were handed.

        With this you say that you have finished with the records before them.

        Raises:
            CommitFailedError: another member has the partitions, or the membership is lost; nothing was stored.
            DeadlineExceededError: no answer in time; it may be stored, now or later.
            ValueError: the consumer has no group.

        Cancellation: the same as a deadline.
        """
        limit_s = self._core.limit(timeout_s)
        given = None if offsets is None else offsets_of("offsets", offsets)
        self._core.check_open(or_closing=True)
        await self._core.commit_given(self._reader.handed_offsets() if given is None else given, limit_s)

    async def committed(
        self, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's stored positions. Without names, of every partition read. Others are left out."""
        limit_s = self._core.limit(timeout_s)
        chosen = partitions_of("partitions", partitions)
        self._core.check_open(or_closing=True)
        return await self._core.committed(chosen or self.assignment, limit_s)

    def offsets_to_send(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> GroupOffsets:
        """Return what a transaction of a producer stores for this consumer; `Transaction.send_offsets` calls it.

        That is the offsets given, or those behind all records that you were handed, in the name of this member.

        Raises:
            ValueError: the consumer has no group, or `auto_commit` would store them outside of the transaction.
            CommitFailedError: it is not a member of its group at the moment.
        """
        given = None if offsets is None else offsets_of("offsets", offsets)
        self._core.check_open(or_closing=True)
        return self._core.to_send(self._reader.handed_offsets() if given is None else given)

    # Ending.

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit finished offsets (with `auto_commit`), leave the group, and close every connection.

        Ends within `timeout_s` whatever the network does, and logs what it could not do. A second call waits for the
        first.

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
            records=self._reader.records_handed,
            polls=self._reader.polls,
            lag=self._core.known_lag(),
            rebalances=self._core.rebalances,
            commits=self._core.commits,
            commit_failures=self._core.commit_failures,
            fetch_latency_s=fetcher.counts.latency_s,
        )

    # Inside.

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions named, or all if none is named. Raises if one of them is not read."""
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
        from barnabas_clients.admin.offsets import list_offsets  # noqa: PLC0415 - see the docstring of the module

        if not wanted:
            return {}
        read_committed = self._core.settings.fetch.read_committed
        return await list_offsets(self._core.cluster, wanted, timeout_s, read_committed=read_committed)


class Batches:
    """Iterates over the batches of a consumer; `Consumer.batches` makes one."""

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
