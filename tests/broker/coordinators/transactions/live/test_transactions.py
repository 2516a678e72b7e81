"""Transactional producers over the wire, with real brokers, whose partitions get their markers."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from broker.wire_client import Wire

from barnabas_broker.coordinators.transactions.coordinator import ADD_PARTITIONS
from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest

from .conftest import SETTINGS
from .transactional_client import TransactionalClient

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def client(brokers: RunningCluster, name: str) -> Iterator[TransactionalClient]:
    client = TransactionalClient(brokers.bootstrap, name)
    yield client
    client.lose()


def record_counts(brokers: RunningCluster, topic: str) -> list[int]:
    """Return how many records each partition has on its leader; only markers are written here."""
    counts = []
    for index in range(4):
        partitions = [node.partitions.topics[topic].partitions[index] for node in brokers.cluster.nodes.values()]
        (leader,) = [partition for partition in partitions if partition.is_leader]
        counts.append(leader.high_watermark)
    return counts


def verification(client: TransactionalClient, topic: str, *indexes: int) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))]
    of_one = AddPartitionsToTxnTransaction(
        transactional_id=client.transactional_id,
        producer_id=client.producer.producer_id,
        producer_epoch=client.producer.epoch,
        verify_only=True,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[of_one])


def codes_of(response: AddPartitionsToTxnResponse) -> list[int]:
    (of_one,) = response.results_by_transaction
    (of_topic,) = of_one.topic_results
    return [row.partition_error_code for row in of_topic.results_by_partition]


def test_a_transaction_from_its_beginning_to_its_markers(
    brokers: RunningCluster, client: TransactionalClient, topic: str
) -> None:
    first = client.become()
    assert first.epoch == 0
    client.open(topic, 0, 1)
    assert client.add_offsets(topic) == NONE
    assert client.end() == NONE
    assert client.producer == first._replace(epoch=1)
    client.open(topic, 2)
    client.finish(commit=False)
    assert client.become() == first._replace(epoch=3)  # which waits for the markers
    assert record_counts(brokers, topic) == [1, 1, 1, 0]


def test_t1_transactions_of_v1_keep_their_epoch(
    brokers: RunningCluster, client: TransactionalClient, topic: str
) -> None:
    first = client.become()
    for version in range(5):
        assert client.surely(lambda: max(client.add(topic, 0, version=min(version, 3)))) == NONE  # noqa: B023
        assert client.surely(lambda: client.end(version=version)) == NONE  # noqa: B023
        assert client.producer == first
    client.become()
    # Nothing was written, and a marker that is in the log need not be there twice.
    assert record_counts(brokers, topic) == [1, 0, 0, 0]


def test_t12_a_successor_aborts_what_is_open_and_fences_who_has_opened_it(
    brokers: RunningCluster, client: TransactionalClient, topic: str
) -> None:
    client.become()
    client.open(topic, 0)
    successor = TransactionalClient(brokers.bootstrap, client.transactional_id)
    assert successor.become().epoch == client.producer.epoch + 2
    assert record_counts(brokers, topic) == [1, 0, 0, 0]
    assert client.end() == FENCED
    assert client.add(topic, 1) == [FENCED]
    successor.lose()


def test_t11_old_versions_hear_of_a_fence_as_they_know_it(
    brokers: RunningCluster, client: TransactionalClient, topic: str
) -> None:
    old = client.become()
    client.become()
    client.producer = old
    for version in range(6):
        code = FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.end(version=version) == code
        assert client.add(topic, 0, version=min(version, 3)) == [code]
        assert client.add_offsets(topic, version=min(version, 4)) == code
    given = {"producer_id": old.producer_id, "producer_epoch": old.epoch}
    assert client.initialize(version=3, **given).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.initialize(version=4, **given).error_code == FENCED


def test_requests_that_nobody_can_mean(client: TransactionalClient, topic: str) -> None:
    client.become()
    client.open(topic, 0)
    unknown, nothing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert client.add("nowhere", 0) == [unknown]
    assert client.add(topic, 1, 9) == [nothing, unknown]
    assert client.add(TRANSACTION_TOPIC, 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert client.initialize(timeout_ms=900_001).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert client.initialize(producer_id=5).error_code == ErrorCode.INVALID_REQUEST
    wire = client.find()
    assert wire.ask(verification(client, topic, 1, 0), 5).results_by_transaction
    client.transactional_id = ""
    assert client.initialize().error_code == ErrorCode.INVALID_REQUEST
    assert client.end() == client.add_offsets("g") == ErrorCode.INVALID_REQUEST
    assert client.add(topic, 0) == [ErrorCode.INVALID_REQUEST]
    assert codes_of(client.ask(verification(client, topic, 0), 4)) == [ErrorCode.INVALID_REQUEST]


def test_a_transaction_that_is_open_for_too_long_is_aborted(
    brokers: RunningCluster, client: TransactionalClient, topic: str
) -> None:
    assert client.initialize(timeout_ms=100).error_code == NONE
    assert client.surely(lambda: max(client.add(topic, 0))) in {NONE, FENCED}
    until(lambda: client.add(topic, 0) == [FENCED])
    client.become()
    assert record_counts(brokers, topic) == [1, 0, 0, 0]
    events = coordinator_events(brokers, client)
    assert "transaction timed out" in events


def until(act: Callable[[], bool]) -> None:
    """Ask again and again until it is so; each time takes a round trip."""
    for _ in range(100_000):
        if act():
            return
    raise AssertionError("it never is")


def coordinator_events(brokers: RunningCluster, client: TransactionalClient) -> list[str]:
    status = brokers.cluster.nodes[client.coordinator_id].status()
    assert status["transactions"]["transactional_ids"] >= 1
    return [event["kind"] for event in status["events"] if client.transactional_id in event["group"]]


def test_another_broker_verifies_over_its_link(
    brokers: RunningCluster, client: TransactionalClient, topic: str
) -> None:
    client.become()
    client.open(topic, 0)
    request = verification(client, topic, 0, 1)
    assert codes_of(client.ask(request, 5)) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    asker = client.coordinator_id % 3 + 1

    async def ask(cluster: Cluster) -> bytes:
        links = cluster.nodes[asker].links
        return await links.call(client.coordinator_id, ADD_PARTITIONS, request.to_bytes(5), 5.0)

    answer = AddPartitionsToTxnResponse.decode(brokers.run(ask), 5)
    assert codes_of(answer) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    elsewhere = Wire("127.0.0.1", brokers.cluster.nodes[asker].port)
    assert codes_of(elsewhere.ask(request, 5)) == [ErrorCode.NOT_COORDINATOR] * 2
    elsewhere.close()


def test_a_topic_that_is_deleted_amid_a_transaction_holds_up_nobody(
    brokers: RunningCluster, client: TransactionalClient, topic: str
) -> None:
    client.become()
    client.open(topic, 0, 1)
    wire = client.find()
    deletion = DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000)
    assert wire.ask(deletion, 5).responses[0].error_code == NONE
    client.finish()
    assert client.become().epoch == 2


def test_many_keys_are_found_at_once(brokers: RunningCluster, client: TransactionalClient) -> None:
    client.find()
    keys = [f"{client.transactional_id}-{number}" for number in range(20)]
    found = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=keys), 4).coordinators
    assert [one.key for one in found] == keys
    assert {one.error_code for one in found} == {NONE}
    topic = brokers.cluster.nodes[1].partitions.topics[TRANSACTION_TOPIC]
    assert len(topic.topic.partitions) == SETTINGS["transaction.state.log.num.partitions"]
    assert topic.settings.flush_mode == "fsync"


def test_a_transaction_goes_on_with_another_coordinator(name: str) -> None:
    """Before, in and after each step the coordinator stops; what it has answered holds."""
    with RunningCluster(3, settings=SETTINGS) as brokers:
        client = TransactionalClient(brokers.bootstrap, name)
        client.find().create(name, 4, 3)
        first = client.become()
        for round_number in range(3):
            for step in (lambda: client.open(name, 0, 1), client.finish, client.become):
                step()
                stopped = client.coordinator_id
                brokers.run(partial(Cluster.stop, node_id=stopped))
                client.lose()
                brokers.run(partial(Cluster.start, node_id=stopped))
                brokers.run(Cluster.wait_ready)
            assert client.producer == first._replace(epoch=2 * round_number + 2)
        client.lose()
        assert min(record_counts(brokers, name)[:2]) >= 3, "each marker at least once"


@pytest.mark.parametrize("two_phase", [False, True])
def test_prepared_transactions_are_offered_where_they_are_enabled(two_phase: bool, name: str) -> None:
    settings = {**SETTINGS, "transaction.two.phase.commit.enable": two_phase}
    with RunningCluster(1, settings=settings) as brokers:
        client = TransactionalClient(brokers.bootstrap, name)
        wire = client.find()
        wire.create(name)
        versions = {key.api_key: key.max_version for key in wire.ask(ApiVersionsRequest(), 0).api_keys}
        assert versions[InitProducerIdRequest.api_key] == (6 if two_phase else 5)
        if two_phase:
            assert client.initialize(version=6, timeout_ms=0, enable_2pc=True).error_code == NONE
            prepared = client.producer
            client.open(name, 0)
            answer = client.initialize(version=6, timeout_ms=0, enable_2pc=True, keep_prepared_txn=True)
            assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == prepared
            client.finish()
        client.lose()
