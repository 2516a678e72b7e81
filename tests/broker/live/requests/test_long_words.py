"""Errors that quote the longest names still fit the answers of old versions."""

from typing import Any

import pytest

from barnabas_clients.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas_clients.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_clients.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_clients.protocol.registry import Message
from broker.wire_client import Wire

LONG = "x" * 32_767
REQUESTS: list[tuple[Message, int]] = [
    (AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name=LONG)]), 0),
    (
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=4, resource_name=LONG, configs=[AlterableConfig(name="x")])]
        ),
        1,
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=2,
                    resource_name="fuzz",
                    configs=[IncrementalAlterableConfig(name="retention.ms", value=LONG)],
                )
            ]
        ),
        0,
    ),
    (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=LONG)]), 2),
    (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name=LONG)]), 2),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=LONG, count=2)], timeout_ms=1_000), 1),
    (CreateTopicsRequest(topics=[CreatableTopic(name=LONG, num_partitions=1, replication_factor=1)]), 4),
    (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="fuzz",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="retention.ms", value=LONG)],
                )
            ]
        ),
        4,
    ),
    (DeleteTopicsRequest(topic_names=[LONG]), 3),
    (FindCoordinatorRequest(key=LONG, key_type=1), 1),
    (DescribeGroupsRequest(groups=[LONG]), 6),
]


@pytest.mark.parametrize(
    ("request_", "version"),
    REQUESTS,
    ids=[f"{type(request).__name__}-{place}" for place, (request, _) in enumerate(REQUESTS)],
)
def test_an_error_about_the_longest_name_fits_its_answer(wire: Wire, request_: Message, version: int) -> None:
    answer = wire.ask(request_, version)
    codes = [part.error_code for rows in _rows(answer) for part in rows]
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in [*codes, getattr(answer, "error_code", 0)]


def _rows(answer: Message) -> list[list[Any]]:
    return [value for name in answer.__struct_fields__ if isinstance(value := getattr(answer, name), list)]
