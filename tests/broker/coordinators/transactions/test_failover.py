"""Whatever was promised about a transactional id holds with the next coordinator, in every state."""

from collections.abc import Callable, Iterator

import pytest

from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode

from .transaction_world import TIMEOUT_MS, Heard, World

NONE = ErrorCode.NONE
LOST = ErrorCode.NOT_COORDINATOR
State = TransactionState


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def empty(world: World) -> Producer:
    return world.given()


def ongoing(world: World) -> Producer:
    return world.opened(0, 1)


def prepared(world: World, *, commit: bool = True) -> Producer:
    producer = world.opened(0, 1)
    heard = world.end(producer, commit=commit)
    world.commit()
    return heard.producer


def half_marked(world: World) -> Producer:
    owner = prepared(world)
    world.write(0)
    return owner


def complete(world: World) -> Producer:
    owner = prepared(world)
    world.finish()
    return owner


STATES: dict[State, Callable[[World], Producer]] = {
    State.EMPTY: empty,
    State.ONGOING: ongoing,
    State.PREPARE_COMMIT: half_marked,
    State.PREPARE_ABORT: lambda world: prepared(world, commit=False),
    State.COMPLETE_COMMIT: complete,
}


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_the_next_coordinators_and_goes_on(world: World, state: State) -> None:
    world.lead()
    owner = STATES[state](world)
    assert world.state() is state
    before = world.saved()
    for _ in range(2):
        world.lose()
        world.breathe(3)
        world.check()
        world.lead()
        world.breathe(3)
        assert world.saved() == before
    if state.is_prepared:
        assert world.markers.owed["a"].markers.places == {("t", 0), ("t", 1)}, "which are written is known to nobody"
        assert world.markers.owed["a"].term == world.raft.term
    else:
        assert not world.markers.owed
    if state is State.ONGOING:
        assert world.end(owner).ask is not None
        world.commit()
    world.finish()
    assert not world.state().is_prepared
    owner = owner._replace(epoch=owner.epoch + 1) if state is State.ONGOING else owner
    heard = world.add(owner, 3)
    world.commit()
    assert heard.code == NONE
    assert world.state() is State.ONGOING


def test_markers_are_sent_by_one_coordinator_at_a_time(world: World) -> None:
    world.lead()
    prepared(world)
    world.lose()
    assert world.markers.owed == {}, "it is forgotten at once, before the next one begins"


class TestUncertain:
    """A record whose fate the coordinator will not know is found or not found by the next one."""

    @pytest.mark.parametrize("kept", [0, 1])
    def test_the_end_of_a_transaction(self, world: World, kept: int) -> None:
        world.lead()
        producer = world.opened(0)
        heard = world.end(producer)
        world.lose(kept=kept)
        assert heard.code == LOST
        assert world.markers.count == 0
        world.lead()
        world.breathe(3)
        assert world.state() is (State.PREPARE_COMMIT if kept else State.ONGOING)
        again = world.end(producer)
        world.finish()
        assert again.producer == producer._replace(epoch=1), "the same, whether the first was lost or not"
        assert world.state() is State.COMPLETE_COMMIT
        assert world.markers.count == 1

    @pytest.mark.parametrize("kept", [0, 1])
    def test_t2_a_repetition_with_the_other_outcome_changes_nothing(self, world: World, kept: int) -> None:
        world.lead()
        producer = world.opened(0)
        world.end(producer)
        world.lose(kept=kept)
        world.lead()
        heard = world.end(producer, commit=False)
        world.finish()
        assert heard.code == (ErrorCode.INVALID_TXN_STATE if kept else NONE)
        assert world.state() is (State.COMPLETE_COMMIT if kept else State.COMPLETE_ABORT)

    @pytest.mark.parametrize("kept", [0, 1])
    def test_a_new_epoch_is_given_to_one_producer_only(self, world: World, kept: int) -> None:
        world.lead()
        first = world.given()
        heard = world.initialize()
        world.lose(kept=kept)
        assert heard.code == LOST
        world.lead()
        assert world.given().epoch == first.epoch + 1 + kept
        assert world.add(first, 0).code == ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("kept", [0, 1])
    def test_partitions_that_may_be_in_the_transaction_can_be_added_again(self, world: World, kept: int) -> None:
        world.lead()
        producer = world.opened(0)
        heard = world.add(producer, 1)
        world.lose(kept=kept)
        assert heard.code == LOST
        world.lead()
        again = world.add(producer, 1)
        world.commit()
        assert again.code == NONE
        saved = world.saved()
        assert saved is not None
        assert saved.places == {("t", 0), ("t", 1)}

    @pytest.mark.parametrize("kept", [0, 1])
    def test_a_transaction_whose_completion_is_uncertain_is_completed(self, world: World, kept: int) -> None:
        world.lead()
        owner = prepared(world)
        world.write_all()
        world.lose(kept=kept)
        world.lead()
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT
        assert world.markers.count == 2 - kept
        assert world.given().epoch == owner.epoch + 1

    def test_an_id_that_was_never_saved_is_forgotten(self, world: World) -> None:
        world.lead()
        heard = world.initialize()
        world.breathe(3)
        world.lose()
        assert heard.code == LOST
        assert world.lead().ids == {}

    def test_everybody_who_waits_is_told_once(self, world: World) -> None:
        world.lead()
        owner = prepared(world)
        heard: list[Heard] = [world.add(owner, number) for number in range(3)]
        heard.append(world.initialize())
        assert [one.code for one in heard] == [None] * 4
        world.lose()
        world.breathe(3)
        assert [one.code for one in heard] == [LOST] * 4
        world.advance(TIMEOUT_MS)

    def test_a_leader_that_hears_late_of_another_says_nothing_of_what_that_has_decided(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        heard = world.end(producer)
        world.lose(kept=1, is_told_late=True)
        assert heard.code == LOST
        assert world.markers.count == 0
        world.lead()
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize("version", [V1, V2])
def test_t19_a_transaction_that_timed_out_without_a_coordinator_is_aborted_by_the_next(
    world: World, version: int
) -> None:
    world.features["transaction.version"] = version
    world.lead()
    producer = world.opened(0, version=version)
    world.lose()
    world.advance(TIMEOUT_MS)
    world.lead()
    assert world.state() is State.ONGOING
    world.abort_round()
    world.finish()
    assert world.state() is State.COMPLETE_ABORT
    assert world.add(producer, 1, version=version).code == ErrorCode.PRODUCER_FENCED
