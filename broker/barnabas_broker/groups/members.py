"""The members of one group: who they are, what they can speak, who leads, who has joined. Pure.

*Joining and syncing.* A member that has sent JoinGroup and has no answer yet is `joining`, one whose SyncGroup waits
is `syncing`. The ticket is beside the flag, not instead of it: a connection that ends takes the ticket away, but the
member has still joined. It is known to be gone only when its session ends.

*Newcomers.* A member is new until a generation has been formed with it. New members are not in the generation that
works meanwhile: the leader does not see them, they have no assignment, and they are not saved.

*Protocols.* Every member offers some protocols (assignors), in order of preference. Anyone who shares none with *all*
others is refused when it joins, so there is always at least one that all have, and `vote` picks among those: each
member votes for its first, the most votes win, and of equals the one whose first voter is longest in the group.
Kafka leaves that last case to the order of a hash map.

*Static members* have a `group_instance_id`, and at most one member has a given one. A new process with the same
instance id replaces the old one under a new member id and takes over its place, its assignment and, if it led, the
lead (KIP-345).

Not here: when anything happens to anyone. That is `phases.py` and `group.py`.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from .messages import JoinedMember, JoinRequest, SavedMember

__all__ = ["Member", "Members", "Protocols", "subscribed_topics"]

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


class Member:
    """One member. Changed only by `Members` and the group; everybody else reads.

    `expires_at_ms` is when its session ends unless something is heard of it before; it means nothing while a member
    that is not new waits for an answer. `awaits_sync`: it has been given the generation but has not asked for its
    assignment yet.
    """

    __slots__ = (
        *("member_id", "group_instance_id", "client_id", "client_host", "rebalance_timeout_ms", "session_timeout_ms"),
        *("protocols", "assignment", "is_new", "joining", "join_ticket", "syncing", "sync_ticket"),
        *("awaits_sync", "expires_at_ms"),
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client: tuple[str, str],
        timeouts_ms: tuple[int, int],
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id, self.client_host = client
        self.session_timeout_ms, self.rebalance_timeout_ms = timeouts_ms
        self.protocols = protocols
        self.assignment = b""
        self.is_new = True
        self.joining = False
        self.join_ticket: object | None = None
        self.syncing = False
        self.sync_ticket: object | None = None
        self.awaits_sync = False
        self.expires_at_ms = 0

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what the member said with that protocol; empty if it does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    @property
    def waits(self) -> bool:
        """Whether an answer is owed to a member of the generation: its session does not run meanwhile."""
        return not self.is_new and (self.joining or self.syncing)


class Members:
    """The members of one group in the order in which they came.

    Invariants: `leader_id` is one of them, or None if there are none; no two share an instance id; they have a
    protocol in common; `joining_count` and `new_count` are what counting would give.
    """

    __slots__ = ("_supporters", "by_id", "by_instance", "joining_count", "leader_id", "new_count")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        self.leader_id: str | None = None
        self.joining_count = 0
        self.new_count = 0
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for; at least 1, because clients may send anything."""
        return max(1, max((member.rebalance_timeout_ms for member in self), default=1))

    def add(self, member: Member) -> None:
        assert member.member_id not in self.by_id
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.by_instance
            self.by_instance[member.group_instance_id] = member.member_id
        self.by_id[member.member_id] = member
        self._supporters.update({name for name, _ in member.protocols})
        self.new_count += member.is_new
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member:
        """Take a member out; if it led, the one longest in the generation leads, or else the oldest newcomer."""
        member = self.by_id.pop(member_id)
        self._supporters.subtract({name for name, _ in member.protocols})
        self.joining_count -= member.joining
        self.new_count -= member.is_new
        if member.group_instance_id is not None:
            del self.by_instance[member.group_instance_id]
        if self.leader_id == member_id:
            successor = next((other for other in self if not other.is_new), next(iter(self), None))
            self.leader_id = successor.member_id if successor is not None else None
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member another member id; nobody may be waiting for an answer to the old one."""
        member = self.by_id.pop(old_id)
        assert not member.joining
        assert not member.syncing
        assert member.group_instance_id is not None
        member.member_id = new_id
        self.by_id[new_id] = member
        self.by_instance[member.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        """Take over what a member says of itself when it joins again."""
        self._supporters.subtract({name for name, _ in member.protocols})
        member.protocols = request.protocols
        self._supporters.update({name for name, _ in member.protocols})
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def start_joining(self, member: Member, ticket: object) -> None:
        self.joining_count += not member.joining
        member.joining, member.join_ticket = True, ticket

    def stop_joining(self, member: Member) -> object | None:
        """Return the ticket that is to be answered, None if nobody waits."""
        ticket, member.join_ticket = member.join_ticket, None
        self.joining_count -= member.joining
        member.joining = False
        return ticket

    def settle(self, member: Member) -> None:
        """Note that a generation has been formed with the member."""
        self.new_count -= member.is_new
        member.is_new = False

    def supports(self, protocols: Protocols) -> bool:
        """Whether at least one of the protocols is offered by every member."""
        return any(self._supporters[name] == len(self) for name, _ in protocols)

    def vote(self) -> str:
        """Return the protocol that most members prefer among those that all offer. There must be a member."""
        votes: dict[str, int] = {}
        for member in self:
            choice = next(name for name, _ in member.protocols if self._supporters[name] == len(self))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])  # The first of equals: dicts keep the order of insertion.

    def elect_joined_leader(self) -> bool:
        """Let somebody lead who has joined, the present leader first. False: nobody has."""
        if self.leader_id is not None and self.by_id[self.leader_id].joining:
            return True
        joined = next((member for member in self if member.joining), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def as_seen_by_leader(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol_name))
            for member in self
            if not member.is_new
        )

    def to_saved(self, protocol_name: str | None, assignments: dict[str, bytes] | None) -> tuple[SavedMember, ...]:
        """Return the generation's members, with `assignments` in place of their own if it is not None."""
        return tuple(
            SavedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(protocol_name),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self
            if not member.is_new
        )


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a ConsumerProtocolSubscription, None if the bytes are none.

    Every version begins alike: version (int16, not negative), number of topics (int32), names (int16 length, UTF-8).
    """
    try:
        version, count = struct.unpack_from(">hi", subscription)
        position, topics = 6, set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", subscription, position)
            position += 2 + length
            if length < 0 or position > len(subscription):
                return None
            topics.add(subscription[position - length : position].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if version >= 0 and count >= 0 else None
