"""Keeps the members of one group: identities, protocols, the leader, and who has joined. Pure.

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

*Many at once.* Work that concerns all members is one pass over them (`form`, `take_out`), with nothing in it that looks
at all members again: a group may have ten thousand, and nobody else is served meanwhile.

Not here: when anything happens to anyone. That is `phases.py` and `group.py`.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .messages import JoinedMembers, JoinRequest, Protocols, SavedMembers
from .room import MEMBER_BYTES, MEMBER_RECORD_BYTES, text_bytes

__all__ = ["Member", "Members", "Sizes", "sizes_of", "subscribed_topics"]


class Sizes(NamedTuple):
    """Bytes that a member takes, without its assignment: in memory, and at most in the record of its group."""

    held_bytes: int
    record_bytes: int


def sizes_of(names: tuple[str | None, ...], protocols: Protocols) -> Sizes:
    """Return the sizes of a member with these ids and client names."""
    said = [text_bytes(name) + len(metadata) for name, metadata in protocols]
    text = text_bytes(*names)
    return Sizes(MEMBER_BYTES + text + sum(said), MEMBER_RECORD_BYTES + text + max(said, default=0))


class Member:
    """One member. Changed only by `Members` and the group; everybody else reads.

    `expires_at_ms` is when its session ends unless something is heard of it before; it means nothing while a member
    that is not new waits for an answer. `awaits_sync`: it has been given the generation but has not asked for its
    assignment yet. `sizes` is what `sizes_of` says of it.
    """

    __slots__ = (
        "assignment",
        "awaits_sync",
        "client_host",
        "client_id",
        "expires_at_ms",
        "group_instance_id",
        "is_new",
        "join_ticket",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sizes",
        "sync_ticket",
        "syncing",
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
        self.sizes = self.sizes_with(protocols)

    def sizes_with(self, protocols: Protocols) -> Sizes:
        """Return how much it would take if it offered these."""
        return sizes_of((self.member_id, self.group_instance_id, self.client_id, self.client_host), protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what the member said with that protocol; empty if it does not offer it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    @property
    def waits(self) -> bool:
        """Whether an answer is owed to a member of the generation: its session does not run meanwhile."""
        return not self.is_new and (self.joining or self.syncing)


class Members:
    """The members of one group in the order in which they came.

    Invariants: `leader_id` is one of them, or None if there are none (between `take_out` and `elect_successor`, None);
    no two share an instance id; they have a protocol in common; `joining_count`, `new_count` and the sums of bytes are
    what counting would give. `id_bytes_max` is the longest member id since the group was last empty.
    """

    __slots__ = (
        "_supporters",
        "_waiting",
        "assigned_bytes",
        "by_id",
        "by_instance",
        "held_bytes",
        "id_bytes_max",
        "joining_count",
        "leader_id",
        "new_count",
        "record_bytes",
    )

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        self.leader_id: str | None = None
        self.joining_count = 0
        self.new_count = 0
        self.held_bytes = self.record_bytes = self.assigned_bytes = self.id_bytes_max = 0
        self._supporters: dict[str, int] = {}  # How many offer a protocol; it is not here if nobody does.
        self._waiting: dict[object, Member] = {}  # By the ticket that waits.

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
        self._support(member.protocols, 1)
        self._count(member, 1)
        self.new_count += member.is_new
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member:
        """Take a member out; if it led, somebody else leads."""
        member = self.by_id[member_id]
        self.take_out(member)
        self.elect_successor()
        return member

    def take_out(self, member: Member) -> None:
        """Take a member out, perhaps with others; `elect_successor` follows when the last of them is out."""
        del self.by_id[member.member_id]
        self._support(member.protocols, -1)
        self._count(member, -1)
        for ticket in (member.join_ticket, member.sync_ticket):
            self._waiting.pop(ticket, None)
        self.joining_count -= member.joining
        self.new_count -= member.is_new
        if member.group_instance_id is not None:
            del self.by_instance[member.group_instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = None
        if not self.by_id:
            self.id_bytes_max = 0

    def elect_successor(self) -> None:
        """Let the one lead that is longest in the generation, or else the oldest newcomer, if nobody does."""
        if self.leader_id is None and self.by_id:
            settled = None
            if self.new_count < len(self.by_id):
                settled = next((other for other in self if not other.is_new), None)
            self.leader_id = (settled or next(iter(self))).member_id

    def rename(self, old_id: str, new_id: str, client: tuple[str, str]) -> Member:
        """Give a static member another member id and client; nobody may be waiting for an answer to the old one."""
        member = self.by_id.pop(old_id)
        assert not member.joining
        assert not member.syncing
        assert member.group_instance_id is not None
        self._count(member, -1)
        member.member_id = new_id
        member.client_id, member.client_host = client
        member.sizes = member.sizes_with(member.protocols)
        self._count(member, 1)
        self.by_id[new_id] = member
        self.by_instance[member.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        """Take over what a member says of itself when it joins again."""
        self._support(member.protocols, -1)
        self._count(member, -1)
        member.protocols = request.protocols
        member.sizes = member.sizes_with(request.protocols)
        self._support(member.protocols, 1)
        self._count(member, 1)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def start_joining(self, member: Member, ticket: object) -> None:
        self._waiting.pop(member.join_ticket, None)
        self.joining_count += not member.joining
        member.joining = True
        member.join_ticket = ticket
        self._waiting[ticket] = member

    def stop_joining(self, member: Member) -> object | None:
        """Return the ticket that is to be answered, None if nobody waits."""
        ticket = member.join_ticket
        member.join_ticket = None
        self.joining_count -= member.joining
        member.joining = False
        if ticket is not None:
            del self._waiting[ticket]
        return ticket

    def start_syncing(self, member: Member, ticket: object) -> None:
        member.syncing = True
        member.sync_ticket = ticket
        self._waiting[ticket] = member

    def stop_syncing(self, member: Member) -> object | None:
        """Return the ticket that is to be answered, None if nobody waits."""
        ticket = member.sync_ticket
        member.sync_ticket = None
        member.syncing = False
        if ticket is not None:
            del self._waiting[ticket]
        return ticket

    def forget(self, ticket: object) -> None:
        """Note that nobody waits with that ticket, if anybody did."""
        member = self._waiting.pop(ticket, None)
        if member is not None:
            if member.join_ticket == ticket:
                member.join_ticket = None
            else:
                member.sync_ticket = None

    def settle(self, member: Member) -> None:
        """Note that a generation has been formed with the member."""
        self.new_count -= member.is_new
        member.is_new = False

    def form(self, now_ms: int) -> tuple[list[object], list[str], int | None]:
        """Settle all, and let their sessions begin, without assignments; nobody may be syncing, and nobody joins now.

        Return the tickets that are to be answered, the member ids of these, and the shortest of the sessions, None if
        there is none.
        """
        tickets = list[object]()
        member_ids = list[str]()
        timeouts_ms = set[int]()
        for member in self.by_id.values():
            if member.join_ticket is not None:
                tickets.append(member.join_ticket)
                member_ids.append(member.member_id)
                member.join_ticket = None
            member.joining = member.is_new = False
            member.awaits_sync = True
            member.assignment = b""
            timeout_ms = member.session_timeout_ms if member.session_timeout_ms > 0 else 1
            timeouts_ms.add(timeout_ms)
            member.expires_at_ms = now_ms + timeout_ms
        assert len(tickets) == len(self._waiting)
        self._waiting.clear()
        self.joining_count = self.new_count = self.assigned_bytes = 0
        return tickets, member_ids, min(timeouts_ms, default=None)

    def share_out(self, shares: Mapping[str, bytes], now_ms: int) -> tuple[list[object], list[bytes], int | None]:
        """Give each its assignment, empty if there is none; a member that is syncing stops, and its session begins.

        Return the tickets that are to be answered, the assignments of these, and the shortest of those sessions, None
        if there is none.
        """
        tickets = list[object]()
        given = list[bytes]()
        timeouts_ms = set[int]()
        for member in self.by_id.values():
            share = shares.get(member.member_id, b"")
            self.assigned_bytes += len(share) - len(member.assignment)
            member.assignment = share
            if member.syncing:
                member.syncing = False
                if member.sync_ticket is not None:
                    del self._waiting[member.sync_ticket]
                    tickets.append(member.sync_ticket)
                    given.append(share)
                    member.sync_ticket = None
                timeout_ms = member.session_timeout_ms if member.session_timeout_ms > 0 else 1
                timeouts_ms.add(timeout_ms)
                member.expires_at_ms = now_ms + timeout_ms
        return tickets, given, min(timeouts_ms, default=None)

    def release(self) -> tuple[list[object], list[tuple[str, bool]]]:
        """Return all tickets that wait, and of each the member id and whether it joins. Nobody waits any more."""
        tickets = list(self._waiting)
        own = [(member.member_id, member.join_ticket == ticket) for ticket, member in self._waiting.items()]
        self._waiting = {}
        for member in self.by_id.values():
            member.joining = member.syncing = False
            member.join_ticket = member.sync_ticket = None
        self.joining_count = 0
        return tickets, own

    def supports(self, protocols: Protocols) -> bool:
        """Whether at least one of the protocols is offered by every member."""
        count = len(self)
        return any(self._supporters.get(name, 0) == count for name, _ in protocols)

    def vote(self) -> str:
        """Return the protocol that most members prefer among those that all offer. There must be a member."""
        count = len(self)
        offered = next(iter(self)).protocols
        common = {name for name, _ in offered if self._supporters[name] == count}
        if len(common) == 1:
            return common.pop()
        votes: dict[str, int] = {}
        for member in self:
            for name, _ in member.protocols:
                if name in common:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=lambda name: votes[name])  # The first of equals: dicts keep the order of insertion.

    def elect_joined_leader(self) -> bool:
        """Let a member lead that has joined, the present leader first. False: nobody has."""
        if self.leader_id is not None and self.by_id[self.leader_id].joining:
            return True
        joined = next((member for member in self if member.joining), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def as_seen_by_leader(self, protocol_name: str | None) -> JoinedMembers:
        settled = self._settled()
        return JoinedMembers(
            protocol_name,
            [one.member_id for one in settled],
            [one.group_instance_id for one in settled],
            [one.protocols for one in settled],
        )

    def _settled(self) -> list[Member]:
        return [one for one in self.by_id.values() if not one.is_new] if self.new_count else list(self.by_id.values())

    def to_saved(self, protocol_name: str | None, assignments: Mapping[str, bytes] | None) -> SavedMembers:
        """Return the generation's members, with `assignments` in place of their own if it is not None."""
        settled = self._settled()
        member_ids = [one.member_id for one in settled]
        return SavedMembers(
            member_id=member_ids,
            group_instance_id=[one.group_instance_id for one in settled],
            client_id=[one.client_id for one in settled],
            client_host=[one.client_host for one in settled],
            rebalance_timeout_ms=[one.rebalance_timeout_ms for one in settled],
            session_timeout_ms=[one.session_timeout_ms for one in settled],
            # Most like best what was chosen.
            subscription=[
                said[0][1] if (said := one.protocols) and said[0][0] == protocol_name else one.metadata(protocol_name)
                for one in settled
            ],
            assignment=[one.assignment for one in settled]
            if assignments is None
            else [assignments.get(member_id, b"") for member_id in member_ids],
        )

    def _support(self, protocols: Protocols, change: int) -> None:
        supporters = self._supporters
        for name in {name for name, _ in protocols}:
            count = supporters.get(name, 0) + change
            if count:
                supporters[name] = count
            else:
                del supporters[name]

    def _count(self, member: Member, sign: int) -> None:
        self.held_bytes += sign * member.sizes.held_bytes
        self.record_bytes += sign * member.sizes.record_bytes
        self.assigned_bytes += sign * len(member.assignment)
        self.id_bytes_max = max(self.id_bytes_max, text_bytes(member.member_id))


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a ConsumerProtocolSubscription, None if the bytes are none.

    Every version begins alike: version (int16, not negative), number of topics (int32), names (int16 length, UTF-8).
    """
    try:
        version, count = struct.unpack_from(">hi", subscription)
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", subscription, position)
            position += 2 + length
            if length < 0 or position > len(subscription):
                return None
            topics.add(subscription[position - length : position].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if version >= 0 and count >= 0 else None
