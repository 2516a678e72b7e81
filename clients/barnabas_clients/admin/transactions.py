"""Looks at transactions, and aborts one that hangs: functions over a `Cluster`.

The coordinator of a transactional id, the leader of one partition of the transactions topic, knows the id's
transaction. A list of all ids is the sum of the lists of all brokers. The leader of a partition knows which producers
have an open transaction there, and since when. A transaction that a leader knows and no coordinator does *hangs*: it
holds readers of committed records back for ever, and only an operator can end it (KIP-664).

Cancellation, for all of them: an abort may happen nevertheless, and nothing is left behind here.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError, UnsupportedVersionError
from barnabas_clients.groups.coordinator import Coordinator
from barnabas_clients.protocol.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from barnabas_clients.protocol.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_clients.topic_partition import TopicPartition

from .groups import ATTEMPT_TIMEOUT_S, each
from .offsets import left_s
from .values import PartitionProducer, ReachableTransactions, TransactionDescription
from .values import TransactionListing as Listing

__all__ = [
    "abort_transaction",
    "describe_producers",
    "describe_transactions",
    "list_transactions",
    "listing_request",
    "reachable_transactions",
]

_DURATION_VERSIONS = range(1, 3)


async def list_transactions(cluster: Cluster, timeout_s: float, wanted: ListTransactionsRequest) -> list[Listing]:
    """Return every transactional id of the cluster that the request wants, sorted.

    Raises:
        DeadlineExceededError: a broker of the cluster did not answer, so its ids would be missing.
    """

    async def attempt(deadline: float) -> list[Listing]:
        # Every attempt asks all brokers: the ids of one that failed go to others, which may have answered before.
        answers = await each(cluster.view.brokers, lambda node_id: _ask(cluster, node_id, wanted, deadline))
        return _sorted(row for rows in answers.values() for row in rows)

    return await cluster.retry("listing transactions", timeout_s, attempt)


async def reachable_transactions(
    cluster: Cluster, timeout_s: float, wanted: ListTransactionsRequest
) -> ReachableTransactions:
    """Return the ids that brokers tell of within `timeout_s`. One that cannot be reached is not asked again.

    A coordinator that is still loading its ids is asked until it has them.

    Raises:
        UnsupportedVersionError: a broker has no such list, or not one of what is wanted.
    """
    deadline = asyncio.get_running_loop().time() + min(timeout_s, ATTEMPT_TIMEOUT_S)
    silent: dict[int, str] = {}

    async def ask(node_id: int) -> list[Listing]:
        async def attempt(until: float) -> list[Listing]:
            try:
                return await _ask(cluster, node_id, wanted, until)
            except UnsupportedVersionError:
                raise
            except ClientError as error:
                silent[node_id] = str(error)
                return []

        try:
            return await cluster.retry(f"transactions of broker {node_id}", left_s(deadline), attempt)
        except UnsupportedVersionError:
            raise
        except (ClientError, KafkaError) as error:
            silent[node_id] = str(error)
            return []

    answers = await each(cluster.view.brokers, ask)
    rows = _sorted(row for rows in answers.values() for row in rows)
    return ReachableTransactions(rows, dict(sorted(silent.items())))


def listing_request(
    states: Iterable[str], producer_ids: Iterable[int], open_longer_than_s: float | None
) -> ListTransactionsRequest:
    """Return the request for ids; those in these states, of these producers, with a transaction open for so long."""
    return ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter_ms=-1 if open_longer_than_s is None else int(open_longer_than_s * 1000),
    )


async def _ask(cluster: Cluster, node_id: int, wanted: ListTransactionsRequest, deadline: float) -> list[Listing]:
    limit_s = min(left_s(deadline), ATTEMPT_TIMEOUT_S)
    # An older version would leave the duration out.
    versions = None if wanted.duration_filter_ms < 0 else _DURATION_VERSIONS
    response: ListTransactionsResponse = await cluster.ask_broker(node_id, wanted, limit_s, versions=versions)
    if response.error_code:
        raise error_for(response.error_code, f"transactions of broker {node_id}")
    if response.unknown_state_filters:
        unknown = ", ".join(response.unknown_state_filters)
        raise error_for(ErrorCode.INVALID_REQUEST, f"broker {node_id} knows no state {unknown}")
    return [
        Listing(row.transactional_id, row.producer_id, row.transaction_state, node_id)
        for row in response.transaction_states
    ]


def _sorted(rows: Iterable[Listing]) -> list[Listing]:
    """Return each id once: two brokers may have named one that moved meanwhile."""
    return sorted({row.transactional_id: row for row in rows}.values())


async def describe_transactions(
    cluster: Cluster, transactional_ids: Collection[str], timeout_s: float
) -> dict[str, TransactionDescription]:
    """Return what the coordinators know of transactional ids.

    Raises:
        KafkaError: one of them is unknown (TRANSACTIONAL_ID_NOT_FOUND), or must not be looked at.
    """

    async def describe(transactional_id: str) -> TransactionDescription:
        coordinator = Coordinator.of_transactions(cluster, transactional_id)

        async def attempt(deadline: float) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
            response = await coordinator.ask(request, deadline)
            for row in response.transaction_states:
                coordinator.judge(row.error_code)
                return _described(row, coordinator.node_id)
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer about {coordinator.subject}")

        return await coordinator.retry("description", timeout_s, attempt)

    return await each(transactional_ids, describe)


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition], timeout_s: float
) -> dict[TopicPartition, list[PartitionProducer]]:
    """Return the producers that the leader of each partition remembers, sorted by their ids.

    Raises:
        KafkaError: a topic must not be looked at. DeadlineExceededError: a partition has no leader, or does not exist.
    """

    async def describe(partition: TopicPartition) -> list[PartitionProducer]:
        request = DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=partition.topic, partition_indexes=(partition.partition,))]
        )

        async def attempt(deadline: float) -> list[PartitionProducer]:
            leader = await cluster.find_leader(*partition, deadline)
            limit_s = min(left_s(deadline), ATTEMPT_TIMEOUT_S)
            response: DescribeProducersResponse = await cluster.ask_broker(leader.node_id, request, limit_s)
            for row in (row for topic in response.topics for row in topic.partitions):
                if row.error_code:
                    raise error_for(row.error_code, f"{partition}: {row.error_message or 'its producers'}")
                producers = [
                    PartitionProducer(
                        each.producer_id,
                        each.producer_epoch,
                        each.last_sequence,
                        each.last_timestamp_ms,
                        each.coordinator_epoch,
                        each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
                    )
                    for each in row.active_producers
                ]
                return sorted(producers, key=lambda each: each.producer_id)
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer about {partition}")

        return await cluster.retry(f"producers of {partition}", timeout_s, attempt, (partition.topic,))

    return await each(partitions, describe)


async def abort_transaction(
    cluster: Cluster, partition: TopicPartition, start_offset: int, timeout_s: float
) -> PartitionProducer:
    """Abort the transaction that begins at an offset, in this partition alone. Return the producer whose it was.

    Raises:
        KafkaError: no open transaction begins there (INVALID_TXN_STATE); a coordinator has been quicker
            (TRANSACTION_COORDINATOR_FENCED, INVALID_PRODUCER_EPOCH); it is not allowed.
        DeadlineExceededError: nobody has answered in time; it may be aborted, now or later.
    """
    asked: PartitionProducer | None = None

    async def attempt(deadline: float) -> PartitionProducer:
        nonlocal asked
        # Each attempt looks first: one before may have been carried out, and the producer may have begun another.
        known = await describe_producers(cluster, [partition], left_s(deadline))
        found = next((each for each in known[partition] if each.start_offset == start_offset), None)
        if found is None and asked is not None:
            return asked
        if found is None:
            raise error_for(ErrorCode.INVALID_TXN_STATE, f"no open transaction of {partition} begins at {start_offset}")
        leader = await cluster.find_leader(*partition, deadline)
        asked = found
        response: WriteTxnMarkersResponse = await cluster.ask_broker(
            leader.node_id, _marker(partition, found), min(left_s(deadline), ATTEMPT_TIMEOUT_S)
        )
        rows = [row for marker in response.markers for topic in marker.topics for row in topic.partitions]
        code = rows[0].error_code if rows else ErrorCode.UNKNOWN_SERVER_ERROR
        if code:
            raise error_for(code, f"aborting the transaction of {partition} at {start_offset}")
        return found

    return await cluster.retry(f"aborting a transaction of {partition}", timeout_s, attempt, (partition.topic,))


def _marker(partition: TopicPartition, producer: PartitionProducer) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=(partition.partition,))],
        # A producer without an ended transaction has none.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _described(row: DescribedTransaction, coordinator_id: int | None) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=row.transactional_id,
        state=row.transaction_state,
        coordinator_id=-1 if coordinator_id is None else coordinator_id,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_s=row.transaction_timeout_ms / 1000,
        started_at_ms=row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        partitions=_partitions([(topic.topic, topic.partitions) for topic in row.topics]),
    )


def _partitions(topics: Iterable[tuple[str, Sequence[int]]]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for topic, numbers in topics for number in numbers)
