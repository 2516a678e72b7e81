"""Answers the requests of the classic protocol within a group of KIP-848. Pure.

While members of both protocols are in one group, which happens when its consumers are changed one by one, the group is
one of KIP-848. To a classic member it looks like a group that somebody else leads: its generation is its own epoch, and
the answer to its SyncGroup is what it may use. When something changes for it, its heartbeat is answered
REBALANCE_IN_PROGRESS, and it joins again, and says what it has, which is its word on what it has given up.

It is asked to join again when

- there is a newer target than the one that it has reached,
- it is to give something up: it has heard that, and says with its next join that it has,
- what it waits for has been given up by others, all of it.

It has its rebalance timeout for that, and as long again for the SyncGroup behind it. Who is not a classic member here,
or no member at all, hears UNKNOWN_MEMBER_ID, as in Kafka (trap G14).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import MalformedMessageError

from .embedded import CONSUMER, Numbers, read_subscription, version_of, write_assignment
from .group import ConsumerProtocolGroup
from .messages import Beat, Refusal, Topics
from .reconciling import NOBODYS, NONE_OF_IT
from .values import NO_TARGET, ClassicMetadata, MemberAssignment, MemberMetadata, MemberState, Partitions, Target

__all__ = ["ClassicJoin", "MixedGroup", "assignment_of", "by_id"]

NOBODY = MemberAssignment(0, 0)


class ClassicJoin(NamedTuple):
    """One JoinGroup. `member_id` is the one that it came with, else a new one; `protocols` as in `ClassicMetadata`."""

    member_id: str
    is_known: bool
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


class MixedGroup(ConsumerProtocolGroup):
    """A group with the requests of its classic members; see the module."""

    __slots__ = ()

    def beat_of(self, join: ClassicJoin, topics: Topics) -> Beat | Refusal:
        """Return what a JoinGroup says as this group hears it, or why it is not one of a member of such a group."""
        names = [name for name, _ in join.protocols]
        inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if join.protocol_type != CONSUMER or not self.classic.supports(names):
            return Refusal(inconsistent, f"Member {join.member_id}'s protocols are not supported.")
        try:
            said = read_subscription(join.protocols[0][1])
        except MalformedMessageError:
            return Refusal(inconsistent, "Malformed embedded consumer protocol in subscription deserialization.")
        return Beat(
            join.member_id,
            0,
            instance_id=join.instance_id,
            rack_id=said.rack_id,
            client_id=join.client_id,
            client_host=join.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            topic_names=said.topic_names,
            owned=by_id(said.owned, topics),
            classic=ClassicMetadata(join.session_timeout_ms, join.protocols),
            is_known=join.is_known,
        )

    def protocol_of(self, member_id: str) -> str:
        """Return the protocol that a classic member was told when it joined: the first of its own."""
        classic = self.members[member_id].classic
        assert classic is not None
        return classic.protocols[0][0]

    def told(self, member_id: str, now_ms: int) -> None:
        """Note that a classic member has its generation: it comes for its assignment now."""
        metadata = self.members.get(member_id)
        if metadata is not None and metadata.classic is not None:
            self.touch(member_id, now_ms)
            self.classic.syncs.set(member_id, now_ms + max(1, metadata.rebalance_timeout_ms))

    def heartbeat(self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Keep the session of a classic member, and tell it whether to join again."""
        error = self._classic_error(member_id, instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        self.touch(member_id, now_ms)
        return self._call_back(member_id, now_ms) if self._is_to_join(member_id) else ErrorCode.NONE

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        protocol: tuple[str | None, str | None],
        topics: Topics,
        now_ms: int,
    ) -> bytes | ErrorCode:
        """Return what a classic member may use now; `protocol`: the type and the name that it says, if it does."""
        error = self._classic_error(member_id, instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        type_, name = protocol
        if type_ not in {None, CONSUMER} or name not in {None, self.protocol_of(member_id)}:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        now = self.assignments.get(member_id, NOBODY)
        if self.target_number > now.epoch and now.state is not MemberState.UNREVOKED:
            return self._call_back(member_id, now_ms)
        self.classic.syncs.drop(member_id)
        self.touch(member_id, now_ms)
        return assignment_of(self.members[member_id], now.assigned, topics)

    def leave_classic(
        self, leaving: Iterable[tuple[str, str | None]], topics: Topics, now_ms: int
    ) -> Sequence[ErrorCode]:
        """Take out members, of either protocol: (member id, instance id) of each; return an error for each.

        An empty member id is whoever has the instance id.
        """
        self._now_ms = now_ms
        gone: dict[str, None] = {}
        errors = list[ErrorCode]()
        for member_id, instance_id in leaving:
            known = member_id
            if instance_id is not None and not member_id:
                known = self.instances.get(instance_id, "")
            error = self._member_error(known, instance_id)
            errors.append(error)
            if error is ErrorCode.NONE:
                gone[known] = None
        if gone:
            self._fence(gone, topics, now_ms)
        return errors

    def chosen_protocol(self) -> str:
        """Return the protocol that most classic members like best of those that all offer, of equals the first."""
        common = self.classic.common
        votes: Counter[str] = Counter()
        for metadata in self.members.values():
            if metadata.classic is not None:
                votes[next(name for name, _ in metadata.classic.protocols if name in common)] += 1
        return max(votes, key=lambda name: votes[name])

    def _member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _classic_error(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        error = self._member_error(member_id, instance_id)
        if error is ErrorCode.NONE and self.members[member_id].classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE and generation_id != self.assignments.get(member_id, NOBODY).epoch:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _is_to_join(self, member_id: str) -> bool:
        now = self.assignments.get(member_id, NOBODY)
        if now.epoch < self.target_number or now.state is MemberState.UNREVOKED:
            return True
        return now.state is MemberState.UNRELEASED and not self._waits(member_id, now)

    def _waits(self, member_id: str, now: MemberAssignment) -> bool:
        """Tell whether others have not given up all that a member is to have."""
        for topic_id, numbers in self.targets.get(member_id, NO_TARGET).items():
            owners = self.owners.get(topic_id, NOBODYS)
            has = now.assigned.get(topic_id, NONE_OF_IT)
            if owners and any(owners.get(number, member_id) != member_id for number in numbers if number not in has):
                return True
        return False

    def _call_back(self, member_id: str, now_ms: int) -> ErrorCode:
        if member_id not in self.classic.joins:
            timeout_ms = max(1, self.members[member_id].rebalance_timeout_ms)
            self.classic.joins.set(member_id, now_ms + timeout_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS


def by_id(numbers: Numbers, topics: Topics) -> dict[bytes, Sequence[int]]:
    """Return the same partitions by the id of their topic, those of topics that exist."""
    found: dict[bytes, Sequence[int]] = {}
    for name, some in numbers.items():
        topic = topics.find(name)
        if topic is not None:
            found[topic[0]] = some
    return found


def assignment_of(metadata: MemberMetadata, partitions: Partitions | Target, topics: Topics) -> bytes:
    """Return what a classic member is to hear of these partitions, in the version in which it speaks itself."""
    assert metadata.classic is not None
    names = {topic[0]: name for name in metadata.topic_names if (topic := topics.find(name)) is not None}
    numbers = {names[topic_id]: tuple(some) for topic_id, some in partitions.items() if topic_id in names}
    try:
        version = version_of(metadata.classic.protocols[0][1])
    except MalformedMessageError:  # Members are let in only if it is well-formed.
        version = 0
    return write_assignment(version, numbers)
