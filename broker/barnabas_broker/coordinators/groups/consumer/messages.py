"""Values that enter and leave the rules of a consumer group. Nothing here performs I/O. Pure."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from barnabas_clients.protocol.error_codes import ErrorCode

from .assignors.roster import MemberSubscription
from .reconciling import Owned
from .values import ClassicMetadata, Partitions, ResolvedPattern, Target

__all__ = [
    "Assign",
    "Beat",
    "ConsumerAnswer",
    "ConsumerConfig",
    "Heard",
    "Plan",
    "Refusal",
    "Topics",
]

JOINING_EPOCH = 0


class ConsumerConfig(NamedTuple):
    """The settings of an operator, the same for every group of a broker. Times in milliseconds."""

    size_max: int = 3_000
    """group.consumer.max.size: members of one group."""
    session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms: who is silent for longer is thrown out."""
    heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms: how often a member of a group that has settled is heard, at the least."""
    settled_interval_ms: int = 500
    """group.consumer.settled.heartbeat.interval.ms: how often, if a broker has few members."""
    assignment_interval_ms: int = 100
    """group.consumer.assignment.interval.ms: at least so much is between two target assignments of a group."""
    initial_delay_ms: int = 0
    """How long the first member of an empty group waits for others, for whom it would have to make room."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors: those that members may ask for; the first is that of members who do not ask."""
    upgrades: bool = True
    """group.consumer.migration.policy: a classic group becomes one of KIP-848 when such a member joins."""
    downgrades: bool = True
    """The same: a group becomes a classic one when the last member of the other protocol goes."""
    classic_size_max: int = 3_000
    """group.max.size: members of a group that becomes a classic one."""


class Refusal(NamedTuple):
    """Why a request is not granted. Nothing has changed."""

    error: ErrorCode
    text: str


class Topics(Protocol):
    """The topics that exist now. `version` rises with every topic that is made, deleted, or given more partitions.

    `is_known` is false while a broker that has just started, or begun to coordinate, is still finding out: a topic that
    is missing may exist.
    """

    @property
    def version(self) -> int: ...

    @property
    def is_known(self) -> bool: ...

    def want(self) -> None:
        """Say that there is a group: topics are to be known from now on."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return a topic's id and how many partitions it has."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic that has this id."""

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return the names of topics that are not what they were in that version; None: too many to remember."""

    def pattern_refusal(self, pattern: str) -> Refusal | None:
        """Return why nobody may subscribe with a pattern: it is none, it costs too much, or there are too many."""

    def hold(self, pattern: str) -> None:
        """Keep for a group what a pattern matches, until it is let go as often."""

    def let_go(self, pattern: str) -> None:
        """Forget a pattern that was held."""

    def is_ready(self, pattern: str) -> bool:
        """Tell whether it is known what a pattern matches, which is held."""

    def matching_in_steps(self, pattern: str) -> Generator[None, None, Collection[str]]:
        """Return the names of all topics that a pattern matches, which is held."""


Assign: TypeAlias = Callable[
    [str, Mapping[str, MemberSubscription], Mapping[bytes, int]], Generator[None, None, Mapping[str, Target]]
]
"""The name of an assignor, what members subscribe to, how many partitions topics have: to a target for each member."""


class Beat(NamedTuple):
    """One ConsumerGroupHeartbeat of a member that joins (epoch 0) or stays (above). None, and -1 ms: as before.

    `topic_names` are as they came. `owned`: the partitions that it says it has.

    Or one JoinGroup of a member that speaks the classic protocol (`classic`): it always joins. `is_known`: it came with
    a member id.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: Iterable[str] | None = None
    topic_pattern: str | None = None
    server_assignor: str | None = None
    owned: Owned | None = None
    classic: ClassicMetadata | None = None
    is_known: bool = False

    @property
    def joins(self) -> bool:
        return self.epoch == JOINING_EPOCH

    @property
    def is_full(self) -> bool:
        """True if the member says everything, and so wants to hear everything."""
        has_subscription = self.topic_names is not None or self.topic_pattern is not None
        return self.joins or (self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None)


class Heard(NamedTuple):
    """A member that was heard and let in; what it is told follows (`ConsumerProtocolGroup.answer`).

    `before`: the partitions that it could use when it asked. `epoch`: that of the group which its words led to.
    """

    beat: Beat
    before: Partitions
    epoch: int
    has_unsubscribed: bool


class ConsumerAnswer(NamedTuple):
    """What a member is told. `assigned` None: what it was."""

    member_id: str
    epoch: int
    assigned: Partitions | None
    interval_ms: int


class Plan(NamedTuple):
    """A target assignment for the group as it was in `epoch`, and the topics that its patterns match.

    `targets` is None if no new one is wanted. `version` is that of the topics that were looked at, and `metadata_hash`
    stands for those that the group subscribes to.
    """

    epoch: int
    version: int
    metadata_hash: int
    patterns: Mapping[str, ResolvedPattern]
    targets: Mapping[str, Target] | None
