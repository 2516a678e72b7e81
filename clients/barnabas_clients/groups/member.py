"""Makes the requests of one member of a consumer group, and interprets the answers. Pure.

A member goes through generations. To enter one it sends a *join* with its subscription. When all have joined, the
coordinator names a leader, which divides the partitions (assignors/) and hands the division in with its *sync*. Each
member's sync is answered with its own part. Then *heartbeats* keep the membership, and an answer REBALANCE_IN_PROGRESS
asks for the next join. `TRANSITIONS` has all steps.

                 join            answer            answer
      OUT  ------------> JOINING ------> SYNCING ---------> IN
       ^                  ^    ^            |                |
       |                  |    +------------+---- again -----+
       +--- leave, lost --+-----------------+----------------+

*Identity and loss.* A member id comes from the coordinator and names the member until UNKNOWN_MEMBER_ID. A generation
ends with the next one, or with ILLEGAL_GENERATION. A member that loses a generation in this way has lost its partitions
too, since the group has gone on without it: `has_lost` stays true until the shell has told the application
(`lost_is_told`), and `lost_because` says why. An answer to an earlier identity says nothing about the present one.

*Eager and cooperative* (KIP-429) differ only in `given_up_before` and `changes`: in the partitions that are given up
before a join, and in those that are given up after it. The latter need one more join, so that others may have them.

Not here: time, retries, and the search for the coordinator (session.py). The newer protocol, in which the coordinator
divides (KIP-848), is another machine.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas_clients.assignors.assignor import NO_GENERATION, Assignor, RebalanceProtocol, Subscription
from barnabas_clients.assignors.built_in import COOPERATIVE_STICKY, RANGE
from barnabas_clients.assignors.subscription import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas_clients.protocol.error_codes import RETRIABLE
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas_clients.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import MalformedMessageError

__all__ = ["TRANSITIONS", "Changes", "GroupMember", "GroupSettings", "Identity", "Situation", "Verdict"]

PROTOCOL_TYPE: Final = "consumer"
# Kafka keeps 255 characters of a reason (KIP-800).
REASON_LENGTH_MAX: Final = 255


class GroupSettings(NamedTuple):
    """The settings of a membership.

    `group_instance_id` makes it a static member (KIP-345): it may be away for up to the session timeout without a
    rebalance, and does not leave when it closes. Kafka's clients call the rebalance timeout max.poll.interval.ms: the
    others wait so long for this member in a rebalance, and its user may go so long without polling.
    """

    group_id: str
    group_instance_id: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    rebalance_timeout_s: float = 300.0
    assignors: tuple[Assignor, ...] = (RANGE, COOPERATIVE_STICKY)


class Situation(Enum):
    """The situation of a member."""

    OUT = auto()
    JOINING = auto()
    SYNCING = auto()
    IN = auto()


TRANSITIONS: Final[Mapping[Situation, frozenset[Situation]]] = {
    Situation.OUT: frozenset({Situation.JOINING}),
    Situation.JOINING: frozenset({Situation.SYNCING, Situation.OUT}),
    Situation.SYNCING: frozenset({Situation.IN, Situation.JOINING, Situation.OUT}),
    Situation.IN: frozenset({Situation.JOINING, Situation.OUT}),
}


class Verdict(Enum):
    """The next step after an answer."""

    DONE = auto()
    """Go on: the request has succeeded."""
    AGAIN = auto()
    """Join again at once."""
    LATER = auto()
    """Join again after a pause; the coordinator may have to be found first."""
    FAILED = auto()
    """No retry helps; `failure` says why."""


class Identity(NamedTuple):
    """The member as which a request was sent."""

    generation_id: int
    member_id: str
    group_instance_id: str | None


class Changes(NamedTuple):
    """The changes of a new assignment. If `needs_rejoin`, the group has to be told after `revoked` was given up."""

    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    needs_rejoin: bool


class GroupMember:
    """A member and its memory. Owned by one session.

    It has a generation in SYNCING and IN, and in JOINING if it comes from one of these. `previous` is the last
    assignment and `previous_generation_id` its generation, which sticky assignors remember even after the membership
    was lost.
    """

    def __init__(self, settings: GroupSettings) -> None:
        """Raise `ValueError` if the assignors share no protocol or share a name, or if the times make no sense."""
        self.settings = settings
        self.rebalance_protocol = _common_protocol(settings.assignors)
        if not settings.group_id:
            raise ValueError("a group needs an id")
        if not 0 < settings.heartbeat_interval_s < settings.session_timeout_s:
            raise ValueError("the heartbeat interval must be above 0 and below the session timeout")
        self.situation = Situation.OUT
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.rejoin_reason: str | None = None
        self.has_lost = False
        self.lost_because = ""
        self.failure: KafkaError | None = None
        self.is_leader = False
        self.assignor: Assignor | None = None
        self.previous: frozenset[TopicPartition] = frozenset()
        self.previous_generation_id = NO_GENERATION

    @property
    def identity(self) -> Identity:
        return Identity(self.generation_id, self.member_id, self.settings.group_instance_id)

    @property
    def is_out(self) -> bool:
        """True while there is no membership, and none in the making."""
        return self.situation is Situation.OUT

    # Decisions of the shell.

    def request_rejoin(self, reason: str) -> None:
        """Join again when there is time. `reason` goes to the coordinator; the first one stays."""
        if self.situation is not Situation.OUT:
            self.rejoin_reason = self.rejoin_reason or reason

    def begin_join(self) -> str:
        """Begin a rejoin, or the first join, and return its reason. A reason that comes later is for the next one."""
        reason, self.rejoin_reason = self.rejoin_reason or "", None
        if self.situation is not Situation.JOINING:
            self._go(Situation.JOINING)
        return reason[:REASON_LENGTH_MAX]

    def leave(self, *, lost_because: str = "") -> None:
        """Forget the membership: on purpose, or because of something that makes it a loss."""
        self._reset(keep_member_id=False, lost_because=lost_because)

    def fail(self, failure: KafkaError) -> None:
        """Give the membership up, because no retry helps. The first failure stays."""
        self.failure = self.failure or failure
        self._reset(keep_member_id=False, lost_because=str(failure))

    def lost_is_told(self) -> None:
        """Note that the application was told of the loss."""
        self.has_lost = False

    def given_up_before(self, owned: frozenset[TopicPartition], topics: frozenset[str]) -> frozenset[TopicPartition]:
        """Return the partitions that have to be given up before a join for `topics`."""
        if self.rebalance_protocol is RebalanceProtocol.EAGER:
            return owned
        return frozenset(partition for partition in owned if partition.topic not in topics)

    def changes(self, owned: frozenset[TopicPartition], assigned: frozenset[TopicPartition]) -> Changes:
        """Return the differences between `owned` and `assigned`."""
        revoked = owned - assigned
        is_cooperative = self.rebalance_protocol is RebalanceProtocol.COOPERATIVE
        return Changes(revoked, assigned - owned, needs_rejoin=bool(revoked) and is_cooperative)

    # Requests.

    def join_request(self, topics: frozenset[str], owned: frozenset[TopicPartition], reason: str) -> JoinGroupRequest:
        """Return the join of a member that wants `topics` and holds `owned`."""
        assert self.situation is Situation.JOINING
        settings = self.settings
        protocols = [
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=encode_subscription(
                    Subscription(
                        topics,
                        assignor.user_data(self.previous, self.previous_generation_id),
                        owned,
                        self.generation_id,
                    )
                ),
            )
            for assignor in settings.assignors
        ]
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=round(settings.session_timeout_s * 1000),
            rebalance_timeout_ms=round(settings.rebalance_timeout_s * 1000),
            member_id=self.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason or None,
        )

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """Return the sync. Only the leader has `assignments`."""
        assert self.situation is Situation.SYNCING
        assert self.assignor is not None
        return SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor.name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in sorted(assignments.items())
            ],
        )

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
        )

    def leave_request(self, reason: str) -> LeaveGroupRequest | None:
        """Return the request to leave, if there is one. A static member just falls silent (KIP-345)."""
        if self.settings.group_instance_id is not None or not self.member_id:
            return None
        identity = MemberIdentity(
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
            reason=reason[:REASON_LENGTH_MAX],
        )
        return LeaveGroupRequest(group_id=self.settings.group_id, member_id=self.member_id, members=[identity])

    # Answers.

    def on_join(self, response: JoinGroupResponse) -> Verdict:
        """Take the answer to a join. After DONE, sync: as the leader if `is_leader`."""
        if self.situation is not Situation.JOINING:
            return Verdict.AGAIN
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Verdict.AGAIN
        if code:
            return self._refused(code, "join")
        names = {assignor.name: assignor for assignor in self.settings.assignors}
        self.assignor = names.get(response.protocol_name or "")
        if self.assignor is None or (response.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE:
            chosen = f"{response.protocol_type or PROTOCOL_TYPE} {response.protocol_name}"
            return self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group has chosen {chosen}")
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        self.is_leader = response.leader == response.member_id
        self._go(Situation.SYNCING)
        return Verdict.DONE

    def on_sync(self, response: SyncGroupResponse) -> Verdict:
        """Take the answer to a sync. After DONE, `previous` is the assignment."""
        if self.situation is not Situation.SYNCING:
            return Verdict.AGAIN
        assert self.assignor is not None
        if response.error_code:
            return self._refused(response.error_code, "sync")
        if (response.protocol_name or self.assignor.name) != self.assignor.name:
            return self._fail(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"joined with {self.assignor.name}, synced {response.protocol_name}",
            )
        try:
            self.previous = decode_assignment(response.assignment)
        except MalformedMessageError as error:
            return self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the leader's assignment: {error}")
        self.previous_generation_id = self.generation_id
        self._go(Situation.IN)
        return Verdict.DONE

    def on_heartbeat(self, code: int, sent_as: Identity) -> None:
        """Take the answer to a heartbeat, or the error of a commit, which has the same meanings.

        In the middle of a join it says only that the coordinator is there.
        """
        if sent_as == self.identity and self.situation is Situation.IN:
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.request_rejoin("the coordinator has begun a rebalance")
            elif code:
                self._refused(code, "heartbeat")

    # The leader's part.

    def wanted_topics(self, members: Sequence[JoinGroupResponseMember]) -> frozenset[str]:
        """Return the topics that the members want together."""
        return frozenset[str]().union(*(_subscription(row).topics for row in members))

    def assignments(
        self, members: Sequence[JoinGroupResponseMember], partition_counts: Mapping[str, int]
    ) -> dict[str, bytes]:
        """Divide the partitions of the topics in `partition_counts`. Return the bytes for each member."""
        assert self.assignor is not None
        subscriptions = {row.member_id: _subscription(row) for row in members}
        division = self.assignor.assign(partition_counts, subscriptions)
        return {member_id: encode_assignment(partitions) for member_id, partitions in division.items()}

    # Inside.

    def _refused(self, code: int, request: str) -> Verdict:
        """Take an error that any request may meet."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset(keep_member_id=False, lost_because="the coordinator does not know this member any more")
            return Verdict.AGAIN
        if code == ErrorCode.ILLEGAL_GENERATION:
            self._reset(keep_member_id=True, lost_because="the group has gone on without this member")
            return Verdict.AGAIN
        if code == ErrorCode.REBALANCE_IN_PROGRESS and self.situation is Situation.SYNCING:
            return Verdict.AGAIN
        if code in RETRIABLE or code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Verdict.LATER
        return self._fail(code, request)

    def _fail(self, code: int, subject: str) -> Verdict:
        self.fail(error_for(code, f"group {self.settings.group_id}: {subject}"))
        return Verdict.FAILED

    def _reset(self, *, keep_member_id: bool, lost_because: str) -> None:
        # Without a generation there are no partitions to lose.
        if lost_because and self.generation_id != NO_GENERATION and not self.has_lost:
            self.has_lost = True
            self.lost_because = lost_because
        self.generation_id = NO_GENERATION
        self.is_leader = False
        self.rejoin_reason = None
        if not keep_member_id:
            self.member_id = ""
        if self.situation is not Situation.OUT:
            self._go(Situation.OUT)

    def _go(self, situation: Situation) -> None:
        assert situation in TRANSITIONS[self.situation], f"{self.situation} to {situation}"
        self.situation = situation


def _common_protocol(assignors: Collection[Assignor]) -> RebalanceProtocol:
    names = [assignor.name for assignor in assignors]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"assignors {names}: one at least, and none twice")
    shared = frozenset(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not shared:
        raise ValueError(f"assignors {names} share no rebalance protocol")
    return max(shared)


def _subscription(row: JoinGroupResponseMember) -> Subscription:
    """Read a member's subscription. A member that writes nonsense gets nothing, and the others are served."""
    try:
        return decode_subscription(row.metadata, row.group_instance_id)
    except MalformedMessageError:
        return Subscription(frozenset(), group_instance_id=row.group_instance_id)
