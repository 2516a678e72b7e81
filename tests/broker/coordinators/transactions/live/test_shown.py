"""ListTransactions and DescribeTransactions over the wire: what operators see of a transaction."""

from collections.abc import Iterator

import pytest
from broker.wire_client import Wire

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_transactions import ListedTransaction, ListTransactionsRequest

from .transactional_client import TransactionalClient


@pytest.fixture
def client(brokers: RunningCluster, name: str) -> Iterator[TransactionalClient]:
    client = TransactionalClient(brokers.bootstrap, name)
    yield client
    client.lose()


def described(client: TransactionalClient, *others: str) -> list[DescribedTransaction]:
    request = DescribeTransactionsRequest(transactional_ids=[client.transactional_id, *others])
    return list(client.ask(request, 0).transaction_states)


def listed(client: TransactionalClient, version: int = 2, **asked: object) -> list[ListedTransaction]:
    response = client.ask(ListTransactionsRequest(**asked), version)  # type: ignore[arg-type]
    assert response.error_code == ErrorCode.NONE
    return [row for row in response.transaction_states if row.transactional_id == client.transactional_id]


def test_a_transaction_is_shown_while_it_is_open(client: TransactionalClient, topic: str) -> None:
    client.become()
    (row,) = described(client)
    assert (row.error_code, row.transaction_state, row.topics) == (ErrorCode.NONE, "Empty", [])
    client.open(topic, 2, 0)
    (row,) = described(client)
    assert row.transaction_state == "Ongoing"
    assert (row.producer_id, row.producer_epoch) == client.producer
    assert row.transaction_timeout_ms > 0
    assert row.transaction_start_time_ms > 1_600_000_000_000
    assert [(one.topic, list(one.partitions)) for one in row.topics] == [(topic, [0, 2])]
    for version in range(3):
        (found,) = listed(client, version, state_filters=["Ongoing"])
        assert (found.producer_id, found.transaction_state) == (client.producer.producer_id, "Ongoing")
    assert listed(client, transactional_id_pattern=f"{client.transactional_id[:-2]}..")
    assert not listed(client, transactional_id_pattern=client.transactional_id[:-1])
    assert not listed(client, duration_filter_ms=3_600_000)
    assert not listed(client, producer_id_filters=[client.producer.producer_id + 1])
    client.finish()
    client.become()
    assert not listed(client, state_filters=["Ongoing"])


def test_an_id_that_is_unknown_or_elsewhere_says_so(brokers: RunningCluster, client: TransactionalClient) -> None:
    client.become()
    others = [f"{client.transactional_id}-{number}" for number in range(30)]
    codes = {row.transactional_id: row.error_code for row in described(client, *others)}
    assert codes.pop(client.transactional_id) == ErrorCode.NONE
    assert set(codes.values()) == {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR}
    for node in brokers.cluster.nodes.values():
        if node.config.node_id != client.coordinator_id:
            wire = Wire("127.0.0.1", node.port)
            request = DescribeTransactionsRequest(transactional_ids=[client.transactional_id])
            (row,) = wire.ask(request, 0).transaction_states
            assert row.error_code == ErrorCode.NOT_COORDINATOR
            wire.close()
