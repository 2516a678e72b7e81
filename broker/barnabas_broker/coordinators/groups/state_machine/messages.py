"""Values that enter and leave a consumer group's state machine. Nothing here performs I/O. Pure.

A request that may have to wait carries a *ticket*: any object of the caller's, handed back in exactly one answer (or
none, once the caller has said that nobody waits for it any more). An answer may leave at once or after any later call.

Times called `now_ms` come from a monotonic clock. `current_state_timestamp_ms` alone is wall-clock time, and the group
does not know it: in what it asks to be saved the field is -1, and the caller stamps it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.raft.messages import Fact

from .room import UNLIMITED_BYTES

__all__ = [
    "Alike",
    "Answer",
    "Answers",
    "Effects",
    "Fact",
    "GroupConfig",
    "JoinAnswer",
    "JoinRequest",
    "JoinedMember",
    "JoinedMembers",
    "Protocols",
    "SavedGroup",
    "SavedMember",
    "SavedMembers",
    "SyncAnswer",
    "SyncRequest",
]


T = TypeVar("T")

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata of each protocol that a member offers, the one that it likes best first."""


class GroupConfig(NamedTuple):
    """The settings of an operator, the same for every group of a broker. Times in milliseconds, none negative."""

    initial_rebalance_delay_ms: int = 500
    """group.initial.rebalance.delay.ms: how long an empty group waits for more members after each that comes."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    """group.min.session.timeout.ms and group.max.session.timeout.ms, both inclusive."""

    size_max: int = 3_000
    """group.max.size: members of one group."""

    rebalance_interval_ms: int = 2_000
    """group.rebalance.interval.ms: see spacing.py."""


class JoinRequest(NamedTuple):
    """One JoinGroup. `member_id` may be empty; `protocols` are (name, metadata) in order of preference.

    `requires_known_member_id` (version 4 and later, KIP-394) and `skips_assignment` (version 9 and later, KIP-814) say
    what the client's version of the message can do. `rebalance_timeout_ms` is the session timeout in version 0.

    `record_bytes_max` is how long the group's record may become, `room_bytes` how much more may be held (`room`).
    """

    ticket: object
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool
    skips_assignment: bool
    reason: str
    record_bytes_max: int = UNLIMITED_BYTES
    room_bytes: int = UNLIMITED_BYTES


class JoinedMember(NamedTuple):
    """A member as the leader of its group sees it: `metadata` is that of the protocol which was chosen."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class _MadeOnTheWay(Collection[T]):
    """Items that are made when an iteration comes to them, each time anew.

    Equal to any collection of the same in the same order.
    """

    __slots__ = ()

    def __contains__(self, wanted: object) -> bool:
        return any(one == wanted for one in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class JoinedMembers(_MadeOnTheWay[JoinedMember]):
    """The members of a generation as its leader sees them: the lists cost little, their metadata is not copied.

    Of each member its id, its instance id and its protocols, in lists of the same order.
    """

    __slots__ = ("_instance_ids", "_member_ids", "_protocol_name", "_protocols")

    def __init__(
        self,
        protocol_name: str | None,
        member_ids: Sequence[str],
        instance_ids: Sequence[str | None],
        protocols: Sequence[Protocols],
    ) -> None:
        self._protocol_name = protocol_name
        self._member_ids = member_ids
        self._instance_ids = instance_ids
        self._protocols = protocols

    def __len__(self) -> int:
        return len(self._member_ids)

    def __iter__(self) -> Iterator[JoinedMember]:
        chosen = self._protocol_name
        for member_id, instance_id, protocols in zip(
            self._member_ids, self._instance_ids, self._protocols, strict=True
        ):
            metadata = next((metadata for name, metadata in protocols if name == chosen), b"")
            yield JoinedMember(member_id, instance_id, metadata)


class JoinAnswer(NamedTuple):
    """The answer to the JoinGroup of `ticket`. `members` is empty for all but the leader."""

    ticket: object
    error: ErrorCode
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: Collection[JoinedMember] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """One SyncGroup. Only the leader's `assignments` (by member id) count; protocol type and name may be None.

    `record_bytes_max` and `room_bytes` as in `JoinRequest`.
    """

    ticket: object
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    record_bytes_max: int = UNLIMITED_BYTES
    room_bytes: int = UNLIMITED_BYTES


class SyncAnswer(NamedTuple):
    """The answer to the SyncGroup of `ticket`."""

    ticket: object
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class SavedMember(NamedTuple):
    """A member as the log remembers it: of its protocols only the metadata of the one that was chosen."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class SavedMembers(_MadeOnTheWay[SavedMember]):
    """The members of a group as they are saved: a list for each field of `SavedMember`, all in the same order.

    Ten thousand objects of eight fields take 7 to 10 ms, eight lists of ten thousand 2.
    """

    __slots__ = ("_fields",)

    def __init__(self, **fields: Sequence[Any]) -> None:
        assert tuple(fields) == SavedMember._fields
        self._fields = tuple(fields.values())

    def __len__(self) -> int:
        return len(self._fields[0])

    def __iter__(self) -> Iterator[SavedMember]:
        return map(SavedMember._make, zip(*self._fields, strict=True))


class SavedGroup(NamedTuple):
    """All that a new coordinator needs to carry on: the fields of Kafka's GroupMetadataValue.

    `current_state_timestamp_ms` is wall-clock time, -1 for not known. No members: the group is empty, and then there
    is neither a leader nor a protocol name. Members without a leader are to join again (`ConsumerGroup.from_saved`).
    """

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: Collection[SavedMember]


Answer: TypeAlias = JoinAnswer | SyncAnswer
Alike: TypeAlias = tuple[Callable[[object, Any], Answer], Sequence[object], Sequence[Any]]


class Answers(_MadeOnTheWay[Answer]):
    """Answers of which many are alike, each made when an iteration comes to it: ten thousand cost little.

    `alike` are the others: a function of a ticket and of what belongs to it alone, all tickets, and all of the second.
    """

    __slots__ = ("_alike", "_single")

    def __init__(
        self,
        single: Collection[Answer],
        alike: Collection[Alike],
    ) -> None:
        self._single = single
        self._alike = alike

    def __len__(self) -> int:
        return len(self._single) + sum(len(tickets) for _, tickets, _ in self._alike)

    def __iter__(self) -> Iterator[Answer]:
        yield from self._single
        for make, tickets, own in self._alike:
            yield from map(make, tickets, own)


class Effects(NamedTuple):
    """All that the caller now owes: give the answers, save the group, tell the operator.

    `save` replaces what was saved of this group before. For each one the caller says `ConsumerGroup.on_saved` once,
    when it is committed or has failed, in the order in which they were asked for.
    """

    answers: Collection[Answer] = ()
    save: SavedGroup | None = None
    facts: tuple[Fact, ...] = ()
