"""Values that a consumer group is made of: each is what one record of the offsets topic says. Pure.

None of them is ever changed: who needs another one makes it. So the table of what is committed and the group that
members talk to share them.

Partitions are named by the id of their topic, 16 bytes, and their number. Epochs count up from 1; a member's epoch is
that of the target assignment that it has reached, and below 0 it has left.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "LEAVING_EPOCH",
    "NOTHING",
    "NO_TARGET",
    "STATIC_LEAVING_EPOCH",
    "ClassicMetadata",
    "ConsumerKey",
    "ConsumerValue",
    "GroupEpoch",
    "Kind",
    "MemberAssignment",
    "MemberMetadata",
    "MemberState",
    "Partitions",
    "ResolvedPattern",
    "Target",
    "TargetEpoch",
    "partition_count",
]

Partitions: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""By topic and number, since which epoch a member has it."""
Target: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""By topic, numbers in ascending order; no topic has none."""

NOTHING: Final[Partitions] = {}
NO_TARGET: Final[Target] = {}
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
"""The epoch that a member says when it goes; a static member that says the second comes back."""


class MemberState(IntEnum):
    """How far a member has come towards its target. The numbers are those of the record."""

    STABLE = 0
    """It has what it should have, in its epoch."""
    UNREVOKED = 1
    """It has been told to give partitions up, and has not said that it has."""
    UNRELEASED = 2
    """It has nothing to give up, and waits for partitions that others have not given up."""
    UNKNOWN = 127
    """A later version of the software has written something else."""


class Kind(IntEnum):
    """What a record says something about; the number stands in its key."""

    GROUP_EPOCH = 3
    MEMBER_METADATA = 5
    TARGET_EPOCH = 6
    TARGET = 7
    MEMBER_ASSIGNMENT = 8
    PATTERN = 16


class ConsumerKey(NamedTuple):
    """Names one record of a group. `subject`: the member's id, or the pattern; empty for what is of the whole group."""

    group_id: str
    kind: Kind
    subject: str = ""


class GroupEpoch(NamedTuple):
    """The epoch of the group, which rises with every change of members, subscriptions and topics.

    `metadata_hash` tells whether the topics are those that were there then.
    """

    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    """For which epoch of the group the target assignment was made, and when, in milliseconds since 1970 (0: unsaid)."""

    epoch: int
    timestamp_ms: int = 0


class ClassicMetadata(NamedTuple):
    """What is known of a member that speaks the classic protocol. `protocols`: name and metadata of each."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(NamedTuple):
    """What a member has said of itself. `topic_names` are sorted, each once; an empty pattern is none."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_pattern: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None


class MemberAssignment(NamedTuple):
    """What a member has. It may use `assigned`, and has not given up `revoking` yet; no partition is in both.

    `previous_epoch`: the epoch before, which it goes on saying if the answer with the present one was lost.
    """

    epoch: int
    previous_epoch: int
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matches, sorted; `version` counts the changes of topics that it has seen."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


ConsumerValue: TypeAlias = GroupEpoch | TargetEpoch | MemberMetadata | MemberAssignment | ResolvedPattern | Target


def partition_count(partitions: Mapping[bytes, Mapping[int, int]] | Target) -> int:
    """Return how many partitions there are, in all topics together."""
    return sum(map(len, partitions.values()))
