"""Transactions that are open for too long are aborted, and ids that nobody uses are forgotten."""

from collections.abc import Iterator

import pytest

from barnabas_broker.coordinators.transactions.state_machine.messages import NO_TIMEOUT_MS
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode

from .transaction_world import TIMEOUT_MS, World

NONE = ErrorCode.NONE
State = TransactionState
ABORT_MS = 10_000
EXPIRATION_MS = 3_600_000


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def kinds(world: World) -> list[str]:
    return [event["kind"] for event in world.coordinator.transaction_events.to_list()]


class TestTimeouts:
    def test_a_transaction_is_aborted_and_its_producer_fenced(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.advance(TIMEOUT_MS - 1)
        world.abort_round()
        assert world.markers.count == 0
        world.advance(1)
        world.abort_round()
        world.commit()
        assert world.state() is State.PREPARE_ABORT
        assert kinds(world) == ["transaction timed out"]
        assert world.add(producer, 1).code == ErrorCode.PRODUCER_FENCED
        world.finish()
        assert world.state() is State.COMPLETE_ABORT

    def test_upkeep_looks_at_its_interval(self, world: World) -> None:
        world.lead()
        world.opened(0)
        for _ in range(TIMEOUT_MS // ABORT_MS + 1):
            world.advance(ABORT_MS)
            world.breathe(5)
        world.finish()
        assert world.state() is State.COMPLETE_ABORT

    def test_one_that_is_being_ended_is_left_alone(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        heard = world.end(producer)
        world.advance(TIMEOUT_MS)
        world.abort_round()
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT
        assert heard.ask.is_over
        assert kinds(world) == []

    def test_one_that_another_system_decides_about_has_none(self) -> None:
        with World({"transaction.two.phase.commit.enable": True}) as world:
            world.lead()
            heard = world.initialize(enables_two_phase=True)
            world.breathe(3)
            world.commit()
            world.add(heard.producer, 0)
            world.commit()
            world.advance(NO_TIMEOUT_MS - 1)
            world.abort_round()
            world.finish()
            assert world.state() is State.ONGOING
            kept = world.initialize(enables_two_phase=True, keeps_prepared=True)
            world.commit()
            assert kept.answer is not None
            assert kept.answer.ongoing == heard.producer
            world.end(kept.producer)
            world.finish()
            assert world.state() is State.COMPLETE_COMMIT

    def test_after_a_stall_this_broker_asks_first_whether_it_leads(self, world: World) -> None:
        world.lead()
        world.opened(0)
        world.stall(TIMEOUT_MS)
        world.abort_round()
        world.finish()
        assert world.state() is State.ONGOING
        world.recover()
        world.breathe(5)
        world.finish()
        assert world.state() is State.ONGOING, "who waited is heard first"
        world.abort_round()
        world.finish()
        assert world.state() is State.COMPLETE_ABORT

    def test_a_client_that_ends_its_transaction_while_the_broker_stood_still_is_heard(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.stall(TIMEOUT_MS)
        world.abort_round()
        world.recover()
        world.breathe(5)
        world.end(producer)
        world.abort_round()
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT

    def test_a_broker_that_was_deposed_while_it_stood_still_aborts_nothing(self, world: World) -> None:
        world.lead()
        world.opened(0)
        world.stall(TIMEOUT_MS)
        world.abort_round()
        end_index = world.log.last_index
        world.lose()
        world.breathe(5)
        assert world.state() is State.ONGOING
        assert world.log.last_index == end_index + 1, "the other one's first entry"
        assert kinds(world) == []

    def test_nothing_is_decided_twice_if_the_first_has_not_committed(self, world: World) -> None:
        world.lead()
        world.opened(0)
        world.advance(TIMEOUT_MS)
        world.abort_round()
        world.abort_round()
        end_index = world.log.last_index
        world.commit()
        assert world.log.last_index == end_index
        world.finish()


class TestExpiry:
    def test_an_id_is_forgotten_when_it_was_not_used_for_long(self, world: World) -> None:
        shard = world.lead()
        producer = world.given()
        world.given("b")
        world.advance(EXPIRATION_MS - 1)
        world.expire_round()
        assert world.given("b").epoch == 1
        world.advance(1)
        world.expire_round()
        assert shard.ids.keys() == {"a", "b"}, "it is known until its record has committed"
        world.commit()
        assert shard.ids.keys() == {"b"}
        assert world.add(producer, 0).code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        again = world.given()
        assert again.epoch == 0
        assert again.producer_id != producer.producer_id

    def test_an_id_with_a_transaction_is_kept(self, world: World) -> None:
        world.lead()
        world.opened(0)
        world.advance(EXPIRATION_MS)
        world.expire_round()
        world.commit()
        assert world.state() is State.PREPARE_ABORT
        world.expire_round()
        world.finish()
        assert world.state() is State.COMPLETE_ABORT, "it is used now"
        world.expire_round()
        world.commit()
        assert world.state() is State.COMPLETE_ABORT

    def test_who_asks_while_its_id_is_being_forgotten_begins_anew(self, world: World) -> None:
        world.lead()
        first = world.given()
        world.advance(EXPIRATION_MS)
        world.expire_round()
        heard = world.initialize()
        assert not heard.is_told
        world.breathe(3)
        for _ in range(3):
            world.commit()
        assert heard.producer.epoch == 0
        assert heard.producer.producer_id != first.producer_id

    def test_it_is_forgotten_by_the_next_coordinator_too(self, world: World) -> None:
        world.lead()
        world.given()
        world.advance(EXPIRATION_MS)
        world.expire_round()
        world.lose(kept=1)
        assert world.lead().ids == {}

    def test_upkeep_looks_at_its_interval(self, world: World) -> None:
        shard = world.lead()
        world.given()
        for _ in range(3):
            world.advance(EXPIRATION_MS)
            world.breathe(5)
            world.commit()
        assert shard.ids == {}
