"""DescribeQuorum: say who leads the metadata quorum, and how far its voters and observers have come.

Any broker takes the question; the controller knows the answer. Kafka's clients know the quorum as the one partition of
a topic, `__cluster_metadata`; as there, a question about anything else is UNKNOWN_TOPIC_OR_PARTITION. Indexes of a Raft
log count from 1 and the commit index is the last that counts, so as they are they are the ends that Kafka tells.

Controllers have no listener for clients here: the addresses are those of the voters' first listener.
"""

from collections.abc import Iterable

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_clients.protocol.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    ReplicaState,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import DescribeQuorum, QuorumAnswer, QuorumMember, Refused

from .create_topics import code_of

__all__ = ["TOPIC", "handle", "refuse"]

TOPIC = "__cluster_metadata"
TIMEOUT_S = 5.0  # The request names none.


async def handle(broker: BrokerContext, exchange: Exchange, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Ask the controller."""
    asked = [(topic.topic_name, [one.partition_index for one in topic.partitions[:2]]) for topic in request.topics[:2]]
    if asked != [(TOPIC, [0])]:
        return _unknown(request)
    try:
        answer = await broker.metadata.submit(DescribeQuorum(), TIMEOUT_S)
    except Refused as refused:
        return DescribeQuorumResponse(error_code=code_of(refused.reason), error_message=in_words(refused.message))
    assert isinstance(answer, QuorumAnswer)
    partition = DescribeQuorumPartitionResult(
        leader_id=answer.leader_id,
        leader_epoch=answer.term,
        high_watermark=answer.commit_index,
        current_voters=_states(answer.voters),
        observers=_states(answer.learners),
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumTopicResult(topic_name=TOPIC, partitions=[partition])],
        nodes=_nodes(broker, answer.voters, exchange.listener_name),
    )


def refuse(_: DescribeQuorumRequest, code: ErrorCode) -> DescribeQuorumResponse:
    """Answer with `code`."""
    return DescribeQuorumResponse(error_code=code)


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    def row(index: int) -> DescribeQuorumPartitionResult:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeQuorumPartitionResult(partition_index=index, error_code=code)

    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumTopicResult(
                topic_name=topic.topic_name, partitions=[row(one.partition_index) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _states(members: Iterable[QuorumMember]) -> list[ReplicaState]:
    return [
        ReplicaState(
            replica_id=member.node_id,
            replica_directory_id=member.directory_id,
            log_end_offset=member.match_index,
            last_fetch_timestamp=member.heard_at_ms,
            last_caught_up_timestamp=member.caught_up_at_ms,
        )
        for member in members
    ]


def _nodes(broker: BrokerContext, voters: Iterable[QuorumMember], listener: str) -> list[DescribeQuorumNode]:
    nodes = []
    for voter in voters:
        known = broker.image.brokers.get(voter.node_id)
        address = None if known is None else known.address_on(listener)
        listeners = [] if address is None else [DescribeQuorumListener(name=listener, host=address[0], port=address[1])]
        nodes.append(DescribeQuorumNode(node_id=voter.node_id, listeners=listeners))
    return nodes
