"""Models a group in the dumbest way: a dictionary of its members.

Of each it keeps when it was last heard, and the answers that it may get. It does not know how a rebalance comes about.
It is told what clients do, predicts the members and the error of each request, and when the group says that somebody is
gone it wants a reason.
"""

from dataclasses import dataclass, field

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.messages import SavedGroup
from barnabas_broker.coordinators.groups.state_machine.phases import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 20_000


@dataclass
class Known:
    """A member as its model sees it. `joined` and `syncing`: it has asked, and was not answered yet."""

    instance: str | None
    heard_ms: int
    new: bool = True
    joined: bool = True
    hung_up: bool = False
    syncing: bool = False
    synced: bool = False
    metadata: bytes = b""

    def silent_too_long(self, now_ms: int, grace_ms: int = 0) -> bool:
        waits = not self.new and (self.joined or self.syncing)
        return (
            not waits and self.heard_ms + (NEW_MEMBER_JOIN_TIMEOUT_MS if self.new else SESSION_MS) + grace_ms <= now_ms
        )

    def misses(self) -> bool:
        """Whether a generation that forms now leaves it out."""
        return (self.new and self.hung_up) or (not self.joined and self.instance is None)


@dataclass
class Model:
    size_max: int
    members: dict[str, Known] = field(default_factory=dict)
    given_out: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    formed_ms: int = 0
    assigning: dict[str, bytes] | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)

    def load(self, saved: SavedGroup, now_ms: int) -> None:
        self.generation = saved.generation_id
        for member in saved.members:
            self.members[member.member_id] = Known(
                member.group_instance_id, now_ms, new=False, joined=False, synced=True
            )
            self.assignments[member.member_id] = member.assignment

    def holder(self, instance: str | None) -> str | None:
        holders = [member_id for member_id, known in self.members.items() if known.instance == instance]
        assert instance is None or len(holders) <= 1
        return holders[0] if instance is not None and holders else None

    def refusal(self, member_id: str, instance: str | None, generation: int | None = None) -> ErrorCode:
        if instance is not None and self.holder(instance) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance is not None and self.holder(instance) != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation is not None and (generation != self.generation or self.members[member_id].new):
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def has_room(self, state: GroupState, member_id: str) -> bool:
        known = self.members.get(member_id)
        if state is GroupState.PREPARING_REBALANCE:
            joined = sum(member.joined for member in self.members.values())
            return (known is not None and known.joined) or joined < self.size_max
        return state is GroupState.EMPTY or known is not None or len(self.members) < self.size_max

    def replace(self, old_id: str, new_id: str, now_ms: int) -> None:
        known = self.members.pop(old_id)
        known.heard_ms = now_ms
        known.joined = True
        known.hung_up = False
        known.syncing = False
        self.members[new_id] = known
        self.assignments[new_id] = self.assignments.pop(old_id, b"")

    def follow(self, group: ConsumerGroup, now_ms: int) -> None:
        """Compare with the group after it has done anything; accept what it did if there is a reason for it."""
        forms = group.generation_id != self.generation
        assert group.generation_id - self.generation in {0, 1}, "generations never go back, nor are any left out"
        for member_id in self.members.keys() - group.members.keys():
            known = self.members.pop(member_id)
            late = not known.synced and self.formed_ms + REBALANCE_MS <= now_ms
            assert (
                known.silent_too_long(now_ms) or late or (forms and known.misses()) or (known.new and known.hung_up)
            ), f"{member_id} was thrown out for nothing: {known}"
        assert self.members.keys() == group.members.keys(), "somebody is in who never came, or has left"
        if forms:
            self.generation = group.generation_id
            self.formed_ms = now_ms
            self.assigning = None
            self.assignments = {}
            for known in self.members.values():
                assert not known.misses()
                known.new = known.joined = known.hung_up = known.synced = False
                known.heard_ms = now_ms
        if group.state is not GroupState.COMPLETING_REBALANCE:
            for known in self.members.values():
                if known.syncing:
                    known.syncing = False
                    known.heard_ms = now_ms
        if group.state is GroupState.PREPARING_REBALANCE:
            self.assigning = None
            for known in self.members.values():
                known.synced = True  # The sync phase is over, nobody is late for it any more.
