"""Questions to coordinators: joined, put again, withdrawn, and answered whatever becomes of the coordinator."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.coordinators.transactions import questions as module
from barnabas_broker.coordinators.transactions.asking import METHOD, VERSION, Coordinators
from barnabas_broker.coordinators.transactions.questions import (
    BACKOFF_MS,
    PATIENCE_MS,
    PLACES_MAX,
    UNDER_WAY_MAX,
    Asked,
    CoordinatorQuestions,
    Who,
)
from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC, java_hash
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.leaders.table import Leadership
from barnabas_raftlog.errors import BarnabasError

NONE, BUSY, ABSENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE


class ManualTimers(Timers):
    def _arm(self) -> None: ...


def who(name: str, *, epoch: int = 0, verify_only: bool = False) -> Who:
    return Who(name, java_hash(name), 5, epoch, verify_only)


def answered(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in request.transactions
        ]
    )


class World:
    """A node whose coordinators answer when the test does; `homes` says where an id is, 2 if not otherwise."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timers = ManualTimers(lambda: self.now_ms)
        self.homes: dict[int, int | None] = {}
        self.requests: list[tuple[int, AddPartitionsToTxnRequest, asyncio.Future[AddPartitionsToTxnResponse]]] = []
        self.told: list[tuple[str, ErrorCode]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.questions = CoordinatorQuestions(
            lambda id_hash: self.homes.get(id_hash, 2), self._ask, self.timers, lambda: self.now_ms, self._spawn
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(coroutine))

    async def _ask(self, node_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        future: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        self.requests.append((node_id, request, future))
        return await future

    def ask(self, one: Who, partition: int = 0, label: str = "") -> Asked:
        label = label or one.transactional_id
        return self.questions.ask(one, ("t", partition), lambda code: self.told.append((label, code)))

    def names(self) -> list[tuple[int, list[str]]]:
        """Return what was asked of whom."""
        return [
            (node_id, [one.transactional_id for one in request.transactions]) for node_id, request, _ in self.requests
        ]

    async def answer(self, number: int = 0, code: ErrorCode = NONE) -> None:
        _, request, future = self.requests.pop(number)
        future.set_result(answered(request, code))
        await self.breathe()

    async def breathe(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.timers._fire()
        await self.breathe()


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNDER_WAY_MAX", 1)


@pytest.mark.usefixtures("one_at_a_time")
async def test_what_is_asked_while_a_request_is_under_way_goes_with_the_next() -> None:
    world = World()
    world.ask(who("a"))
    world.ask(who("a"), 1)
    world.ask(who("b"))
    await world.breathe()
    assert world.names() == [(2, ["a", "b"])]
    assert list(world.requests[0][1].transactions[0].topics[0].partitions) == [0, 1]
    for name in ("c", "d"):
        world.ask(who(name))
    await world.breathe()
    assert len(world.requests) == 1
    await world.answer()
    assert world.names() == [(2, ["c", "d"])]
    assert world.told == [("a", NONE), ("a", NONE), ("b", NONE)]


@pytest.mark.usefixtures("one_at_a_time")
async def test_of_one_id_there_is_one_producer_in_a_request() -> None:
    """The answer would not say which of them it is about."""
    world = World()
    world.ask(who("a", epoch=1), label="old")
    world.ask(who("a", epoch=2), label="new")
    world.ask(who("a", epoch=1), label="again")
    await world.breathe()
    assert [one.producer_epoch for one in world.requests[0][1].transactions] == [1]
    await world.answer(code=ErrorCode.PRODUCER_FENCED)
    assert [label for label, _ in world.told] == ["old", "again"]
    await world.answer()
    assert world.told[2:] == [("new", NONE)]


async def test_a_busy_transaction_keeps_others_waiting_only_behind_several() -> None:
    world = World()
    for number in range(UNDER_WAY_MAX + 2):
        world.ask(who(f"{number}"))
        await world.breathe()
    assert [names for _, names in world.names()] == [[f"{number}"] for number in range(UNDER_WAY_MAX)]
    await world.answer(1)
    assert world.names()[-1] == (2, [f"{UNDER_WAY_MAX}", f"{UNDER_WAY_MAX + 1}"])
    while world.requests:
        await world.answer()
    assert all(task.done() for task in world.tasks)
    assert not world.questions._desks


async def test_a_request_names_so_many_partitions_and_the_others_go_with_the_next(one_at_a_time: None) -> None:
    world = World()
    for partition in range(PLACES_MAX + 3):
        world.ask(who("a"), partition)
    await world.breathe()
    for count in (PLACES_MAX, 3):
        assert len(world.requests[0][1].transactions[0].topics[0].partitions) == count
        await world.answer()
        await asyncio.gather(*(task for task in world.tasks if count == 3))
        await world.breathe()
    assert len(world.told) == PLACES_MAX + 3


async def test_what_is_to_be_added_is_asked_for_again_for_a_while() -> None:
    world = World()
    world.ask(who("adds"))
    world.ask(who("looks up", verify_only=True))
    await world.breathe()
    await world.answer(code=BUSY)
    assert world.told == [("looks up", BUSY)]
    asked = 0
    while len(world.told) == 1:
        await world.pass_time(BACKOFF_MS)
        await world.answer(code=BUSY)
        asked += 1
    assert asked == PATIENCE_MS // BACKOFF_MS
    assert world.told[1:] == [("adds", BUSY)]
    world.ask(who("adds"))
    await world.breathe()
    await world.answer(code=BUSY)
    await world.pass_time(BACKOFF_MS)
    await world.answer()
    assert world.told[2:] == [("adds", NONE)]


async def test_nothing_is_kept_of_what_is_withdrawn() -> None:
    world = World()
    waiting, sent, again, left = (world.ask(who("a"), number, f"{number}") for number in range(4))
    waiting.withdraw()
    await world.breathe()
    assert list(world.requests[0][1].transactions[0].topics[0].partitions) == [1, 2, 3]
    sent.withdraw()
    await world.answer(code=BUSY)
    again.withdraw()
    again.withdraw()
    await world.pass_time(BACKOFF_MS)
    assert list(world.requests[0][1].transactions[0].topics[0].partitions) == [3]
    assert left.told is not None
    await world.answer()
    assert world.told == [("3", NONE)]
    assert len(world.questions) == 0


async def test_who_cannot_be_asked_is_not_available_and_who_moves_is_followed(one_at_a_time: None) -> None:
    world = World()
    world.homes = {java_hash("unknown"): None, java_hash("here"): 1}
    world.ask(who("unknown"))
    assert world.told == [("unknown", ABSENT)]
    world.ask(who("a"))
    world.ask(who("here"))
    await world.breathe()
    assert world.names() == [(2, ["a"]), (1, ["here"])]
    world.ask(who("moves"))
    world.ask(who("goes"))
    world.homes |= {java_hash("moves"): 3, java_hash("goes"): None}
    _, _, future = world.requests.pop(0)
    future.set_exception(BarnabasError("the link is down"))
    await world.breathe()
    assert world.told[1:] == [("a", ABSENT), ("goes", ABSENT)]
    assert world.names() == [(1, ["here"]), (3, ["moves"])]
    await world.answer(1)
    _, _, future = world.requests.pop()
    future.set_result(AddPartitionsToTxnResponse())  # It says nothing about what it was asked.
    await world.breathe()
    assert world.told[3:] == [("moves", NONE), ("here", ABSENT)]


async def test_a_whole_request_is_answered_when_all_of_it_is() -> None:
    world = World()
    world.homes[java_hash("unknown")] = None
    request = AddPartitionsToTxnRequest(
        transactions=[module._transaction(who(name), [("t", 0), ("t", 1), ("u", 0)]) for name in ("unknown", "a", "b")]
    )
    answer = asyncio.ensure_future(world.questions.add_partitions(request))
    await world.breathe()
    await world.answer()
    response = await answer
    codes = module._codes(response)
    assert {key: code for key, code in codes.items() if code} == {
        ("unknown", *place): ABSENT for place in (("t", 0), ("t", 1), ("u", 0))
    }
    assert len(codes) == 9
    cancelled = asyncio.ensure_future(world.questions.add_partitions(request))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert len(world.questions) == 0


async def test_a_question_goes_to_the_leader_of_the_ids_partition_here_or_over_a_link() -> None:
    leaders = {0: Leadership(7, 0, 1, (1,)), 1: Leadership(7, 0, 2, (2,)), 2: Leadership(7, 0, -1, ())}
    topics: dict[str, Any] = {}
    calls: list[tuple[int, str]] = []

    async def call(node_id: int, method: str, body: bytes, _: float) -> bytes:
        calls.append((node_id, method))
        return answered(AddPartitionsToTxnRequest.decode(body, VERSION), BUSY).to_bytes(VERSION)

    async def ask_here(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return answered(request, NONE)

    coordinators = Coordinators(1, topics, lambda _, index: leaders.get(index), call, ask_here)
    assert coordinators.find(0) is None, "there is no topic yet"
    topics[TRANSACTION_TOPIC] = cast("Any", SimpleNamespace(topic=SimpleNamespace(topic_id=b"", partitions=range(4))))
    assert [coordinators.find(id_hash) for id_hash in (0, 1, -5, 2, 3)] == [1, 2, 2, None, None]
    request = AddPartitionsToTxnRequest(transactions=[module._transaction(who("a"), [("t", 0)])])
    assert module._codes(await coordinators.ask(1, request)) == {("a", "t", 0): NONE}
    assert module._codes(await coordinators.ask(2, request)) == {("a", "t", 0): BUSY}
    assert calls == [(2, METHOD)]
