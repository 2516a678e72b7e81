"""Keeps what the records of one consumer group say, each newer one in place of the older. Pure.

The table of the offsets partition has one of these for each group, of what is committed; the group that members talk to
is one, too (`group.ConsumerProtocolGroup`), and is ahead of that by what is under way. Both take in the same records,
so a new coordinator finds what the old one had.

A group is there while it has a record of its epoch. A member is there while it has metadata.

*The count.* `size_bytes` is about what the records take in the log, `held_bytes` what they take in memory: a flat sum
for each record, for each topic's name and for each partition beside the bytes of the record itself, measured and
rounded up. Values that a group and the table share count twice; they may be two in the next moment.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from barnabas_clients.protocol.error_codes import ErrorCode

from .values import (
    ConsumerKey,
    ConsumerValue,
    GroupEpoch,
    Kind,
    MemberAssignment,
    MemberMetadata,
    MemberState,
    ResolvedPattern,
    Target,
    TargetEpoch,
    partition_count,
)

__all__ = ["ASSIGNING", "EMPTY", "RECONCILING", "STABLE", "GroupRecords", "sizes_of"]

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"
"""The states of a group as Kafka's tools show them; a group that does not exist is "Dead"."""

RECORD_BYTES = 400
NAME_BYTES = 60
PARTITION_BYTES = 60
TOPIC_BYTES = 120
_LOG_BYTES = 40  # a record's frame, its key's and value's fixed fields


class GroupRecords:
    """See the module. Public to read; changed by `put` only.

    `assignors` has how many members ask for each. Invariants: `reconciled` are the members that have what the present
    target says, in its epoch; `size_bytes` and `held_bytes` are the sums over all records.
    """

    __slots__ = (
        "assignments",
        "assignors",
        "epoch",
        "group_id",
        "held_bytes",
        "members",
        "patterns",
        "reconciled",
        "size_bytes",
        "target_epoch",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch: GroupEpoch | None = None
        self.target_epoch: TargetEpoch | None = None
        self.members: dict[str, MemberMetadata] = {}
        self.targets: dict[str, Target] = {}
        self.assignments: dict[str, MemberAssignment] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.assignors: Counter[str] = Counter()
        self.reconciled: set[str] = set()
        self.size_bytes = 0
        self.held_bytes = 0

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch_number > self.target_number:
            return ASSIGNING
        return STABLE if len(self.reconciled) == len(self.members) else RECONCILING

    @property
    def epoch_number(self) -> int:
        """The epoch, 0 before the first."""
        return 0 if self.epoch is None else self.epoch.epoch

    @property
    def target_number(self) -> int:
        """The epoch of the target assignment, 0 before the first."""
        return 0 if self.target_epoch is None else self.target_epoch.epoch

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for, of several the first by name; None: nobody asks for one."""
        return min(self.assignors, key=lambda name: (-self.assignors[name], name), default=None)

    def get(self, key: ConsumerKey) -> ConsumerValue | None:
        """Return what is known under a name; None: nothing."""
        match key.kind:
            case Kind.GROUP_EPOCH:
                return self.epoch
            case Kind.TARGET_EPOCH:
                return self.target_epoch
            case Kind.MEMBER_METADATA:
                return self.members.get(key.subject)
            case Kind.TARGET:
                return self.targets.get(key.subject)
            case Kind.MEMBER_ASSIGNMENT:
                return self.assignments.get(key.subject)
            case Kind.PATTERN:
                return self.patterns.get(key.subject)

    def put(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Take in a record; None is a tombstone."""
        old = self.get(key)
        for one, sign in ((old, -1), (value, 1)):
            if one is not None:
                size_bytes, held_bytes = sizes_of(key, one)
                self.size_bytes += sign * size_bytes
                self.held_bytes += sign * held_bytes
        match key.kind:
            case Kind.GROUP_EPOCH:
                assert value is None or isinstance(value, GroupEpoch)
                self.epoch = value
            case Kind.TARGET_EPOCH:
                assert value is None or isinstance(value, TargetEpoch)
                self.target_epoch = value
                self.reconciled = {member_id for member_id in self.assignments if self._is_reconciled(member_id)}
            case Kind.MEMBER_METADATA:
                for one, sign in ((old, -1), (value, 1)):
                    if isinstance(one, MemberMetadata) and one.server_assignor is not None:
                        self.assignors[one.server_assignor] += sign
                        if not self.assignors[one.server_assignor]:
                            del self.assignors[one.server_assignor]
                _replace(self.members, key.subject, value)
                self._look_at(key.subject)
            case Kind.TARGET:
                _replace(self.targets, key.subject, value)
            case Kind.MEMBER_ASSIGNMENT:
                _replace(self.assignments, key.subject, value)
                self._look_at(key.subject)
            case Kind.PATTERN:
                _replace(self.patterns, key.subject, value)

    def keys(self) -> Iterator[ConsumerKey]:
        """Yield the name of every record, that of the group last."""
        group_id = self.group_id
        for kind, subjects in (
            (Kind.MEMBER_METADATA, self.members),
            (Kind.PATTERN, self.patterns),
            (Kind.TARGET, self.targets),
            (Kind.MEMBER_ASSIGNMENT, self.assignments),
        ):
            for subject in subjects:
                yield ConsumerKey(group_id, kind, subject)
        if self.target_epoch is not None:
            yield ConsumerKey(group_id, Kind.TARGET_EPOCH)
        if self.epoch is not None:
            yield ConsumerKey(group_id, Kind.GROUP_EPOCH)

    @property
    def is_empty(self) -> bool:
        """True if there is no record at all."""
        return not (
            self.members or self.patterns or self.targets or self.assignments or self.target_epoch or self.epoch
        )

    def fetch_refusal(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Say whether a member may fetch offsets: it must be in its epoch. Who names none, as a tool, may."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        assignment = self.assignments.get(member_id)
        known_epoch = 0 if assignment is None else assignment.epoch
        return ErrorCode.NONE if epoch == known_epoch else self.stale(member_id)

    def stale(self, member_id: str) -> ErrorCode:
        """Return what a member is told that says another epoch than its own, which is a generation to some."""
        member = self.members.get(member_id)
        is_classic = member is not None and member.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def _look_at(self, member_id: str) -> None:
        if self._is_reconciled(member_id):
            self.reconciled.add(member_id)
        else:
            self.reconciled.discard(member_id)

    def _is_reconciled(self, member_id: str) -> bool:
        assignment = self.assignments.get(member_id)
        return (
            assignment is not None
            and member_id in self.members
            and assignment.state is MemberState.STABLE
            and assignment.epoch == self.target_number
        )


def _replace(values: dict[str, Any], subject: str, value: ConsumerValue | None) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = value


def sizes_of(key: ConsumerKey, value: ConsumerValue) -> tuple[int, int]:
    """Return how many bytes a record takes, roughly: in the log, and in memory; see the module."""
    size_bytes = _LOG_BYTES + len(key.group_id) + len(key.subject)
    held_bytes = RECORD_BYTES
    match value:
        case GroupEpoch() | TargetEpoch():
            pass
        case MemberMetadata():
            names = (value.instance_id, value.rack_id, value.client_id, value.client_host, value.topic_pattern)
            size_bytes += sum(len(name) for name in names if name) + len(value.server_assignor or "")
            size_bytes += sum(map(len, value.topic_names)) + len(value.topic_names)
            held_bytes += NAME_BYTES * len(value.topic_names)
            if value.classic is not None:
                size_bytes += sum(len(name) + len(metadata) for name, metadata in value.classic.protocols)
        case MemberAssignment():
            topics = len(value.assigned) + len(value.revoking)
            partitions = partition_count(value.assigned) + partition_count(value.revoking)
            size_bytes += 24 * topics + 8 * partitions
            held_bytes += TOPIC_BYTES * topics + PARTITION_BYTES * partitions
        case ResolvedPattern():
            size_bytes += sum(map(len, value.topics)) + len(value.topics)
            held_bytes += NAME_BYTES * len(value.topics)
        case _:
            partitions = partition_count(value)
            size_bytes += 18 * len(value) + 4 * partitions
            held_bytes += TOPIC_BYTES * len(value) + PARTITION_BYTES * partitions
    return size_bytes, held_bytes + size_bytes
