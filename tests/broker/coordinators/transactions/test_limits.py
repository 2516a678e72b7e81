"""What all transactional ids of a broker hold is bounded, and a log that refuses changes nothing."""

from collections.abc import Iterator

import pytest

from barnabas_broker.coordinators.transactions.room import ID_BYTES, PLACE_BYTES
from barnabas_broker.coordinators.transactions.shard import AGAIN_MS, LONG_PLACES
from barnabas_broker.coordinators.transactions.state_machine.adding import PLACES_MAX
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError

from .transaction_world import World

NONE = ErrorCode.NONE
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE
MIB = 1 << 20
State = TransactionState


@pytest.fixture
def world() -> Iterator[World]:
    with World({"transaction.state.max.bytes": MIB}) as world:
        yield world


class TestRoom:
    def test_a_new_id_beyond_it_is_refused_and_leaves_nothing(self, world: World) -> None:
        shard = world.lead()
        world.given()
        room = world.coordinator.room
        room.limit_bytes = room.held_bytes + ID_BYTES
        heard = world.initialize("b")
        assert heard.code == FULL
        assert shard.ids.keys() == {"a"}
        assert world.given("a").epoch == 1, "one that is known needs no more"

    def test_partitions_beyond_it_are_refused_and_the_transaction_can_end(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        room = world.coordinator.room
        room.limit_bytes = room.held_bytes + PLACE_BYTES
        assert world.add(producer, 1).code == FULL
        assert world.add(producer, 0).code == NONE
        ended = world.end(producer)
        world.finish()
        assert ended.code == NONE
        assert world.state() is State.COMPLETE_COMMIT
        room.limit_bytes = MIB
        again = world.add(ended.producer, 1)
        world.commit()
        assert again.code == NONE

    def test_a_transaction_can_be_taken_over_and_times_out_without_room(self, world: World) -> None:
        world.lead()
        world.opened(0)
        world.opened(0, transactional_id="b")
        world.coordinator.room.limit_bytes = 0
        heard = world.initialize()
        world.finish()
        assert heard.code == NONE
        world.advance(60_000)
        world.abort_round()
        world.finish()
        assert world.state("b") is State.COMPLETE_ABORT

    def test_new_ids_leave_room_for_transactions(self, world: World) -> None:
        world.lead()
        count = 0
        while (heard := world.initialize(f"id{count}")).code is None:
            world.breathe(3)
            world.commit()
            count += 1
        assert heard.code == FULL
        assert MIB * 7 // 8 - 2 * ID_BYTES < world.coordinator.room.held_bytes <= MIB * 7 // 8
        producer = world.given("id0")
        added = world.add(producer, *range(100), transactional_id="id0")
        world.commit()
        assert added.code == NONE

    def test_it_is_given_back_when_the_leadership_ends_and_when_ids_expire(self, world: World) -> None:
        world.lead()
        world.opened(*range(50))
        world.given("b")
        held_bytes = world.coordinator.room.held_bytes
        assert held_bytes > 2 * ID_BYTES + 50 * PLACE_BYTES
        world.lose()
        assert world.coordinator.room.held_bytes == 0
        world.lead()
        world.breathe(3)
        assert abs(world.coordinator.room.held_bytes - held_bytes) < 50
        world.finish()
        world.advance(60_000)
        world.abort_round()
        world.finish()
        world.advance(3_600_000)
        world.expire_round()
        world.commit()
        assert world.coordinator.room.held_bytes == 0


class TestManyPartitions:
    def test_a_long_record_is_appended_in_a_turn_of_its_own(self, world: World) -> None:
        world.coordinator.room.limit_bytes = 64 * MIB
        world.lead()
        producer = world.given()
        end_index = world.log.last_index
        heard = world.add(producer, *range(LONG_PLACES + 1))
        assert world.log.last_index == end_index
        behind = world.add(producer, LONG_PLACES + 1)
        world.check()
        world.breathe(3)
        world.commit()
        world.breathe(3)
        world.commit()
        assert (heard.code, behind.code) == (NONE, NONE)

    def test_a_leadership_that_ends_before_that_turn_has_appended_nothing(self, world: World) -> None:
        world.coordinator.room.limit_bytes = 64 * MIB
        world.lead()
        producer = world.given()
        heard = world.add(producer, *range(LONG_PLACES + 1))
        world.lose()
        world.breathe(5)
        assert heard.code == ErrorCode.NOT_COORDINATOR
        assert world.state() is State.EMPTY

    def test_whoever_wants_more_than_a_transaction_takes_is_told_to_abort(self, world: World) -> None:
        world.coordinator.room.limit_bytes = 64 * MIB
        world.lead()
        producer = world.given()
        assert world.add(producer, *range(PLACES_MAX + 1)).code == ErrorCode.TRANSACTION_ABORTABLE
        heard = world.add(producer, *range(PLACES_MAX))
        world.breathe(3)
        world.commit()
        assert heard.code == NONE
        world.end(producer)
        world.breathe(3)
        world.finish()
        assert world.state() is State.COMPLETE_COMMIT


class TestRefused:
    """A log that does not take a record has changed nothing."""

    @pytest.mark.parametrize(
        ("error", "code"),
        [(StorageFailedError("full"), FULL), (NotLeaderError(None), ErrorCode.NOT_COORDINATOR)],
    )
    def test_a_request_is_told_so(self, world: World, error: Exception, code: ErrorCode) -> None:
        shard = world.lead()
        producer = world.opened(0)
        self.refuse(world, error)
        assert world.end(producer).code == code
        assert world.initialize("b").code == code
        assert shard.ids.keys() == {"a"}
        world.check()
        self.accept(world)
        heard = world.end(producer)
        world.finish()
        assert heard.code == NONE
        assert world.markers.count == 1

    def test_those_who_wait_behind_it_are_told_too(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.end(producer)
        world.commit()
        waiting = [world.initialize(), world.initialize()]
        world.write_all()
        self.refuse(world, StorageFailedError("full"))
        world.commit()
        world.breathe(3)
        assert [one.code for one in waiting] == [FULL] * 2
        self.accept(world)

    def test_the_coordinators_own_is_tried_again(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.end(producer)
        world.commit()
        self.refuse(world, StorageFailedError("full"))
        world.write_all()
        world.check()
        world.advance(AGAIN_MS)
        world.check()
        self.accept(world)
        world.advance(AGAIN_MS - 1)
        world.commit()
        assert world.state() is State.PREPARE_COMMIT
        world.advance(1)
        world.commit()
        assert world.state() is State.COMPLETE_COMMIT

    def test_a_timeout_is_tried_again_in_the_next_round(self, world: World) -> None:
        world.lead()
        world.opened(0)
        world.advance(60_000)
        self.refuse(world, StorageFailedError("full"))
        world.abort_round()
        self.accept(world)
        world.commit()
        assert world.state() is State.ONGOING
        world.abort_round()
        world.finish()
        assert world.state() is State.COMPLETE_ABORT

    def test_nothing_is_tried_again_when_the_leadership_has_ended(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.end(producer)
        world.commit()
        self.refuse(world, StorageFailedError("full"))
        world.write_all()
        self.accept(world)
        world.lose()
        end_index = world.log.last_index
        world.advance(10 * AGAIN_MS)
        world.breathe(3)
        assert world.log.last_index == end_index

    def refuse(self, world: World, error: Exception) -> None:
        def propose(_: bytearray) -> None:
            raise error

        world.raft.propose = propose  # type: ignore[method-assign, assignment]

    def accept(self, world: World) -> None:
        del world.raft.propose
