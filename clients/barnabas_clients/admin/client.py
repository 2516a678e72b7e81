"""Administers a cluster: topics, records, configurations, groups and their offsets.

`Admin` has one set of connections. Functions over a `Cluster` do the work (topics.py, configs.py, offsets.py,
reassignments.py, groups.py, transactions.py, log_dirs.py, snapshots.py, surveys.py, features.py, quorum.py), for
callers who have one already.
These rules hold for every method:

*Deadline.* `timeout_s` bounds the whole call, retries included; None takes the one given to `Admin`. At the deadline
the call raises `DeadlineExceededError`, which says what it waited for and what went wrong last. The change that was
asked for may still happen.

*Errors.* A refusal of a broker is a `KafkaError` with Kafka's code, which names the topic, partition or group. After
`close` every call raises `ClientClosedError`.

*Cancellation.* Always safe. The change that was asked for may have happened, or may happen a moment later.

Several calls may be under way at once. Memory: the answers, and the metadata of every topic that was named once.

The functions are loaded when the first of their module is called: nobody needs all of them.

Not here: ACLs, quotas; the groups of KIP-848, beyond their place in a list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from barnabas_clients.arguments import (
    INT32_MAX,
    INT64_MAX,
    flag,
    one_of,
    seconds,
    shown,
    text,
    topic_name,
    whole_number,
)
from barnabas_clients.arguments import names as names_of
from barnabas_clients.cluster.topic_view import TopicView
from barnabas_clients.errors import ClientClosedError, SnapshotExistsError
from barnabas_clients.place_arguments import (
    configs_of,
    deadline_s,
    group_states,
    group_types,
    offsets_of,
    partition_of,
    partitions_of,
    replicas_of,
    several,
    timestamps_of,
    transaction_states,
)
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_clients.wording import listed, listed_partitions, shown_name

from .offset_resets import OffsetChange, ResetKind, ResetTo
from .snapshot_ranges import Left, NamedSnapshot, PinnedRange, RangeCheck, SnapshotTopic
from .values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    Feature,
    FeatureChange,
    FeaturesDescription,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupsSurvey,
    GroupSurvey,
    ListedOffset,
    LogDir,
    NewTopic,
    OffsetSpec,
    PartitionLag,
    PartitionProducer,
    PartitionReassignment,
    QuorumDescription,
    QuorumReplica,
    ReachableGroups,
    ReachableTransactions,
    ReplicaSize,
    TopicsSurvey,
    TotalLag,
    TransactionDescription,
    TransactionListing,
    total_lag,
)

if TYPE_CHECKING:
    from . import configs as admin_configs
    from . import features as admin_features
    from . import groups as admin_groups
    from . import log_dirs as admin_log_dirs
    from . import offsets as admin_offsets
    from . import quorum as admin_quorum
    from . import reassignments as admin_reassignments
    from . import snapshots as admin_snapshots
    from . import surveys as admin_surveys
    from . import topics as admin_topics
    from . import transactions as admin_transactions

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "Feature",
    "FeatureChange",
    "FeaturesDescription",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupSurvey",
    "GroupsSurvey",
    "Left",
    "ListedOffset",
    "LogDir",
    "NamedSnapshot",
    "NewTopic",
    "OffsetChange",
    "OffsetSpec",
    "PartitionLag",
    "PartitionProducer",
    "PartitionReassignment",
    "PinnedRange",
    "QuorumDescription",
    "QuorumReplica",
    "RangeCheck",
    "ReachableGroups",
    "ReachableTransactions",
    "ReplicaSize",
    "ResetTo",
    "SnapshotTopic",
    "TopicsSurvey",
    "TotalLag",
    "TransactionDescription",
    "TransactionListing",
    "total_lag",
]

logger = logging.getLogger("barnabas_clients.admin")

INT16_MAX = 2**15 - 1
SNAPSHOT_ID_BYTES = 16


class _Late:
    """A module of this package that is loaded when the first of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name, __package__), name)


if not TYPE_CHECKING:
    admin_configs = _Late(".configs")
    admin_features = _Late(".features")
    admin_groups = _Late(".groups")
    admin_log_dirs = _Late(".log_dirs")
    admin_offsets = _Late(".offsets")
    admin_quorum = _Late(".quorum")
    admin_reassignments = _Late(".reassignments")
    admin_snapshots = _Late(".snapshots")
    admin_surveys = _Late(".surveys")
    admin_topics = _Late(".topics")
    admin_transactions = _Late(".transactions")


class Admin:
    """A client for administration. Use it as `async with`, or between `start` and `stop`, from one event loop.

    Entering connects, within `timeout_s`.

    Args:
        bootstrap: brokers to start from: `host:port`, several separated by commas or as a list.
        client_id: how brokers' logs and quotas name this client.
        timeout_s: the deadline of calls that name none.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], *, client_id: str = "barnabas-admin", timeout_s: float = 30.0
    ) -> None:
        from barnabas_clients.cluster.cluster import Cluster  # noqa: PLC0415 - connections load with the first client

        self._timeout_s = seconds("timeout_s", timeout_s, is_positive=True)
        client_id = text("client_id", client_id, may_be_empty=True)
        self._cluster = Cluster(bootstrap, client_id=client_id, request_timeout_s=self._timeout_s)
        self._is_opened = False
        self._is_closed = False

    @property
    def trouble(self) -> str:
        """Why a call takes long, in one line for people: nobody answers, or what is waited for; "" if all is well."""
        return self._cluster.trouble

    async def __aenter__(self) -> Self:
        """Connect to the cluster.

        Raises:
            DeadlineExceededError: no broker answered within `timeout_s`. RuntimeError: it was opened before.
            ClientClosedError: it is closed.
        """
        if self._is_closed:
            raise ClientClosedError("the admin client is closed; make another one")
        if self._is_opened:
            raise RuntimeError("the admin client was started before; make another one")
        self._is_opened = True
        await self._cluster.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; calls under way fail with `ClientClosedError`. Never waits for a broker."""
        self._is_closed = True
        await self._cluster.close()

    async def start(self) -> Self:
        """Open, as the beginning of `async with` does, and return this client. `stop` must be called in the end."""
        return await self.__aenter__()

    async def stop(self) -> None:
        """Close, as the end of `async with` does; the same as `close`. Harmless before `start`, and a second time."""
        await self.close()

    # The cluster.

    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """Return the cluster's id, its brokers and its controller."""
        return await admin_topics.describe_cluster(self._cluster, self._limit(timeout_s))

    async def unregister_broker(self, node_id: int, *, timeout_s: float | None = None) -> None:
        """Have the cluster forget a broker that is away for good: nothing waits for it, and nobody lists it any more.

        One that comes back all the same is taken in again.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED, there is none. INVALID_REQUEST, on Barnabas: it runs, or holds
                replicas.
            UnsupportedVersionError: the brokers cannot do it.
        """
        node_id = whole_number("node_id", node_id, 0, INT32_MAX)
        await admin_quorum.unregister_broker(self._cluster, node_id, self._limit(timeout_s))
        logger.info("broker %d is forgotten", node_id)

    async def describe_quorum(self, *, timeout_s: float | None = None) -> QuorumDescription:
        """Return who leads the metadata quorum, and how far its voters and observers have come.

        Raises:
            UnsupportedVersionError: the brokers do not tell.
        """
        return await admin_quorum.describe_quorum(self._cluster, self._limit(timeout_s))

    async def describe_features(self, *, timeout_s: float | None = None) -> FeaturesDescription:
        """Return what the cluster speaks on which level, and the levels that the broker that was asked knows."""
        return await admin_features.describe_features(self._cluster, self._limit(timeout_s))

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        change: FeatureChange = FeatureChange.UPGRADE,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change levels of features, all or none; 0 switches one off. With `validate_only` say whether that works.

        Clients that are connected already may hear of it only when they connect anew.

        Raises:
            KafkaError: INVALID_UPDATE_VERSION, a feature or a level is not known, by a broker of an older version
                either, or it is not on the side of the present one that `change` allows.
            UnsupportedVersionError: the brokers have no features.
        """
        wanted = _levels_of(levels)
        change = one_of("change", change, tuple(FeatureChange))
        validate_only = flag("validate_only", validate_only)
        limit_s = self._limit(timeout_s)
        await admin_features.update_features(self._cluster, wanted, change, limit_s, validate_only=validate_only)
        if not validate_only:
            logger.info("features changed: %s", ", ".join(f"{name} {level}" for name, level in wanted.items()))

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return configurations, such as those of `ConfigResource.topic("orders")`, `.broker(1)` or `.group("g")`.

        Of `ConfigResource.all_brokers()` those are told that somebody has set for all brokers while they run.

        With `include_documentation` the entries have `default` and `documentation`, too.
        """
        wanted = [_resource_of(each) for each in several("resources", resources, "ConfigResources")]
        documented = flag("include_documentation", include_documentation)
        limit_s = self._limit(timeout_s)
        return await admin_configs.describe_configs(self._cluster, wanted, limit_s, include_documentation=documented)

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = tuple(ConfigResourceType), *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """Return what can be configured, or is: topics, brokers, groups and subscriptions to clients' metrics, sorted.

        Raises:
            UnsupportedVersionError: the brokers do not tell (before Apache Kafka 4.1).
        """
        limit_s = self._limit(timeout_s)
        wanted = [one_of("a type in types", one, tuple(ConfigResourceType)) for one in several("types", types, "types")]
        return await admin_configs.list_config_resources(self._cluster, wanted, limit_s)

    async def alter_configs(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str | int | bool | None],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Set configurations of a topic, a broker, all brokers or a group, and leave the others.

        None takes one back to its default. Of a broker those can be set that `describe_configs` does not call
        read-only.

        Numbers and bools are written as brokers write them: 5 is "5", True is "true".

        Raises:
            InvalidConfigError: one of them is impossible, and none was changed.
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        limit_s = self._limit(timeout_s)
        resource = _resource_of(resource)
        wanted = configs_of("configs", configs, may_be_none=True)
        validate_only = flag("validate_only", validate_only)
        await admin_configs.alter_configs(self._cluster, resource, wanted, limit_s, validate_only=validate_only)
        if not validate_only:
            logger.info("configurations of %s set: %s", shown_name(resource.name), listed(wanted, len(wanted)))

    async def describe_log_dirs(
        self,
        broker_ids: Collection[int] | None = None,
        *,
        partitions: Collection[TopicPartition] | None = None,
        timeout_s: float | None = None,
    ) -> dict[int, list[LogDir]]:
        """Return the directories of some brokers or of all, with the size of each replica in them.

        With `partitions` only replicas of those; the ones that a broker does not hold are left out.

        Raises:
            DeadlineExceededError: a broker did not answer, or is not in the cluster.
        """
        ids = None
        if broker_ids is not None:
            given = several("broker_ids", broker_ids, "ids of brokers")
            ids = [whole_number("an id in broker_ids", each, 0, INT32_MAX) for each in given]
        wanted = _some_partitions(partitions)
        return await admin_log_dirs.describe_log_dirs(self._cluster, self._limit(timeout_s), ids, wanted)

    # Topics.

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | bool] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> TopicView:
        """Create a topic and return it once every partition has a leader; -1 takes the cluster's default.

        Raises:
            TopicAlreadyExistsError: it exists.
        """
        limit_s = self._limit(timeout_s)
        topic = _new_topic_of(NewTopic(name, partitions, replication_factor, {} if configs is None else configs))
        created = await admin_topics.create_topic(self._cluster, *topic, timeout_s=limit_s)
        logger.info("topic %s created, with %d partitions", shown_name(created.name), len(created.partitions))
        return created

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Create topics, or with `validate_only` just check them. Leaders are elected a moment later.

        Raises:
            KafkaError: the first refusal; other topics may have been created.
        """
        wanted = [_new_topic_of(each) for each in several("topics", topics, "NewTopics")]
        validate_only = flag("validate_only", validate_only)
        limit_s = self._limit(timeout_s)
        await admin_topics.create_topics(self._cluster, wanted, limit_s, validate_only=validate_only)
        if not validate_only:
            logger.info("topics created: %s", listed((topic.name for topic in wanted), len(wanted)))

    async def delete_topics(self, names: Sequence[str], *, timeout_s: float | None = None) -> None:
        """Delete topics and everything in them.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist; nothing was deleted.
            KafkaError: the first refusal; other topics may be gone.
        """
        wanted = _topics_of(names)
        deadline = self._deadline(timeout_s)
        await admin_topics.known_topics(self._cluster, wanted, admin_offsets.left_s(deadline))
        await admin_topics.delete_topics(self._cluster, wanted, admin_offsets.left_s(deadline))
        logger.info("topics deleted: %s", listed(wanted, len(wanted)))

    async def list_topics(self, *, include_internal: bool = False, timeout_s: float | None = None) -> list[TopicView]:
        """Return every topic, sorted by name."""
        include_internal = flag("include_internal", include_internal)
        return await admin_topics.list_topics(self._cluster, self._limit(timeout_s), include_internal=include_internal)

    async def describe_topics(self, names: Sequence[str], *, timeout_s: float | None = None) -> list[TopicView]:
        """Return topics in the order of their names.

        Raises:
            UnknownTopicOrPartitionError: one of them does not exist.
        """
        return await admin_topics.known_topics(self._cluster, _topics_of(names), self._limit(timeout_s))

    async def survey_topics(self, names: Sequence[str], *, timeout_s: float | None = None) -> TopicsSurvey:
        """Return the starts and ends of many topics' logs and the sizes of their replicas, as far as brokers answer.

        One request of each kind goes to each broker, however many topics there are; a broker gets 5 s at most. What
        it does not say is missing, and `silent` names it. Topics that do not exist are left out.
        """
        wanted = _topics_of(names)
        return await admin_surveys.survey_topics(self._cluster, wanted, self._limit(timeout_s))

    async def create_partitions(
        self, name: str, count: int, *, validate_only: bool = False, timeout_s: float | None = None
    ) -> TopicView:
        """Give a topic `count` partitions in all. Returns when every one has a leader.

        From then on records with a key go to other partitions: the order by key is not kept across the change.

        Raises:
            InvalidPartitionsError: it has that many already, or more.
        """
        limit_s = self._limit(timeout_s)
        validate_only = flag("validate_only", validate_only)
        name = topic_name("name", name)
        count = whole_number("count", count, 1, INT32_MAX)
        grown = await admin_topics.create_partitions(self._cluster, name, count, limit_s, validate_only=validate_only)
        if not validate_only:
            logger.info("topic %s has %d partitions now", shown_name(name), len(grown.partitions))
        return grown

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_s: float | None = None
    ) -> None:
        """Move partitions to other brokers, the preferred leader first. None cancels the move that is under way.

        Returns when the controller knows, not when they have arrived: `list_partition_reassignments` tells that.

        Raises:
            InvalidReplicaAssignmentError: a target names an unknown broker, one twice, or none.
            NoReassignmentInProgressError: there is nothing to cancel. Others may be on their way.
            UnknownTopicOrPartitionError: a partition does not exist.
        """
        wanted = replicas_of("targets", targets)
        deadline = self._deadline(timeout_s)
        await self._know(wanted, deadline)
        await admin_reassignments.alter_partition_reassignments(self._cluster, wanted, admin_offsets.left_s(deadline))

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions that move to other brokers, of some or of all. Those at rest are left out."""
        limit_s = self._limit(timeout_s)
        wanted = _some_partitions(partitions)
        return await admin_reassignments.list_partition_reassignments(self._cluster, limit_s, wanted)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        unclean: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Have partitions, or all, led by the first of their replicas. None says that it leads now.

        If all are meant, those that it leads already are left out. `unclean` asks for any leader where there is none,
        at the cost of records; on Barnabas nothing is elected so.

        The errors are ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE (it is away, or behind),
        ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION and REQUEST_TIMED_OUT.
        """
        limit_s = self._limit(timeout_s)
        wanted = _some_partitions(partitions)
        unclean = flag("unclean", unclean)
        return await admin_quorum.elect_leaders(self._cluster, wanted, limit_s, unclean=unclean)

    # Records.

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Look up, for each partition, an `OffsetSpec` (LATEST, EARLIEST, MAX_TIMESTAMP) or a timestamp in ms.

        A timestamp finds the first record that is not older; the offset is -1 if there is none. With `read_committed`,
        LATEST is the last stable offset instead of the high watermark.
        """
        wanted = timestamps_of("partitions", partitions)
        deadline = self._deadline(timeout_s)
        read_committed = flag("read_committed", read_committed)
        await self._know(wanted, deadline)
        return await admin_offsets.list_offsets(
            self._cluster, wanted, admin_offsets.left_s(deadline), read_committed=read_committed
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset from each partition (-1: all records). Return the new starts.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the end of its partition; others may be deleted.
        """
        wanted = timestamps_of("before", before, low=-1)
        deadline = self._deadline(timeout_s)
        await self._know(wanted, deadline)
        starts = await admin_offsets.delete_records(self._cluster, wanted, admin_offsets.left_s(deadline))
        logger.info("records deleted of %s", listed_partitions(starts))
        return starts

    # Named snapshots.

    async def create_snapshot(
        self, name: str, topics: Sequence[str], *, best_effort: bool = False, timeout_s: float | None = None
    ) -> NamedSnapshot:
        """Keep under a name which offsets can be read of some topics now. The records are not kept with it.

        Topics that are compacted are refused unless it is to be a `best_effort`. `describe_snapshot` returns it later,
        and `check_snapshot` tells what is left of it. Apache Kafka has no snapshots.

        Raises:
            SnapshotExistsError: the name has one, which stays.
            InvalidConfigError: a topic is compacted. UnknownTopicOrPartitionError: a topic does not exist.
            PolicyViolationError: it is too large, or there are too many.
            UnsupportedVersionError: the brokers have no snapshots.
        """
        name = topic_name("name", name)
        wanted = [topic_name("a name in topics", each) for each in names_of("topics", topics)]
        best_effort = flag("best_effort", best_effort)
        deadline = self._deadline(timeout_s)
        ranges = await admin_snapshots.ranges_now(self._cluster, wanted, admin_offsets.left_s(deadline))
        snapshot, created = await admin_snapshots.create_snapshot(
            self._cluster, name, ranges, admin_offsets.left_s(deadline), best_effort=best_effort
        )
        if not created:
            raise SnapshotExistsError(f"the snapshot {shown_name(name)} exists")
        logger.info("snapshot %s created, of %s", shown_name(name), listed(wanted, len(wanted)))
        return snapshot

    async def describe_snapshot(self, name: str, *, timeout_s: float | None = None) -> NamedSnapshot:
        """Return one snapshot with its ranges, and what became of its topics.

        Raises:
            ResourceNotFoundError: there is none of that name.
            UnsupportedVersionError: the brokers have no snapshots.
        """
        name = topic_name("name", name)
        return await admin_snapshots.describe_snapshot(self._cluster, name, self._limit(timeout_s))

    async def list_snapshots(self, *, timeout_s: float | None = None) -> list[NamedSnapshot]:
        """Return all snapshots, sorted by name, without their ranges and with ten of their topics each.

        Raises:
            UnsupportedVersionError: the brokers have no snapshots.
        """
        return await admin_snapshots.list_snapshots(self._cluster, self._limit(timeout_s))

    async def check_snapshot(
        self, snapshot: NamedSnapshot, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, RangeCheck]:
        """Tell, of each partition in a snapshot that was described, what is left of its range.

        Raises:
            DeadlineExceededError: a partition has no leader that answers.
        """
        snapshot = _snapshot_of(snapshot)
        return await admin_snapshots.check_snapshot(self._cluster, snapshot, self._limit(timeout_s))

    async def delete_snapshot(
        self, name: str, *, snapshot_id: bytes | None = None, timeout_s: float | None = None
    ) -> None:
        """Delete a snapshot; no record goes with it. With `snapshot_id` it stays if another one has the name now.

        Raises:
            ResourceNotFoundError: there is none of that name, or it is another one.
            UnsupportedVersionError: the brokers have no snapshots.
        """
        name = topic_name("name", name)
        limit_s = self._limit(timeout_s)
        wanted = None if snapshot_id is None else _snapshot_id_of(snapshot_id)
        gone = await admin_snapshots.delete_snapshot(self._cluster, name, limit_s, snapshot_id=wanted)
        logger.info("snapshot %s deleted (%s)", shown_name(name), gone.hex())

    # Groups.

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_s: float | None = None
    ) -> list[GroupListing]:
        """Return every group, sorted by id.

        With `states` ("Stable", "Empty", ...) those in one of them, with `types` ("classic", "consumer", "share",
        "streams") those of one of them.

        Raises:
            ValueError: there is no such state, or type; the message lists all of them.
        """
        wanted, wanted_types = group_states(states), group_types(types)
        return await admin_groups.list_groups(self._cluster, self._limit(timeout_s), states=wanted, types=wanted_types)

    async def describe_groups(
        self, group_ids: Collection[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription]:
        """Return the state of groups, their members, and the partitions that each member reads.

        Groups whose coordinator divides the partitions (KIP-848) are described as classic ones are, with their epochs,
        and with what each member is to read.

        Raises:
            GroupIdNotFoundError: one of them does not exist.
        """
        return await admin_groups.describe_groups(
            self._cluster, names_of("group_ids", group_ids), self._limit(timeout_s)
        )

    async def reachable_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_s: float | None = None
    ) -> ReachableGroups:
        """Return what `list_groups` does, as far as brokers answer; a broker gets 5 s at most.

        `list_groups` waits for a broker that is down until the cluster has given it up, so that no group is missing.
        Here its groups are missing until others have taken them over, and `silent` names it.
        """
        limit_s = self._limit(timeout_s)
        wanted, wanted_types = group_states(states), group_types(types)
        return await admin_surveys.reachable_groups(self._cluster, limit_s, states=wanted, types=wanted_types)

    async def survey_groups(
        self, groups: Iterable[GroupListing], *, with_lags: bool = True, timeout_s: float | None = None
    ) -> GroupsSurvey:
        """Return the members and the lags of many groups, which `list_groups` has named, as far as brokers answer.

        A few requests go to each broker, for 100 groups at a time; a broker gets 5 s at most. What it does not say is
        None, and `silent` names it. Brokers before Apache Kafka 3.0 tell no lags in this way.
        """
        wanted = [_listing_of(each) for each in several("groups", groups, "GroupListings")]
        limit_s = self._limit(timeout_s)
        with_lags = flag("with_lags", with_lags)
        return await admin_surveys.survey_groups(self._cluster, wanted, limit_s, with_lags=with_lags)

    async def delete_groups(self, group_ids: Collection[str], *, timeout_s: float | None = None) -> None:
        """Delete groups without members, with their committed offsets.

        Raises:
            NonEmptyGroupError: one has members. GroupIdNotFoundError: one does not exist. Others may be gone.
        """
        wanted = names_of("group_ids", group_ids)
        await admin_groups.delete_groups(self._cluster, wanted, self._limit(timeout_s))
        logger.info("groups deleted: %s", listed(wanted, len(wanted)))

    async def group_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        stable: bool = True,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed, of some partitions or of all. Those without are left out.

        While a transaction is open that stores one of them, it waits for its end; not so with `stable=False`, which
        tells what holds at the moment. Of a group that works in transactions without a pause, one is always open.
        """
        group_id = text("group_id", group_id)
        wanted = _some_partitions(partitions)
        is_stable = flag("stable", stable)
        limit_s = self._limit(timeout_s)
        return await admin_groups.group_offsets(self._cluster, group_id, limit_s, wanted, is_stable=is_stable)

    async def group_lag(self, group_id: str, *, timeout_s: float | None = None) -> dict[TopicPartition, PartitionLag]:
        """Return the lag of a group in every partition in which it has committed, or that a member reads.

        The lag of a partition without a commit is None, not 0. `total_lag` adds them up, and is None then too.
        Offsets of transactions that are still open do not count.

        Raises:
            GroupIdNotFoundError: it does not exist.
        """
        return await admin_groups.group_lag(self._cluster, text("group_id", group_id), self._limit(timeout_s))

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Set positions of a group without members. A group that does not exist is created.

        Raises:
            NonEmptyGroupError: it has members. UnknownTopicOrPartitionError: a partition does not exist.
        """
        group_id = text("group_id", group_id)
        wanted = offsets_of("offsets", offsets)
        deadline = self._deadline(timeout_s)
        await self._know(wanted, deadline)
        await admin_groups.alter_group_offsets(self._cluster, group_id, wanted, admin_offsets.left_s(deadline))
        logger.info("offsets of group %s set: %s", shown_name(group_id), listed_partitions(wanted))

    async def reset_group_offsets(
        self,
        group_id: str,
        target: ResetTo,
        *,
        partitions: Collection[TopicPartition] | None = None,
        topics: Collection[str] | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OffsetChange]:
        """Move a group's positions to a target: `ResetTo.earliest()`, `.time(timestamp_ms)`, `.shift(-100)` and others.

        It moves all partitions in which the group has committed, or those named. Returns the changes, or with `dry_run`
        those that would be made. An offset outside of a partition's log becomes its start or its end.

        Raises:
            NonEmptyGroupError: it has members. A dry run does not care.
            GroupIdNotFoundError: no partition is named, and the group has committed nothing.
            UnknownTopicOrPartitionError: a partition does not exist.
            ValueError: a shift of a partition without a committed offset.
        """
        return await admin_groups.reset_group_offsets(
            self._cluster,
            text("group_id", group_id),
            _target_of(target),
            self._limit(timeout_s),
            partitions=_some_partitions(partitions),
            topics=None if topics is None else names_of("topics", topics),
            dry_run=flag("dry_run", dry_run),
        )

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> None:
        """Make a group forget positions. Nothing happens to partitions without one.

        Raises:
            KafkaError: GROUP_SUBSCRIBED_TO_TOPIC if members read the topic; GROUP_ID_NOT_FOUND.
        """
        group_id = text("group_id", group_id)
        wanted = partitions_of("partitions", partitions)
        await admin_groups.delete_group_offsets(self._cluster, group_id, wanted, self._limit(timeout_s))

    # Transactions.

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_longer_than_s: float | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """Return all transactional ids, sorted; with `states` ("Ongoing", "PrepareCommit") or `producer_ids` some.

        `open_longer_than_s`: those whose transaction has begun longer ago. Brokers before Apache Kafka 3.8 cannot say.

        Raises:
            KafkaError: there is no such state. DeadlineExceededError: a broker did not answer.
        """
        chosen = names_of("states", states), _producer_ids_of(producer_ids), _length_of(open_longer_than_s)
        wanted = admin_transactions.listing_request(*chosen)
        return await admin_transactions.list_transactions(self._cluster, self._limit(timeout_s), wanted)

    async def reachable_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_longer_than_s: float | None = None,
        timeout_s: float | None = None,
    ) -> ReachableTransactions:
        """Return what `list_transactions` does, as far as brokers answer; a broker gets 5 s at most.

        The ids of a broker that is down are missing until others have taken them over, and `silent` names it.

        Raises:
            UnsupportedVersionError: a broker has no transactions, or cannot say what is asked.
        """
        chosen = transaction_states(states), _producer_ids_of(producer_ids), _length_of(open_longer_than_s)
        wanted = admin_transactions.listing_request(*chosen)
        return await admin_transactions.reachable_transactions(self._cluster, self._limit(timeout_s), wanted)

    async def describe_transactions(
        self, transactional_ids: Collection[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return the state of transactional ids, and the partitions in their transactions.

        Raises:
            KafkaError: one of them is unknown (TRANSACTIONAL_ID_NOT_FOUND).
        """
        names = names_of("transactional_ids", transactional_ids)
        return await admin_transactions.describe_transactions(self._cluster, names, self._limit(timeout_s))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, list[PartitionProducer]]:
        """Return the producers that the leader of each partition remembers, with their open transactions.

        Raises:
            DeadlineExceededError: a partition has no leader, or does not exist.
        """
        named = partitions_of("partitions", partitions)
        return await admin_transactions.describe_producers(self._cluster, named, self._limit(timeout_s))

    async def abort_transaction(
        self, partition: TopicPartition, start_offset: int, *, timeout_s: float | None = None
    ) -> PartitionProducer:
        """Abort the transaction that begins at `start_offset`, in this partition alone, whatever its coordinator says.

        It is for a transaction that hangs: `describe_producers` shows it, and `list_transactions` has no id with its
        producer. One that goes on elsewhere would be torn.

        Raises:
            KafkaError: no open transaction begins there (INVALID_TXN_STATE), or its coordinator was quicker.
        """
        start_offset = whole_number("start_offset", start_offset, 0)
        return await admin_transactions.abort_transaction(
            self._cluster, partition_of(partition), start_offset, self._limit(timeout_s)
        )

    def _limit(self, timeout_s: float | None) -> float:
        """Return how long a call may take. Raises if this client is not open."""
        given = deadline_s(timeout_s)
        if self._is_closed:
            raise ClientClosedError("the admin client is closed")
        if not self._is_opened:
            raise ClientClosedError("the admin client is not open yet; use it as `async with`, or start it")
        return self._timeout_s if given is None else given

    def _deadline(self, timeout_s: float | None) -> float:
        return asyncio.get_running_loop().time() + self._limit(timeout_s)

    async def _know(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        """Raise at once if a partition does not exist: asking its leader would go on until the deadline."""
        topics = self._cluster.view.topics
        missing = {
            key for key in partitions if key.topic not in topics or key.partition not in topics[key.topic].partitions
        }
        if not missing:
            return
        names = sorted({key.topic for key in missing})
        found = dict(
            zip(
                names,
                await admin_topics.known_topics(self._cluster, names, admin_offsets.left_s(deadline)),
                strict=True,
            )
        )
        for key in sorted(missing):
            if key.partition not in found[key.topic].partitions:
                raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(key))


# Checks of arguments that only `Admin` takes.


def _topics_of(value: object) -> list[str]:
    return [topic_name("a name in names", name) for name in names_of("names", value)]


def _some_partitions(value: object) -> list[TopicPartition] | None:
    return None if value is None else partitions_of("partitions", value)


def _resource_of(value: object) -> ConfigResource:
    if not isinstance(value, ConfigResource):
        raise TypeError(f"a resource is {shown(value)}; it must be a ConfigResource")
    if not isinstance(value.type, ConfigResourceType):
        raise TypeError(f"the type of a resource is {shown(value.type)}; it must be a ConfigResourceType")
    if value == ConfigResource.all_brokers():
        return value
    name = text("the name of a resource", value.name)
    if value.type is ConfigResourceType.BROKER:
        if not (name.isascii() and name.isdecimal()):
            raise ValueError(f"the name of a broker is {shown(name)}; it must be its id in decimal digits")
        whole_number("the id of a broker", int(name[:20]), 0, INT32_MAX)
    return value


def _listing_of(value: object) -> GroupListing:
    if not isinstance(value, GroupListing):
        raise TypeError(f"a group is {shown(value)}; it must be a GroupListing, as list_groups returns them")
    coordinator_id = whole_number("the coordinator of a group", value.coordinator_id, 0, INT32_MAX)
    return value._replace(group_id=text("the id of a group", value.group_id), coordinator_id=coordinator_id)


def _producer_ids_of(value: object) -> list[int]:
    return [whole_number("a number in producer_ids", one, 0) for one in several("producer_ids", value, "numbers")]


def _length_of(value: object) -> float | None:
    return None if value is None else seconds("open_longer_than_s", value)


def _new_topic_of(value: object) -> NewTopic:
    if not isinstance(value, NewTopic):
        raise TypeError(f"a topic is {shown(value)}; it must be a NewTopic")
    # The brokers decide which of these are possible.
    partitions = whole_number("partitions", value.partitions, -1, INT32_MAX)
    replication_factor = whole_number("replication_factor", value.replication_factor, -1, INT16_MAX)
    configs = configs_of("configs", value.configs, may_be_none=False)
    return NewTopic(topic_name("name", value.name), partitions, replication_factor, configs)


def _levels_of(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        raise TypeError(f"levels is {shown(value)}; it must be a mapping of features to levels, and name one")
    return {
        text("a name in levels", name): whole_number(f"level of {name}", level, 0, INT16_MAX)
        for name, level in value.items()
    }


def _snapshot_of(value: object) -> NamedSnapshot:
    if not isinstance(value, NamedSnapshot):
        raise TypeError(f"snapshot is {shown(value)}; it must be what describe_snapshot returned")
    return value


def _snapshot_id_of(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) != SNAPSHOT_ID_BYTES:
        raise TypeError(f"snapshot_id is {shown(value)}; it must be the 16 bytes of a NamedSnapshot")
    return value


def _target_of(value: object) -> ResetTo:
    if not isinstance(value, ResetTo) or not isinstance(value.kind, ResetKind):
        raise TypeError(f"target is {shown(value)}; it must be a ResetTo")
    lowest = -INT64_MAX if value.kind is ResetKind.SHIFT else 0
    return ResetTo(value.kind, whole_number("the value of target", value.value, lowest))
