"""Requests that name more things than allowed are refused as a whole."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.alter_configs import AlterConfigsRequest, AlterConfigsResource
from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_clients.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.registry import Message
from barnabas_metadata_quorum.controller.commands import NAMED_MAX, Answer, Command
from broker.wire_client import Wire

Make = Callable[[list[str]], Message]
Codes = Callable[[Any], Iterable[int]]
NAMES = [f"n{number}" for number in range(NAMED_MAX + 1)]
TOPIC = 2

REQUESTS: dict[str, tuple[int, Make, Codes]] = {
    "create": (
        7,
        lambda names: CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        ),
        lambda answer: [row.error_code for row in answer.topics if row.error_message],
    ),
    "delete": (
        6,
        lambda names: DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names]),
        lambda answer: [row.error_code for row in answer.responses if row.error_message],
    ),
    "delete by id": (
        6,
        lambda names: DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=name.encode().ljust(16)) for name in names]
        ),
        lambda answer: [row.error_code for row in answer.responses if row.error_message],
    ),
    "delete, as it was": (
        1,
        lambda names: DeleteTopicsRequest(topic_names=names),
        lambda answer: [row.error_code for row in answer.responses],
    ),
    "grow": (
        3,
        lambda names: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2) for name in names]),
        lambda answer: [row.error_code for row in answer.results if row.error_message],
    ),
    "alter": (
        2,
        lambda names: AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
        ),
        lambda answer: [row.error_code for row in answer.responses if row.error_message],
    ),
    "alter incrementally": (
        1,
        lambda names: IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
        ),
        lambda answer: [row.error_code for row in answer.responses if row.error_message],
    ),
    "create by asking": (
        9,
        lambda names: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]),
        lambda answer: [row.error_code for row in answer.topics],
    ),
}


NAMING: dict[str, tuple[int, Make, Codes]] = {name: row for name, row in REQUESTS.items() if name != "delete by id"} | {
    "move": (
        0,
        lambda names: AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
                for name in names
            ]
        ),
        lambda answer: [row.error_code for topic in answer.responses for row in topic.partitions],
    ),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_who_names_too_much_is_refused_for_each(what: str, wire: Wire, one_broker: RunningCluster) -> None:
    version, make, codes = REQUESTS[what]
    metadata = one_broker.cluster.nodes[1].metadata
    before = metadata.image.version
    answer = wire.ask(make(NAMES), version)
    assert list(codes(answer)) == [ErrorCode.POLICY_VIOLATION] * len(NAMES)
    assert metadata.image.version == before


def test_who_moves_too_many_partitions_is_refused(wire: Wire, topic: str) -> None:
    rows = [ReassignablePartition(partition_index=index, replicas=[1]) for index in range(NAMED_MAX + 1)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=rows)])
    answer = wire.ask(request, 1)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.POLICY_VIOLATION,
        "10001 partitions in one request; 10000 is the maximum",
    )


@pytest.mark.parametrize("what", NAMING)
def test_names_that_no_topic_can_have_go_to_no_controller(
    what: str, wire: Wire, one_broker: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = one_broker.cluster.nodes[1].metadata
    submit = service.submit
    named = list[str]()

    async def noted(command: Command, timeout_s: float) -> Answer:
        named.append(str(command))
        return await submit(command, timeout_s)

    monkeypatch.setattr(service, "submit", noted)
    version, make, codes = NAMING[what]
    answer = wire.ask(make(["x" * 32_767, "is impossible"]), version)
    creates = what in {"create", "create by asking"}
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if creates else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(codes(answer)) == [code, code]
    assert not any("xxx" in text or "impossible" in text for text in named)


def test_what_a_cluster_may_have_is_a_setting() -> None:
    with RunningCluster(1, settings={"max.topics": 2, "num.partitions": 3, "max.partitions": 7}) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        topics = [MetadataRequestTopic(name=name) for name in ("a", "b", "c")]
        codes = [topic.error_code for topic in wire.ask(MetadataRequest(topics=topics), 9).topics]
        assert codes == [0, 0, ErrorCode.POLICY_VIOLATION]
        wanted = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=5)], timeout_ms=10_000)
        grown = wire.ask(wanted, 3).results[0]
        assert (grown.error_code, grown.error_message) == (
            ErrorCode.POLICY_VIOLATION,
            "The cluster has 6 partitions; 7 is the maximum (max.partitions)",
        )
        wire.close()
