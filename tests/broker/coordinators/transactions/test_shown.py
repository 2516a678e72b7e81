"""ListTransactions and DescribeTransactions show what has committed, of the ids that are coordinated here."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from broker.coordinators.runtime.replica_world import WALL_MS

from barnabas_broker.coordinators.transactions.state_machine.messages import SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.table import TransactionName
from barnabas_broker.server.handlers import describe_transactions, list_transactions
from barnabas_clients.protocol.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas_raftlog.steps import at_once

from .transaction_world import TIMEOUT_MS, World

EXCHANGE: Any = SimpleNamespace(is_gone=False)
MANY = 5_000


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        world.lead()
        yield world


def broker_of(world: World) -> Any:
    return SimpleNamespace(transactions=world.coordinator, now_ms=lambda: world.now_ms)


def ask_list(world: World, **asked: Any) -> ListTransactionsResponse:
    return at_once(list_transactions.handle(broker_of(world), EXCHANGE, ListTransactionsRequest(**asked)))


def names(world: World, **asked: Any) -> list[str]:
    response = ask_list(world, **asked)
    assert response.error_code == ErrorCode.NONE
    return sorted(row.transactional_id for row in response.transaction_states)


def describe(
    world: World, *transactional_ids: str, act: Callable[[], object] = lambda: None
) -> Sequence[DescribedTransaction]:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    response = world.run(describe_transactions.handle(broker_of(world), EXCHANGE, request), act)
    assert response is not None
    return response.transaction_states


def three_states(world: World) -> None:
    """Have an id without a transaction, one with, and one whose markers are on their way."""
    world.given("empty")
    world.opened(1, 0, transactional_id="open")
    world.end(world.opened(2, 3, transactional_id="ending"), transactional_id="ending")
    world.commit()


# List.


def test_every_id_is_listed_with_its_state(world: World) -> None:
    three_states(world)
    rows = {row.transactional_id: row for row in ask_list(world).transaction_states}
    states = {name: row.transaction_state for name, row in rows.items()}
    assert states == {"empty": "Empty", "open": "Ongoing", "ending": "PrepareCommit"}
    for name, row in rows.items():
        saved = world.saved(name)
        assert saved is not None
        assert row.producer_id == saved.producer.producer_id
    world.finish()
    assert names(world, state_filters=["CompleteCommit"]) == ["ending"]


def test_a_filter_of_states_names_those_that_do_not_exist(world: World) -> None:
    three_states(world)
    assert names(world, state_filters=["Ongoing", "PrepareCommit"]) == ["ending", "open"]
    response = ask_list(world, state_filters=["Ongoing", "ongoing", "None", "None"])
    assert [row.transactional_id for row in response.transaction_states] == ["open"]
    assert list(response.unknown_state_filters) == ["ongoing", "None", "None"]
    response = ask_list(world, state_filters=["Nothing"])
    assert response.transaction_states == []
    assert list(response.unknown_state_filters) == ["Nothing"]
    assert names(world, state_filters=["Dead", "PrepareEpochFence"]) == []


def test_filters_of_producers_and_of_time(world: World) -> None:
    three_states(world)
    saved = world.saved("open")
    assert saved is not None
    producer_id = saved.producer.producer_id
    assert names(world, producer_id_filters=[producer_id, 99]) == ["open"]
    assert names(world, producer_id_filters=[99]) == []
    world.advance(5_000)
    assert names(world, duration_filter_ms=4_000) == ["ending", "open"]
    assert names(world, duration_filter_ms=5_000) == []
    assert names(world, duration_filter_ms=0, state_filters=["Ongoing"]) == ["open"]
    assert names(world, duration_filter_ms=-1) == ["empty", "ending", "open"]


def test_a_pattern_matches_whole_ids(world: World) -> None:
    three_states(world)
    assert names(world, transactional_id_pattern="e.*") == ["empty", "ending"]
    assert names(world, transactional_id_pattern="e") == []
    assert names(world, transactional_id_pattern="") == ["empty", "ending", "open"]
    assert names(world, transactional_id_pattern=None) == ["empty", "ending", "open"]
    response = ask_list(world, transactional_id_pattern="(e")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.transaction_states == []


def test_what_is_under_way_is_not_shown(world: World) -> None:
    producer = world.opened(1)
    world.end(producer, commit=False)
    assert names(world, state_filters=["Ongoing"]) == ["a"]
    (row,) = describe(world, "a")
    assert row.transaction_state == "Ongoing"
    world.initialize("new")
    assert names(world) == ["a"]
    (row,) = describe(world, "new")
    assert row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_expired_id_is_dead_and_is_not_shown(world: World) -> None:
    world.given("a")
    world.advance(3_600_001)
    world.expire_round()
    world.commit()
    assert names(world) == []
    assert names(world, state_filters=["Dead"]) == []
    (row,) = describe(world, "a")
    assert (row.error_code, row.transaction_state) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "")


def test_while_a_partition_is_read_there_is_no_list(world: World) -> None:
    world.given("a")
    world.lose()
    world.win()
    response = ask_list(world)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert response.transaction_states == []
    while world.shard is None:
        world.breathe()
    assert names(world) == ["a"]


def test_a_broker_that_coordinates_nothing_lists_nothing(world: World) -> None:
    world.given("a")
    world.lose()
    assert names(world) == []


# Describe.


def test_an_id_is_described_in_full(world: World) -> None:
    producer = world.opened(5, 1, 3)
    (row,) = describe(world, "a")
    assert (row.error_code, row.transactional_id, row.transaction_state) == (ErrorCode.NONE, "a", "Ongoing")
    assert (row.producer_id, row.producer_epoch) == producer
    assert (row.transaction_timeout_ms, row.transaction_start_time_ms) == (TIMEOUT_MS, WALL_MS)
    assert [(topic.topic, list(topic.partitions)) for topic in row.topics] == [("t", [1, 3, 5])]


def test_while_it_ends_those_are_shown_that_lack_their_marker(world: World) -> None:
    """They are where to look when it does not end."""
    world.end(world.opened(1, 2), commit=False)
    world.commit()
    world.write(1)
    (row,) = describe(world, "a")
    assert row.transaction_state == "PrepareAbort"
    assert [(topic.topic, list(topic.partitions)) for topic in row.topics] == [("t", [2])]
    world.finish()
    (row,) = describe(world, "a")
    assert (row.transaction_state, row.topics) == ("CompleteAbort", [])


def test_each_id_has_an_answer_of_its_own_once(world: World) -> None:
    world.given("a")
    rows = describe(world, "a", "unknown", "", "a")
    unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    found = [(row.transactional_id, row.error_code) for row in rows]
    assert found == [("a", 0), ("unknown", unknown), ("", ErrorCode.INVALID_REQUEST)]


def test_the_id_of_another_coordinator_says_so(world: World) -> None:
    world.given("a")
    world.lose()
    (row,) = describe(world, "a")
    assert (row.transactional_id, row.error_code) == ("a", ErrorCode.NOT_COORDINATOR)
    assert describe_transactions.refuse(
        DescribeTransactionsRequest(transactional_ids=("a",)), ErrorCode.KAFKA_STORAGE_ERROR
    ).transaction_states == [DescribedTransaction(transactional_id="a", error_code=ErrorCode.KAFKA_STORAGE_ERROR)]


def test_a_coordinator_in_doubt_asks_a_majority_first(world: World) -> None:
    world.opened(1)
    world.raft.confirmed = False

    def confirm() -> None:
        world.raft.confirmed = True
        for future in world.raft.confirmations:
            future.set_result(None)
        world.raft.confirmations.clear()

    (row,) = describe(world, "a", act=confirm)
    assert row.transaction_state == "Ongoing"
    world.raft.confirmed = False
    (row,) = describe(world, "a", act=world.lose)
    assert row.error_code == ErrorCode.NOT_COORDINATOR


def test_a_request_does_not_wait_for_ever(world: World) -> None:
    """Each id could wait for a shard that is being read, or for a majority."""

    async def later() -> Any:
        broker = broker_of(world)
        request = DescribeTransactionsRequest(transactional_ids=("a", "b"))

        async def certain_shard(_: str) -> ErrorCode:
            world.now_ms += describe_transactions.REQUEST_MS
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        broker.transactions = SimpleNamespace(certain_shard=certain_shard)
        return await describe_transactions.handle(broker, EXCHANGE, request)

    rows = world.run(later()).transaction_states
    codes = [row.error_code for row in rows]
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_for_a_client_that_has_gone_nothing_more_is_done(world: World) -> None:
    world.given("a")
    request = DescribeTransactionsRequest(transactional_ids=("a",))
    gone: Any = SimpleNamespace(is_gone=True)
    assert world.run(describe_transactions.handle(broker_of(world), gone, request)) is None


# Many.


@pytest.fixture
def many(world: World) -> World:
    """Have a coordinator of many ids."""
    world.lose()
    saved = SavedTransaction(TransactionState.EMPTY, Producer(1, 0), TIMEOUT_MS, world.wall_ms())
    for start in range(0, MANY, 100):
        world.follow([{TransactionName(f"id{number:05}"): saved for number in range(start, start + 100)}])
    world.win()
    while world.shard is None:
        world.breathe()
    return world


def test_many_ids_are_listed_in_pieces(many: World) -> None:
    response = ListTransactionsResponse()
    found = []
    for asked in ({}, {"transactional_id_pattern": "(a|id.*)*"}, {"state_filters": [f"s{n}" for n in range(MANY)]}):
        request = ListTransactionsRequest(**asked)
        steps = list_transactions.handle(broker_of(many), EXCHANGE, request)
        count = 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                response = end.value
                break
            count += 1
        found.append((len(response.transaction_states), count >= MANY // list_transactions.PIECE))
    assert found == [(MANY, True), (MANY, True), (0, True)]
    assert len(response.unknown_state_filters) == MANY


def test_many_ids_are_described_in_slices(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    request = DescribeTransactionsRequest(transactional_ids=[f"id{number:05}" for number in range(300)])
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> Any:
        counting = asyncio.ensure_future(count())
        try:
            return await describe_transactions.handle(broker_of(many), EXCHANGE, request)
        finally:
            counting.cancel()

    response = many.loop.run_until_complete(run())
    assert {row.error_code for row in response.transaction_states} == {ErrorCode.NONE}
    assert turns >= 300
