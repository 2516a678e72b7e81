"""Topics that may be created, grown and deleted, and the records that do it. Pure.

Each topic of a command is checked for itself, in Kafka's order: the name, its uniqueness, the configurations, the
counts or the manual assignment, then placement. A topic that passes counts at once for the topics behind it in the same
command: as a name that is taken, and as load on the brokers.

*Growth.* New partitions have as many replicas as the topic's first partition should have, and are placed as if all
partitions of the topic had been placed together: even among themselves, counting those that are there. Records keep
their partition, so a key that was hashed to one partition before may be hashed to another one afterwards, as in Kafka.
The offsets topic does not grow: a group's partition follows from its id and their number, and every group would lose
its state.

*Limits.* The limit on partitions per command is Kafka's too, and refuses the command as a whole. A command of many
topics comes in parts (`parts`); a topic of many partitions is one record, and is decided in pieces. The limits of the
whole cluster (`ClusterLimits`) are checked topic by topic. The internal topics are exempt, because groups could not go
on without theirs.

*Witnesses.* Partitions of two replicas get a witness on a third broker (`witnesses`), placed or assigned by hand alike.
Without a third broker they are created without a witness, and the answer carries a warning: a group of two voters stops
when either of them does.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from barnabas_metadata_quorum.image.image import BrokerLoad, Image, ImageBuilder, Topic
from barnabas_metadata_quorum.image.records import NOBODY, PartitionsAdded, Record, TopicCreated, TopicDeleted
from barnabas_metadata_quorum.topic_configs import check_topic_configs, observers_of
from barnabas_metadata_quorum.topic_names import CLUSTER_METADATA, INTERNAL_TOPICS, collision_key, name_complaint

from .commands import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    GrownTopic,
    NewPartitions,
    NewTopic,
    RefusalReason,
    Refused,
    check_named,
)
from .placement import COUNTED_AT_ONCE, PLACED_AT_ONCE, candidates_of, pause_after, place
from .witnesses import needs_witness, place_witnesses

__all__ = [
    "PARTITIONS_PER_COMMAND_MAX",
    "ClusterLimits",
    "check_asked_for",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "growth",
    "manual_complaint",
    "partitions_asked_for",
]

PARTITIONS_PER_COMMAND_MAX = 10_000  # Kafka's MAX_PARTITIONS_PER_BATCH; so also the largest topic
TOPIC_ID_BYTES = 16
AUTOMATIC_REPLICAS = 3  # they survive the loss of a broker without anybody noticing
TWO_REPLICAS = (
    "2 replicas keep the data when a broker is lost, but the partition stops until it is back: "
    "there is no third broker for a witness; reassign the topic when there is one, or use 3 replicas"
)

Assignments = tuple[tuple[int, ...], ...]


class ClusterLimits(NamedTuple):
    """The topics and partitions that a cluster may have; internal topics are made in spite of it.

    `flush_mode` is that of topics that say nothing, which bounds what else may be configured.
    """

    topics_max: int
    partitions_max: int
    flush_mode: str = "fsync"

    def check(self, draft: ImageBuilder, name: str, *, topics: int, partitions: int) -> None:
        """Refuse so many more of them; `name` is the topic that they are for.

        Raises:
            Refused: POLICY_VIOLATION.
        """
        if name in INTERNAL_TOPICS:
            return
        if topics and len(draft.topics) + topics > self.topics_max:
            text = f"The cluster has {len(draft.topics)} topics; {self.topics_max} is the maximum (max.topics)"
            raise Refused(RefusalReason.POLICY_VIOLATION, text)
        # Every partition has one first replica.
        known = sum([load.leaders for load in draft.loads.values()])
        if known + partitions > self.partitions_max:
            text = f"The cluster has {known} partitions; {self.partitions_max} is the maximum (max.partitions)"
            raise Refused(RefusalReason.POLICY_VIOLATION, text)


def check_asked_for(counts: Iterable[int]) -> None:
    """Refuse a command that makes more partitions than one command may.

    Raises:
        Refused: POLICY_VIOLATION.
    """
    asked_for = sum(counts)
    if asked_for > PARTITIONS_PER_COMMAND_MAX:
        text = f"{asked_for} partitions in one request; {PARTITIONS_PER_COMMAND_MAX} is the maximum"
        raise Refused(RefusalReason.POLICY_VIOLATION, text)


# ----------------------------------------------------------------------------------------------------------- creation


def create_topics(
    image: Image,
    command: CreateTopics,
    default_partitions: int,
    default_replication_factor: int,
    limits: ClusterLimits,
) -> Generator[None, None, tuple[list[Record], tuple[CreatedTopic, ...]]]:
    """Return the records of all topics that may be created, and the fate of each topic, in order.

    Yields between pieces of the work.

    Raises:
        Refused: POLICY_VIOLATION, too many topics or partitions in one command.
    """
    check_named(len(command.topics))
    check_asked_for(map(partitions_asked_for, command.topics))
    times = Counter(topic.name for topic in command.topics)
    draft = ImageBuilder(image)
    records: list[Record] = []
    fates: list[CreatedTopic] = []
    for topic in command.topics:
        try:
            if times[topic.name] > 1:
                raise Refused(RefusalReason.INVALID_REQUEST, "the request names this topic more than once")
            record = yield from _checked_creation(draft, topic, default_partitions, default_replication_factor, limits)
        except Refused as refused:
            fates.append(CreatedTopic(topic.name, refused.reason, refused.message))
            continue
        draft.apply(record)
        yield from pause_after(len(record.assignments))
        records.append(record)
        fates.append(_created(record))
    return records, tuple(fates)


def partitions_asked_for(topic: NewTopic) -> int:
    """Return the number of partitions that a topic is to have, at least."""
    return max(len(topic.assignments), topic.partition_count, 1)


def _checked_creation(
    draft: ImageBuilder,
    topic: NewTopic,
    default_partitions: int,
    default_replication_factor: int,
    limits: ClusterLimits,
) -> Generator[None, None, TopicCreated]:
    """Return the record that creates `topic`, or raise `Refused`."""
    _check_name(draft, topic.name)
    if len(topic.topic_id) != TOPIC_ID_BYTES or topic.topic_id in draft.topics or not any(topic.topic_id):
        # The submitting node draws the id; only a faulty one can get here.
        raise Refused(RefusalReason.INVALID_REQUEST, f"topic id {topic.topic_id.hex()!r} is malformed or in use")
    configs = _checked_configs(draft, topic, limits)
    if topic.assignments:
        assignments = yield from _manual(draft, topic)
        limits.check(draft, topic.name, topics=1, partitions=len(assignments))
    else:
        partitions, replication_factor = _counts(draft, topic, default_partitions, default_replication_factor)
        limits.check(draft, topic.name, topics=1, partitions=partitions)
        assignments = yield from place(partitions, replication_factor, candidates_of(draft.brokers, draft.loads))
    witnesses = yield from _witnesses_of(draft, assignments, observers_of(configs))
    yield from pause_after(len(assignments))
    directories = _directories_of(draft, assignments, witnesses)
    return TopicCreated(
        topic_id=topic.topic_id,
        name=topic.name,
        assignments=assignments,
        configs=configs,
        directories=directories,
        witnesses=witnesses,
    )


def _check_name(draft: ImageBuilder, name: str) -> None:
    complaint = name_complaint(name)
    if complaint is not None:
        raise Refused(RefusalReason.INVALID_TOPIC, f"Topic name is invalid: {complaint}")
    if name == CLUSTER_METADATA:
        raise Refused(RefusalReason.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited")
    taken_by = draft.topic_ids.get(collision_key(name))
    if taken_by is None:
        return
    other = draft.topics[taken_by].name
    if other == name:
        raise Refused(RefusalReason.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists")
    raise Refused(
        RefusalReason.INVALID_TOPIC, f"Topic '{name}' collides with existing topic '{other}': '.' and '_' are one"
    )


def _counts(
    draft: ImageBuilder, topic: NewTopic, default_partitions: int, default_replication_factor: int
) -> tuple[int, int]:
    replication_factor = topic.replication_factor
    if replication_factor == -1:
        replication_factor = default_replication_factor or min(AUTOMATIC_REPLICAS, max(1, len(draft.brokers)))
    if replication_factor < 1:
        raise Refused(RefusalReason.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1")
    partitions = default_partitions if topic.partition_count == -1 else topic.partition_count
    if partitions < 1:
        raise Refused(RefusalReason.INVALID_PARTITIONS, "Number of partitions must be larger than 0, or -1")
    if partitions > PARTITIONS_PER_COMMAND_MAX:
        raise Refused(RefusalReason.INVALID_PARTITIONS, f"A topic has at most {PARTITIONS_PER_COMMAND_MAX} partitions")
    return partitions, replication_factor


def _manual(draft: ImageBuilder, topic: NewTopic) -> Generator[None, None, Assignments]:
    """Check a manual assignment: partitions 0 to n-1, equally many replicas each, all on different known brokers."""
    if topic.partition_count != -1 or topic.replication_factor != -1:
        raise Refused(RefusalReason.INVALID_REQUEST, "A manual assignment excludes partition and replica counts")
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise Refused(
            RefusalReason.INVALID_REPLICA_ASSIGNMENT, "Partitions of a manual assignment must be consecutive from 0"
        )
    assignments = tuple(tuple(topic.assignments[partition]) for partition in range(len(topic.assignments)))
    for partition, replicas in enumerate(assignments):
        if not (partition + 1) % PLACED_AT_ONCE:
            yield
        complaint = None
        unknown = sorted(set(replicas) - draft.brokers.keys())
        if not replicas:
            complaint = "has no replicas"
        elif len(set(replicas)) != len(replicas):
            complaint = f"has one broker twice: {list(replicas)}"
        elif unknown:
            complaint = f"names brokers that are not registered: {unknown}"
        elif len(replicas) != len(assignments[0]):
            complaint = f"has {len(replicas)} replicas, partition 0 has {len(assignments[0])}"
        elif not _has_active(draft, replicas):
            complaint = f"has only brokers that are fenced or shutting down: {list(replicas)}"
        if complaint is not None:
            raise Refused(RefusalReason.INVALID_REPLICA_ASSIGNMENT, f"Partition {partition} {complaint}")
    return assignments


def _checked_configs(draft: ImageBuilder, topic: NewTopic, limits: ClusterLimits) -> dict[str, str]:
    complaint = check_topic_configs(topic.name, topic.configs, draft.brokers, limits.flush_mode)
    if complaint is not None:
        raise Refused(RefusalReason.INVALID_CONFIG, complaint)
    return {name: value for name, value in sorted(topic.configs.items()) if value is not None}


def _created(record: TopicCreated) -> CreatedTopic:
    replication_factor = len(record.assignments[0])
    return CreatedTopic(
        record.name,
        topic_id=record.topic_id,
        partition_count=len(record.assignments),
        replication_factor=replication_factor,
        configs=record.configs,
        warning=TWO_REPLICAS if needs_witness(record.assignments[0]) and _lacks_witness(record) else "",
    )


def _lacks_witness(record: TopicCreated) -> bool:
    return not record.witnesses or NOBODY in record.witnesses


# ------------------------------------------------------------------------------------------------------------- growth


def create_partitions(
    image: Image, command: CreatePartitions, limits: ClusterLimits
) -> Generator[None, None, tuple[list[Record], tuple[GrownTopic, ...]]]:
    """Return the records of all topics that may grow, and the fate of each topic, in order.

    Yields between pieces of the work.

    Raises:
        Refused: POLICY_VIOLATION, too many topics or partitions in one command.
    """
    check_named(len(command.topics))
    check_asked_for(growth(image, wanted) for wanted in command.topics)
    times = Counter(wanted.name for wanted in command.topics)
    draft = ImageBuilder(image)
    records: list[Record] = []
    fates: list[GrownTopic] = []
    for wanted in command.topics:
        try:
            if times[wanted.name] > 1:
                raise Refused(RefusalReason.INVALID_REQUEST, "Duplicate topic name.")
            record = yield from _checked_growth(image, draft, wanted, limits)
        except Refused as refused:
            fates.append(GrownTopic(wanted.name, refused.reason, refused.message))
            continue
        draft.apply(record)
        yield from pause_after(len(record.assignments))
        records.append(record)
        fates.append(GrownTopic(wanted.name, topic_id=record.topic_id))
    return records, tuple(fates)


def growth(image: Image, wanted: NewPartitions) -> int:
    """Return the number of partitions by which a topic is to grow."""
    topic = image.topic_named(wanted.name)
    return 0 if topic is None else max(0, wanted.count - len(topic.partitions))


def _checked_growth(
    image: Image, draft: ImageBuilder, wanted: NewPartitions, limits: ClusterLimits
) -> Generator[None, None, PartitionsAdded]:
    """Return the record that lets a topic grow, or raise `Refused`."""
    topic = image.topic_named(wanted.name)
    if topic is None:
        raise Refused(RefusalReason.UNKNOWN_TOPIC, f"there is no topic {wanted.name}")
    if topic.name in INTERNAL_TOPICS:
        raise Refused(RefusalReason.INVALID_TOPIC, f"{topic.name} is internal, and keeps the partitions that it has")
    now = len(topic.partitions)
    if wanted.count == now:
        raise Refused(RefusalReason.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if wanted.count < now:
        raise Refused(
            RefusalReason.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {now} partition(s); {wanted.count} would not be an increase.",
        )
    if wanted.count > PARTITIONS_PER_COMMAND_MAX:
        raise Refused(RefusalReason.INVALID_PARTITIONS, f"A topic has at most {PARTITIONS_PER_COMMAND_MAX} partitions")
    added = wanted.count - now
    limits.check(draft, topic.name, topics=0, partitions=added)
    if wanted.assignments is None:
        assignments = yield from _placed_beside(draft, topic, added)
    else:
        yield from _check_added(draft, topic, wanted.assignments, added)
        assignments = wanted.assignments
    existing = (partition.witness for partition in topic.partitions)
    witnesses = yield from _witnesses_of(draft, assignments, topic.observers, existing)
    yield from pause_after(added)
    return PartitionsAdded(topic.topic_id, assignments, _directories_of(draft, assignments, witnesses), witnesses)


def _placed_beside(draft: ImageBuilder, topic: Topic, added: int) -> Generator[None, None, Assignments]:
    existing: list[tuple[int, ...]] = []
    # `place` counts the existing ones as the topic's own, so they are taken out of what the brokers hold otherwise.
    held = Counter[int]()
    led = Counter[int]()
    for index, partition in enumerate(topic.partitions, 1):
        existing.append(partition.target)
        led[partition.replicas[0]] += 1
        for node_id in partition.replicas:
            held[node_id] += 1
        if not index % COUNTED_AT_ONCE:
            yield
    loads = {
        node_id: BrokerLoad(load.replicas - held[node_id], load.leaders - led[node_id], load.witnesses)
        for node_id, load in draft.loads.items()
    }
    yield
    return (yield from place(added, len(existing[0]), candidates_of(draft.brokers, loads), existing))


def _check_added(
    draft: ImageBuilder, topic: Topic, assignments: Assignments, added: int
) -> Generator[None, None, None]:
    complaint = None
    if len(assignments) != added:
        given = f"only {len(assignments)} assignment(s) were specified."
        complaint = f"Attempted to add {added} additional partition(s), but {given}"
    factor = len(topic.partitions[0].target)
    for index, replicas in enumerate(assignments, 1):
        if not index % PLACED_AT_ONCE:
            yield
        if complaint is not None:
            break
        complaint = manual_complaint(draft, replicas)
        if complaint is None and len(replicas) != factor:
            complaint = (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
                f" consistent with previous partitions, which have {factor} replica(s)."
            )
        if complaint is None and not _has_active(draft, replicas):
            complaint = (
                "The manual partition assignment includes a partition on brokers that are fenced or shutting down."
            )
    if complaint is not None:
        raise Refused(RefusalReason.INVALID_REPLICA_ASSIGNMENT, complaint)


# ----------------------------------------------------------------------------------------------------------- deletion


def delete_topics(image: Image, command: DeleteTopics) -> tuple[list[Record], tuple[DeletedTopic, ...]]:
    """Return the records of all topics that may be deleted, and the fate of each name and then of each id.

    Raises:
        Refused: POLICY_VIOLATION, too many topics in one command.
    """
    check_named(len(command.names) + len(command.topic_ids))
    asked: list[tuple[str | None, bytes, Topic | None]] = []
    for wanted in command.names:
        found = image.topic_named(wanted)
        asked.append((wanted, found.topic_id if found else bytes(TOPIC_ID_BYTES), found))
    for wanted_id in command.topic_ids:
        found = image.topics.get(wanted_id)
        asked.append((found.name if found else None, wanted_id, found))
    times = Counter(topic.topic_id for _, _, topic in asked if topic is not None)
    records: list[Record] = []
    fates: list[DeletedTopic] = []
    for name, topic_id, topic in asked:
        if topic is None and name is not None:
            fates.append(DeletedTopic(name, topic_id, RefusalReason.UNKNOWN_TOPIC, f"there is no topic {name}"))
        elif topic is None:
            message = f"there is no topic with id {topic_id.hex()}"
            fates.append(DeletedTopic(None, topic_id, RefusalReason.UNKNOWN_TOPIC_ID, message))
        elif times[topic.topic_id] > 1:
            message = "the request names this topic more than once"
            fates.append(DeletedTopic(name, topic_id, RefusalReason.INVALID_REQUEST, message))
        else:
            fates.append(DeletedTopic(topic.name, topic_id))
            records.append(TopicDeleted(topic_id))
    return records, tuple(fates)


# ---------------------------------------------------------------------------------------------- assignments, for both


def manual_complaint(draft: ImageBuilder, replicas: Sequence[int]) -> str | None:
    """Return the complaint about replicas chosen by hand for a partition of a topic that exists, or None."""
    unknown = [node_id for node_id in replicas if node_id not in draft.brokers]
    twice = [node_id for node_id, times in Counter(replicas).items() if times > 1]
    if not replicas:
        return "The manual partition assignment includes an empty replica list."
    if unknown:
        return f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
    if twice:
        return f"The manual partition assignment includes the broker {twice[0]} more than once."
    return None


def _has_active(draft: ImageBuilder, replicas: Sequence[int]) -> bool:
    """Tell whether one of these registered brokers could serve now."""
    brokers = (draft.brokers[node_id] for node_id in replicas)
    return any(not (broker.fenced or broker.shutting_down) for broker in brokers)


def _witnesses_of(
    draft: ImageBuilder, assignments: Assignments, observers: Sequence[int], existing: Iterable[int] = ()
) -> Generator[None, None, tuple[int, ...]]:
    """Return the witnesses of new partitions with equally many replicas, as `place_witnesses` does."""
    if not needs_witness(assignments[0]):
        return ()
    candidates = candidates_of(draft.brokers, draft.loads)
    return (yield from place_witnesses(assignments, candidates, observers, existing))


def _directories_of(draft: ImageBuilder, assignments: Assignments, witnesses: Iterable[int]) -> dict[int, bytes]:
    """Return the directory of every broker in `assignments` and `witnesses`, all of which are registered."""
    named = {node_id for replicas in {*assignments} for node_id in replicas}.union(witnesses) - {NOBODY}
    return {node_id: draft.brokers[node_id].directory_id for node_id in sorted(named)}
