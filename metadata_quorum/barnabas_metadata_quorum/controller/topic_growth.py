"""More partitions for topics that exist: what is allowed, and the records that do it. Pure.

Checked in Kafka's order: the topic, the count, then the assignment or placement. New partitions have as many replicas
as the first one should have, and are placed as if all partitions of the topic had been placed together: even among
themselves, counting those that are there; those of two replicas get their witness (`witnesses`).

Records of a topic keep their place, so keys that were hashed to a partition before may be hashed to another one
afterwards; that is for whoever asks to know, as in Kafka. The offsets topic does not grow: a group's partition follows
from its id and their number, and every group would lose its state.
"""

from collections import Counter
from collections.abc import Generator

from barnabas_metadata_quorum.image.image import BrokerLoad, Image, ImageBuilder, Topic
from barnabas_metadata_quorum.image.records import PartitionsAdded, Record
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS

from .commands import CreatePartitions, GrownTopic, NewPartitions, RefusalReason, Refused, check_named
from .placement import COUNTED_AT_ONCE, PLACED_AT_ONCE, candidates_of, pause_after, place
from .topics import PARTITIONS_PER_COMMAND_MAX, ClusterLimits, check_asked_for, directories_of, witnesses_of

__all__ = ["create_partitions", "growth"]

Assignments = tuple[tuple[int, ...], ...]


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
            record = yield from _checked(image, draft, wanted, limits)
        except Refused as refused:
            fates.append(GrownTopic(wanted.name, refused.reason, refused.message))
            continue
        draft.apply(record)
        yield from pause_after(len(record.assignments))
        records.append(record)
        fates.append(GrownTopic(wanted.name, topic_id=record.topic_id))
    return records, tuple(fates)


def growth(image: Image, wanted: NewPartitions) -> int:
    """Return by how many partitions a topic is to grow."""
    topic = image.topic_named(wanted.name)
    return 0 if topic is None else max(0, wanted.count - len(topic.partitions))


def _checked(
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
        assignments = yield from _placed(draft, topic, added)
    else:
        yield from _check_manual(draft, topic, wanted.assignments, added)
        assignments = wanted.assignments
    existing = (partition.witness for partition in topic.partitions)
    witnesses = yield from witnesses_of(draft, assignments, topic.observers, existing)
    yield from pause_after(added)
    return PartitionsAdded(topic.topic_id, assignments, directories_of(draft, assignments, witnesses), witnesses)


def _placed(draft: ImageBuilder, topic: Topic, added: int) -> Generator[None, None, Assignments]:
    existing: list[tuple[int, ...]] = []
    # `place` counts the existing ones as the topic's own, so they are taken out of what the brokers hold otherwise.
    held, led = Counter[int](), Counter[int]()
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


def _check_manual(
    draft: ImageBuilder, topic: Topic, assignments: Assignments, added: int
) -> Generator[None, None, None]:
    complaint = None
    if len(assignments) != added:
        given = f"only {len(assignments)} assignment(s) were specified."
        complaint = f"Attempted to add {added} additional partition(s), but {given}"
    for index, replicas in enumerate(assignments, 1):
        if not index % PLACED_AT_ONCE:
            yield
        unknown = [node_id for node_id in replicas if node_id not in draft.brokers]
        twice = [node_id for node_id, times in Counter(replicas).items() if times > 1]
        if complaint is not None:
            break
        if not replicas:
            complaint = "The manual partition assignment includes an empty replica list."
        elif unknown:
            complaint = (
                f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
            )
        elif twice:
            complaint = f"The manual partition assignment includes the broker {twice[0]} more than once."
        elif len(replicas) != (factor := len(topic.partitions[0].target)):
            complaint = (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
                f" consistent with previous partitions, which have {factor} replica(s)."
            )
    if complaint is not None:
        raise Refused(RefusalReason.INVALID_REPLICA_ASSIGNMENT, complaint)
