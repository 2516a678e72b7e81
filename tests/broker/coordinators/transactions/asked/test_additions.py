"""AddPartitionsToTxn of many transactions at once: added for other brokers, or verified for them."""

from collections.abc import Iterator

import pytest
from broker.coordinators.transactions.transaction_world import World

from barnabas_broker.coordinators.transactions.additions import WAIT_MS, existing_places
from barnabas_broker.coordinators.transactions.coordinator import ADD_PARTITIONS_VERSION
from barnabas_broker.coordinators.transactions.state_machine.adding import PLACES_MAX
from barnabas_broker.coordinators.transactions.state_machine.messages import V2
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.steps import at_once

NONE = ErrorCode.NONE
ABSENT = ErrorCode.TRANSACTION_ABORTABLE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
State = TransactionState
Codes = dict[tuple[str, str, int], int]


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def transaction(
    producer: Producer, *indexes: int, transactional_id: str = "a", verify: bool = False, topic: str = "t"
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
    )


def codes_of(response: AddPartitionsToTxnResponse) -> Codes:
    assert response.error_code == NONE
    return {
        (one.transactional_id, topic.name, row.partition_index): row.partition_error_code
        for one in response.results_by_transaction
        for topic in one.topic_results
        for row in topic.results_by_partition
    }


def ask(world: World, *transactions: AddPartitionsToTxnTransaction, commits: bool = True) -> Codes:
    """Ask the coordinator; what it appends commits."""
    request = AddPartitionsToTxnRequest(transactions=list(transactions))
    act = world.commit if commits else lambda: None
    return codes_of(world.run(world.coordinator.add_partitions(request), act))


class TestVerification:
    def test_it_says_what_has_committed_and_changes_nothing(self, world: World) -> None:
        world.lead()
        producer = world.opened(0, 1)
        world.add(producer, 2)
        end_index = world.log.last_index
        found = ask(world, transaction(producer, 0, 2, 9, verify=True), commits=False)
        assert found == {("a", "t", 0): NONE, ("a", "t", 2): ABSENT, ("a", "t", 9): ABSENT}
        assert world.log.last_index == end_index

    def test_t10_a_partition_that_is_not_in_it_is_to_be_aborted_for(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        assert ask(world, transaction(producer, 1, verify=True)) == {("a", "t", 1): ABSENT}

    def test_others_than_the_owner_are_refused(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.given()
        old = producer
        stranger = Producer(9, 0)
        assert set(ask(world, transaction(old, 0, verify=True)).values()) == {ErrorCode.PRODUCER_FENCED}
        assert set(ask(world, transaction(stranger, 0, verify=True)).values()) == {
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        }
        unknown = transaction(producer, 0, transactional_id="b", verify=True)
        assert set(ask(world, unknown).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    def test_an_outcome_on_its_way_lets_nothing_in(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.end(producer)
        assert set(ask(world, transaction(producer, 0, verify=True), commits=False).values()) == {BUSY}

    def test_a_coordinator_that_is_not_certain_asks_a_majority_first(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.given("b")
        world.stall()
        request = AddPartitionsToTxnRequest(
            transactions=[
                transaction(producer, 0, verify=True),
                transaction(producer, 0, transactional_id="b", verify=True),
            ]
        )
        found = codes_of(world.run(world.coordinator.add_partitions(request), world.recover))
        assert found["a", "t", 0] == NONE
        assert found["b", "t", 0] != NONE

    def test_one_that_was_deposed_says_nothing_from_memory(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.stall()
        request = AddPartitionsToTxnRequest(transactions=[transaction(producer, 0, verify=True)])
        found = codes_of(world.run(world.coordinator.add_partitions(request), world.lose))
        assert found == {("a", "t", 0): ErrorCode.NOT_COORDINATOR}
        assert set(ask(world, transaction(producer, 0, verify=True)).values()) == {ErrorCode.NOT_COORDINATOR}

    def test_one_that_is_reading_says_so(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        world.lose()
        world.win()
        found = codes_of(
            world.run(
                world.coordinator.add_partitions(
                    AddPartitionsToTxnRequest(transactions=[transaction(producer, 0, verify=True)])
                )
            )
        )
        assert set(found.values()) <= {NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

    def test_one_that_is_deposed_while_others_are_waited_for_verifies_nothing(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        other = world.given("b")
        asked = [transaction(other, 0, transactional_id="b"), transaction(producer, 0, verify=True)]
        request = AddPartitionsToTxnRequest(transactions=asked)
        found = codes_of(world.run(world.coordinator.add_partitions(request), world.lose))
        assert set(found.values()) == {ErrorCode.NOT_COORDINATOR}

    def test_a_topic_that_is_deleted_is_no_reason_to_refuse_what_is_in_the_transaction(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        del world.partitions.topics["t"]
        assert ask(world, transaction(producer, 0, verify=True)) == {("a", "t", 0): NONE}


class TestAdding:
    def test_partitions_of_many_are_added_and_answered_when_all_have_committed(self, world: World) -> None:
        world.lead()
        producers = {name: world.given(name) for name in ("a", "b", "c")}
        asked = [transaction(producer, 0, 1, transactional_id=name) for name, producer in producers.items()]
        asked.append(transaction(producers["a"], 5, verify=True))
        found = ask(world, *asked)
        assert found.pop(("a", "t", 5)) == ABSENT
        assert set(found.values()) == {NONE}
        assert len(found) == 6
        for name in producers:
            saved = world.saved(name)
            assert saved is not None
            assert (saved.state, saved.client_version) == (State.ONGOING, V2)

    def test_if_one_does_not_exist_none_is_added(self, world: World) -> None:
        world.lead()
        producer = world.given()
        asked = transaction(producer, 0, 1)
        asked.topics.append(AddPartitionsToTxnTopic(name="gone", partitions=[0]))
        asked.topics.append(AddPartitionsToTxnTopic(name="t", partitions=[-1, 99_999]))
        found = ask(world, asked)
        nothing, unknown = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found == {
            ("a", "t", 0): nothing,
            ("a", "t", 1): nothing,
            ("a", "gone", 0): unknown,
            ("a", "t", -1): unknown,
            ("a", "t", 99_999): unknown,
        }
        assert world.state() is State.EMPTY

    def test_one_error_stands_at_each_partition(self, world: World) -> None:
        world.lead()
        world.given()
        found = ask(world, transaction(Producer(9, 0), 0, 1), transaction(Producer(9, 0), 0, transactional_id=""))
        assert found == {
            ("a", "t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ("a", "t", 1): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ("", "t", 0): ErrorCode.INVALID_REQUEST,
        }

    def test_t9_one_that_is_busy_is_waited_for_a_moment_only(self, world: World) -> None:
        world.lead()
        owners = {}
        for name in ("a", "b"):
            ended = world.end(world.opened(0, transactional_id=name), transactional_id=name)
            world.commit()
            owners[name] = ended.producer
        request = AddPartitionsToTxnRequest(
            transactions=[transaction(owner, 1, transactional_id=name) for name, owner in owners.items()]
        )

        def act() -> None:
            world.write_all("a")
            world.commit()
            world.commit()
            world.advance(WAIT_MS)

        found = codes_of(world.run(world.coordinator.add_partitions(request), act))
        assert found == {("a", "t", 1): NONE, ("b", "t", 1): BUSY}
        world.finish()

    def test_of_more_than_a_transaction_takes_only_so_many_are_looked_at(self, world: World) -> None:
        world.lead()
        producer = world.given()
        world.partitions.topics["t"].topic.partitions = range(20_000)
        found = ask(world, transaction(producer, *range(20_000)))
        assert set(found.values()) == {ABSENT}
        places = at_once(existing_places(world.partitions, transaction(producer, *range(20_000)).topics))
        assert places is not None
        assert len(places) == PLACES_MAX + 1
        twice = transaction(producer, *[number % PLACES_MAX for number in range(2 * PLACES_MAX)])
        assert set(ask(world, twice).values()) == {NONE}

    def test_a_caller_that_has_gone_disturbs_nobody(self, world: World) -> None:
        world.lead()
        producer = world.given()
        request = AddPartitionsToTxnRequest(transactions=[transaction(producer, 0)])
        task = world.loop.create_task(world.coordinator.add_partitions(request))
        world.breathe(3)
        task.cancel()
        world.breathe(3)
        world.commit()
        assert world.state() is State.ONGOING

    def test_another_broker_asks_with_the_message_itself(self, world: World) -> None:
        world.lead()
        producer = world.opened(0)
        request = AddPartitionsToTxnRequest(transactions=[transaction(producer, 0, 1, verify=True)])
        body = request.to_bytes(ADD_PARTITIONS_VERSION)
        answer = world.run(world.coordinator.answer(2, body))
        found = codes_of(AddPartitionsToTxnResponse.decode(answer, ADD_PARTITIONS_VERSION))
        assert found == {("a", "t", 0): NONE, ("a", "t", 1): ABSENT}
