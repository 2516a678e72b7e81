"""Named snapshots of topics: when one may be made, and when one is deleted. Pure.

A snapshot is made once, under a name that is free; whoever comes second is told of the first. That is the whole of the
compare-and-set: the controller decides commands one after the other, so of two readers who use a new name at the same
time one makes the snapshot, and both read it.

A snapshot neither expires nor keeps anything: retention and deletion of topics go on, and readers are told what is
gone.

*Bounds.* Every node holds all snapshots in memory, and writes them into each snapshot of the metadata. So there are
bounds for one and for all, in bytes as well. Ranges stay packed (`image.pinned_ranges`).

*Upgrades.* Brokers of before there were named snapshots would stop at the record. The controller refuses to make one
while a broker serves, or holds replicas, that has not said that it understands it.
"""

from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.pinned_ranges import RANGE_BYTES, count_of, partitions_in
from barnabas_metadata_quorum.image.records import (
    SNAPSHOTS_LEVEL,
    NamedSnapshot,
    NamedSnapshotCreated,
    NamedSnapshotDeleted,
    PinnedTopic,
    Record,
)
from barnabas_metadata_quorum.topic_names import name_complaint

from .commands import CreateSnapshot, CreateSnapshotAnswer, DeleteSnapshot, DeleteSnapshotAnswer, RefusalReason, Refused
from .levels import check_level

__all__ = [
    "ALL_BYTES_MAX",
    "PARTITIONS_MAX",
    "SNAPSHOTS_MAX",
    "SNAPSHOT_BYTES_MAX",
    "TOPICS_MAX",
    "check_name",
    "check_size",
    "create_snapshot",
    "delete_snapshot",
]

SNAPSHOTS_MAX = 1_000
TOPICS_MAX = 2_000  # of one: they are checked in one go, which takes 2 ms
PARTITIONS_MAX = 10_000
SNAPSHOT_BYTES_MAX = 512 << 10  # ten thousand partitions of a few topics take 240,000 bytes
ALL_BYTES_MAX = 16 << 20  # a quarter of what a snapshot of the metadata may have on its way to another node


def check_name(name: str) -> None:
    """Check the name of a snapshot: the rules are those of topics.

    Raises:
        Refused: INVALID_REQUEST.
    """
    if complaint := name_complaint(name):
        raise Refused(RefusalReason.INVALID_REQUEST, f"this cannot be the name of a snapshot: {complaint}")


def check_size(topics: int, partitions: int) -> None:
    """Refuse a snapshot of too many topics or partitions.

    Raises:
        Refused: POLICY_VIOLATION.
    """
    for count, most, what in ((topics, TOPICS_MAX, "topics"), (partitions, PARTITIONS_MAX, "partitions")):
        if count > most:
            text = f"{count} {what} in one snapshot; {most} is the maximum"
            raise Refused(RefusalReason.POLICY_VIOLATION, text)


def create_snapshot(image: Image, command: CreateSnapshot) -> tuple[list[Record], CreateSnapshotAnswer]:
    """Return the record of a new snapshot, or none and the one that has the name.

    Raises:
        Refused: the name or the ranges are impossible, a topic is not there, there is no room, or a broker is too old.
    """
    wanted = command.snapshot
    check_name(wanted.name)
    there = image.named_snapshots.get(wanted.name)
    if there is not None:
        return [], CreateSnapshotAnswer(there.snapshot_id, created=there.snapshot_id == wanted.snapshot_id)
    check_level(image, SNAPSHOTS_LEVEL, "that cannot read named snapshots")
    _check_room(image, wanted)
    _check_topics(image, wanted.topics)
    return [NamedSnapshotCreated(wanted)], CreateSnapshotAnswer(wanted.snapshot_id, created=True)


def delete_snapshot(image: Image, command: DeleteSnapshot) -> tuple[list[Record], DeleteSnapshotAnswer]:
    """Return the record that deletes it.

    Raises:
        Refused: RESOURCE_NOT_FOUND, nothing has the name, or something else has.
    """
    there = image.named_snapshots.get(command.name)
    if there is None:
        raise Refused(RefusalReason.RESOURCE_NOT_FOUND, f"there is no snapshot '{command.name}'")
    if there.snapshot_id != command.snapshot_id:
        text = f"the snapshot '{command.name}' is another one now: it was deleted and made anew"
        raise Refused(RefusalReason.RESOURCE_NOT_FOUND, text)
    return [NamedSnapshotDeleted(command.name, command.snapshot_id)], DeleteSnapshotAnswer()


def _check_room(image: Image, wanted: NamedSnapshot) -> None:
    check_size(len(wanted.topics), 0)
    check_size(0, sum(count_of(topic.ranges) for topic in wanted.topics))
    if len(image.named_snapshots) >= SNAPSHOTS_MAX:
        text = f"the cluster has {SNAPSHOTS_MAX} snapshots, which is the maximum; delete one first"
    elif (size := wanted.size_bytes) > SNAPSHOT_BYTES_MAX:
        text = f"the snapshot takes {size} bytes; {SNAPSHOT_BYTES_MAX} is the maximum"
    elif (total := image.named_snapshots_bytes + size) > ALL_BYTES_MAX:
        text = f"all snapshots would take {total} bytes; {ALL_BYTES_MAX} is the maximum, so delete one first"
    else:
        return
    raise Refused(RefusalReason.POLICY_VIOLATION, text)


def _check_topics(image: Image, topics: tuple[PinnedTopic, ...]) -> None:
    if not topics or not all(topic.ranges for topic in topics):
        raise Refused(RefusalReason.INVALID_REQUEST, "a snapshot needs topics, and each of them a partition")
    if len({topic.topic_id for topic in topics}) < len(topics):
        raise Refused(RefusalReason.INVALID_REQUEST, "a topic is named twice")
    for pinned in topics:
        topic = image.topics.get(pinned.topic_id)
        if topic is None:
            raise Refused(
                RefusalReason.UNKNOWN_TOPIC_ID,
                f"topic '{pinned.name}' with id {pinned.topic_id.hex()} was deleted meanwhile",
            )
        if len(pinned.ranges) % RANGE_BYTES:
            raise Refused(RefusalReason.INVALID_REQUEST, f"topic '{pinned.name}': the ranges are cut off")
        first, last = partitions_in(pinned.ranges)
        if first < 0 or last >= len(topic.partitions):
            text = f"topic '{pinned.name}' has {len(topic.partitions)} partitions, and no partition {last}"
            raise Refused(RefusalReason.INVALID_REQUEST, text)
