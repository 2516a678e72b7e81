"""A shard with thousands of transactional ids works in pieces, and others go on in between.

A loop turn takes one piece here, because the slices of time are made empty, and each `breathe` is `TURNS_MAX` turns at
most; the tests count how much is done in one.
"""

from collections.abc import Callable, Iterator

import pytest

from barnabas_broker.coordinators.transactions.shard import ATTENDED_AT_ONCE, IDS_STEP
from barnabas_broker.coordinators.transactions.state_machine.messages import V2, SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.table import TransactionName
from barnabas_clients.protocol.error_codes import ErrorCode

from .transaction_world import TIMEOUT_MS, Heard, World

COUNT = 3 * IDS_STEP
TURNS_MAX = 3
TURN_MAX = TURNS_MAX * ATTENDED_AT_ONCE
State = TransactionState


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    with World() as world:
        yield world


def saved(state: State, number: int, world: World) -> SavedTransaction:
    is_open = not state.is_idle
    return SavedTransaction(
        state,
        Producer(number, 0),
        TIMEOUT_MS,
        world.wall_ms(),
        started_ms=world.wall_ms() if is_open else -1,
        places=frozenset({("t", number)}) if is_open else frozenset(),
        client_version=V2,
    )


def lead_many(world: World, state: State) -> None:
    """Lead a partition with many ids in that state."""
    world.win()
    world.lose()
    world.follow([{TransactionName(f"id{number}"): saved(state, number, world)} for number in range(COUNT)])
    world.win()
    while world.shard is None:
        world.breathe()


def counts(world: World, count: Callable[[], int]) -> list[int]:
    """Let the loop turn until nothing more happens; return how much did in each turn."""
    found = [count()]
    idle = 0
    while idle < 10:
        before = count()
        world.breathe()
        found.append(count() - before)
        idle = 0 if found[-1] else idle + 1
    return found


def test_markers_are_sent_for_one_after_the_other(world: World) -> None:
    lead_many(world, State.PREPARE_COMMIT)
    found = counts(world, lambda: world.markers.count)
    assert sum(found) == COUNT
    assert max(found) <= TURN_MAX
    assert len(world.markers.owed) == COUNT


def test_others_are_served_meanwhile(world: World) -> None:
    lead_many(world, State.PREPARE_COMMIT)
    heard = world.initialize("new")
    world.breathe(3)
    world.commit()
    assert heard.code == ErrorCode.NONE
    assert world.markers.count < COUNT


def test_records_that_complete_them_are_appended_one_after_the_other(world: World) -> None:
    lead_many(world, State.PREPARE_ABORT)
    world.breathe(3 * COUNT)
    end_index = world.log.last_index
    with world.step():
        for name, sent in list(world.markers.owed.items()):
            (place,) = sent.markers.places
            world.coordinator.written(name, sent.markers.producer, place)
    world.markers.owed.clear()
    assert world.log.last_index - end_index <= ATTENDED_AT_ONCE
    found = counts(world, lambda: world.log.last_index)
    assert max(found[1:]) <= TURN_MAX
    world.commit()
    world.breathe(COUNT)
    assert {saved.state for saved in world.truth().values()} == {State.COMPLETE_ABORT}


@pytest.mark.parametrize("state", [State.ONGOING, State.EMPTY])
def test_rounds_of_upkeep_look_at_some_in_each_turn(world: World, state: State) -> None:
    lead_many(world, state)
    world.advance(TIMEOUT_MS if state is State.ONGOING else 3_600_000)
    coordinator = world.coordinator
    look = coordinator.expiry.abort_round if state is State.ONGOING else coordinator.expiry.expire_round
    begin = world.log.last_index
    with world.step():
        coordinator.host.spawn(look())
    found = counts(world, lambda: world.log.last_index)
    assert world.log.last_index == begin + COUNT
    assert max(found[1:]) <= TURNS_MAX
    world.commit()
    world.breathe(2 * COUNT)


def test_a_leadership_that_ends_amid_a_round_ends_the_round(world: World) -> None:
    lead_many(world, State.EMPTY)
    world.advance(3_600_000)
    with world.step():
        world.coordinator.host.spawn(world.coordinator.expiry.expire_round())
    world.breathe(10)
    world.lose()
    world.breathe(COUNT)
    assert len(world.truth()) == COUNT


def test_an_end_tells_those_who_wait_some_at_a_time(world: World) -> None:
    lead_many(world, State.ONGOING)
    told: list[Heard] = []
    heard = [world.end(Producer(number, 0), transactional_id=f"id{number}") for number in range(COUNT)]
    world.raft.leads = False
    with world.step():
        # The log does not tell them: nothing was appended, as far as the shard knows.
        world.partition._waiters.take_all()
    world.raft.leads = True
    world.lose()
    told = [one for one in heard if one.code is not None]
    assert len(told) <= IDS_STEP
    world.breathe(10)
    assert {one.code for one in heard} == {ErrorCode.NOT_COORDINATOR}
