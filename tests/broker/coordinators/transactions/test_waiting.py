"""Requests that meet with others about the same id wait a moment; nobody waits for ever, and nobody is told twice."""

import asyncio
from collections.abc import Iterator

import pytest

from barnabas_broker.coordinators.producer_ids import TIMEOUT_S
from barnabas_broker.coordinators.transactions.shard import PARKED_MAX, WAIT_MS
from barnabas_broker.coordinators.transactions.state_machine.messages import V1
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import ProducerIdBlock, RefusalReason, Refused

from .transaction_world import World

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
State = TransactionState


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


class TestBusy:
    """CONCURRENT_TRANSACTIONS is for those for whom it takes too long."""

    def test_t9_a_request_waits_for_the_markers_of_the_transaction_before(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        ended = world.end(producer)
        world.commit()
        heard = world.add(ended.producer, 1)
        world.breathe(3)
        assert not heard.is_told
        world.write_all()
        world.commit()
        assert not heard.is_told, "it is decided, and has not committed"
        world.commit()
        assert heard.code == NONE
        assert world.state() is State.ONGOING

    def test_requests_of_one_client_that_come_together_are_carried_out_in_their_order(self, world: World) -> None:
        world.lead()
        producer = world.given()
        added = [world.add(producer, place) for place in (0, 1, 2)]
        ended = world.end(producer)
        for _ in range(4):
            world.commit()
        assert [one.code for one in added] == [NONE] * 3
        assert ended.code == NONE
        assert world.markers.owed["a"].markers.places == {("t", 0), ("t", 1), ("t", 2)}
        world.finish()

    def test_who_has_waited_long_enough_is_told_so(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        ended = world.end(producer)
        world.commit()
        heard = world.add(ended.producer, 1)
        world.advance(WAIT_MS - 1)
        assert not heard.is_told
        world.advance(1)
        assert heard.code == BUSY
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT, "nothing was done for it"

    def test_time_that_was_waited_counts_once(self, world: World) -> None:
        """Who comes to wait again, behind another, has only what is left."""
        world.lead()
        producer = world.opened(0)
        owner = world.end(producer)
        world.commit()
        first = world.add(owner.producer, 1)
        second = world.add(owner.producer, 2)
        world.advance(WAIT_MS // 2)
        world.write_all()
        world.commit()
        world.advance(WAIT_MS // 2)
        assert second.code == BUSY, "the first one's record has not committed"
        assert not first.is_told
        world.finish()
        assert first.code == NONE

    def test_only_so_many_wait_for_one_id(self, world: World) -> None:
        world.lead()
        producer = world.given()
        heard = [world.add(producer, place) for place in range(PARKED_MAX + 3)]
        assert [one.code for one in heard[-3:]] == [None, BUSY, BUSY]
        for _ in heard:
            world.commit()
            world.breathe()
        assert [one.code for one in heard[:-2]] == [NONE] * (PARKED_MAX + 1)

    def test_who_has_gone_takes_no_place_and_nothing_is_done_for_it(self, world: World) -> None:
        world.lead()
        producer = world.given()
        world.add(producer, 0)
        gone = [world.add(producer, place) for place in range(1, PARKED_MAX + 1)]
        for one in gone:
            one.ask.abandon()
        heard = world.add(producer, 99)
        assert not heard.is_told
        world.commit()
        world.commit()
        assert heard.code == NONE
        saved = world.saved()
        assert saved is not None
        assert saved.places == {("t", 0), ("t", 99)}

    def test_what_a_client_has_begun_goes_on_without_it(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        heard = world.end(producer)
        heard.ask.abandon()
        world.finish()
        assert (heard.code, world.state()) == (None, State.COMPLETE_COMMIT)

    def test_t3_another_outcome_and_another_epoch_need_not_wait(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.end(producer)
        world.commit()
        assert world.end(producer, commit=False).code == ErrorCode.INVALID_TXN_STATE
        assert world.end(producer._replace(epoch=9)).code == ErrorCode.PRODUCER_FENCED
        repeated = world.end(producer)
        assert not repeated.is_told
        world.finish()
        assert repeated.producer == producer._replace(epoch=1)


class TestTakenOver:
    """Whoever asks for an id gets it when the transaction of the one before is over."""

    def test_t12_the_open_transaction_is_aborted_first(self, world: World) -> None:
        world.lead()
        first = world.opened(0, 1)
        heard = world.initialize()
        world.commit()
        assert (heard.code, world.state()) == (None, State.PREPARE_ABORT)
        assert world.markers.owed["a"].markers.producer == first._replace(epoch=1), "fenced before it is aborted"
        world.finish()
        assert heard.producer == first._replace(epoch=2), "the epoch of the abort is never given to two"
        assert world.end(first).code == ErrorCode.PRODUCER_FENCED
        events = [event["kind"] for event in world.coordinator.transaction_events.to_list()]
        assert events == ["transaction aborted"]

    def test_markers_that_take_long_are_not_waited_for(self, world: World) -> None:
        world.lead()
        world.opened(0)
        heard = world.initialize()
        world.commit()
        world.advance(WAIT_MS)
        assert heard.code == BUSY
        world.finish()
        assert world.state() is State.COMPLETE_ABORT
        assert world.given().epoch == 2

    def test_t13_a_client_that_does_not_know_how_its_transaction_has_ended_aborts_what_is_open(
        self, world: World
    ) -> None:
        world.lead()
        first = world.opened(0)
        heard = world.initialize(producer=first)
        world.finish()
        assert heard.producer == first._replace(epoch=1), "it has asked for the abort itself"
        assert world.state() is State.EMPTY

    def test_two_that_take_over_get_different_epochs(self, world: World) -> None:
        world.lead()
        world.opened(0)
        heard = [world.initialize() for _ in range(3)]
        for _ in range(3):
            world.finish()
        assert sorted(one.producer.epoch for one in heard) == [2, 3, 4]

    def test_one_that_has_gone_is_given_nothing(self, world: World) -> None:
        world.lead()
        first = world.opened(0)
        heard = world.initialize()
        world.commit()
        heard.ask.abandon()
        world.finish()
        assert not heard.is_told
        assert world.state() is State.COMPLETE_ABORT, "its epoch is not raised once more"
        assert world.given() == first._replace(epoch=2)


class TestProducerIds:
    """New ids come from the controller, in blocks; a request waits for one."""

    def test_t4_an_end_at_the_last_epoch_begins_a_new_id(self, world: World) -> None:
        world.lead()
        producer = world.exhausted(0)
        heard = world.end(producer)
        world.commit()
        assert heard.producer.epoch == 0
        assert heard.producer.producer_id != producer.producer_id
        assert world.markers.owed["a"].markers.producer == producer._replace(epoch=32_767)
        world.finish()
        again = world.add(heard.producer, 1)
        world.commit()
        assert again.code == NONE

    def test_t4_a_takeover_at_the_last_epoch_begins_a_new_id_once(self, world: World) -> None:
        world.lead()
        producer = world.exhausted(0)
        heard = world.initialize()
        world.finish()
        assert heard.producer.producer_id != producer.producer_id
        assert heard.producer.epoch == 1, "0 is the epoch of whoever was to be told of the abort"

    def test_t4_a_timeout_at_the_last_epoch_begins_a_new_id(self, world: World) -> None:
        world.lead()
        producer = world.exhausted(0)
        world.advance(60_000)
        world.abort_round()
        world.finish()
        saved = world.saved()
        assert saved is not None
        assert (saved.state, saved.owner.epoch) == (State.COMPLETE_ABORT, 0)
        assert saved.owner.producer_id != producer.producer_id

    def test_t3_a_rotated_id_is_the_owners_while_its_record_is_on_its_way(self, world: World) -> None:
        """A client may use what it is about to be told: it waits, and does not hear that its id is unknown."""
        shard = world.lead()
        producer = world.exhausted(0)
        shard = world.shard or shard
        heard = world.end(producer)
        pending = shard.ids["a"].transaction.pending
        assert pending is not None
        assert pending.saved is not None
        early = world.add(pending.saved.owner, 1)
        assert (heard.code, early.code) == (None, None)
        world.finish()
        assert heard.producer == pending.saved.owner
        assert early.code == NONE

    def test_requests_wait_for_the_controller(self, world: World) -> None:
        world.lead()
        block: asyncio.Future[ProducerIdBlock] = world.loop.create_future()

        async def give() -> ProducerIdBlock:
            return await block

        world.give_block = give
        heard = [world.initialize(name) for name in ("a", "b", "c")]
        heard[1].ask.abandon()
        world.breathe(3)
        world.commit()
        assert [one.code for one in heard] == [None] * 3
        block.set_result(ProducerIdBlock(first=70, count=10))
        world.breathe(5)
        world.commit()
        assert [heard[0].producer, heard[2].producer] == [Producer(70, 0), Producer(72, 0)]
        assert heard[1].code is None
        assert world.saved("b") is None

    def test_a_controller_that_gives_none_is_answered_for(self, world: World) -> None:
        world.lead()

        async def refuse() -> ProducerIdBlock:
            raise Refused(RefusalReason.TIMED_OUT, f"not within {TIMEOUT_S} s")

        world.give_block = refuse
        heard = world.initialize()
        world.breathe(5)
        assert heard.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "clients come again"
        world.give_block = None
        assert world.given().epoch == 0

    def test_an_id_that_comes_when_another_leads_is_used_by_nobody(self, world: World) -> None:
        world.lead()
        block: asyncio.Future[ProducerIdBlock] = world.loop.create_future()

        async def give() -> ProducerIdBlock:
            return await block

        world.give_block = give
        heard = world.initialize()
        world.breathe(3)
        world.lose()
        block.set_result(ProducerIdBlock(first=70, count=10))
        world.breathe(5)
        assert heard.code == ErrorCode.NOT_COORDINATOR
        world.give_block = None
        world.lead()
        assert world.saved() is None

    def test_a_producer_id_is_used_once(self, world: World) -> None:
        """Also by a request that is decided on again after it has brought about an abort with it."""
        world.lead()
        world.exhausted(0)
        heard = world.initialize()
        world.commit()
        saved = world.saved()
        assert saved is not None
        assert heard.ask.new_producer_id is None
        world.finish()


def test_t1_a_late_end_of_v1_ends_the_next_transaction_and_one_of_v2_does_not(world: World) -> None:
    world.lead()
    producer = world.opened(0, version=V1)
    assert world.end(producer, version=V1).ask is not None
    world.finish()
    world.add(producer, 1, version=V1)
    world.commit()
    world.end(producer, version=V1)
    world.commit()
    assert world.state() is State.PREPARE_COMMIT, "nobody can tell"
    world.finish()

    owner = world.given()
    world.add(owner, 0)
    world.commit()
    ended = world.end(owner)
    world.finish()
    world.add(ended.producer, 1)
    world.commit()
    late = world.end(owner)
    assert late.code == ErrorCode.PRODUCER_FENCED
    assert world.state() is State.ONGOING
