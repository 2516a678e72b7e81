"""Describes what callers of `Admin` name, and what they are told. Pure.

These values stand apart from the functions that take and return them, because a program that imports `NewTopic`, or
looks at the types of a method, need not load the requests of every call.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Self

from barnabas_clients.cluster.topic_view import BrokerAddress
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = [
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "Feature",
    "FeatureChange",
    "FeaturesDescription",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupSurvey",
    "GroupsSurvey",
    "ListedOffset",
    "LogDir",
    "NewTopic",
    "OffsetSpec",
    "PartitionLag",
    "PartitionProducer",
    "PartitionReassignment",
    "QuorumDescription",
    "QuorumReplica",
    "ReachableGroups",
    "ReachableTransactions",
    "ReplicaSize",
    "TopicsSurvey",
    "TotalLag",
    "TransactionDescription",
    "TransactionListing",
    "total_lag",
]


class ConfigResourceType(IntEnum):
    """The kinds of resources that have configurations, with the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic by name, a group by its id, or a broker by its id in decimal digits; without one: all brokers.

    A subscription to metrics of clients has a name of its own.
    """

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> Self:
        return cls(ConfigResourceType.BROKER, str(node_id))

    @classmethod
    def all_brokers(cls) -> Self:
        """What is set for all brokers while they run; what is set for one alone comes before it."""
        return cls(ConfigResourceType.BROKER, "")

    @classmethod
    def group(cls, group_id: str) -> Self:
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> Self:
        """A subscription to metrics of clients (KIP-714): there as long as anything is set for it."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)


class OffsetSpec(IntEnum):
    """Positions that ListOffsets knows by a negative timestamp. Anything from 0 up is a timestamp in ms."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class NewTopic(NamedTuple):
    """A topic to create. -1 leaves partitions or replicas to the cluster's defaults.

    Configurations may be numbers and bools: 5 is "5", True is "true".
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | int | bool | None] = {}


class ClusterDescription(NamedTuple):
    """A cluster in the view of one broker. `controller_id` is -1 if there is none at the moment."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]


class ConfigSource(IntEnum):
    """The source of a value, with the protocol's numbers. UNKNOWN stands for numbers that are not listed here."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigEntry(NamedTuple):
    """One configuration of one resource. `value` is None if it is sensitive or missing.

    `default` counts where nobody has set it, and `documentation` says what it is for. Both are None unless they were
    asked for, and if the broker does not say (before Apache Kafka 2.6 there was no documentation).
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    default: str | None = None
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """True if nobody has set it for this topic or this broker."""
        return self.source in {ConfigSource.DEFAULT, ConfigSource.UNKNOWN}


class GroupListing(NamedTuple):
    """A group in a list. `state` and `type` are empty if the broker is too old to tell them (Kafka 2.6, 3.7)."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator_id: int


class GroupMember(NamedTuple):
    """One member. `assignment` is empty unless a classic group is Stable, and None if its bytes are not a consumer's.

    The rest is told of members of groups whose coordinator assigns (KIP-848), and None of others: the member's `epoch`,
    the `target` that it goes to, and the `topics` and the `server_pattern` that it has subscribed to. `type` is
    "consumer", "classic" for a member that speaks the older protocol, or "" if that is not told.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: frozenset[TopicPartition] | None
    type: str = ""
    rack: str | None = None
    epoch: int | None = None
    target: frozenset[TopicPartition] | None = None
    topics: frozenset[str] | None = None
    server_pattern: str | None = None


class GroupDescription(NamedTuple):
    """A group. `state` has Kafka's names ("Stable", "Empty"). `assignor` is the chosen one.

    `type` is "classic", where a member divides the partitions, or "consumer", where the coordinator does (KIP-848). A
    classic group has an assignor only while it is Stable, and no epochs. `epoch` rises with every change, and
    `assignment_epoch` is the one of which the members' targets are.
    """

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator_id: int
    members: tuple[GroupMember, ...]
    type: str = "classic"
    epoch: int | None = None
    assignment_epoch: int | None = None


class PartitionLag(NamedTuple):
    """The position of a group in a partition.

    `committed` is None if it has committed nothing there, `end_offset` if the partition does not exist any more, and
    `member` if nobody reads it now.
    """

    committed: OffsetAndMetadata | None
    end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """Return the number of records that it has yet to read; None if that is unknown."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)


class TotalLag(NamedTuple):
    """The lag of a whole group: `lag` records, or None if that is unknown.

    `known` is the sum of the known lags, and `without_commit` the number of partitions in which the group has committed
    nothing, so that its members' policy decides where it would begin. Partitions that do not exist any more have
    nothing to be read.
    """

    lag: int | None
    known: int
    without_commit: int


class ReplicaSize(NamedTuple):
    """One replica in a directory.

    `offset_lag` records lie between its high watermark and the end of its log. `is_future` is true for a copy that
    will replace the replica of another directory of the same broker.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """One directory of a broker. `error` says why it cannot be used; it has no replicas then.

    `total_bytes` and `usable_bytes` are those of its volume, -1 if the broker does not tell them.
    """

    path: str
    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int
    usable_bytes: int


class FeatureChange(IntEnum):
    """What an update may do to the level of a feature, with the protocol's numbers. The last may cost data."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    LOSSY_DOWNGRADE = 3


class Feature(NamedTuple):
    """What the cluster speaks on a level, 0 if on none, and the levels that the broker knows, (lowest, highest).

    `known` is None if the broker does not know the feature.
    """

    name: str
    level: int
    known: tuple[int, int] | None


class FeaturesDescription(NamedTuple):
    """Features by name. A later `epoch` is newer; it is None if the broker has no features."""

    epoch: int | None
    features: tuple[Feature, ...]


class QuorumReplica(NamedTuple):
    """A member of the metadata quorum, as its leader sees it.

    `directory_id` has 16 bytes, zeros if it is not known. Its log ends at `end_offset`. Moments are by the leader's
    clock, None if it has not said: when it last heard from the member, and when that last had all that there was.
    """

    node_id: int
    directory_id: bytes
    end_offset: int
    heard_at_ms: int | None
    caught_up_at_ms: int | None


class QuorumDescription(NamedTuple):
    """The metadata quorum, by node id. What is before `high_watermark` is committed."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class ListedOffset(NamedTuple):
    """A position in a partition. `offset` and `timestamp_ms` are -1 if no record is that late."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class PartitionReassignment(NamedTuple):
    """A partition on its way. `replicas` are those to come and those to go. The first of them should lead."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the move."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.removing)


class TopicsSurvey(NamedTuple):
    """What the brokers said of some topics.

    `offsets` has the start and the end of partitions' logs, as [start, end). `sizes` has the bytes of replicas, by
    broker and partition. `silent` has the reason of each broker that did not answer.
    """

    offsets: Mapping[TopicPartition, tuple[int, int]]
    sizes: Mapping[int, Mapping[TopicPartition, int]]
    silent: Mapping[int, str]


class ReachableGroups(NamedTuple):
    """The groups of the brokers that answered, by id. `silent` has the reason of each broker that did not."""

    groups: Sequence[GroupListing]
    silent: Mapping[int, str]


class GroupSurvey(NamedTuple):
    """What the brokers said of a group.

    `description` is None if its coordinator did not answer, or if the group is of a kind that has messages of its own
    (KIP-848). `lags` is None if a position, or an end, is unknown.
    """

    description: GroupDescription | None
    lags: Mapping[TopicPartition, PartitionLag] | None


class GroupsSurvey(NamedTuple):
    """What the brokers said of some groups, by id. `silent` has the reason of each broker that did not answer."""

    groups: Mapping[str, GroupSurvey]
    silent: Mapping[int, str]


def total_lag(lags: Mapping[TopicPartition, PartitionLag]) -> TotalLag:
    """Return the sum of the lags of a group's partitions. Unknown is not 0: an alert on it would stay silent."""
    known = sum(found.lag or 0 for found in lags.values())
    without_commit = sum(found.committed is None and found.end_offset is not None for found in lags.values())
    return TotalLag(known if lags and not without_commit else None, known, without_commit)


class TransactionListing(NamedTuple):
    """A transactional id, and the broker that coordinates it. States have Kafka's spelling: "Ongoing", "Empty"."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class ReachableTransactions(NamedTuple):
    """The transactional ids of the brokers that answered, by id. `silent` has the reason of each that did not."""

    transactions: Sequence[TransactionListing]
    silent: Mapping[int, str]


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator knows it.

    `started_at_ms` counts from 1970, and is None if no transaction is open. `partitions` are those in it; while it is
    being ended, those that lack the marker.
    """

    transactional_id: str
    state: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    timeout_s: float
    started_at_ms: int | None
    partitions: frozenset[TopicPartition]


class PartitionProducer(NamedTuple):
    """A producer as the leader of a partition remembers it.

    `start_offset` is where its open transaction begins there, None without one. `last_timestamp_ms` is that of its last
    batch, `coordinator_epoch` that of its last marker; they are -1 if there is none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None
