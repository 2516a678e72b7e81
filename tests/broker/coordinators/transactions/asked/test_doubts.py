"""Leaders ask all coordinators what has become of open transactions, and end those that have lost their markers."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.coordinators.transactions.asking import Coordinators
from barnabas_broker.coordinators.transactions.doubts import AGAIN_MS, AGAIN_MS_MAX, ROWS_MAX, Doubts
from barnabas_broker.coordinators.transactions.outcome_messages import (
    METHOD,
    VERSION,
    EndedTransaction,
    OutcomesRequest,
    OutcomesResponse,
)
from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC
from barnabas_broker.coordinators.transactions.state_machine.outcomes import Outcome
from barnabas_broker.partition.partition import NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import CoordinatorFencedError
from barnabas_broker.partition.transactions import OpenTransaction
from barnabas_broker.timing.deadlines import Deadlines
from barnabas_metadata_quorum.leaders.table import Leadership
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.records.markers import EndMarker

NODE = 1
COUNT = 4
"""Partitions of `__transaction_state`; node 1 leads the even ones, node 2 the odd ones."""
TERM = 8


class FakePartition:
    """Doubts some transactions, and notes what is done about them. `error` is raised instead, if it is set."""

    def __init__(self, name: str, *producer_ids: int) -> None:
        self.topic_name = name
        self.index = 0
        self.doubts = [OpenTransaction(producer_id, 3, 100, 9, 0) for producer_id in producer_ids]
        self.ended: list[EndMarker] = []
        self.dismissed: list[int] = []
        self.error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.topic_name}-0"

    def dismiss_doubt(self, doubt: OpenTransaction) -> None:
        self.doubts.remove(doubt)
        self.dismissed.append(doubt.producer_id)

    def end_doubt(self, doubt: OpenTransaction, marker: EndMarker) -> bool:
        if self.error is not None:
            raise self.error
        if doubt not in self.doubts:
            return False
        self.doubts.remove(doubt)
        self.ended.append(marker)
        return True


class World:
    """One leader, and coordinators: `known` has an outcome and a marker's epoch by producer id."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[int, int]] = {}
        self.silent: set[int] = set()
        self.unled: set[int] = set()
        self.asked: list[tuple[int, int]] = []
        self.told: list[tuple[str, str, str]] = []
        self.now = 0
        self.deadlines: Deadlines[Callable[[], None]] = Deadlines()
        self.loop = asyncio.new_event_loop()
        self.tasks: list[asyncio.Task[None]] = []
        timers = SimpleNamespace(
            add=lambda delay, callback: self.deadlines.add(self.now + delay, callback), cancel=self.deadlines.cancel
        )
        host = SimpleNamespace(timers=timers, spawn=self._spawn, tell=lambda *event: self.told.append(event))
        topic = SimpleNamespace(topic_id=b"", partitions=range(COUNT))
        self.topics: dict[str, Any] = {TRANSACTION_TOPIC: SimpleNamespace(topic=topic)}
        call: Any = self._call
        coordinators = Coordinators(NODE, self.topics, self._leadership, call, cast("Any", None))
        self.doubts = Doubts(NODE, cast("Any", host), coordinators, call, self._ask_here)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self.loop.create_task(work))

    def _leadership(self, _: bytes, index: int) -> Leadership | None:
        return None if index in self.unled else Leadership(1, 1, 1 + index % 2, ())

    async def _call(self, node_id: int, method: str, body: bytes, _: float) -> bytes:
        assert method == METHOD
        if node_id in self.silent:
            raise TimeoutError
        return self._answer(node_id, OutcomesRequest.decode(body, VERSION)).to_bytes(VERSION)

    async def _ask_here(self, request: OutcomesRequest) -> OutcomesResponse:
        return OutcomesResponse() if NODE in self.silent else self._answer(NODE, request)

    def _answer(self, node_id: int, request: OutcomesRequest) -> OutcomesResponse:
        self.asked.append((node_id, len(request.rows)))
        mine = [index for index in range(COUNT) if 1 + index % 2 == node_id]
        ended = [
            EndedTransaction(row=number, outcome=found[0], marker_epoch=found[1], coordinator_epoch=TERM)
            for number, row in enumerate(request.rows)
            if row.producer_id % COUNT in mine and (found := self.known.get(row.producer_id)) is not None
        ]
        return OutcomesResponse(coordinated=mine, ended=ended)

    def note(self, *partitions: FakePartition) -> None:
        for partition in partitions:
            self.doubts.note(cast("Partition", partition))
        self.run()

    def run(self) -> None:
        """Let everything happen that happens without time."""
        while self.tasks:
            self.loop.run_until_complete(self.tasks.pop())

    def pass_time(self) -> int:
        """Go to the next deadline; return how long that was."""
        before = self.now
        at_ms = self.deadlines.next_at_ms
        assert at_ms is not None, "nobody will ask again"
        self.now = at_ms
        for callback in self.deadlines.take_due(self.now, 10):
            callback()
        self.run()
        return self.now - before


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


def test_what_coordinators_know_is_done_and_what_nobody_knows_is_aborted(world: World) -> None:
    world.known = {1: (Outcome.COMMIT, 4), 2: (Outcome.ABORT, 4), 3: (Outcome.OPEN, 3)}
    first, second = FakePartition("a", 1, 3), FakePartition("b", 2, 7)
    world.note(first, second)
    assert first.ended == [EndMarker(1, 4, True, TERM)]
    assert first.dismissed == [3]
    assert second.ended == [EndMarker(2, 4, False, TERM), EndMarker(7, 3, False, -1)]
    assert [(kind, subject) for kind, subject, _ in world.told] == [
        ("lost marker replaced", "a-0"),
        ("lost marker replaced", "b-0"),
        ("lost marker replaced", "b-0"),
    ]
    assert world.told[2][2] == "producer 7, epoch 3, from offset 100 on: aborted, because no coordinator knows it"
    assert world.deadlines.next_at_ms is None, "all is done"


def test_nothing_is_aborted_while_a_coordinator_is_silent_or_not_known(world: World) -> None:
    world.known = {1: (Outcome.COMMIT, 4)}
    partition = FakePartition("a", 1, 7, 6)
    world.silent = {2}
    world.note(partition)
    assert not partition.ended
    world.silent = set()
    world.unled = {2}  # its leader is asked about another one, which is not all that it should say
    world.topics[TRANSACTION_TOPIC].topic.partitions = range(COUNT + 1)
    world.pass_time()
    assert partition.ended == [EndMarker(1, 4, True, TERM)], "what is known is done"
    world.topics[TRANSACTION_TOPIC].topic.partitions = range(COUNT)
    world.pass_time()
    assert partition.ended[1:] == [EndMarker(7, 3, False, -1), EndMarker(6, 3, False, -1)]


def test_nothing_is_aborted_while_the_topic_is_not_known(world: World) -> None:
    partition = FakePartition("a", 1)
    hosted = world.topics.pop(TRANSACTION_TOPIC)
    world.note(partition)
    assert not partition.ended
    world.topics[TRANSACTION_TOPIC] = hosted
    world.pass_time()
    assert partition.ended == [EndMarker(1, 3, False, -1)]


def test_it_asks_again_ever_more_seldom_and_at_once_when_something_new_is_in_doubt(world: World) -> None:
    world.silent = {1, 2}
    old, new = FakePartition("a", 1), FakePartition("b", 1)
    world.note(old)
    pauses = [world.pass_time() for _ in range(8)]
    assert pauses == [min(AGAIN_MS << n, AGAIN_MS_MAX) for n in range(8)]
    world.silent = set()
    asked = len(world.asked)
    world.note(new)
    assert world.asked[asked:] == [(1, 2), (2, 2)]
    assert not old.doubts
    assert not new.doubts


def test_a_question_has_so_many_rows_and_there_is_one_at_a_time(world: World) -> None:
    partition = FakePartition("a", *range(ROWS_MAX + 5))
    world.note(partition)
    assert world.asked == [(1, ROWS_MAX), (2, ROWS_MAX), (1, 5), (2, 5)]
    assert len(partition.ended) == ROWS_MAX + 5


def test_what_cannot_be_done_now_stays_in_doubt_and_what_never_can_is_told(world: World) -> None:
    world.known = {1: (Outcome.COMMIT, 4)}
    partition = FakePartition("a", 1)
    for error in (NotEnoughReplicasError("few"), NotLeaderError(2)):
        partition.error = error
        world.note(partition)
        assert partition.doubts
    partition.error = CoordinatorFencedError("a later one")
    world.pass_time()
    assert partition.dismissed == [1]
    assert [kind for kind, _, _ in world.told] == ["lost marker refused"]


def test_what_is_over_meanwhile_is_not_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.known = {1: (Outcome.COMMIT, 4)}
    partition = FakePartition("a", 1)

    def over(_doubt: OpenTransaction, _marker: EndMarker) -> bool:
        partition.doubts.clear()
        return False

    monkeypatch.setattr(partition, "end_doubt", over)
    world.note(partition)
    assert not world.told
    assert world.deadlines.next_at_ms is None
