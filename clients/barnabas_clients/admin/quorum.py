"""Describes the metadata quorum, has partitions led by whom they should be, and brokers forgotten: over a `Cluster`.

Any broker takes these questions. An election that is repeated because its answer was lost finds the leader that it
wanted, and counts as done.

Cancellation: leaderships may move nevertheless.
"""

from collections.abc import Collection, Sequence

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    ReplicaState,
)
from barnabas_clients.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas_clients.topic_partition import TopicPartition

from .attempts import Attempts, raise_for
from .offsets import left_s
from .values import QuorumDescription, QuorumReplica

__all__ = ["describe_quorum", "elect_leaders", "unregister_broker"]

TOPIC = "__cluster_metadata"
PREFERRED, UNCLEAN = 0, 1
MARGIN_S = 1.0  # of the deadline, for the answer's way


async def describe_quorum(cluster: Cluster, timeout_s: float) -> QuorumDescription:
    """Ask who leads the quorum, and how far its members have come.

    Raises:
        DeadlineExceededError: no answer in time. UnsupportedVersionError: the brokers tell nothing of it.
    """

    def check(response: DescribeQuorumResponse) -> None:
        raise_for(response.error_code, "describing the quorum", response.error_message)
        row = _only(response)
        raise_for(row.error_code, "describing the quorum", row.error_message)

    asked = DescribeQuorumTopic(topic_name=TOPIC, partitions=[DescribeQuorumPartition()])
    response: DescribeQuorumResponse = await cluster.request_any(
        DescribeQuorumRequest(topics=[asked]), timeout_s, check
    )
    row = _only(response)
    return QuorumDescription(
        leader_id=row.leader_id,
        leader_epoch=row.leader_epoch,
        high_watermark=row.high_watermark,
        voters=_replicas(row.current_voters),
        observers=_replicas(row.observers),
    )


async def unregister_broker(cluster: Cluster, node_id: int, timeout_s: float) -> None:
    """Have a broker forgotten. That it is gone already is success, if an attempt without an answer came before.

    Raises:
        KafkaError: as `Admin.unregister_broker` says. DeadlineExceededError: no answer in time.
    """
    attempts = Attempts()

    def check(response: UnregisterBrokerResponse) -> None:
        row = (response.error_code, f"broker {node_id}", response.error_message)
        attempts.check([row], ErrorCode.BROKER_ID_NOT_REGISTERED)

    request = UnregisterBrokerRequest(broker_id=node_id)
    what = f"unregistering broker {node_id}"
    await cluster.retry(what, timeout_s, lambda deadline: attempts.ask(cluster, request, deadline, check))


async def elect_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition] | None, timeout_s: float, *, unclean: bool
) -> dict[TopicPartition, KafkaError | None]:
    """Have partitions, or all, led by their preferred replica; None: it leads now. Others have an error.

    Raises:
        KafkaError: the request is refused as a whole. DeadlineExceededError: no answer in time.
    """
    topics: dict[str, list[int]] | None = None if partitions is None else {}
    for key in sorted(partitions or ()):
        assert topics is not None
        topics.setdefault(key.topic, []).append(key.partition)
    rows = None if topics is None else [ElectLeadersTopic(topic=name, partitions=them) for name, them in topics.items()]
    may_be_done = False

    async def attempt(deadline: float) -> ElectLeadersResponse:
        nonlocal may_be_done
        timeout_ms = int(max(0.0, left_s(deadline) - MARGIN_S) * 1_000)
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED, topic_partitions=rows, timeout_ms=timeout_ms
        )
        try:
            response: ElectLeadersResponse = await cluster.ask_controller(request, left_s(deadline))
        except ClientError as error:
            may_be_done |= error.may_be_done
            raise
        raise_for(response.error_code, "electing leaders", None)
        return response

    response = await cluster.retry("electing leaders", timeout_s, attempt)
    found: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.replica_election_results:
        for row in topic.partition_result:
            key = TopicPartition(topic.topic, row.partition_id)
            is_done = not row.error_code or (row.error_code == ErrorCode.ELECTION_NOT_NEEDED and may_be_done)
            text = f"{key}: {row.error_message}" if row.error_message else str(key)
            found[key] = None if is_done else error_for(row.error_code, text)
    return found


def _only(response: DescribeQuorumResponse) -> DescribeQuorumPartitionResult:
    rows = [row for topic in response.topics for row in topic.partitions]
    if len(rows) != 1:
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the quorum is told in {len(rows)} rows")
    return rows[0]


def _replicas(rows: Sequence[ReplicaState]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            node_id=row.replica_id,
            directory_id=row.replica_directory_id,
            end_offset=row.log_end_offset,
            heard_at_ms=row.last_fetch_timestamp if row.last_fetch_timestamp >= 0 else None,
            caught_up_at_ms=row.last_caught_up_timestamp if row.last_caught_up_timestamp >= 0 else None,
        )
        for row in sorted(rows, key=lambda row: row.replica_id)
    )
