"""The asyncio producer: records in, deliveries out.

    async with Producer("localhost:9092") as producer:
        delivery = await producer.send("orders", b"one coffee", key=b"table 4")
        receipt = await delivery                    # or: await producer.send_and_wait(...)

`send` puts the record into a batch and returns; batches leave when they are full or `linger_s` old, several partitions
in one request, several requests at a time, and again until they are acknowledged or `delivery_timeout_s` is over. What
can be relied on:

- *Order and once.* Records of one partition arrive in the order in which `send` was called for them, each once,
  whatever happens in between (`idempotent`, on by default where `acks` is "all"). Without idempotence the order holds,
  and a batch whose answer was lost may be written twice.
- *Back-pressure.* Records that are not yet acknowledged take at most `buffer_bytes`; `send` waits for room, up to its
  deadline. It also lets other tasks run after every full batch, so a loop of sends never starves them.
- *Cancelling.* A cancelled `send` has not taken the record. Cancelling `flush`, or the await of a delivery, ends the
  wait and nothing else. A cancelled `close` has closed at once instead of waiting.
- *Failures are not silent.* If a delivery that nobody has awaited fails, it is logged once per partition until that
  partition delivers again, and the next `flush` raises `RecordsLostError`; so does leaving `async with`.

Memory beyond `buffer_bytes`: per broker one request in the transport (twice, where the loop is asyncio's own before
3.12, which joins what it writes), and whatever the caller keeps: deliveries are 56 bytes.

Not here: transactions; interceptors, and serializers: keys and values are bytes.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from barnabas_raftlog.records.builder import Header
from barnabas_raftlog.records.compression import Compression

from .accumulator import RECORD_OVERHEAD_BYTES, Accumulator, Batch, PartitionQueue, headers_size
from .connections import Cluster
from .delivery import Delivery, Receipt, RecordsLostError
from .errors import ClientClosedError, DeadlineExceededError
from .partitioner import Partitioner, least_loaded, partition_of
from .producer_sender import Sender, SenderSettings
from .protocol.errors import MessageTooLargeError, UnknownTopicOrPartitionError, error_for
from .sequences import Identity, Sequences

__all__ = ["Delivery", "Producer", "ProducerMetrics", "Receipt", "RecordsLostError"]

Acks = Literal["all", 0, 1, -1]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
LOST_BATCHES_MAX = 1_000
"""So many failed batches are remembered until somebody awaits one of their deliveries; further ones count as lost."""
_log = logging.getLogger(__name__)


class ProducerMetrics(NamedTuple):
    """What a producer has done since it was opened, and what it holds now."""

    records_delivered: int
    records_failed: int
    batches: int
    requests: int
    retries: int
    """Batches sent once more."""
    bytes_sent: int
    """Record batches on the wire, repetitions included."""
    epochs: int
    """How often a partition began a new epoch."""
    buffered_bytes: int
    """At most `buffer_bytes`."""
    buffered_batches: int
    requests_in_flight: int
    sends_waiting: int


class _Topic:
    """The partitions of one topic. `sticky`: where records without a key go until its batch is complete."""

    __slots__ = ("last", "name", "queues", "sticky")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.sticky: PartitionQueue | None = None
        self.last = -1


class Producer:
    """A producer. Use it as `async with`, from one event loop; any number of tasks may send.

    Args:
        bootstrap: "host:port,host:port", or several such.
        client_id: how the brokers' logs and quotas name this client.
        acks: "all" (or -1): in-sync replicas have it; 1: the leader has it; 0: it was handed to the network, nothing
            more is known and offsets are -1.
        idempotent: True needs acks "all". None: where acks allow it.
        compression: of whole batches.
        linger_s: how long a batch that is not full waits for more (linger.ms).
        batch_bytes: a batch is full at this size before compression (batch.size). A larger record gets one of its own.
        request_bytes_max: the largest record and the largest request (max.request.size).
        buffer_bytes: for everything not yet acknowledged (buffer.memory).
        delivery_timeout_s: from opening a batch to giving it up (delivery.timeout.ms).
        request_timeout_s: how long one request may go unanswered (request.timeout.ms).
        in_flight_max: requests unanswered per broker, and batches per partition; at most 5 when idempotent, which is
            how many of them a broker remembers.
        partitioner: see partitioner.py.
        timeout_s: the deadline of calls that are given none.
        metadata_max_age_s: how soon new partitions of a topic are noticed (metadata.max.age.ms).

    Raises:
        ValueError: settings that are out of range or contradict each other.
    """

    def __init__(  # noqa: PLR0913 - Kafka's settings
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "barnabas-producer",
        acks: Acks = "all",
        idempotent: bool | None = None,
        compression: CompressionName = "none",
        linger_s: float = 0.005,
        batch_bytes: int = 65_536,
        request_bytes_max: int = 1_048_576,
        buffer_bytes: int = 32 * 1_048_576,
        delivery_timeout_s: float = 120.0,
        request_timeout_s: float = 30.0,
        in_flight_max: int = 5,
        partitioner: Partitioner = "murmur2",
        timeout_s: float = 30.0,
        metadata_max_age_s: float = 300.0,
    ) -> None:
        number = -1 if acks == "all" else acks
        self._is_idempotent = number == -1 if idempotent is None else idempotent
        _check(number in {-1, 0, 1}, f"acks is {acks!r}; it must be 'all', 1 or 0")
        _check(number == -1 or not self._is_idempotent, f"idempotence needs acks='all', not {acks!r}")
        _check(compression.upper() in Compression.__members__, f"compression {compression!r} does not exist")
        _check(in_flight_max >= 1, "in_flight_max must be at least 1")
        _check(in_flight_max <= 5 or not self._is_idempotent, "in_flight_max is at most 5 when idempotent")
        _check(linger_s >= 0, "linger_s must not be negative")
        _check(delivery_timeout_s > linger_s, "delivery_timeout_s must be longer than linger_s")
        _check(min(request_timeout_s, timeout_s, metadata_max_age_s) > 0, "timeouts must be positive")
        _check(1 <= batch_bytes <= request_bytes_max, "batch_bytes must lie between 1 and request_bytes_max")
        _check(buffer_bytes >= 2 * batch_bytes, "buffer_bytes must hold two batches")
        _check(callable(partitioner) or partitioner in {"murmur2", "round-robin"}, f"no partitioner {partitioner!r}")
        self._settings = SenderSettings(
            acks=number,
            compression=Compression[compression.upper()],
            linger_s=linger_s,
            request_bytes_max=request_bytes_max,
            delivery_timeout_s=delivery_timeout_s,
            request_timeout_s=request_timeout_s,
            in_flight_max=in_flight_max,
            metadata_max_age_s=metadata_max_age_s,
        )
        self._cluster = Cluster(
            bootstrap,
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            metadata_max_age_s=metadata_max_age_s,
            allow_auto_topic_creation=True,
        )
        self._timeout_s = timeout_s
        self._accumulator = Accumulator(buffer_bytes, batch_bytes)
        self._record_bytes_max = min(request_bytes_max, self._accumulator.record_bytes_max)
        self._custom = partitioner if callable(partitioner) else None
        self._is_round_robin = partitioner == "round-robin"
        self._identity = Identity() if self._is_idempotent else None
        self._sender: Sender | None = None
        self._topics: dict[str, _Topic] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._owes_a_turn = False
        self._lost: deque[Batch] = deque()
        self._lost_count, self._first_lost = 0, None
        self._closed: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect to the cluster, within `timeout_s`."""
        assert self._sender is None, "a producer is opened once"
        await self._cluster.__aenter__()
        self._sender = Sender(
            self._cluster, self._accumulator, self._settings, self._identity, self._on_room, self._on_failed
        )
        self._sender.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            await self.close()
        except (RecordsLostError, DeadlineExceededError):
            # What ended the block says more than what that led to.
            if error is None:
                raise

    # Sending.

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
        timeout_s: float | None = None,
    ) -> Delivery:
        """Put a record on its way, and return its delivery, which may be awaited, kept, or dropped.

        Waits only for the metadata of a topic that is new to this producer, and for room in the buffer.

        Args:
            topic: created by the brokers if it is missing and they are configured so.
            value: None is a tombstone on compacted topics.
            key: decides the partition if `partition` is None.
            partition: from 0.
            timestamp_ms: since 1970; None is now.
            headers: (name, content) pairs, in order; names may repeat.
            timeout_s: deadline of this call, not of the delivery; None is the producer's.

        Raises:
            DeadlineExceededError: no metadata or no room in time; says which. The record was not taken.
            MessageTooLargeError: larger than `request_bytes_max`, or than the buffer.
            UnknownTopicOrPartitionError: the topic has no such partition.
            ClientClosedError: the producer is closed, or was while this call waited.

        Cancellation: cancelled, the record was not taken.
        """
        if self._owes_a_turn:
            self._owes_a_turn = False
            await asyncio.sleep(0)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        deadline: float | None = None
        while True:
            found = self._topics.get(topic)
            if found is not None:
                queue = self._choose(found, key, partition)
                batch = queue.open
                if batch is not None:
                    index = batch.add(timestamp_ms, key, value, headers)
                    if index >= 0:
                        return Delivery(batch, index, timestamp_ms)
                    self._complete(found, queue)
                    if partition is None and key is None:
                        continue
            if deadline is None:
                deadline = asyncio.get_running_loop().time() + (self._timeout_s if timeout_s is None else timeout_s)
            if found is None:
                await self._learn_topic(topic, deadline)
                continue
            size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
            if headers:
                size += headers_size(headers)
            await self._open(found, queue, size, deadline)

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
        timeout_s: float | None = None,
    ) -> Receipt:
        """Send a record and wait until it is delivered; arguments and errors are those of `send` and of the delivery.

        The batch does not linger. For many records `send`, and await the deliveries later.

        Raises:
            DeadlineExceededError: with `may_be_done`, if the record is on its way. It may be delivered later.

        Cancellation: the record may have been taken, and is then delivered.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        delivery = await self.send(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            timeout_s=deadline - loop.time(),
        )
        assert self._sender is not None
        self._sender.hasten(self._topics[topic].queues[delivery.partition])
        try:
            async with asyncio.timeout_at(deadline):
                return await delivery
        except TimeoutError as error:
            if isinstance(error, DeadlineExceededError):
                raise
            raise DeadlineExceededError(
                f"a record for {topic}-{delivery.partition} was not acknowledged in time", may_be_done=True
            ) from error

    async def partitions(self, topic: str, timeout_s: float | None = None) -> int:
        """Return how many partitions a topic has, as far as is known.

        Raises:
            DeadlineExceededError: there is no such topic, or nobody who could say.
        """
        deadline = asyncio.get_running_loop().time() + (self._timeout_s if timeout_s is None else timeout_s)
        self._check_open()
        if topic not in self._topics:
            await self._learn_topic(topic, deadline)
        return len(self._cluster.view.topics[topic].partitions)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what was given so far without lingering, and wait until its outcome is known.

        Raises:
            RecordsLostError: records failed whose deliveries nobody has awaited; each is told once.
            DeadlineExceededError: something is still under way; it stays so.

        Cancellation: the wait ends, the records go on.
        """
        loop = asyncio.get_running_loop()
        await self._flush(loop.time() + (self._timeout_s if timeout_s is None else timeout_s))
        self._raise_lost()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close, within `timeout_s`. What is undelivered then fails with `ClientClosedError`.

        Closing twice is harmless: the second call waits for the first.

        Raises:
            RecordsLostError: as `flush`.

        Cancellation: closed at once, as at the deadline; the connections end by themselves.
        """
        loop = asyncio.get_running_loop()
        if self._closed is not None:
            await asyncio.wait({self._closed})
            return
        self._closed = loop.create_future()
        deadline = loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        self._topics.clear()
        self._wake_all()
        try:
            if self._sender is not None:
                try:
                    await self._flush(deadline)
                except DeadlineExceededError as error:
                    _log.warning("closing: %s", error)
                finally:
                    await self._sender.close()
        finally:
            try:
                await self._cluster.close()
            finally:
                self._closed.set_result(None)
        self._raise_lost()

    def metrics(self) -> ProducerMetrics:
        """Return what has happened so far; costs next to nothing."""
        assert self._sender is not None, "the producer is not open"
        counters = self._sender.counters
        return ProducerMetrics(
            records_delivered=counters.records_delivered,
            records_failed=counters.records_failed,
            batches=counters.batches,
            requests=counters.requests,
            retries=counters.retries,
            bytes_sent=counters.bytes_sent,
            epochs=counters.epochs,
            buffered_bytes=self._accumulator.used_bytes,
            buffered_batches=len(self._accumulator.incomplete),
            requests_in_flight=self._sender.requests_in_flight,
            sends_waiting=len(self._waiting),
        )

    # Where records go.

    def _choose(self, topic: _Topic, key: bytes | None, partition: int | None) -> PartitionQueue:
        queues = topic.queues
        if partition is not None:
            if not 0 <= partition < len(queues):
                raise UnknownTopicOrPartitionError(
                    f"{topic.name} has partitions 0 to {len(queues) - 1}, not {partition}"
                )
            return queues[partition]
        if self._custom is not None:
            return self._choose(topic, key, self._custom(topic.name, key, len(queues)))
        if key is not None:
            return queues[partition_of(key, len(queues))]
        if self._is_round_robin:
            topic.last = (topic.last + 1) % len(queues)
            return queues[topic.last]
        if topic.sticky is None or (topic.sticky.open is None and topic.sticky.waiting):
            topic.last = least_loaded([queue.waiting_bytes for queue in queues], topic.last)
            topic.sticky = queues[topic.last]
        return topic.sticky

    def _complete(self, topic: _Topic, queue: PartitionQueue) -> None:
        assert self._sender is not None
        self._accumulator.complete(queue)
        self._sender.on_complete(queue)
        if topic.sticky is queue:
            topic.sticky = None
        # The sender, and everybody else, gets a turn after each batch.
        self._owes_a_turn = True

    async def _learn_topic(self, name: str, deadline: float) -> None:
        """Wait until the topic is known to have partitions."""
        self._check_open()
        sender = self._sender
        assert sender is not None
        loop = asyncio.get_running_loop()

        async def attempt(attempt_deadline: float) -> None:
            view = self._cluster.view
            if name not in view.topics:
                await self._cluster.refresh((name,), timeout_s=attempt_deadline - loop.time())
                view = self._cluster.view
            if name not in view.topics:
                raise error_for(view.errors.get(name, 3), name)

        await self._cluster.retry(f"metadata of topic {name!r}", max(0.0, deadline - loop.time()), attempt, (name,))
        self._check_open()
        if name not in self._topics:
            self._topics[name] = _Topic(name)
            sender.on_new_topic(name)
        self._grow(self._topics[name])

    def _grow(self, topic: _Topic) -> None:
        for partition in range(len(topic.queues), len(self._cluster.view.topics[topic.name].partitions)):
            sequences: Sequences[Batch] = Sequences(self._identity, self._settings.in_flight_max)
            topic.queues.append(PartitionQueue(topic.name, partition, sequences))

    # Room.

    async def _open(self, topic: _Topic, queue: PartitionQueue, size: int, deadline: float) -> None:
        """Open a batch for a record of `size` bytes, when there is room for it; another task may be faster."""
        self._check_open()
        sender = self._sender
        assert sender is not None
        if size > self._record_bytes_max:
            raise MessageTooLargeError(f"a record of {size} bytes; request_bytes_max allows {self._record_bytes_max}")
        if self._waiting or not self._accumulator.has_room(size):
            for other in self._topics.values():
                for each in other.queues:
                    sender.hasten(each)
            await self._wait_for_room(size, deadline)
            self._check_open()
        if queue.open is None and self._accumulator.has_room(size):
            sender.on_opened(self._accumulator.open(queue, size, asyncio.get_running_loop().time()))

    async def _wait_for_room(self, size: int, deadline: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                while not self._accumulator.has_room(size) and self._closed is None:
                    await turn
                    if turn is self._waiting[0] and not self._accumulator.has_room(size):
                        self._waiting[0] = turn = asyncio.get_running_loop().create_future()
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"no room for a record of {size} bytes in time: "
                f"{self._accumulator.used_bytes} bytes wait to be acknowledged"
            ) from error
        finally:
            self._waiting.remove(turn)
            self._on_room()

    def _on_room(self) -> None:
        if self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)

    def _wake_all(self) -> None:
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)

    # Ends.

    async def _flush(self, deadline: float) -> None:
        if self._sender is None:
            return
        batches = list(self._accumulator.incomplete)
        for batch in batches:
            if batch.queue.open is batch:
                self._sender.hasten(batch.queue)
        loop = asyncio.get_running_loop()
        for batch in batches:
            if batch.is_done:
                continue
            waiter = loop.create_future()

            def wake(waiter: "asyncio.Future[None]" = waiter) -> None:
                if not waiter.done():
                    waiter.set_result(None)

            batch.observers.append(wake)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError as error:
                left = sum(not each.is_done for each in batches)
                raise DeadlineExceededError(
                    f"{left} batches were not acknowledged in time, among them one for {batch.queue}; "
                    f"last: {batch.last_error}",
                    may_be_done=True,
                ) from error
            finally:
                if not batch.is_done:
                    batch.observers.remove(wake)

    def _on_failed(self, batch: Batch) -> None:
        """Remember and log what nobody may ever ask for."""
        if not batch.queue.was_lost:
            batch.queue.was_lost = True
            _log.warning("records for %s were not delivered: %s", batch.queue, batch.error)
        if len(self._lost) < LOST_BATCHES_MAX:
            self._lost.append(batch)
        else:
            self._lost_count += batch.count

    def _raise_lost(self) -> None:
        lost = [batch for batch in self._lost if not batch.is_observed]
        count = self._lost_count + sum(batch.count for batch in lost)
        self._lost.clear()
        self._lost_count = 0
        if count:
            first = lost[0].error if lost else None
            raise RecordsLostError(count, first or DeadlineExceededError("not remembered"))

    def _check_open(self) -> None:
        if self._sender is None or self._closed is not None:
            raise ClientClosedError(
                "the producer is closed" if self._closed is not None else "the producer is not open"
            )


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
