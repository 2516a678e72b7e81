"""Scenes of requests that name a great many things, or one a great many times."""

from collections.abc import Sequence
from functools import partial

from barnabas_clients.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_clients.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas_clients.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_clients.protocol.registry import Message

from .scene import Attack, counted, scene

MANY = 99_000  # fewer than a request may name
HALF = MANY // 2
TOO_MANY = 1_000_000
TOPIC_KIND = 2


def _names(attack: Attack, count: int) -> list[str]:
    return [f"{attack.name}-{number}" for number in range(attack.many(count))]


def _each(attack: Attack, what: Sequence[tuple[str, Message, int]], times: int = 2) -> str:
    """Ask every broker for each of these, and describe the ends."""
    found = [f"{name}: {counted(attack.ask_each(request, version, times))}" for name, request, version in what]
    return "; ".join(found)


@scene("A8")
def describe_configs_duplicates(attack: Attack) -> str:
    """DescribeConfigs of one topic, 99,000 times in a request."""
    one = DescribeConfigsResource(resource_type=TOPIC_KIND, resource_name=attack.topic)
    request = DescribeConfigsRequest(resources=[one] * attack.many(MANY), include_synonyms=True)
    return _each(attack, [("the same topic", request, 1)], 4)


@scene("A8")
def describe_configs_unknown(attack: Attack) -> str:
    """DescribeConfigs of 99,000 topics that are none, and of brokers that are none."""
    names = _names(attack, HALF)
    topics = [DescribeConfigsResource(resource_type=TOPIC_KIND, resource_name=name) for name in names]
    others = [DescribeConfigsResource(resource_type=k % 127, resource_name=str(k)) for k in range(attack.many(HALF))]
    return _each(attack, [("unknown", DescribeConfigsRequest(resources=[*topics, *others]), 4)])


@scene("A8")
def metadata_unknown(attack: Attack) -> str:
    """Metadata of 99,000 unknown topics, without creation, twenty times at once."""
    topics = [MetadataRequestTopic(name=name) for name in _names(attack, MANY)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return _each(attack, [("unknown topics", request, 8)], 7)


@scene("A8")
def metadata_duplicates(attack: Attack) -> str:
    """Metadata of the same topic 99,000 times, and of the same unknown id."""
    known = [MetadataRequestTopic(name=attack.topic)] * attack.many(MANY)
    ids = [MetadataRequestTopic(name=None, topic_id=attack.chance.randbytes(16))] * attack.many(MANY)
    return _each(
        attack, [("a topic", MetadataRequest(topics=known), 12), ("an id", MetadataRequest(topics=ids), 12)], 3
    )


@scene("What held")
def metadata_that_would_create(attack: Attack) -> str:
    """Metadata of 30,000 unknown topics, each of which would be created."""
    topics = [MetadataRequestTopic(name=name) for name in _names(attack, 30_000)]
    return _each(attack, [("creation", MetadataRequest(topics=topics), 8)])


@scene("A8")
def more_than_allowed(attack: Attack) -> str:
    """A million names in a request, ten times what is allowed."""
    names = _names(attack, TOO_MANY)
    topics = [MetadataRequestTopic(name=name) for name in names]
    metadata = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    groups = DescribeGroupsRequest(groups=tuple(names))
    return _each(attack, [("Metadata", metadata, 8), ("DescribeGroups", groups, 0)], 1)


@scene("A8")
def groups_unknown(attack: Attack) -> str:
    """DescribeGroups, FindCoordinator and DeleteGroups of tens of thousands of groups that are none."""
    names = tuple(_names(attack, MANY))
    return _each(
        attack,
        [
            ("DescribeGroups", DescribeGroupsRequest(groups=names), 0),
            ("FindCoordinator", FindCoordinatorRequest(coordinator_keys=names), 4),
            ("DeleteGroups", DeleteGroupsRequest(groups_names=names), 2),
        ],
    )


@scene("A8")
def produce_empty(attack: Attack) -> str:
    """Produce of 99,000 partitions without a record."""
    parts = [PartitionProduceData(index=k, records=b"") for k in range(attack.many(HALF))]
    known = TopicProduceData(name=attack.topic, partition_data=parts)
    unknown = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=None)])
        for name in _names(attack, HALF // 2)
    ]
    return _each(
        attack,
        [
            ("one topic", ProduceRequest(acks=-1, topic_data=[known], timeout_ms=1_000), 3),
            ("unknown topics", ProduceRequest(acks=-1, topic_data=unknown, timeout_ms=1_000), 3),
        ],
    )


@scene("A8")
def offsets_many(attack: Attack) -> str:
    """ListOffsets and OffsetForLeaderEpoch of 90,000 partitions, of one topic and the same one."""
    count = attack.many(90_000)
    listed = [ListOffsetsPartition(partition_index=k % 3, timestamp=(-1, -2, -3, 5)[k % 4]) for k in range(count)]
    beyond = [ListOffsetsPartition(partition_index=k, timestamp=-1) for k in range(count)]
    epochs = [OffsetForLeaderPartition(partition=k % 7, leader_epoch=k) for k in range(count)]
    return _each(
        attack,
        [
            ("ListOffsets", ListOffsetsRequest(topics=[ListOffsetsTopic(name=attack.topic, partitions=listed)]), 7),
            ("beyond", ListOffsetsRequest(topics=[ListOffsetsTopic(name=attack.topic, partitions=beyond)]), 7),
            (
                "OffsetForLeaderEpoch",
                OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=attack.topic, partitions=epochs)]),
                4,
            ),
        ],
    )


@scene("like A8")
def offset_fetch_many(attack: Attack) -> str:
    """OffsetFetch of 90,000 partitions of a group, of 45,000 groups, and of one group 45,000 times."""
    indexes = tuple(range(attack.many(90_000)))
    topics = [OffsetFetchRequestTopics(name=attack.topic, partition_indexes=indexes)]
    one = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=attack.name, topics=topics)])
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in _names(attack, 45_000)]
    same = [OffsetFetchRequestGroup(group_id="beside", topics=None)] * attack.many(45_000)
    return _each(
        attack,
        [
            ("partitions", one, 8),
            ("groups", OffsetFetchRequest(groups=groups), 8),
            ("the same", OffsetFetchRequest(groups=same), 8),
        ],
    )


@scene("like A8")
def offset_commit_many(attack: Attack) -> str:
    """OffsetCommit of 45,000 partitions for a group, with notes of 200 bytes, and of topics that are none."""
    note = "n" * 200
    parts = [
        OffsetCommitRequestPartition(partition_index=k, committed_offset=k, committed_metadata=note)
        for k in range(attack.many(45_000))
    ]
    known = OffsetCommitRequest(
        group_id=attack.name, topics=[OffsetCommitRequestTopic(name=attack.topic, partitions=parts)]
    )
    one = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    unknown = OffsetCommitRequest(
        group_id=attack.name,
        topics=[OffsetCommitRequestTopic(name=name, partitions=one) for name in _names(attack, 40_000)],
    )
    return _each(attack, [("known", known, 8), ("unknown", unknown, 8)])


@scene("like A8")
def offset_delete_many(attack: Attack) -> str:
    """OffsetDelete of 90,000 partitions, and DeleteRecords of as many."""
    count = attack.many(90_000)
    parts = [OffsetDeleteRequestPartition(partition_index=k) for k in range(count)]
    offsets = OffsetDeleteRequest(
        group_id="beside", topics=[OffsetDeleteRequestTopic(name=attack.name, partitions=parts)]
    )
    records = [DeleteRecordsPartition(partition_index=k, offset=-1) for k in range(count)]
    deletion = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=attack.name, partitions=records)], timeout_ms=500)
    return _each(attack, [("OffsetDelete", offsets, 0), ("DeleteRecords", deletion, 2)])


@scene("A8")
def delete_topics_unknown(attack: Attack) -> str:
    """DeleteTopics of 99,000 and of 9,900 topics that are none."""
    names = _names(attack, MANY)
    return _each(
        attack,
        [
            ("too many", DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=1_000), 5),
            ("a tenth", DeleteTopicsRequest(topic_names=tuple(names[::10]), timeout_ms=1_000), 5),
        ],
    )


@scene("like A8")
def create_topics_many(attack: Attack) -> str:
    """CreateTopics of 30,000 names that are only looked at, of one name as often, and with 30,000 settings."""
    names = _names(attack, 30_000)
    looked = [CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in names[: attack.many(9_900)]]
    same = [CreatableTopic(name=attack.name, num_partitions=1, replication_factor=3)] * len(names)
    settings = [CreatableTopicConfig(name=f"retention.{name}", value="1") for name in names]
    odd = [CreatableTopic(name=attack.name, num_partitions=1, replication_factor=3, configs=settings)]
    requests = [("looked at", looked), ("the same", same), ("settings", odd)]
    return _each(
        attack, [(name, CreateTopicsRequest(topics=topics, validate_only=True), 6) for name, topics in requests]
    )


@scene("like A8")
def create_partitions_many(attack: Attack) -> str:
    """CreatePartitions of 9,900 and 90,000 topics that are none, and of one that is as often."""
    names = _names(attack, 90_000)
    unknown = [CreatePartitionsTopic(name=name, count=5) for name in names]
    same = [CreatePartitionsTopic(name=attack.topic, count=3)] * len(names)
    requests = [("a tenth", unknown[::10]), ("too many", unknown), ("the same", same)]
    return _each(
        attack, [(name, CreatePartitionsRequest(topics=topics, timeout_ms=500), 3) for name, topics in requests]
    )


@scene("like A8")
def alter_configs_many(attack: Attack) -> str:
    """AlterConfigs, of both kinds, of tens of thousands of resources, and of as many settings of one."""
    names = _names(attack, 45_000)
    topics = [AlterConfigsResource(resource_type=TOPIC_KIND, resource_name=name) for name in names[::5]]
    settings = [AlterableConfig(name=name, value="1") for name in names]
    one = [AlterConfigsResource(resource_type=TOPIC_KIND, resource_name=attack.topic, configs=settings)]
    steps = [IncrementalAlterableConfig(name="retention.ms", value="604800000") for _ in names]
    again = [IncrementalAlterConfigsResource(resource_type=TOPIC_KIND, resource_name=attack.topic, configs=steps)]
    return _each(
        attack,
        [
            ("topics", AlterConfigsRequest(resources=topics, validate_only=True), 2),
            ("settings", AlterConfigsRequest(resources=one, validate_only=True), 2),
            ("the same", IncrementalAlterConfigsRequest(resources=again, validate_only=True), 1),
        ],
    )


@scene("like A8")
def reassign_many(attack: Attack) -> str:
    """AlterPartitionReassignments of 9,900 partitions that are none, to brokers that are none; DescribeLogDirs, too."""
    replicas = [ReassignablePartition(partition_index=k, replicas=(k, k)) for k in range(attack.many(9_900))]
    moves = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=attack.topic, partitions=replicas)], timeout_ms=500
    )
    where = [DescribableLogDirTopic(topic=attack.topic, partitions=tuple(range(attack.many(90_000))))]
    return _each(attack, [("moves", moves, 0), ("DescribeLogDirs", DescribeLogDirsRequest(topics=where), 2)])


@scene("A8")
def everything_at_once(attack: Attack) -> str:
    """Eight large requests of different kinds at the same time, to each broker."""
    names = _names(attack, 60_000)
    requests: list[tuple[Message, int]] = [
        (MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False), 8),
        (DescribeGroupsRequest(groups=tuple(names)), 0),
        (FindCoordinatorRequest(coordinator_keys=tuple(names[:9_900])), 4),
        (DeleteTopicsRequest(topic_names=tuple(names[:9_900]), timeout_ms=500), 5),
    ]

    def ask(request: Message, version: int) -> str:
        return counted(attack.ask_each(request, version, 1))

    return counted(attack.at_once([partial(ask, request, version) for request, version in requests for _ in range(2)]))
