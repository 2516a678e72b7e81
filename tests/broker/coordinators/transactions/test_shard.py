"""A shard of transactional ids between its log, its clients and the markers, step by step."""

from collections.abc import Iterator

import pytest

from barnabas_broker.coordinators.transactions.shard import APPEND_MS
from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2, Markers
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode

from .transaction_world import World

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
State = TransactionState


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


class TestOneTransaction:
    """Everything that is promised has committed before."""

    def test_a_producer_is_given_its_epoch_when_that_has_committed(self, world: World) -> None:
        world.lead()
        heard = world.initialize()
        world.breathe(3)
        assert not heard.is_told
        world.commit()
        first = heard.producer
        assert first.epoch == 0
        assert world.given() == first._replace(epoch=1)

    @pytest.mark.parametrize("version", [V1, V2])
    @pytest.mark.parametrize("commit", [True, False])
    def test_it_is_opened_decided_on_and_complete(self, world: World, version: int, commit: bool) -> None:
        world.lead()
        producer = world.given()
        heard = world.add(producer, 0, 1, version=version)
        assert not heard.is_told
        world.commit()
        assert (heard.code, world.state()) == (NONE, State.ONGOING)

        ended = world.end(producer, commit=commit, version=version)
        assert (ended.code, world.markers.owed) == (None, {}), "it is not decided before that has committed"
        world.commit()
        assert world.state() is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
        owner = producer._replace(epoch=producer.epoch + 1) if version == V2 else producer
        assert ended.code == NONE
        assert version == V1 or ended.producer == owner
        sent = world.markers.owed["a"]
        assert sent.markers == Markers(owner, commit, version, frozenset({("t", 0), ("t", 1)}))

        world.write(0)
        world.commit()
        assert world.state().is_prepared, "one is missing"
        world.write(0)
        world.write(1)
        world.commit()
        assert world.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
        assert world.markers.count == 1
        again = world.add(owner, 2, version=version)
        world.commit()
        assert again.code == NONE
        assert world.state() is State.ONGOING

    def test_an_abort_of_nothing_owes_no_marker_and_raises_the_epoch(self, world: World) -> None:
        world.lead()
        producer = world.given()
        heard = world.end(producer, commit=False)
        world.finish()
        assert heard.producer == producer._replace(epoch=1)
        assert world.state() is State.COMPLETE_ABORT
        assert world.markers.count == 0

    def test_what_a_repetition_adds_is_answered_without_a_record(self, world: World) -> None:
        world.lead()
        producer = world.opened(0, 1)
        end_index = world.log.last_index
        assert world.add(producer, 1).code == NONE
        assert world.log.last_index == end_index

    def test_requests_of_an_unknown_id_leave_nothing_behind(self, world: World) -> None:
        shard = world.lead()
        nobody = Producer(5, 0)
        assert world.add(nobody, 0).code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert world.end(nobody).code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert shard.ids == {}

    def test_a_marker_of_another_transaction_is_none_of_this_one(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.end(producer)
        world.commit()
        for stranger in (producer, Producer(77, 1)):
            with world.step():
                world.coordinator.written("a", stranger, ("t", 0))
        with world.step():
            world.coordinator.written("b", producer._replace(epoch=1), ("t", 0))
        world.commit()
        assert world.state() is State.PREPARE_COMMIT
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT


class TestAnswersThatAreHeldBack:
    """`transaction.state.log.min.isr` may ask for more copies than a commit has."""

    def test_the_outcome_is_decided_when_it_has_committed_and_answered_when_enough_have_it(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.partition.min_insync = 3
        heard = world.end(producer)
        world.commit(copies=2)
        assert not heard.is_told
        assert world.markers.owed, "it can never be decided otherwise"
        world.copy()
        assert heard.code == NONE

    def test_who_is_not_answered_in_time_is_told_so_and_it_happens_all_the_same(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        heard = world.end(producer)
        world.advance(APPEND_MS - 1)
        assert not heard.is_told
        world.advance(1)
        assert heard.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT


class TestAnAnswerComesWithItsState:
    """Many records that commit at once are taken in a part at a time; nobody is told of one that was not yet."""

    def test_done_comes_before_it_is_taken_in(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas_broker.coordinators.runtime.shard.APPLIED_STEP", 1)
        shard = world.lead()
        producers = {name: world.given(name) for name in ("a", "b", "c")}
        heard = [world.add(producer, 0, transactional_id=name) for name, producer in producers.items()]
        world.commit()
        told = [one.code for one in heard]
        assert told == [NONE, None, None]
        assert [shard.ids[name].transaction.state for name in "abc"] == [State.ONGOING, State.EMPTY, State.EMPTY]
        world.breathe(5)
        assert [one.code for one in heard] == [NONE] * 3
