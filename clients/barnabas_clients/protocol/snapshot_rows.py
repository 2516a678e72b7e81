"""Named snapshots as CreateSnapshot and DescribeSnapshots tell them. Pure."""

from barnabas_raftlog.wire.schema import NO_UUID, Bool, Int8, Int32, Int64, String, Struct, Uuid, field

__all__ = ["DescribedSnapshot", "DescribedSnapshotTopic", "SnapshotRange"]


class SnapshotRange(Struct):
    """The range [start_offset, end_offset) of a partition; `leader_epoch` is one in which the log reached its end."""

    partition: Int32 = 0
    leader_epoch: Int32 = -1
    start_offset: Int64 = 0
    end_offset: Int64 = 0


class DescribedSnapshotTopic(Struct):
    """A topic with its name of then. `is_compacted` is so now. `partitions` is empty in a list of all snapshots."""

    topic_id: Uuid = NO_UUID
    name: String = ""
    state: Int8 = 0
    is_compacted: Bool = False
    partitions: list[SnapshotRange] = field(default_factory=list)


class DescribedSnapshot(Struct):
    """One snapshot. `created_at_ms` is wall-clock time; the counts are of all topics and partitions in it.

    A list of all snapshots has a few `topics` of each only.
    """

    name: String = ""
    snapshot_id: Uuid = NO_UUID
    created_at_ms: Int64 = -1
    best_effort: Bool = False
    topics_count: Int32 = 0
    partitions_count: Int32 = 0
    topics: list[DescribedSnapshotTopic] = field(default_factory=list)
