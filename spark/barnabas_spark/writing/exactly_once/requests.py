"""Carries the steps of a driver out at the brokers. Everything here blocks until it is done, or its deadline is over.

The decisions of all sinks are in the topic `TOPIC`, which has one partition, is compacted, and is made at the first
use. A reader goes by its end of now and reads committed records up to there: so whatever a driver before had begun to
decide is read, or was aborted.
"""

import asyncio
import logging
from collections.abc import Generator
from typing import Any, Final, TypeVar

from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.topics import create_topic, known_topics
from barnabas_clients.admin.transactions import describe_transactions, list_transactions
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.groups.coordinator import Coordinator
from barnabas_clients.producer.producer import Producer
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.list_transactions import ListTransactionsRequest
from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.clusters import cluster_for, run
from barnabas_spark.options.reads import Position, ReadOptions, Topics
from barnabas_spark.options.writes import WriteOptions
from barnabas_spark.planning.plan import Split
from barnabas_spark.reading.reader import read_split

from .decisions import Decision, Prepared, decode, encode
from .names import driver_id, is_of_attempt
from .plan import Effect, End, Fence, Fenced, Owner, ReadLast, Sweep, Verify, Write

__all__ = ["TOPIC", "LostTransactionError", "TopicOfDecisionsError", "carry_out"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOPIC: Final = "barnabas-spark-decisions"
# A decision is one small record, and its transaction is open for as long as that takes.
DECIDING_S: Final = 60.0
ENDS_AT_ONCE: Final = 16
SWEEPS_AT_ONCE: Final = 16
_GONE: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


class LostTransactionError(BarnabasError):
    """A transaction of a batch cannot be committed any more."""

    def __init__(self, prepared: Prepared, reason: str, *, is_decided: bool) -> None:
        where = f"transaction {prepared.transactional_id} (producer {prepared.producer_id}, epoch {prepared.epoch})"
        what = (
            "its batch was decided, and others of its transactions may be committed: the batch is torn"
            if is_decided
            else "nothing of its batch is committed, and the batch can be written again"
        )
        super().__init__(f"{where} is not open any more: {reason}; {what}")
        self.prepared = prepared
        self.is_decided = is_decided


class TopicOfDecisionsError(BarnabasError):
    """The topic of decisions cannot be used as it is."""


def carry_out(plan: Generator[Effect, Any, T], options: WriteOptions) -> T:
    """Carry a plan out to its end, and return what it returns.

    Raises:
        Fenced, LostTransactionError, TopicOfDecisionsError, OtherQueryError: as plan.py says.
        KafkaError, ClientError: no broker answers, or may not be asked.
    """
    try:
        effect = next(plan)
        while True:
            try:
                found = _carried_out(effect, options)
            except BarnabasError as error:
                effect = plan.throw(error)
            else:
                effect = plan.send(found)
    except StopIteration as end:
        value: T = end.value
        return value


def _carried_out(effect: Effect, options: WriteOptions) -> Any:
    timeout_s = options.delivery_timeout_ms / 1000
    match effect:
        case Fence(sink):
            return run(_fence(sink, options), timeout_s)
        case ReadLast(sink):
            return _read_last(sink, options)
        case Write(owner, decision):
            return run(_write(owner, decision, options), timeout_s)
        case Verify(prepared):
            return run(_verify(prepared, options), timeout_s)
        case End(prepared):
            return run(_end(prepared, options), timeout_s)
        case Sweep(sink, owner):
            return run(_sweep(sink, owner, options), timeout_s)


def _reading(options: WriteOptions) -> ReadOptions:
    return ReadOptions(
        options.bootstrap_servers,
        Topics(subscribe=(TOPIC,)),
        Position("startingOffsets", -2),
        Position("endingOffsets", -1),
        poll_timeout_ms=options.delivery_timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
        isolation_level="read_committed",
    )


async def _cluster(options: WriteOptions) -> Cluster:
    return await cluster_for(_reading(options), is_driver=True)


async def _fence(sink: str, options: WriteOptions) -> Owner:
    async with _driver(sink, options) as producer:
        return Owner(*producer.transaction_owner[1:])


async def _write(owner: Owner, decision: Decision, options: WriteOptions) -> Owner:
    producer = _driver(decision.sink, options)
    producer.go_on_as(*owner)
    try:
        async with producer, producer.transaction():
            await producer.send_and_wait(TOPIC, encode(decision), key=decision.sink.encode(), partition=0)
        # Its epoch is the next one already, or the same in the first protocol.
        return Owner(*producer.transaction_owner[1:])
    except KafkaError as error:
        if error.fenced:
            raise Fenced(f"sink {decision.sink!r} has another driver now: {error}") from error
        raise


def _driver(sink: str, options: WriteOptions) -> Producer:
    return Producer(
        options.bootstrap_servers,
        client_id="barnabas-spark-driver",
        transactional_id=driver_id(sink),
        transaction_timeout_s=DECIDING_S,
        timeout_s=options.max_block_ms / 1000,
        request_timeout_s=options.request_timeout_ms / 1000,
        linger_s=0,
    )


def _read_last(sink: str, options: WriteOptions) -> Decision | None:
    reading = _reading(options)
    timeout_s = options.delivery_timeout_ms / 1000

    async def log() -> Split:
        cluster = await _cluster(options)
        try:
            # Refused if it is there.
            await create_topic(cluster, TOPIC, 1, -1, configs={"cleanup.policy": "compact"}, timeout_s=timeout_s)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        at = {spec: {(TOPIC, 0): spec} for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)}
        start_offset, end_offset = [(await list_offsets(cluster, at[spec], timeout_s))[TOPIC, 0].offset for spec in at]
        (view,) = await known_topics(cluster, [TOPIC], timeout_s)
        return Split(TOPIC, view.topic_id, 0, view.partitions[0].leader_epoch, start_offset, end_offset)

    last: bytes | None = None
    key = sink.encode()
    for batch in read_split(run(log(), timeout_s), reading, ("key", "value")):
        for its_key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            last = value if its_key == key else last
    return None if last is None else decode(last)


async def _verify(prepared: tuple[Prepared, ...], options: WriteOptions) -> None:
    if not prepared:
        return
    cluster = await _cluster(options)
    try:
        ids = [one.transactional_id for one in prepared]
        known = await describe_transactions(cluster, ids, options.delivery_timeout_ms / 1000)
    except KafkaError as error:
        if error.code in _GONE:
            raise LostTransactionError(prepared[0], str(error), is_decided=False) from error
        raise
    for one in prepared:
        found = known[one.transactional_id]
        if (found.state, found.producer_id, found.producer_epoch) != ("Ongoing", one.producer_id, one.epoch):
            raise LostTransactionError(one, f"it is {found.state}", is_decided=False)


async def _end(prepared: tuple[Prepared, ...], options: WriteOptions) -> None:
    cluster = await _cluster(options)
    at_once = asyncio.Semaphore(ENDS_AT_ONCE)

    async def end(one: Prepared) -> None:
        async with at_once:
            await _end_one(cluster, one, options)

    for outcome in await asyncio.gather(*(end(one) for one in prepared), return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def _end_one(cluster: Cluster, one: Prepared, options: WriteOptions) -> None:
    coordinator = Coordinator.of_transactions(cluster, one.transactional_id)
    request = EndTxnRequest(
        transactional_id=one.transactional_id, producer_id=one.producer_id, producer_epoch=one.epoch, committed=True
    )
    is_second = cluster.features.level("transaction.version") >= 2

    async def attempt(deadline: float) -> None:
        versions = range(5, 6) if is_second else range(5)
        response = await coordinator.ask(request, deadline, versions=versions)
        coordinator.judge(response.error_code)

    try:
        await coordinator.retry("the commit", options.delivery_timeout_ms / 1000, attempt)
    except KafkaError as error:
        if error.code in _GONE:
            raise LostTransactionError(one, str(error), is_decided=True) from error
        raise


async def _sweep(sink: str, owner: Owner, options: WriteOptions) -> None:
    """Abort what is open. Whoever still writes there is fenced by it."""
    cluster = await _cluster(options)
    timeout_s = options.delivery_timeout_ms / 1000
    listed = await list_transactions(cluster, timeout_s, ListTransactionsRequest(state_filters=["Ongoing"]))
    ids = [row.transactional_id for row in listed if is_of_attempt(sink, row.transactional_id)]
    if not ids:
        return
    driver = (await describe_transactions(cluster, [driver_id(sink)], timeout_s))[driver_id(sink)]
    # While its last transaction is being completed it has the epoch of that; a newer driver's is higher.
    if driver.producer_id != owner.producer_id or driver.producer_epoch > owner.epoch:
        logger.warning("sink %s has another driver now, which aborts what is open", sink)
        return
    at_once = asyncio.Semaphore(SWEEPS_AT_ONCE)

    async def abort(transactional_id: str) -> None:
        async with at_once:
            await _abort_one(cluster, transactional_id, timeout_s)

    await asyncio.gather(*map(abort, ids))
    logger.info("sink %s: %d transactions of attempts that do not count were aborted", sink, len(ids))


async def _abort_one(cluster: Cluster, transactional_id: str, timeout_s: float) -> None:
    coordinator = Coordinator.of_transactions(cluster, transactional_id)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=int(DECIDING_S * 1000))

    async def attempt(deadline: float) -> None:
        response = await coordinator.ask(request, deadline)
        if response.error_code:
            coordinator.judge(response.error_code)
            raise error_for(response.error_code, transactional_id)

    await coordinator.retry("the abort", timeout_s, attempt)
