"""DeleteRecords, CreatePartitions, DescribeConfigs, and the questions of operators, over real sockets."""

import pytest

from barnabas_broker.access.join_tokens import ISSUE
from barnabas_broker.config.dynamic import DYNAMIC
from barnabas_broker.config.entries import broker_entries, group_entries, topic_entries
from barnabas_broker.replicas.lost_voters import METHOD as LOST_VOTER
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas_clients.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_clients.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_raftlog.catch_up.messages import ENTRIES
from barnabas_raftlog.links import admin
from barnabas_raftlog.links.rpc import RemoteError
from broker.wire_client import Wire, batch, offsets_of

TOPIC = 2
BROKER = 4
ASKED_BY_OPERATORS = {"status", LOST_VOTER, ISSUE}
every_version = pytest.mark.parametrize("version", range(3))


def delete(wire: Wire, topic: str, offset: int, *, partition: int = 0, version: int = 2) -> tuple[int, int]:
    """Return (error code, low watermark)."""
    rows = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=10_000)
    result = wire.ask(request, version).topics[0].partitions[0]
    assert result.partition_index == partition
    return result.error_code, result.low_watermark


def offset_at(wire: Wire, topic: str, timestamp: int) -> tuple[int, int]:
    """Return (offset, leader epoch) of -2, the earliest, -1, the latest, or a time."""
    rows = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    found = wire.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=rows)]), 7)
    partition = found.topics[0].partitions[0]
    assert partition.error_code == 0
    return partition.offset, partition.leader_epoch


def grow(wire: Wire, *wanted: CreatePartitionsTopic, validate_only: bool = False, version: int = 3) -> list[int]:
    request = CreatePartitionsRequest(topics=list(wanted), timeout_ms=10_000, validate_only=validate_only)
    return [result.error_code for result in wire.ask(request, version).results]


def partition_count(wire: Wire, topic: str) -> int:
    return len(wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9).topics[0].partitions)


class TestDeleteRecords:
    @every_version
    def test_the_log_starts_where_it_was_told_to(self, wire: Wire, topic: str, version: int) -> None:
        for _ in range(4):
            wire.produce(topic, batch(5))
        assert delete(wire, topic, 7, version=version) == (0, 7)
        assert offset_at(wire, topic, -2)[0] == 7
        below = wire.fetch(topic, 6)
        assert (below.error_code, below.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 7)
        # The batch that holds the start is whole; what a client did not ask for it skips.
        assert offsets_of(wire.fetch(topic, 7).records) == [5, 10, 15]
        assert wire.produce(topic, batch()).log_start_offset == 7

    def test_minus_one_deletes_everything(self, wire: Wire, topic: str) -> None:
        wire.produce(topic, batch(5))
        assert delete(wire, topic, -1) == (0, 5)
        assert delete(wire, topic, -1) == (0, 5)
        assert (offset_at(wire, topic, -2)[0], offset_at(wire, topic, -1)[0]) == (5, 5)
        assert wire.produce(topic, batch()).base_offset == 5
        assert offsets_of(wire.fetch(topic, 5).records) == [5]

    def test_the_start_never_goes_back(self, wire: Wire, topic: str) -> None:
        wire.produce(topic, batch(5))
        assert delete(wire, topic, 3) == (0, 3)
        assert delete(wire, topic, 1) == (0, 3)

    def test_deleted_records_are_not_found_by_their_time(self, wire: Wire, topic: str) -> None:
        for timestamp in (1_000, 3_000, 2_000):
            wire.produce(topic, batch(timestamp=timestamp))
        assert offset_at(wire, topic, 2_500)[0] == 1
        delete(wire, topic, 2)
        assert offset_at(wire, topic, 2_500)[0] == -1
        assert offset_at(wire, topic, 1_500)[0] == 2
        assert offset_at(wire, topic, -3)[0] == 2

    @pytest.mark.parametrize(
        ("name", "partition", "offset", "code"),
        [
            ("", 0, 6, ErrorCode.OFFSET_OUT_OF_RANGE),
            ("", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
            ("", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("", -1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nobody", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_what_cannot_be_deleted_is_refused(
        self, wire: Wire, topic: str, name: str, partition: int, offset: int, code: ErrorCode
    ) -> None:
        wire.produce(topic, batch(5))
        assert delete(wire, name or topic, offset, partition=partition) == (code, -1)
        assert offset_at(wire, topic, -2)[0] == 0

    def test_a_restart_changes_nothing_and_producers_are_still_known(self) -> None:
        with RunningCluster(1) as running:
            wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
            wire.create("kept")
            known = batch(5, producer_id=3, epoch=0, sequence=0)
            assert wire.produce("kept", known).base_offset == 0
            assert delete(wire, "kept", 5) == (0, 5)

            async def restart(cluster: Cluster) -> None:
                await cluster.stop(1)
                await cluster.start(1)
                await cluster.wait_ready()

            running.run(restart)
            wire.close()
            wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
            assert offset_at(wire, "kept", -2)[0] == 5
            assert wire.produce("kept", known).base_offset == 0, "a repetition of what was deleted"
            assert wire.produce("kept", batch(producer_id=3, epoch=0, sequence=5)).base_offset == 5
            assert wire.produce("kept", batch(producer_id=4, epoch=0, sequence=5)).error_code, "it begins with a gap"
            wire.close()


class TestCreatePartitions:
    @pytest.mark.parametrize("version", range(4))
    def test_new_partitions_can_be_written_to_at_once(self, wire: Wire, topic: str, version: int) -> None:
        wire.produce(topic, batch(3))
        assert grow(wire, CreatePartitionsTopic(name=topic, count=4), version=version) == [0]
        assert partition_count(wire, topic) == 4
        for partition in range(1, 4):
            assert wire.produce(topic, batch(), partition=partition).base_offset == 0
        assert wire.produce(topic, batch()).base_offset == 3

    def test_validation_creates_nothing(self, wire: Wire, topic: str) -> None:
        row = [CreatePartitionsAssignment(broker_ids=[1])]
        asked = CreatePartitionsTopic(name=topic, count=2, assignments=row)
        assert grow(wire, asked, validate_only=True) == [0]
        assert partition_count(wire, topic) == 1
        assert grow(wire, asked) == [0]
        assert partition_count(wire, topic) == 2

    def test_each_topic_has_its_own_answer(self, wire: Wire, topic: str) -> None:
        wanted = [
            CreatePartitionsTopic(name=topic, count=1),
            CreatePartitionsTopic(name="nobody", count=2),
            CreatePartitionsTopic(name="twice", count=2),
            CreatePartitionsTopic(name="twice", count=3),
        ]
        assert grow(wire, *wanted) == [
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]

    def test_too_many_at_once_are_refused(self, wire: Wire, topic: str) -> None:
        assert grow(wire, CreatePartitionsTopic(name=topic, count=20_000)) == [ErrorCode.POLICY_VIOLATION]

    def test_a_grown_topic_is_whole_after_a_restart_and_can_be_deleted(self) -> None:
        with RunningCluster(1) as running:
            wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
            wire.create("grown")
            grow(wire, CreatePartitionsTopic(name="grown", count=3))
            wire.produce("grown", batch(2), partition=2)

            async def restart(cluster: Cluster) -> None:
                await cluster.stop(1)
                await cluster.start(1)
                await cluster.wait_ready()

            running.run(restart)
            wire.close()
            wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
            assert partition_count(wire, "grown") == 3
            assert wire.produce("grown", batch(), partition=2).base_offset == 2
            wire.close()


def test_new_partitions_are_on_all_brokers(three_brokers: RunningCluster) -> None:
    wire = Wire("127.0.0.1", three_brokers.cluster.nodes[1].port)
    wire.create("spread", 2, factor=3)
    assert grow(wire, CreatePartitionsTopic(name="spread", count=6)) == [0]
    partitions = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="spread")]), 9).topics[0].partitions
    assert sorted(partition.partition_index for partition in partitions) == list(range(6))
    leaders = [partition.replica_nodes[0] for partition in partitions]
    assert {leaders.count(node_id) for node_id in (1, 2, 3)} == {2}
    for partition in partitions:
        leader = Wire("127.0.0.1", three_brokers.cluster.nodes[partition.leader_id].port)
        assert leader.produce("spread", batch(), partition=partition.partition_index).base_offset == 0
        leader.close()
    wire.close()


class TestDescribeConfigs:
    def ask(self, wire: Wire, kind: int, name: str, *, version: int = 4, keys: list[str] | None = None) -> tuple:  # type: ignore[type-arg]
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=version >= 3
        )
        result = wire.ask(request, version).results[0]
        assert (result.resource_type, result.resource_name) == (kind, name)
        return result.error_code, {config.name: config for config in result.configs}

    @pytest.mark.parametrize("version", range(1, 5))
    def test_a_topic_says_what_was_set_and_what_stands_behind_it(self, wire: Wire, version: int) -> None:
        name = f"described-{version}"
        wire.create(name, min_insync_replicas="1", max_message_bytes="5000")
        code, configs = self.ask(wire, TOPIC, name, version=version)
        assert code == 0
        config = configs["max.message.bytes"]
        assert (config.value, config.config_source, config.read_only, config.is_sensitive) == ("5000", 1, False, False)
        assert [(one.name, one.value, one.source) for one in config.synonyms] == [
            ("max.message.bytes", "5000", 1),
            ("message.max.bytes", "1048588", 5),
        ]
        assert (config.config_type, bool(config.documentation)) == ((3, True) if version >= 3 else (0, False))
        # This test's brokers are started with small segments.
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (str(64 << 20), 4)
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("-1", 4)

    def test_only_what_was_asked_for_is_told(self, wire: Wire, topic: str) -> None:
        code, configs = self.ask(wire, TOPIC, topic, keys=["flush.mode", "no.such.config"])
        assert (code, list(configs)) == (0, ["flush.mode"])
        assert len(self.ask(wire, TOPIC, topic, keys=[])[1]) > 5

    def test_a_broker_says_how_it_was_started_but_no_secret(self, wire: Wire) -> None:
        code, configs = self.ask(wire, BROKER, "1")
        assert code == 0
        assert (configs["node.id"].value, configs["node.id"].config_source) == ("1", 4)
        assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("1", 5)
        secret = configs["cluster.secret"]
        assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)
        assert {name for name, config in configs.items() if not config.read_only} == DYNAMIC
        assert self.ask(wire, BROKER, "") == (0, {})

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (TOPIC, "no name!", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "2", ErrorCode.INVALID_REQUEST),
            (BROKER, "one", ErrorCode.INVALID_REQUEST),
            (8, "1", ErrorCode.INVALID_REQUEST),
            (0, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_other_resources_are_refused(self, wire: Wire, kind: int, name: str, code: ErrorCode) -> None:
        assert self.ask(wire, kind, name) == (code, {})


def test_every_setting_has_a_value_a_type_and_a_sentence(one_broker: RunningCluster) -> None:
    settings = one_broker.cluster.nodes[1].broker.settings
    for entry in (*broker_entries(settings), *topic_entries("t", {}, settings), *group_entries({}, settings)):
        assert entry.documentation
        assert 1 <= entry.type <= 9
        assert entry.is_sensitive == (entry.value is None)
        assert entry.synonyms[0][1:] == (entry.value, entry.source)


def test_an_admin_is_answered_what_operators_ask_and_refused_all_else(one_broker: RunningCluster) -> None:
    """At its peer port."""
    links = one_broker.cluster.nodes[1].links
    methods = set(links._services._handlers)
    assert ASKED_BY_OPERATORS | {ENTRIES} <= methods
    assert admin.ask(*links.address, "status")
    for method in sorted(methods - ASKED_BY_OPERATORS):
        with pytest.raises(RemoteError, match="NotAllowed"):
            admin.ask(*links.address, method)
