"""Metadata, topic administration, producer ids, the cluster's description, and API negotiation, over a real socket."""

import logging
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from steps import outcome

from barnabas_broker.server.context import Leader
from barnabas_broker.server.handlers import metadata
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_clients.protocol.describe_cluster import DescribeClusterRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_metadata_quorum.controller.commands import RefusalReason, Refused
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from broker.wire_client import Wire, batch

OFFERED = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 5),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 6),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    42: (0, 3),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
    80: (0, 1),
    81: (0, 0),
    25185: (0, 0),  # our own: DescribeHealth, OpenChallenge, DescribeEvents
    25186: (0, 0),
    25187: (0, 0),
    25188: (0, 0),  # DescribeOffsetRanges
    25190: (0, 0),  # CreateSnapshot, DescribeSnapshots, DeleteSnapshot
    25191: (0, 0),
    25192: (0, 0),
}


class TestNegotiation:
    @pytest.mark.parametrize("version", range(6))
    def test_api_versions_says_what_is_served(self, wire: Wire, version: int) -> None:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        response = wire.ask(request, version)
        assert {key.api_key: (key.min_version, key.max_version) for key in response.api_keys} == OFFERED
        # In version 3 those whose lowest level is 0 are left out, which is all but `metadata.version`.
        assert len(response.supported_features) == (0, 0, 0, 1, 3, 3)[version]
        assert len(response.finalized_features) == (0, 0, 0, 3, 3, 3)[version]

    def test_an_unknown_version_of_api_versions_gets_version_0_with_an_error_and_the_known_ones(
        self, wire: Wire
    ) -> None:
        """With all the rest in it some would not ask again, and never hear of features."""
        wire.socket.sendall(struct.pack(">ihhih", 13, 18, 99, 5, -1) + b"\0\1\1")
        frame = wire.receive_frame()
        assert frame[:4] == struct.pack(">i", 5)
        response = ApiVersionsResponse.decode(frame, 0, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 5)]
        assert wire.ask(ApiVersionsRequest(), 2).error_code == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("cluster", "node", "code"),
        [
            (True, 1, ErrorCode.NONE),
            (True, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
            (False, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
            (None, 1, ErrorCode.INVALID_REQUEST),
            (True, -1, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_who_means_another_cluster_or_broker_is_told_so(
        self, wire: Wire, cluster: bool | None, node: int, code: ErrorCode
    ) -> None:
        """KIP-1242: an address may have been given to another broker since. The connection stays, as in Kafka."""
        here = wire.ask(MetadataRequest(), 12).cluster_id
        named = None if cluster is None else here if cluster else "somewhere else"
        request = ApiVersionsRequest(
            client_software_name="x", client_software_version="1", cluster_id=named, node_id=node
        )
        response = wire.ask(request, 5)
        assert response.error_code == code
        assert bool(response.api_keys) == (code is ErrorCode.NONE)
        assert wire.ask(request, 4).error_code == ErrorCode.NONE, "version 4 cannot say so"

    @pytest.mark.parametrize("bad", ["", "x\n2026-11-25 CRITICAL x", "\x1b[2J", "-a", "a.", "a b", "a_b", "ä", "a\n"])
    @pytest.mark.parametrize("version", range(6))
    def test_software_whose_name_or_version_is_none_is_told_so_and_may_go_on(
        self, wire: Wire, version: int, bad: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        refused = version >= 3
        with caplog.at_level(logging.DEBUG):
            for name, number in ((bad, "1.0"), ("x", bad)):
                request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
                response = wire.ask(request, version)
                assert response.error_code == (ErrorCode.INVALID_REQUEST if refused else ErrorCode.NONE)
                assert bool(response.api_keys) != refused
        assert not any(one.getMessage().startswith("client 127") for one in caplog.records)
        good = ApiVersionsRequest(client_software_name="confluent-kafka.python", client_software_version="2")
        assert wire.ask(good, 3).error_code == ErrorCode.NONE

    def test_no_more_is_kept_of_a_name_of_software_than_a_name_needs(
        self, wire: Wire, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG):
            wire.ask(ApiVersionsRequest(client_software_name="x" * 30_000, client_software_version="1"), 3)
        (line,) = [record.getMessage() for record in caplog.records if " is xxx" in record.getMessage()]
        assert len(line) < 300
        assert line.endswith("... (30002 characters)")

    @pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (3, 14), (99, 0), (-1, 0), (10, 7)])
    def test_what_is_not_served_closes_the_connection_with_a_reason(
        self, wire: Wire, key: int, version: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            wire.socket.sendall(struct.pack(">ihhih", 10, key, version, 1, -1))
            assert wire.is_closed_by_peer()
        assert f"v{version} is not supported" in caplog.text


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version_is_answered(self, wire: Wire, topic: str, version: int, one_broker: RunningCluster) -> None:
        response = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), version)
        assert [(b.node_id, b.port) for b in response.brokers] == [(1, one_broker.cluster.nodes[1].port)]
        assert response.controller_id == (1 if version >= 1 else -1)
        partition = response.topics[0].partitions[0]
        assert (response.topics[0].error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
        assert tuple(partition.replica_nodes) == tuple(partition.isr_nodes) == (1,)

    def test_all_topics_is_empty_in_version_0_and_null_later(self, wire: Wire, topic: str) -> None:
        def names(asked: list[MetadataRequestTopic] | None, version: int) -> list[str]:
            return [one.name for one in wire.ask(MetadataRequest(topics=asked), version).topics]

        assert topic in names([], 0)
        assert names([], 1) == []
        assert topic in names(None, 1)

    def test_topics_are_found_by_id(self, wire: Wire, topic: str) -> None:
        topic_id = wire.create(f"{topic}-id")
        asked = [MetadataRequestTopic(name=None, topic_id=one) for one in (topic_id, b"z" * 16)]
        found, unknown = wire.ask(MetadataRequest(topics=asked), 12).topics
        assert (found.name, found.error_code) == (f"{topic}-id", ErrorCode.NONE)
        assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)

    def test_a_topic_is_created_when_the_client_asks_for_it(self, wire: Wire, topic: str) -> None:
        asked = [MetadataRequestTopic(name=f"{topic}-auto")]
        response = wire.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = wire.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 9)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert [partition.leader_id for partition in response.topics[0].partitions] == [1]
        assert wire.produce(f"{topic}-auto", batch()).base_offset == 0

    def test_the_longest_name_that_there_may_be_is_served(self, wire: Wire, topic: str) -> None:
        name = topic.ljust(249, "a")
        wire.create(name)
        assert wire.produce(name, batch()).base_offset == 0
        assert wire.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5).responses[0].error_code == 0

    def test_an_impossible_name_is_not_created(self, wire: Wire) -> None:
        response = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="a b")]), 9)
        assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


class TestTopics:
    @pytest.mark.parametrize("version", range(2, 8))
    def test_create_answers_every_version(self, wire: Wire, topic: str, version: int) -> None:
        new = CreatableTopic(name=f"{topic}-{version}", num_partitions=3, replication_factor=1)
        result = wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=5_000), version).topics[0]
        assert result.error_code == ErrorCode.NONE
        assert result.num_partitions == (3 if version >= 5 else -1)
        again = wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=5_000), version).topics[0]
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        # The answer came when all partitions had leaders.
        asked = [MetadataRequestTopic(name=f"{topic}-{version}")]
        partitions = wire.ask(MetadataRequest(topics=asked), 9).topics[0].partitions
        assert [(one.error_code, one.leader_id) for one in partitions] == [(0, 1)] * 3

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
            ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_what_cannot_be_created_is_refused(self, wire: Wire, fields: dict[str, str | int], code: ErrorCode) -> None:
        new = CreatableTopic(**({"name": "n", "num_partitions": 1, "replication_factor": 1} | fields))  # type: ignore[arg-type]
        result = wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=5_000), 7).topics[0]
        assert result.error_code == code
        assert result.error_message

    def test_defaults_assignments_and_duplicates(self, wire: Wire, topic: str) -> None:
        rows = [CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in range(2)]
        topics = [
            CreatableTopic(name=f"{topic}-default", num_partitions=-1, replication_factor=-1),
            CreatableTopic(name=f"{topic}-rows", num_partitions=-1, replication_factor=-1, assignments=rows),
            CreatableTopic(name=f"{topic}-twice", num_partitions=1, replication_factor=1),
            CreatableTopic(name=f"{topic}-twice", num_partitions=1, replication_factor=1),
        ]
        results = wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=5_000), 7).topics
        found = {result.name: (result.error_code, result.num_partitions) for result in results}
        assert found == {
            f"{topic}-default": (ErrorCode.NONE, 1),
            f"{topic}-rows": (ErrorCode.NONE, 2),
            f"{topic}-twice": (ErrorCode.INVALID_REQUEST, -1),
        }

    def test_validate_only_creates_nothing(self, wire: Wire, topic: str) -> None:
        new = CreatableTopic(name=f"{topic}-no", num_partitions=1, replication_factor=1)
        result = wire.ask(CreateTopicsRequest(topics=[new], validate_only=True, timeout_ms=5_000), 7).topics[0]
        assert result.error_code == ErrorCode.NONE
        assert wire.produce(f"{topic}-no", batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_an_id_that_no_topic_has_is_said(self, wire: Wire) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=b"y" * 16)], timeout_ms=5_000)
        assert wire.ask(request, 6).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize("version", range(1, 7))
    def test_delete_answers_every_version(self, wire: Wire, topic: str, version: int) -> None:
        topic_id = wire.create(f"{topic}-{version}")
        request = DeleteTopicsRequest(topic_names=[f"{topic}-{version}"], timeout_ms=5_000)
        if version == 6:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(topic_id=topic_id), DeleteTopicState(name="absent")], timeout_ms=5_000
            )
        results = {one.name: one.error_code for one in wire.ask(request, version).responses}
        assert results[f"{topic}-{version}"] == ErrorCode.NONE
        assert version < 6 or results["absent"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert wire.produce(f"{topic}-{version}", batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_topic_that_is_named_twice_is_not_deleted_and_answered_once(self, wire: Wire, topic: str) -> None:
        topic_id = wire.create(f"{topic}-twice")
        wire.create(f"{topic}-once")
        topics = [
            *(DeleteTopicState(name=f"{topic}-{name}") for name in ("twice", "once")),
            DeleteTopicState(topic_id=topic_id),
        ]
        answered = wire.ask(DeleteTopicsRequest(topics=topics, timeout_ms=5_000), 6).responses
        assert sorted((one.name, one.error_code) for one in answered) == [
            (f"{topic}-once", ErrorCode.NONE),
            (f"{topic}-twice", ErrorCode.INVALID_REQUEST),
        ]
        assert wire.produce(f"{topic}-twice", batch()).error_code == ErrorCode.NONE

    def test_a_topic_with_both_a_name_and_an_id_or_neither_is_not_deleted(self, wire: Wire, topic: str) -> None:
        topic_id = wire.create(f"{topic}-both")
        topics = [DeleteTopicState(name=f"{topic}-both", topic_id=b"y" * 16), DeleteTopicState()]
        answered = wire.ask(DeleteTopicsRequest(topics=topics, timeout_ms=5_000), 6).responses
        assert [(one.name, one.topic_id, one.error_code) for one in answered] == [
            (f"{topic}-both", b"y" * 16, ErrorCode.INVALID_REQUEST),
            (None, bytes(16), ErrorCode.INVALID_REQUEST),
        ]
        deleted = wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=5_000), 6)
        assert deleted.responses[0].error_code == ErrorCode.NONE

    def test_a_topic_made_again_is_empty(self, wire: Wire, topic: str) -> None:
        wire.produce(topic, batch(5))
        wire.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000), 5)
        wire.create(topic)
        assert wire.produce(topic, batch()).base_offset == 0

    def test_why_the_controller_refuses_a_whole_request_is_said_of_each_topic(
        self, wire: Wire, topic: str, one_broker: RunningCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def refuse(*_: object, **__: object) -> None:
            raise Refused(RefusalReason.TIMED_OUT, "no controller has answered")

        monkeypatch.setattr(one_broker.cluster.nodes[1].metadata, "create_topics", refuse)
        names = [f"{topic}-1", f"{topic}-2"]
        asked = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        found = wire.ask(CreateTopicsRequest(topics=asked, timeout_ms=1_000), 6).topics
        said = (ErrorCode.REQUEST_TIMED_OUT, "no controller has answered")
        assert [(one.name, (one.error_code, one.error_message)) for one in found] == [(name, said) for name in names]


class TestProducerIds:
    @pytest.mark.parametrize("version", range(6))
    def test_ids_are_never_given_twice(self, wire: Wire, version: int) -> None:
        results = [wire.ask(InitProducerIdRequest(), version) for _ in range(3)]
        assert [(one.error_code, one.producer_epoch) for one in results] == [(0, 0)] * 3
        assert len({one.producer_id for one in results}) == 3

    def test_nobody_gets_the_id_it_names(self, wire: Wire) -> None:
        result = wire.ask(InitProducerIdRequest(producer_id=5, producer_epoch=3), 4)
        assert (result.error_code, result.producer_epoch) == (0, 0)
        assert result.producer_id != 5
        result = wire.ask(InitProducerIdRequest(producer_id=5, producer_epoch=-1), 4)
        assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(wire: Wire, version: int, one_broker: RunningCluster) -> None:
    response = wire.ask(DescribeClusterRequest(include_fenced_brokers=True), version)
    node = one_broker.cluster.nodes[1]
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, node.config.cluster_id, 1)
    assert [(b.broker_id, b.host, b.port, b.is_fenced) for b in response.brokers] == [
        (1, "127.0.0.1", node.port, False)
    ]
    if version >= 1:
        assert wire.ask(DescribeClusterRequest(endpoint_type=2), version).error_code == 114


def test_a_leader_may_have_the_id_0() -> None:
    desired = Topic(b"t" * 16, "t", (PartitionPlacement((0, 1)),), {})
    hosted: Any = SimpleNamespace(topic=desired)
    broker: Any = SimpleNamespace(
        brokers=lambda: [SimpleNamespace(node_id=0)],
        image=SimpleNamespace(brokers={}),
        where_to_ask=lambda *_: Leader(0, 3, (0,)),
    )
    exchange: Any = SimpleNamespace(listener_name="PLAINTEXT", version=9)
    (row,) = outcome(metadata._topic(broker, MetadataRequest(), exchange, hosted))[0].partitions
    assert (row.error_code, row.leader_id, row.leader_epoch, row.isr_nodes) == (ErrorCode.NONE, 0, 3, (0,))
    assert row.offline_replicas == (1,)
