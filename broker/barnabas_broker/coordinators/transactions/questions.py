"""Asks transaction coordinators whether partitions are in transactions, for the leaders of those partitions.

A leader takes the first batch of a transaction only when the coordinator has said that the partition is part of it
(`partition/verifications`). A client that adds its partitions itself has that looked up (`verify_only`); for others the
leader adds it. Every broker computes the coordinator's partition from the transactional id; who leads that is the
coordinator.

*Together.* A few requests to each coordinator are under way, `UNDER_WAY_MAX` of them, and what is asked meanwhile goes
together with the next one. They are several, because a coordinator lets a question about a transaction that is ending
wait for a moment, and the others should not. An answer names its transaction by the transactional id alone, so of each
id there is one producer in a request; a second one, of another epoch for instance, goes with another.

*Once more.* A client of version 2 of transactions begins the next one while the markers of the last are on their way,
and its coordinator says CONCURRENT_TRANSACTIONS. So what is to be added is asked for again, every `BACKOFF_MS` for
`PATIENCE_MS`, as in Kafka, before the client hears of it.

*Who does not answer*, is not connected, or is not known, is COORDINATOR_NOT_AVAILABLE, and the same question may be
asked again.

Limits: one question for each partition of an unanswered request, and nothing for those who have withdrawn theirs;
`PLACES_MAX` partitions and `ID_CHARACTERS_MAX` characters of ids in a request, and a task for each request that is
under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.slices import Slices
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import BarnabasError

from .state_machine.location import java_hash
from .state_machine.messages import Place

__all__ = ["AskCoordinator", "Asked", "CoordinatorQuestions", "Told", "Who"]

PLACES_MAX = 1_000
ID_CHARACTERS_MAX = 1 << 20
UNDER_WAY_MAX = 4  # requests to one coordinator
BACKOFF_MS = 20  # Kafka's add.partitions.to.txn.retry.backoff.ms and its maximum
PATIENCE_MS = 100

AskCoordinator = Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]
Told = Callable[[ErrorCode], None]
Failed = Callable[[Exception], None]


class Who(NamedTuple):
    """A producer that acts under a transactional id, and whether partitions are only looked up.

    `id_hash`: the id's `java_hash`, by which its coordinator is found; made once, as that of a long id takes long.
    """

    transactional_id: str
    id_hash: int
    producer_id: int
    producer_epoch: int
    verify_only: bool


class Asked:
    """One question on its way. `told` is called once, with the code, unless it is withdrawn before."""

    __slots__ = ("_questions", "again", "failed", "place", "told", "until_ms", "who")

    def __init__(
        self,
        questions: "CoordinatorQuestions",
        who: Who,
        place: Place,
        told: Told,
        failed: Failed | None,
        until_ms: int,
    ) -> None:
        self._questions = questions
        self.who = who
        self.place = place
        self.told: Told | None = told
        self.failed = failed
        self.until_ms = until_ms
        self.again: Deadline[Callable[[], None]] | None = None

    def withdraw(self) -> None:
        """Nobody wants the answer any more. The coordinator may be asked all the same."""
        if self.told is not None:
            self.told = None
            self._questions.forget(self)


Waiting = dict[Who, dict[Place, dict[Asked, None]]]


class _Desk:
    """What one coordinator is to be asked; some tasks work for it as long as there is something.

    `is_new`: one of them has yet to look at what waits.
    """

    __slots__ = ("is_new", "under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: Waiting = {}
        self.under_way = 0
        self.is_new = False


class CoordinatorQuestions:
    """See the module. Owned by the loop.

    Args:
        find: Returns the node that coordinates the transactional id of a hash; None: it is not known.
        ask: Asks that node, which may be this one.
        timers, now_ms: The node's.
        spawn: Runs a task that ends with the node.
    """

    def __init__(
        self,
        find: Callable[[int], int | None],
        ask: Callable[[int, AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]],
        timers: Timers,
        now_ms: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._find = find
        self._ask = ask
        self._timers = timers
        self._now_ms = now_ms
        self._spawn = spawn
        self._desks: dict[int, _Desk] = {}

    def __len__(self) -> int:
        """Return how many questions wait to be sent."""
        return sum(
            len(asked) for desk in self._desks.values() for places in desk.waiting.values() for asked in places.values()
        )

    def ask(self, who: Who, place: Place, told: Told, failed: Failed | None = None) -> Asked:
        """Ask about one partition. `told` may be called before this returns, and `failed` if that raises."""
        asked = Asked(self, who, place, told, failed, self._now_ms() + PATIENCE_MS)
        self._put(asked)
        return asked

    async def add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Ask everything of a request of version 4 or 5, and return the answers to it. Cancelled, it is withdrawn."""
        response = AddPartitionsToTxnResponse()
        rows: list[tuple[Who, Place, AddPartitionsToTxnPartitionResult]] = []
        for one in request.transactions:
            name = one.transactional_id
            who = Who(name, java_hash(name), one.producer_id, one.producer_epoch, one.verify_only)
            result = AddPartitionsToTxnResult(transactional_id=name)
            response.results_by_transaction.append(result)
            for topic in one.topics:
                named = [AddPartitionsToTxnPartitionResult(partition_index=index) for index in topic.partitions]
                result.topic_results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=named))
                rows += [(who, (topic.name, row.partition_index), row) for row in named]
        left = len(rows)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(row: AddPartitionsToTxnPartitionResult, code: ErrorCode) -> None:
            nonlocal left
            row.partition_error_code = code
            left -= 1
            if not left and not done.done():
                done.set_result(None)

        all_asked = [self.ask(who, place, partial(tell, row)) for who, place, row in rows]
        try:
            if left:
                await done
        finally:
            for asked in all_asked:
                asked.withdraw()
        return response

    def forget(self, asked: Asked) -> None:
        """It was withdrawn."""
        if asked.again is not None:
            self._timers.cancel(asked.again)
            asked.again = None
        for desk in self._desks.values():
            places = desk.waiting.get(asked.who)
            if places is None or asked not in places.get(asked.place, ()):
                continue
            del places[asked.place][asked]
            if not places[asked.place]:
                del places[asked.place]
            if not places:
                del desk.waiting[asked.who]
            return

    # Inside.

    def _put(self, asked: Asked) -> None:
        asked.again = None
        node_id = self._find(asked.who.id_hash)
        if node_id is None:
            _tell(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        desk = self._desks.get(node_id)
        if desk is None:
            desk = self._desks[node_id] = _Desk()
        if desk.under_way < UNDER_WAY_MAX and not desk.is_new:
            desk.is_new = True
            desk.under_way += 1
            self._spawn(self._work(node_id, desk))
        desk.waiting.setdefault(asked.who, {}).setdefault(asked.place, {})[asked] = None

    async def _work(self, node_id: int, desk: _Desk) -> None:
        """Ask one request after the other, as long as there is something to be asked."""
        desk.is_new = False
        try:
            while desk.waiting:
                sent = self._take(node_id, desk)
                if not sent:
                    continue  # All of it has moved to another coordinator.
                try:
                    response = await self._ask(node_id, _request(sent))
                except (BarnabasError, TimeoutError):
                    response = AddPartitionsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
                await self._take_in(sent, response)
        finally:
            desk.under_way -= 1
            if not desk.under_way:
                del self._desks[node_id]

    def _take(self, node_id: int, desk: _Desk) -> Waiting:
        """Remove and return what the next request asks; what another node coordinates by now goes to that one."""
        sent: Waiting = {}
        ids = set[str]()
        places_left, characters_left = PLACES_MAX, ID_CHARACTERS_MAX
        for who in list(desk.waiting):
            if places_left <= 0 or characters_left <= 0:
                break
            if self._find(who.id_hash) != node_id:
                moved = desk.waiting.pop(who)
                for asked in [one for questions in moved.values() for one in questions]:
                    self._put(asked)
            elif who.transactional_id not in ids:
                ids.add(who.transactional_id)
                characters_left -= len(who.transactional_id)
                places = desk.waiting[who]
                taken = dict(list(places.items())[:places_left])
                places_left -= len(taken)
                sent[who] = taken
                if len(taken) == len(places):
                    del desk.waiting[who]
                else:
                    for place in taken:
                        del places[place]
        return sent

    async def _take_in(self, sent: Waiting, response: AddPartitionsToTxnResponse) -> None:
        """Tell everybody who has asked what the answer is."""
        codes = _codes(response)
        slices = Slices()
        for who, places in sent.items():
            for place, questions in places.items():
                code = _known(response.error_code or codes.get((who.transactional_id, *place)))
                for asked in questions:
                    self._conclude(asked, code)
                    await slices.yield_if_due()

    def _conclude(self, asked: Asked, code: ErrorCode) -> None:
        is_passing = code is ErrorCode.CONCURRENT_TRANSACTIONS and not asked.who.verify_only
        if asked.told is not None and is_passing and self._now_ms() < asked.until_ms:
            asked.again = self._timers.add(BACKOFF_MS, partial(self._put, asked))
        else:
            _tell(asked, code)


def _tell(asked: Asked, code: ErrorCode) -> None:
    told, asked.told = asked.told, None
    failed = asked.failed
    if told is not None:
        call_each((told,), lambda one: one(code), failed and (lambda _, error: failed(error)))


def _request(sent: Waiting) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[_transaction(who, places) for who, places in sent.items()])


def _transaction(who: Who, places: Iterable[Place]) -> AddPartitionsToTxnTransaction:
    indexes: dict[str, list[int]] = {}
    for topic, index in places:
        indexes.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        verify_only=who.verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=found) for topic, found in indexes.items()],
    )


def _codes(response: AddPartitionsToTxnResponse) -> dict[tuple[str, str, int], int]:
    """Return the codes of an answer by transactional id, topic and partition."""
    return {
        (one.transactional_id, topic.name, row.partition_index): row.partition_error_code
        for one in response.results_by_transaction
        for topic in one.topic_results
        for row in topic.results_by_partition
    }


def _known(code: int | None) -> ErrorCode:
    """Return the code; one that is missing, or that this version does not know, says nothing."""
    try:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is None else ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
