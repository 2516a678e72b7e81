"""Makes a group of KIP-848 of a classic one, and a classic one of a group of KIP-848. Pure.

*There:* every member of the present generation becomes a member that speaks the classic protocol, in an epoch that is
the generation, with what it had been assigned, which is its target, too. Whoever comes as the first of the other
protocol begins the next epoch, and so the others are asked to join; but a static member that comes back with it takes
its own place, and nobody else notices. What no member of the generation has is nobody's;
newcomers that wait for the next generation are not in this one, and join again.

*Back:* the generation is the epoch that the members know. Their assignments are what they have: that is theirs alone,
which targets are not while they are being made.

A classic group whose assignor has put something of its own beside the partitions (user data) cannot come here, because
that would be lost; but what `ECHOING` assignors of librdkafka put there is only what the member knows. (Kafka refuses
those groups, too, from their second generation on.) Neither can one whose members speak something else than `CONSUMER`,
or say it wrongly.
"""

from collections.abc import Collection, Generator, Iterable
from typing import NamedTuple

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import MalformedMessageError

from .embedded import CONSUMER, Numbers, read_assignment, read_subscription
from .group import SHARE_MAX, ConsumerProtocolGroup
from .messages import Refusal, Topics
from .mixed import MixedGroup, assignment_of
from .values import (
    NOTHING,
    ClassicMetadata,
    Kind,
    MemberAssignment,
    MemberMetadata,
    Target,
    partition_count,
)

__all__ = ["CONVERTED_MAX", "ClassicGroup", "ClassicMember", "classic_members_in_steps", "take_over_in_steps"]

STEP = 2_000
"""Names and partitions between two yields; a member is as much work as `MEMBER_WORK` of these."""
MEMBER_WORK = 50
ECHOING = frozenset({"sticky", "cooperative-sticky"})
"""Assignors of which librdkafka gives each member what that has said itself beside its assignment: nothing is lost."""
CONVERTED_MAX = 1_000
"""Members of a group that is converted: all that is said of them is written at once, or a successor would find half."""
CONVERTED_BYTES_MAX = 4 << 20
"""Bytes that all their subscriptions may take, for the same reason."""


class ClassicMember(NamedTuple):
    """A member of a generation. `subscription` is what it says with the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    subscription: bytes
    assignment: bytes


class ClassicGroup(NamedTuple):
    """A generation of a classic group. `is_settled`: nobody has come or gone since it was formed."""

    group_id: str
    protocol_type: str | None
    generation_id: int
    members: Collection[ClassicMember]
    is_settled: bool
    protocol_name: str | None = None

    def refusal(self, *, upgrades: bool, size_max: int) -> Refusal | None:
        """Return why it does not become a group of KIP-848, as far as that is plain to see."""
        if not upgrades:
            why = "online upgrade is disabled"
        elif self.protocol_type != CONSUMER:
            why = "the group does not use the consumer embedded protocol"
        elif len(self.members) > size_max:
            why = "the group size exceeds the consumer group maximum size"
        else:
            return None
        return self._because(why)

    def excessive(self) -> Refusal:
        """Return that its members say more than can be written at once."""
        return self._because(f"what its members say takes more than {CONVERTED_BYTES_MAX} bytes")

    def malformed(self) -> Refusal:
        """Return that its members say what cannot be read."""
        return self._because("the embedded consumer protocol is malformed")

    def custom(self) -> Refusal:
        """Return that its assignor has put more into assignments than there is room for."""
        why = "an unsupported custom assignor is in use. Please switch to a default assignor before the upgrade"
        return self._because(why)

    def _because(self, why: str) -> Refusal:
        text = f"Cannot upgrade classic group {self.group_id} to consumer group because {why}."
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, text)


def take_over_in_steps(
    group: MixedGroup, classic: ClassicGroup, topics: Topics
) -> Generator[None, None, Refusal | None]:
    """Fill a new group with the members of a classic one, some of them between two yields; or return why not."""
    epoch = classic.generation_id
    work = 0
    taken: dict[bytes, set[int]] = {}
    if sum(len(said) for member in classic.members for _, said in member.protocols) > CONVERTED_BYTES_MAX:
        return classic.excessive()
    for member in classic.members:
        try:
            said = read_subscription(member.subscription)
            assigned, has_more = read_assignment(member.assignment)
        except MalformedMessageError:
            return classic.malformed()
        if has_more and classic.protocol_name not in ECHOING:
            return classic.custom()
        target = _target(assigned, topics, taken)
        if partition_count(target) > SHARE_MAX:
            return classic.malformed()
        metadata = MemberMetadata(
            instance_id=member.instance_id,
            rack_id=said.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=said.topic_names,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
        has = {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in target.items()}
        group.fill(Kind.MEMBER_METADATA, member.member_id, metadata)
        group.fill(Kind.TARGET, member.member_id, target)
        group.fill(Kind.MEMBER_ASSIGNMENT, member.member_id, MemberAssignment(epoch, epoch, assigned=has))
        work += MEMBER_WORK + len(said.topic_names) + partition_count(target)
        if work >= STEP:
            work = 0
            yield
    yield from group.fill_epoch_in_steps(epoch, topics, is_settled=classic.is_settled)
    return None


def _target(assigned: Numbers, topics: Topics, taken: dict[bytes, set[int]]) -> Target:
    """Return the partitions that there are of those that nobody else has; a leader may have given what it liked."""
    target: dict[bytes, tuple[int, ...]] = {}
    for name, numbers in assigned.items():
        topic = topics.find(name)
        if topic is not None:
            topic_id, count = topic
            others = taken.setdefault(topic_id, set())
            mine = {number for number in numbers if 0 <= number < count} - others
            others |= mine
            if mine:
                target[topic_id] = tuple(sorted(mine))
    return target


def classic_members_in_steps(
    group: ConsumerProtocolGroup, protocol: str, topics: Topics
) -> Generator[None, None, list[ClassicMember]]:
    """Return the members of a group of which all speak the classic protocol, with what they have."""
    members: list[ClassicMember] = []
    work = 0
    for member_id, metadata in list(group.members.items()):
        classic = metadata.classic
        assert classic is not None
        has = group.assignments[member_id].assigned if member_id in group.assignments else NOTHING
        members.append(
            ClassicMember(
                member_id,
                metadata.instance_id,
                metadata.client_id,
                metadata.client_host,
                classic.session_timeout_ms,
                metadata.rebalance_timeout_ms,
                classic.protocols,
                _subscription(classic.protocols, protocol),
                assignment_of(metadata, has, topics),
            )
        )
        work += MEMBER_WORK + len(metadata.topic_names) + partition_count(has)
        if work >= STEP:
            work = 0
            yield
    return members


def _subscription(protocols: Iterable[tuple[str, bytes]], chosen: str) -> bytes:
    return next((metadata for name, metadata in protocols if name == chosen), b"")
