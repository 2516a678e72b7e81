"""The asyncio producer: takes records, and returns deliveries.

    async with Producer("localhost:9092") as producer:
        delivery = await producer.send("orders", b"one coffee", key=b"table 4")
        receipt = await delivery                    # or: await producer.send_and_wait(...)

`send` puts the record into a batch and returns. A batch leaves when it is full or `linger_s` old. One request carries
batches of several partitions, and several requests are under way at a time. A batch is sent again until it is
acknowledged or `delivery_timeout_s` is over. These guarantees hold:

- *Order and once.* Records of one partition arrive in the order in which `send` was called for them, each once,
  whatever happens in between (`idempotent`, on by default if `acks` is "all"). Without idempotence the order holds, and
  a batch whose answer was lost may be written twice.
- *Back-pressure.* Records that are not yet acknowledged take at most `buffer_bytes`; `send` waits for room, up to its
  deadline. It also lets other tasks run after every full batch, so a loop of sends never starves them.
- *The buffer is for trouble.* While a partition's batches are acknowledged, a full buffer would only make records older
  and the process larger. So if `WAITING_BATCHES` full batches wait behind those on the wire, `send` waits for the next
  one to leave. It waits for `PACE_S` at most: if none leaves by then, the leader is in trouble, and there is room.
- *Cancelling.* A cancelled `send` has not taken the record. Cancelling `flush`, or the await of a delivery, ends the
  wait and nothing else. A cancelled `close` has closed at once instead of waiting.
- *Failures are not silent.* If a delivery that nobody has awaited fails, it is logged once per partition until that
  partition delivers again, and the next `flush` raises `RecordsLostError`; so does leaving `async with`.

Memory beyond `buffer_bytes`: one request per broker in the transport (two copies with asyncio's own loop before 3.12,
which joins its writes), and the deliveries that the caller keeps, 56 bytes each.

What sends (connections, messages, batches) is loaded with the first producer that is made, not with this module: a
program that imports the class, or one of the errors, starts 10 ms sooner.

*Transactions.* With a `transactional_id` records are sent in transactions only (transaction.py), and none is lost
silently: the commit raises instead of `flush` and `close`.

Not here: interceptors and serializers. Keys and values are bytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from barnabas_clients import chance
from barnabas_clients.arguments import (
    INT64_MAX,
    Bytes,
    Headers,
    headers_of,
    record_bytes,
    seconds,
    shown,
    topic_name,
    whole_number,
)
from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.protocol.errors import ErrorCode, MessageTooLargeError, error_for
from barnabas_clients.wording import listed, shown_reason

from .delivery import BatchDelivery, Delivery, Receipt, RecordsLostError
from .encoded import EncodedBatch
from .metrics import ProducerMetrics
from .partitioner import Partitioner
from .settings import Acks, CompressionName, ProducerSettings
from .transaction import PreparedTransaction, Transaction, leave_nothing_open

if TYPE_CHECKING:
    from .accumulator import Batch, PartitionQueue
    from .conversation import Conversation
    from .sender import Sender
    from .topic_queues import TopicQueues

__all__ = ["Delivery", "Producer", "ProducerMetrics", "Receipt", "RecordsLostError"]

WAITING_BATCHES = 1
PACE_S = 0.1
LOST_BATCHES_MAX = 1_000
"""So many failed batches are kept until `flush`. Of further ones only the number of their records is kept."""
_NO_HEADERS: tuple[tuple[str, Bytes | None], ...] = ()
_log = logging.getLogger("barnabas_clients.producer")


class Producer:
    """A producer. Use it as `async with`, or between `start` and `stop`, from one event loop. Any task may send.

    Args:
        bootstrap: "host:port,host:port", or several such.
        client_id: how the brokers' logs and quotas name this client.
        acks: "all" (or -1): all in-sync replicas have it; 1: the leader has it; 0: it was handed to the network,
            nothing more is known, and offsets are -1.
        idempotent: True needs acks "all". None: if acks allow it.
        compression: of whole batches.
        linger_s: how long a batch that is not full waits for more (linger.ms).
        batch_bytes: a batch is full at this size before compression (batch.size). A larger record gets one of its own.
        request_bytes_max: the largest record and the largest request (max.request.size).
        buffer_bytes: for everything not yet acknowledged (buffer.memory).
        delivery_timeout_s: from opening a batch to giving it up (delivery.timeout.ms).
        request_timeout_s: how long one request may go unanswered (request.timeout.ms).
        in_flight_max: unanswered requests per broker, and batches per partition; at most 5 when idempotent, because a
            broker remembers so many of them.
        partitioner: see partitioner.py.
        timeout_s: the deadline of calls that are given none.
        metadata_max_age_s: how soon new partitions of a topic are noticed (metadata.max.age.ms).
        transactional_id: makes `transaction` possible, and nothing else. A producer takes it over from the one before,
            when it is opened: what that has left open is aborted, and its further calls raise `ProducerFencedError`.
        transaction_timeout_s: a transaction that is open for so long is aborted by the brokers
            (transaction.timeout.ms).

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
        transactional_id: str | None = None,
        transaction_timeout_s: float = 60.0,
    ) -> None:
        settings = ProducerSettings.of(
            acks,
            idempotent,
            compression,
            partitioner,
            transactional_id,
            linger_s=linger_s,
            batch_bytes=batch_bytes,
            request_bytes_max=request_bytes_max,
            buffer_bytes=buffer_bytes,
            delivery_timeout_s=delivery_timeout_s,
            request_timeout_s=request_timeout_s,
            in_flight_max=in_flight_max,
            timeout_s=timeout_s,
            metadata_max_age_s=metadata_max_age_s,
            transaction_timeout_s=transaction_timeout_s,
        )
        self._make_parts(bootstrap, client_id, settings)

    def _make_parts(self, bootstrap: str | Sequence[str], client_id: str, settings: ProducerSettings) -> None:
        from barnabas_clients.cluster.cluster import Cluster  # noqa: PLC0415 - see the docstring of the module

        from .accumulator import Accumulator  # noqa: PLC0415 - as above
        from .room import BufferRoom  # noqa: PLC0415 - as above
        from .sequences import Identity  # noqa: PLC0415 - as above

        self._settings = settings
        # One generator for all random choices: a simulation that seeds it repeats the run.
        self._jitter = chance.new_generator()
        self._cluster = Cluster(
            bootstrap,
            client_id=client_id,
            request_timeout_s=settings.request_timeout_s,
            timeout_s=settings.timeout_s,
            metadata_max_age_s=settings.metadata_max_age_s,
            allow_auto_topic_creation=True,
            jitter=self._jitter,
        )
        self._accumulator = Accumulator(settings.buffer_bytes, settings.batch_bytes)
        self._record_bytes_max = min(settings.request_bytes_max, self._accumulator.record_bytes_max)
        self._room = BufferRoom(self._accumulator)
        self._identity = Identity() if settings.is_idempotent else None
        self._conversation: Conversation | None = None
        if settings.transactional_id is not None:
            self._begin_conversation(settings.transactional_id)
        self._sender: Sender | None = None
        self._topics: dict[str, TopicQueues] = {}
        self._is_opened = False
        self._owes_a_turn = False
        self._lost: deque[Batch] = deque()
        self._lost_count = 0
        self._untold: list[Batch] = []
        self._closed: asyncio.Future[None] | None = None

    def _begin_conversation(self, transactional_id: str) -> None:
        from .conversation import Conversation  # noqa: PLC0415 - as above
        from .transaction_numbers import TransactionIdentity  # noqa: PLC0415 - as above
        from .transactions.state_machine import Transactions  # noqa: PLC0415 - as above

        self._identity = TransactionIdentity()
        self._conversation = Conversation(
            self._cluster,
            Transactions(transactional_id, int(self._settings.transaction_timeout_s * 1000)),
            self._jitter,
            is_under_way=lambda: bool(self._accumulator.incomplete),
        )

    @property
    def trouble(self) -> str:
        """Why nothing is sent, in one line for people: nobody answers, or what is waited for; "" if all is well."""
        return self._cluster.trouble

    async def __aenter__(self) -> Self:
        """Connect to the cluster; with a transactional id, take it over from the producer that has it.

        Raises:
            DeadlineExceededError: no broker answered within `timeout_s`. RuntimeError: it was opened before.
            ClientClosedError: it is closed. KafkaError: the transactional id may not be used.
        """
        if self._closed is not None:
            raise ClientClosedError("the producer is closed; make another one")
        if self._is_opened:
            raise RuntimeError("the producer was started before; make another one")
        self._is_opened = True
        from .sender import Sender  # noqa: PLC0415 - as above

        deadline = self._deadline(None)
        await self._cluster.__aenter__()
        self._sender = Sender(
            self._cluster,
            self._accumulator,
            self._settings,
            self._identity,
            self._jitter,
            self._conversation,
            on_room=self._room.on_room,
            on_failed=self._on_failed,
            on_metadata=self._on_metadata,
        )
        self._sender.start()
        if self._conversation is not None:
            try:
                await self._conversation.get_ready(deadline)
                # Of the owner that it is no answer has told the sender, if it was given to `begin_as`.
                self._conversation.kick()
            except BaseException:
                await self.close(0.0)
                raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            await self.close()
        except (RecordsLostError, DeadlineExceededError):
            # The exception that ended the block says more than this one, which it has caused.
            if error is None:
                raise

    async def start(self) -> Self:
        """Open, as the beginning of `async with` does, and return this producer. `stop` must be called in the end."""
        return await self.__aenter__()

    async def stop(self, timeout_s: float | None = None) -> None:
        """Close, as the end of `async with` does; the same as `close`. Harmless before `start`, and a second time."""
        await self.close(timeout_s)

    # Transactions.

    def transaction(self, timeout_s: float | None = None) -> Transaction:
        """Return a transaction, to be used as `async with`; see transaction.py.

        A producer with a transactional id sends in transactions only: outside of one, `send` raises RuntimeError, and
        in one that has failed, the error of that.

        `timeout_s` is the deadline of its beginning, and of its end; None is the producer's. It is no limit for what is
        between, which `transaction_timeout_s` is.

        Raises:
            RuntimeError: the producer has no `transactional_id`. ClientClosedError: it is not open.
        """
        limit_s = self._settings.timeout_s if timeout_s is None else seconds("timeout_s", timeout_s)
        sender = self._check_open(in_transaction=False)
        if self._conversation is None:
            raise RuntimeError("transactions need a producer with a transactional_id")
        return Transaction(self._conversation, sender, limit_s)

    def go_on_as(self, producer_id: int, epoch: int) -> None:
        """Take the transactional id over from this owner alone: `start` is fenced if there has been another since.

        Raises:
            RuntimeError: the producer has no `transactional_id`, or was started.
        """
        if self._conversation is None or self._is_opened:
            raise RuntimeError("this is for a producer with a transactional_id, before it is started")
        machine = self._conversation.machine
        machine.owner = machine.owner._replace(producer_id=producer_id, epoch=epoch)

    def begin_as(self, producer_id: int, epoch: int) -> None:
        """Begin the first transaction as this owner without asking: nothing is fenced, and nothing is aborted.

        For a caller who knows that this is the present epoch, that nothing was sent in it, and that nobody else will
        be it: brokers would take the records of one for repetitions of the other's. The end of a transaction tells the
        next epoch if `transaction.version` is 2. A transaction of an old epoch fails with its first record.

        Raises:
            RuntimeError: the producer has no `transactional_id`, or was started.
        """
        if self._conversation is None or self._is_opened:
            raise RuntimeError("this is for a producer with a transactional_id, before it is started")
        self._conversation.machine.begin_as(producer_id, epoch)

    def prepare_all(self) -> None:
        """Have no transaction of this producer time out, where coordinators offer that (KIP-939).

        Raises:
            RuntimeError: the producer has no `transactional_id`, or was started.
        """
        if self._conversation is None or self._is_opened:
            raise RuntimeError("this is for a producer with a transactional_id, before it is started")
        self._conversation.machine.prepares = True

    async def prepare(self, timeout_s: float | None = None) -> PreparedTransaction | None:
        """Store everything of the open transaction and leave it open for somebody else to end, also behind `close`.

        Returns what ends it; None if nothing is in it. Nothing can be sent after this. Unless `prepare_all` was called,
        and coordinators offer that, it is aborted after `transaction_timeout_s`.

        Raises:
            KafkaError, ClientError: something was not stored. The transaction is still this producer's.
            DeadlineExceededError: records are still under way. RuntimeError: no transaction is open.

        Cancellation: the same as at the deadline.
        """
        deadline = self._deadline(timeout_s)
        self._check_open()
        assert self._conversation is not None
        await self._flush(deadline)
        owner = self._conversation.prepare()
        return None if owner is None else PreparedTransaction(*owner)

    @property
    def transaction_owner(self) -> PreparedTransaction:
        """The transactional id with the producer id and epoch of the present transaction, or of the next one."""
        assert self._conversation is not None, "transactions need a producer with a transactional_id"
        return PreparedTransaction(*self._conversation.machine.owner)

    # Sending.

    async def send(
        self,
        topic: str,
        value: Bytes | None = None,
        *,
        key: Bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = _NO_HEADERS,
        timeout_s: float | None = None,
    ) -> Delivery:
        """Put a record on its way, and return its delivery, which may be awaited, kept, or dropped.

        Waits only for metadata of a topic that is new here, and for room in the buffer. See also `transaction`.

        Args:
            topic: created by the brokers if it is missing and they are configured so.
            value: copied when the record is taken. None is a tombstone on compacted topics. Of a view the bytes count.
            key: decides the partition if `partition` is None.
            partition: from 0.
            timestamp_ms: since 1970, an int; None is now.
            headers: a mapping of names to contents, or (name, content) pairs, in order, whose names may repeat.
            timeout_s: deadline of this call, not of the delivery; None is the producer's.

        Raises:
            DeadlineExceededError: no metadata or no room in time. ClientClosedError: it is closed, or was meanwhile.
            MessageTooLargeError: larger than `request_bytes_max`. UnknownTopicOrPartitionError: no such partition.
            TypeError, ValueError: an argument has the wrong type, or an impossible value.

        Cancellation: cancelled, the record was not taken. Nor was it after an error.
        """
        # The usual types are recognised here. arguments.py checks the others, and says what is wrong.
        if type(value) is not bytes or (key is not None and type(key) is not bytes):
            key = record_bytes("key", key)
            value = record_bytes("value", value)
        pairs = () if headers is _NO_HEADERS else headers_of(headers)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms <= INT64_MAX:
            timestamp_ms = whole_number("timestamp_ms", timestamp_ms, 0)
        deadline = None if timeout_s is None else self._deadline(timeout_s)
        if self._owes_a_turn:
            self._owes_a_turn = False
            await asyncio.sleep(0)
        try:
            found = self._topics.get(topic)
        except TypeError:
            raise TypeError(f"topic is {shown(topic)}; it must be a str") from None
        if found is None:
            found = await self._learn_topic(topic, deadline := deadline or self._deadline(timeout_s))
        while True:
            if key is not None or partition is not None or (queue := found.sticky) is None or queue.open is None:
                queue = found.choose(key, partition)
            if (batch := queue.open) is None:
                deadline = deadline or self._deadline(timeout_s)
                await self._open(queue, self._accumulator.size_of(key, value, pairs), deadline)
                continue
            if (index := batch.add(timestamp_ms, key, value, pairs)) >= 0:
                return Delivery(batch, index, timestamp_ms)
            self._complete(found, queue)

    async def send_and_wait(
        self,
        topic: str,
        value: Bytes | None = None,
        *,
        key: Bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = _NO_HEADERS,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Send a record and wait until it is delivered. Arguments and errors are those of `send` and of the delivery.

        The batch does not linger. For many records `send`, and await the deliveries later.

        Raises:
            DeadlineExceededError: with `may_be_done`, if the record is on its way. It may be delivered later.

        Cancellation: the record may have been taken, and is then delivered.
        """
        loop = asyncio.get_running_loop()
        deadline = self._deadline(timeout_s)
        delivery = await self.send(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            timeout_s=max(0.0, deadline - loop.time()),
        )
        assert self._sender is not None
        self._sender.send_now(self._topics[topic].queues[delivery.partition])
        try:
            async with asyncio.timeout_at(deadline):
                return await delivery
        except TimeoutError as error:
            if isinstance(error, DeadlineExceededError):
                raise
            raise DeadlineExceededError(
                f"a record for {topic}-{delivery.partition} was not acknowledged in time; last: {delivery.trouble}",
                may_be_done=True,
            ) from error

    async def send_batch(
        self, topic: str, partition: int, encoded: EncodedBatch, timeout_s: float | None = None
    ) -> BatchDelivery:
        """Put a whole batch on its way that the caller has encoded, behind the records given so far.

        It does not linger. Its size is charged as that of records is.

        Raises:
            DeadlineExceededError, ClientClosedError, MessageTooLargeError, UnknownTopicOrPartitionError: as `send`.

        Cancellation: cancelled, the batch was not taken. Nor was it after an error.
        """
        deadline = self._deadline(timeout_s)
        found = self._topics.get(topic) or await self._learn_topic(topic, deadline)
        size_bytes = encoded.records_bytes
        if size_bytes > self._record_bytes_max:
            raise MessageTooLargeError(f"a batch of {size_bytes} bytes; {self._record_bytes_max} are possible")
        queue = found.choose(None, partition)
        sender = self._check_open()
        if len(self._room) or not self._accumulator.has_room(size_bytes):
            number = self._number
            sender = await self._wait_for_room(sender, size_bytes, deadline)
            self._check_number(number)
        if queue.open is not None:
            self._complete(found, queue)
        batch = self._accumulator.adopt(queue, encoded, asyncio.get_running_loop().time())
        sender.on_adopted(batch)
        return BatchDelivery(batch)

    async def partitions(self, topic: str, timeout_s: float | None = None, *, is_fresh: bool = False) -> int:
        """Return how many partitions a topic has, as far as is known; `is_fresh`: ask the brokers again.

        Raises:
            DeadlineExceededError: there is no such topic, or no broker answered.
        """
        deadline = self._deadline(timeout_s)
        self._check_open(in_transaction=False)
        topic_name("topic", topic)
        found = self._topics.get(topic)
        if found is None:
            found = await self._learn_topic(topic, deadline, in_transaction=False)
        elif is_fresh:
            view = await self._cluster.refresh(
                (topic,), timeout_s=max(0.0, deadline - asyncio.get_running_loop().time())
            )
            # None of its queues goes away if the topic was created again with fewer.
            if (known := view.topics.get(topic)) is not None:
                found.grow(len(known.partitions))
                return len(known.partitions)
        return len(found.queues)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all records given so far, without lingering, and wait until their outcomes are known.

        Raises:
            RecordsLostError: records failed whose deliveries nobody has awaited; each is reported once.
            DeadlineExceededError: records are still under way, and stay so.

        Cancellation: the wait ends, the records go on.
        """
        deadline = self._deadline(timeout_s)
        self._check_open(in_transaction=False)
        await self._flush(deadline)
        self._raise_lost()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close, within `timeout_s`. Records that are undelivered then fail with `ClientClosedError`.

        A transaction that is open is aborted, one that is being committed has its time.

        Closing twice is harmless: the second call waits for the first.

        Raises:
            RecordsLostError: as `flush`.

        Cancellation: closed at once, as at the deadline; the connections end by themselves.
        """
        loop = asyncio.get_running_loop()
        deadline = self._deadline(timeout_s)
        if self._closed is not None:
            await asyncio.wait({self._closed})
            return
        self._closed = loop.create_future()
        self._topics.clear()
        self._room.close()
        try:
            if self._sender is not None:
                try:
                    if self._conversation is not None:
                        await leave_nothing_open(self._conversation, self._sender, max(0.0, deadline - loop.time()))
                    await self._flush(deadline)
                except DeadlineExceededError as error:
                    _log.warning("closing: %s", error)
                finally:
                    await self._end_sending(self._sender)
        finally:
            try:
                await self._cluster.close()
            finally:
                self._closed.set_result(None)
        self._raise_lost()

    async def _end_sending(self, sender: Sender) -> None:
        try:
            if self._conversation is not None:
                await self._conversation.close()
        finally:
            await sender.close()

    def metrics(self) -> ProducerMetrics:
        """Return the counters; costs next to nothing."""
        if self._sender is None:
            raise ClientClosedError("the producer is not open yet; use it as `async with`, or start it")
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
            sends_waiting=len(self._room),
        )

    # Where records go.

    def _complete(self, topic: TopicQueues, queue: PartitionQueue) -> None:
        """Hand the open batch of a queue, which has no room for a record, to the sender."""
        batch = queue.open
        assert batch is not None
        if not batch.count:
            # A bytearray grew while `send` waited for a batch, which must not be sent empty.
            self._accumulator.discard(batch)
            self._room.on_room()
            return
        assert self._sender is not None
        self._accumulator.complete(queue)
        self._sender.on_complete(queue)
        topic.on_complete(queue)
        # The sender, and everybody else, gets a turn after each batch.
        self._owes_a_turn = True

    async def _learn_topic(self, name: str, deadline: float, *, in_transaction: bool = True) -> TopicQueues:
        """Return the queues of a topic that is new to this producer, when it is known to have partitions."""
        topic_name("topic", name)
        loop = asyncio.get_running_loop()
        sender = self._check_open(in_transaction=in_transaction)
        number = self._number
        is_first = True

        async def attempt(attempt_deadline: float) -> None:
            nonlocal is_first
            # Between attempts `retry` refreshes.
            if is_first and name not in self._cluster.view.topics:
                is_first = False
                await self._cluster.refresh((name,), timeout_s=attempt_deadline - loop.time())
            view = self._cluster.view
            if name not in view.topics:
                raise error_for(view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)

        await self._cluster.retry(f"metadata of topic {name!r}", max(0.0, deadline - loop.time()), attempt, (name,))
        self._check_open(in_transaction=in_transaction)
        if in_transaction:
            self._check_number(number)
        topic = self._topics.get(name)
        if topic is None:
            from .topic_queues import TopicQueues  # noqa: PLC0415 - as above

            settings = self._settings
            topic = TopicQueues(name, settings.partitioner, self._identity, settings.in_flight_max)
            topic.grow(len(self._cluster.view.topics[name].partitions))
            self._topics[name] = topic
            sender.topics.add(name)
        return topic

    def _on_metadata(self) -> None:
        for name, topic in self._topics.items():
            if (view := self._cluster.view.topics.get(name)) is not None:
                topic.grow(len(view.partitions))

    async def _open(self, queue: PartitionQueue, record_bytes: int, deadline: float) -> None:
        """Open a batch when there is room for a record of this size. Another task may have been faster."""
        sender = self._check_open()
        number = self._number
        if record_bytes > self._record_bytes_max:
            raise MessageTooLargeError(
                f"a record of up to {record_bytes} bytes, framing included; {self._record_bytes_max} are possible"
            )
        if len(self._room) or not self._accumulator.has_room(record_bytes):
            sender = await self._wait_for_room(sender, record_bytes, deadline)
        elif len(queue.waiting) >= WAITING_BATCHES and not queue.failures:
            await self._pace(queue, deadline)
            sender = self._check_open()
        self._check_number(number)
        if queue.open is None and self._accumulator.has_room(record_bytes):
            sender.on_opened(self._accumulator.open(queue, record_bytes, asyncio.get_running_loop().time()))

    async def _wait_for_room(self, sender: Sender, record_bytes: int, deadline: float) -> Sender:
        # Sent batches make room, so open batches need not wait for more records.
        for batch in self._accumulator.incomplete:
            sender.send_now(batch.queue)
        await self._room.wait(record_bytes, deadline)
        return self._check_open()

    async def _pace(self, queue: PartitionQueue, deadline: float) -> None:
        """Wait until a batch of this queue leaves, at most `PACE_S`."""
        loop = asyncio.get_running_loop()
        left: asyncio.Future[None] = loop.create_future()

        def leave() -> None:
            if not left.done():
                left.set_result(None)

        queue.on_taken.append(leave)
        timer = loop.call_at(min(deadline, loop.time() + PACE_S), leave)
        try:
            await left
        finally:
            timer.cancel()
            if leave in queue.on_taken:
                queue.on_taken.remove(leave)

    # Ends.

    async def _flush(self, deadline: float) -> None:
        if self._sender is None:
            return
        batches = list(self._accumulator.incomplete)
        for batch in batches:
            if batch.queue.open is batch:
                self._sender.send_now(batch.queue)
        loop = asyncio.get_running_loop()
        for batch in batches:
            if batch.is_done:
                continue
            waiter = loop.create_future()

            def wake(waiter: asyncio.Future[None] = waiter) -> None:
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
                    f"last: {batch.trouble}",
                    may_be_done=True,
                ) from error
            finally:
                if not batch.is_done:
                    batch.observers.remove(wake)
        if self._settings.acks == 0:
            await self._sender.confirm(deadline)

    def _on_failed(self, batch: Batch) -> None:
        """Remember and log a failed batch whose deliveries nobody may ever await."""
        if not batch.queue.was_lost:
            batch.queue.was_lost = True
            if not self._untold:
                asyncio.get_running_loop().call_soon(self._tell_failed)
            self._untold.append(batch)
        if len(self._lost) < LOST_BATCHES_MAX:
            self._lost.append(batch)
        else:
            self._lost_count += batch.count

    def _tell_failed(self) -> None:
        """Log what has failed in this turn of the loop, in one line: a deadline may end batches of many partitions."""
        failed, self._untold = self._untold, []
        names = listed((str(batch.queue) for batch in failed), len(failed))
        _log.warning("records for %s were not delivered: %s", names, shown_reason(failed[0].error))

    def _raise_lost(self) -> None:
        lost = [batch for batch in self._lost if not batch.is_watched]
        count = self._lost_count + sum(batch.count for batch in lost)
        self._lost.clear()
        self._lost_count = 0
        if count:
            raise RecordsLostError(count, lost[0].error if lost else None)

    def _deadline(self, timeout_s: float | None) -> float:
        limit_s = self._settings.timeout_s if timeout_s is None else seconds("timeout_s", timeout_s)
        return asyncio.get_running_loop().time() + limit_s

    def _check_open(self, *, in_transaction: bool = True) -> Sender:
        if self._closed is not None:
            raise ClientClosedError("the producer is closed")
        if self._sender is None:
            raise ClientClosedError("the producer is not open yet; use it as `async with`, or start it")
        if in_transaction and self._conversation is not None:
            self._conversation.check_in_transaction()
        return self._sender

    @property
    def _number(self) -> int:
        """That of the transaction, which tells it from the next one."""
        return 0 if self._conversation is None else self._conversation.number

    def _check_number(self, number: int) -> None:
        if self._number != number:
            raise RuntimeError("the transaction was ended before its record was taken")
