"""Carries the steps of a driver out at the brokers. Everything here blocks until it is done, or its deadline is over.

The decisions of all sinks are in the topic `TOPIC`, which has one partition, is compacted, and is made at the first
use. A reader goes by its end of now and reads committed records up to there: so whatever a driver before had begun to
decide is read, or was aborted.
"""

import asyncio
import logging
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

from barnabas_clients.admin.groups import each
from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.topics import create_topic, known_topics
from barnabas_clients.admin.transactions import describe_transactions, list_transactions
from barnabas_clients.admin.values import OffsetSpec, TransactionDescription
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.producer.producer import Producer
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError
from barnabas_clients.protocol.list_transactions import ListTransactionsRequest
from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.clusters import cluster_for, run
from barnabas_spark.options.reads import Position, ReadOptions, Topics
from barnabas_spark.options.writes import WriteOptions
from barnabas_spark.planning.plan import Split
from barnabas_spark.reading.reader import read_split

from .coordinators import (
    ASKING_S,
    GONE,
    abort_transaction,
    described,
    end_transaction,
    initialise,
    is_second,
    is_vacant,
)
from .decisions import Decision, Prepared, Ticket, Vacant, decode, encode
from .names import driver_id, is_of_attempt, ticket_id
from .plan import Effect, End, EndAny, Fence, Fenced, Look, Owner, ReadLast, Sweep, Verify, Write
from .settling import OPEN, UNKNOWN, outcome_of

__all__ = ["TOPIC", "LostTransactionError", "Standing", "TopicOfDecisionsError", "carry_out", "draw", "standing"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOPIC: Final = "barnabas-spark-decisions"
ENDS_AT_ONCE: Final = 16
SWEEPS_AT_ONCE: Final = 16


class LostTransactionError(BarnabasError):
    """A transaction of a batch cannot be committed any more."""

    def __init__(self, prepared: Prepared, reason: str, *, is_decided: bool) -> None:
        where = f"transaction {prepared.transactional_id} (producer {prepared.producer_id}, epoch {prepared.epoch})"
        what = (
            "its batch was decided, and others of its transactions may be committed: the batch is torn; "
            "see `barnabas-spark settle`"
            if is_decided
            else "nothing of its batch is committed, and the batch can be written again"
        )
        super().__init__(f"{where} is not open any more: {reason}; {what}")
        self.prepared = prepared
        self.is_decided = is_decided


class Standing(NamedTuple):
    """What a sink has decided last, what has become of each of its transactions, and what is open beside them."""

    last: Decision | None
    outcomes: dict[str, str]
    open_ids: tuple[str, ...]

    @property
    def is_at_rest(self) -> bool:
        """True if nobody has to finish or to abort anything."""
        return not self.open_ids and (self.last is None or self.last.is_done)


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


def standing(sink: str, options: WriteOptions) -> Standing:
    """Look at a sink, and change nothing.

    Raises:
        UnreadableDecisionError, KafkaError, ClientError: its last decision cannot be read, or no broker answers.
    """
    try:
        last = _read_last(sink, options, makes_topic=False)
    except UnknownTopicOrPartitionError:
        last = None

    async def look() -> Standing:
        cluster = await _cluster(options)
        timeout_s = options.delivery_timeout_ms / 1000
        prepared = () if last is None else last.prepared
        known = await each(prepared, lambda one: described(cluster, one.transactional_id, timeout_s))
        outcomes = {
            one.transactional_id: UNKNOWN
            if (found := known[one]) is None
            else outcome_of(one, found.state, found.producer_id, found.producer_epoch)
            for one in prepared
        }
        rows = await _open_attempts(cluster, sink, timeout_s)
        ids = sorted(row.transactional_id for row in rows if outcomes.get(row.transactional_id) != OPEN)
        return Standing(last, outcomes, tuple(ids))

    return run(look(), options.delivery_timeout_ms / 1000)


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
        case End(sink, owner, prepared):
            return run(_end(sink, owner, prepared, options), timeout_s)
        case EndAny(sink, owner, prepared):
            return run(_end_any(sink, owner, prepared, options), timeout_s)
        case Sweep(sink, owner):
            return run(_sweep(sink, owner, options), timeout_s)
        case Look(vacant):
            return run(_look(vacant, options), timeout_s)


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
        transaction_timeout_s=ASKING_S,
        timeout_s=options.max_block_ms / 1000,
        request_timeout_s=options.request_timeout_ms / 1000,
        linger_s=0,
    )


def _read_last(sink: str, options: WriteOptions, *, makes_topic: bool = True) -> Decision | None:
    reading = _reading(options)
    timeout_s = options.delivery_timeout_ms / 1000

    async def log() -> Split:
        cluster = await _cluster(options)
        if makes_topic:
            await _make_topic(cluster, timeout_s)
        (view,) = await known_topics(cluster, [TOPIC], timeout_s)
        at = {spec: {(TOPIC, 0): spec} for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)}
        start_offset, end_offset = [(await list_offsets(cluster, at[spec], timeout_s))[TOPIC, 0].offset for spec in at]
        return Split(TOPIC, view.topic_id, 0, view.partitions[0].leader_epoch, start_offset, end_offset)

    last: bytes | None = None
    key = sink.encode()
    for batch in read_split(run(log(), timeout_s), reading, ("key", "value")):
        for its_key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            last = value if its_key == key else last
    return None if last is None else decode(last)


async def _make_topic(cluster: Cluster, timeout_s: float) -> None:
    try:
        # Refused if it is there.
        await create_topic(cluster, TOPIC, 1, -1, configs={"cleanup.policy": "compact"}, timeout_s=timeout_s)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def _verify(prepared: tuple[Prepared, ...], options: WriteOptions) -> None:
    if not prepared:
        return
    cluster = await _cluster(options)
    try:
        ids = [one.transactional_id for one in prepared]
        known = await describe_transactions(cluster, ids, options.delivery_timeout_ms / 1000)
    except KafkaError as error:
        if error.code in GONE:
            raise LostTransactionError(prepared[0], str(error), is_decided=False) from error
        raise
    for one in prepared:
        found = known[one.transactional_id]
        if (found.state, found.producer_id, found.producer_epoch) != ("Ongoing", one.producer_id, one.epoch):
            raise LostTransactionError(one, f"it is {found.state}", is_decided=False)


async def _end(
    sink: str, owner: Owner, prepared: tuple[Prepared, ...], options: WriteOptions
) -> tuple[Owner | None, ...]:
    owners: list[Owner | None] = []
    for outcome in await _ends(sink, owner, prepared, options):
        if isinstance(outcome, LostTransactionError):
            raise outcome
        owners.append(outcome)
    return tuple(owners)


async def _end_any(sink: str, owner: Owner, prepared: tuple[Prepared, ...], options: WriteOptions) -> tuple[bool, ...]:
    outcomes = await _ends(sink, owner, prepared, options)
    return tuple(not isinstance(outcome, LostTransactionError) for outcome in outcomes)


async def _ends(
    sink: str, owner: Owner, prepared: tuple[Prepared, ...], options: WriteOptions
) -> list[Owner | LostTransactionError | None]:
    """Commit each, whatever becomes of the others; return the owner of the id's next one, or why it is lost."""
    cluster = await _cluster(options)
    at_once = asyncio.Semaphore(ENDS_AT_ONCE)

    async def end(one: Prepared) -> Owner | None:
        async with at_once:
            return await _end_one(cluster, one, options)

    outcomes: list[Owner | LostTransactionError | None] = []
    for outcome in await asyncio.gather(*(end(one) for one in prepared), return_exceptions=True):
        if isinstance(outcome, LostTransactionError) and not await _is_driver(cluster, sink, owner, options):
            raise Fenced(f"sink {sink!r} has another driver now, which sees to what was decided") from outcome
        if isinstance(outcome, BaseException) and not isinstance(outcome, LostTransactionError):
            raise outcome
        outcomes.append(outcome)
    return outcomes


async def _end_one(cluster: Cluster, one: Prepared, options: WriteOptions) -> Owner | None:
    timeout_s = options.delivery_timeout_ms / 1000
    try:
        return await end_transaction(cluster, one, timeout_s, is_commit=True)
    except KafkaError as error:
        if error.code in GONE:
            raise LostTransactionError(one, str(error), is_decided=True) from error
        raise


async def _sweep(sink: str, owner: Owner, options: WriteOptions) -> None:
    """Abort what is open. Whoever still writes there is fenced by it."""
    cluster = await _cluster(options)
    timeout_s = options.delivery_timeout_ms / 1000
    found = await _open_attempts(cluster, sink, timeout_s)
    if not found:
        return
    if not await _is_driver(cluster, sink, owner, options):
        logger.warning("sink %s has another driver now, which aborts what is open", sink)
        return
    at_once = asyncio.Semaphore(SWEEPS_AT_ONCE)

    async def abort(one: TransactionDescription) -> None:
        async with at_once:
            await abort_transaction(cluster, one, timeout_s)

    await asyncio.gather(*map(abort, found))
    logger.info("sink %s: %d transactions of attempts that do not count were aborted", sink, len(found))


async def _open_attempts(cluster: Cluster, sink: str, timeout_s: float) -> list[TransactionDescription]:
    """Return the open transactions of a sink's attempts."""
    listed = await list_transactions(cluster, timeout_s, ListTransactionsRequest(state_filters=["Ongoing"]))
    ids = [row.transactional_id for row in listed if is_of_attempt(sink, row.transactional_id)]
    known = await each(ids, lambda one: described(cluster, one, timeout_s))
    return [one for one in known.values() if one is not None and one.state == "Ongoing"]


async def _is_driver(cluster: Cluster, sink: str, owner: Owner, options: WriteOptions) -> bool:
    """Say whether there is no newer driver of the sink."""
    driver = (await describe_transactions(cluster, [driver_id(sink)], options.delivery_timeout_ms / 1000))[
        driver_id(sink)
    ]
    # While its last transaction is being completed it has the epoch of that; a newer driver's is higher.
    return driver.producer_id == owner.producer_id and driver.producer_epoch <= owner.epoch


async def _look(vacant: tuple[Vacant, ...], options: WriteOptions) -> tuple[Vacant, ...]:
    cluster = await _cluster(options)
    if not is_second(cluster):
        return ()
    assert options.exactly_once is not None
    given_ms, timeout_s = options.exactly_once.timeout_ms, options.delivery_timeout_ms / 1000
    found = await each(vacant, lambda one: is_vacant(cluster, one, given_ms, timeout_s))
    return tuple(one for one in vacant if found[one])


async def draw(sink: str, partition: int, options: WriteOptions) -> Ticket | None:
    """Draw a number of a partition, which nobody else ever draws; None in the first protocol, which needs none.

    Cancellation: one that nobody knows may have been drawn. So after an answer that was lost.
    """
    cluster = await cluster_for(_reading(options), is_driver=False)
    if not is_second(cluster):
        return None
    return await initialise(cluster, ticket_id(sink, partition), options.max_block_ms / 1000, "a number")
