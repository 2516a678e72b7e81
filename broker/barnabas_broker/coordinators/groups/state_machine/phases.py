"""Moves a group as a whole through its rebalances, its timeouts and its saving. Pure.

A rebalance has two phases. In the *join phase* (PREPARING_REBALANCE) the group waits until every member has sent
JoinGroup, at most for the longest rebalance timeout among them; dynamic members that have not come by then are out,
static ones stay until their session ends. Then there is a new generation, everyone is told, and in the *sync phase*
(COMPLETING_REBALANCE) the leader computes who gets what. Its assignment is saved first and given out only when the
save is committed: a coordinator that takes over then knows the same generation. Until somebody is STABLE in it, a
generation exists only in the memory of this coordinator, and its members join again if that is lost.

- *The first generation* of an empty group waits `initial_rebalance_delay_ms` after each member that came and stayed
  (KIP-134). Kafka lets newcomers extend that up to the rebalance timeout, five minutes for most clients; we stop after
  `INITIAL_DELAYS_MAX` delays, because a client that comes and goes in a loop would keep everybody from starting.
- *Member ids that were given out* (KIP-394) hold the join phase up while their owners are on the way back, for at
  most `PENDING_WAIT_MS` once everyone else is there. Kafka waits as long as the session of each of them.
- *Coming and going* is spaced: `_changed` decides whether a rebalance begins at once or later; see spacing.py.
- *A leader that goes before it has assigned* takes the generation with it: nobody else would ever assign.
- *Members that go together*, because their sessions end or they did not join or sync, go `GONE_MAX` at a time, a
  millisecond apart. A phase ends when the last of them is out. Events name the first `NAMED_MAX` and count the others.

Timeouts are absolute times in the state. `_sessions_at_ms` is a lower bound of when the next session ends, not the
exact time: heartbeats only put it off, so they need not look for the next one. `tick` then finds nothing to
do, looks at all members once and sets it right, about once per session timeout. A session may end up to
`SESSION_GRAIN_MS` late.

Deviations from Kafka, besides the above: requests that it leaves unanswered (a JoinGroup or SyncGroup that the same
member repeats, the SyncGroup of a member that leaves) get an answer; a newcomer whose connection ends before its first
generation forms is left out of it, where Kafka, which cannot see that, gives it partitions until its session ends; a
static member whose replacement could not be saved keeps its new id in memory, and is told the error, instead of being
turned back into the old one.

Not here: requests of single members (group.py). Nothing here answers a caller except through the lists of effects.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from barnabas_broker.coordinators.runtime.append_errors import coordinator_error
from barnabas_clients.protocol.error_codes import ErrorCode

from .members import Member, Members
from .messages import (
    Alike,
    Answer,
    Answers,
    Effects,
    Fact,
    GroupConfig,
    JoinAnswer,
    SavedGroup,
    SyncAnswer,
)
from .room import GROUP_BYTES, GROUP_RECORD_BYTES, PENDING_ID_BYTES, SAVED_MEMBER_BYTES, text_bytes
from .spacing import Spacing
from .states import GroupEvent, GroupState, may_follow

__all__ = [
    "GONE_MAX",
    "INITIAL_DELAYS_MAX",
    "NEW_MEMBER_JOIN_TIMEOUT_MS",
    "PENDING_IDS_MAX",
    "PENDING_WAIT_MS",
    "SESSION_GRAIN_MS",
    "Phases",
    "Replacement",
]

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a newcomer that is in no generation yet may wait for its answer; Kafka's value."""
PENDING_WAIT_MS = 1_000
"""A client comes back with its new member id within a round trip; more would let one that never does stop everybody."""
PENDING_IDS_MAX = 10_000
INITIAL_DELAYS_MAX = 10
SESSION_GRAIN_MS = 100
"""Sessions are looked at ten times a second at most, so that many small deadlines cost no more than one."""
GONE_MAX = 500
"""Members that a group throws out in one step; the others of their kind follow in the next."""
NAMED_MAX = 10
_UNSTAMPED = -1
_WORKING = (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)


class Replacement(NamedTuple):
    """A static member that takes its predecessor's place without a rebalance, once that is saved.

    `old_leader` led before: a client that cannot be told to skip the assignment is shown this id (KIP-814).
    """

    member_id: str
    old_leader: str
    skips_assignment: bool


class _Save(NamedTuple):
    saved: SavedGroup
    assigns: bool
    replacement: Replacement | None
    held_bytes: int


class Phases:
    """One group. Owned by one caller, changed only by the methods of `ConsumerGroup`, each of which ends in `_effects`.

    Invariants: in EMPTY there are no members; outside of EMPTY and DEAD there is a protocol type; `generation_id`
    never goes back. Limits: members by `GroupConfig.size_max`, member ids given out by `PENDING_IDS_MAX` (beyond it the
    oldest is forgotten), one parked JoinGroup and one SyncGroup a member, and one unfinished save for each generation
    and each static member that is being replaced.
    """

    __slots__ = (
        "_alike",
        "_answers",
        "_assigning",
        "_change",
        "_config",
        "_delay_told",
        "_delayed_until_ms",
        "_event",
        "_facts",
        "_gone_count",
        "_initial_end_ms",
        "_initial_last_id",
        "_leader_departed",
        "_member_departed",
        "_members",
        "_pending_bytes",
        "_pending_ids",
        "_pending_wait_at_ms",
        "_phase_at_ms",
        "_save",
        "_saved",
        "_saves",
        "_saves_bytes",
        "_sessions_at_ms",
        "_spacing",
        "generation_id",
        "group_id",
        "protocol_name",
        "protocol_type",
        "state",
    )

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self._config = config
        self._members = Members()
        self._pending_ids: dict[str, int] = {}  # Member ids given out, and when each is forgotten.
        self._pending_bytes = 0
        self._spacing = Spacing(config.rebalance_interval_ms)
        self._saved: SavedGroup | None = None  # As last committed.
        self._saves: list[_Save] = []
        self._saves_bytes = 0
        self._assigning: Mapping[str, bytes] | None = None  # The assignment that is being saved.

        self._sessions_at_ms: int | None = None
        self._phase_at_ms: int | None = None  # The end of the join or the sync phase.
        self._initial_end_ms: int | None = None  # Not None: this is the join phase of a first generation.
        self._initial_last_id = ""  # The member that came last in it.
        self._pending_wait_at_ms: int | None = None
        self._delayed_until_ms: int | None = None  # When a spaced rebalance begins.
        self._change = ""  # The reason for that.
        self._delay_told = False
        self._member_departed = False  # Somebody of the generation has left it.
        self._leader_departed = False  # Before it had assigned.

        self._event = GroupEvent.LOAD
        self._answers: list[Answer] = []
        self._alike: list[Alike] = []
        self._save: SavedGroup | None = None
        self._facts: list[Fact] = []
        self._gone_count = 0  # In this step.

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` has something to do, or might have; None: never."""
        times = (self._sessions_at_ms, self._phase_at_ms, self._pending_wait_at_ms, self._delayed_until_ms)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    @property
    def held_bytes(self) -> int:
        """Memory that the group takes (`room`), without the record that is committed of it."""
        members = self._members
        group_bytes = GROUP_BYTES + text_bytes(self.group_id, self.protocol_type)
        return group_bytes + members.held_bytes + members.assigned_bytes + self._pending_bytes + self._saves_bytes

    def record_bytes_with(self, more_bytes: int, protocol_type: str | None) -> int:
        """Return what the group's record takes at most, without assignments, if its members said so much more."""
        members = self._members
        group_bytes = GROUP_RECORD_BYTES + text_bytes(self.group_id, protocol_type) + members.id_bytes_max
        # The protocol that is chosen is one of each member's, so its name is counted with the longest of those.
        return group_bytes + members.record_bytes + more_bytes

    def tick(self, now_ms: int) -> Effects:
        """Let time pass: sessions and phases end, a delayed rebalance begins. Afterwards `deadline_ms` > `now_ms`."""
        self._event = GroupEvent.TICK
        if self._sessions_at_ms is not None and self._sessions_at_ms <= now_ms:
            self._expire_sessions(now_ms)
        if self._phase_at_ms is not None and self._phase_at_ms <= now_ms:
            self._phase_ends(now_ms)
        if self._pending_wait_at_ms is not None and self._pending_wait_at_ms <= now_ms:
            self._complete_join_if_all_joined(now_ms)
        if self._delayed_until_ms is not None and self._delayed_until_ms <= now_ms:
            self._changed(self._change, now_ms)
        return self._effects()

    def on_saved(self, generation_id: int, error: ErrorCode, now_ms: int) -> Effects:
        """Learn what became of the oldest unfinished `Effects.save`, which was one of `generation_id`.

        Committed (NONE), it releases the answers that rest on it. Failed, they are refused, and an assignment that
        could not be saved is followed by a new rebalance.
        """
        self._event = GroupEvent.SAVED
        if not self._saves:
            return Effects()  # This coordinator ended meanwhile.
        save = self._saves.pop(0)
        self._saves_bytes -= save.held_bytes
        assert save.saved.generation_id == generation_id, "saves end in the order in which they began"
        if error == ErrorCode.NONE:
            self._saved = save.saved
        else:
            self._tell("save failed", error.name)
        if self.generation_id == generation_id:
            if save.assigns and self.state is GroupState.COMPLETING_REBALANCE:
                self._assignment_saved(error, now_ms)
            elif save.replacement is not None and self.state is GroupState.STABLE:
                self._replacement_saved(save.replacement, error, now_ms)
        return self._effects()

    def end(self, error: ErrorCode) -> Effects:
        """Coordinate no more: everybody who is parked is told `error`, and nobody anything afterwards. Final."""
        self._event = GroupEvent.END
        if self.state is GroupState.DEAD:
            return Effects()
        tickets, own = self._members.release()
        self._alike.append((lambda ticket, own: _ended(ticket, own, error), tickets, own))
        self._enter(GroupState.DEAD)
        self._sessions_at_ms = self._phase_at_ms = self._pending_wait_at_ms = self._delayed_until_ms = None
        self._pending_ids.clear()
        self._saves.clear()
        self._pending_bytes = self._saves_bytes = 0
        return self._effects()

    def to_saved(self, timestamp_ms: int) -> SavedGroup:
        """Return what was last committed of this group, for rewriting it. `timestamp_ms` is wall-clock time."""
        saved = self._saved or SavedGroup(
            protocol_type=self.protocol_type or "",
            generation_id=0,
            protocol_name=None,
            leader=None,
            current_state_timestamp_ms=_UNSTAMPED,
            members=(),
        )
        return saved._replace(current_state_timestamp_ms=timestamp_ms)

    # Rebalances.

    def _changed(self, cause: str, now_ms: int) -> None:
        """Somebody has come, left or joined again: carry on with the join phase, or begin one now or later."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(now_ms)
        elif self.state is GroupState.EMPTY:
            self._begin(cause, now_ms)
        elif self.state in _WORKING:
            begins_at_ms = self._spacing.may_begin_at(now_ms)
            if not (self._member_departed or self._members.new_count):
                self._delayed_until_ms = None
            elif self._leader_departed or self._members.new_count == len(self._members):
                self._begin(cause, now_ms)
            elif begins_at_ms == now_ms:
                self._drop_forgotten_newcomers()
                if self._member_departed or self._members.new_count:
                    self._begin(cause, now_ms, spaced=True)
                self._delayed_until_ms = None
            else:
                self._delayed_until_ms = begins_at_ms
                self._change = cause
                if not self._delay_told:
                    self._delay_told = True
                    self._tell("rebalance delayed", cause)

    def _begin(self, cause: str, now_ms: int, *, spaced: bool = False) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        is_first = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE)
        self._tell("rebalance", cause)
        self._assigning = self._delayed_until_ms = None
        self._member_departed = self._leader_departed = self._delay_told = False
        timeout_ms = self._members.rebalance_timeout_ms
        delay_ms = self._config.initial_rebalance_delay_ms
        if not is_first:
            self._spacing.begun(now_ms, spaced=spaced)
            self._phase_at_ms = now_ms + timeout_ms
            self._complete_join_if_all_joined(now_ms)
        elif delay_ms > 0:
            self._phase_at_ms = now_ms + delay_ms
            self._initial_end_ms = now_ms + max(delay_ms, min(timeout_ms, INITIAL_DELAYS_MAX * delay_ms))
            self._initial_last_id = ""  # Only members after the first one make the group wait for more.
        else:
            self._complete_join(now_ms)

    def _complete_join_if_all_joined(self, now_ms: int) -> None:
        if self._initial_end_ms is not None:
            return
        if self._members.joining_count < len(self._members):
            self._pending_wait_at_ms = None
        elif not self._pending_ids:
            self._complete_join(now_ms)
        elif self._pending_wait_at_ms is None:
            self._pending_wait_at_ms = now_ms + PENDING_WAIT_MS
        elif self._pending_wait_at_ms <= now_ms:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """End the join phase: without those who did not come, into the next generation."""
        self._pending_wait_at_ms = None
        if not self._drop_absent():
            self._phase_at_ms = now_ms + 1
            return
        if self._members and not self._members.elect_joined_leader():
            # Only static members, none of whom has come: wait until one does or their sessions end.
            self._phase_at_ms = now_ms + self._members.rebalance_timeout_ms
            return
        self._phase_at_ms = self._initial_end_ms = None
        self._generation_forms(now_ms)

    def _drop_absent(self) -> bool:
        """Throw out members that are not in the next generation; False: that was not everybody yet."""
        if not self._drop_forgotten_newcomers():
            return False
        members = self._members
        if members.joining_count == len(members):
            return True
        absent = (one for one in members if not one.joining and one.group_instance_id is None)
        return self._remove_many(absent, lambda _: "did not join in time")

    def _generation_forms(self, now_ms: int) -> None:
        self.generation_id += 1
        if not self._members:
            self.protocol_name = None
            self._enter(GroupState.EMPTY)
            self._spacing.emptied()
            self._tell("empty", "no member is left")
            self._save_group(assignments=None)
            return
        self.protocol_name = self._members.vote()
        self._enter(GroupState.COMPLETING_REBALANCE)
        self._phase_at_ms = now_ms + self._members.rebalance_timeout_ms
        tickets, member_ids, shortest_ms = self._members.form(now_ms)
        if shortest_ms is not None:
            self._first_session_ends(now_ms + shortest_ms)
        generation_id = self.generation_id
        protocol_type = self.protocol_type
        protocol_name = self.protocol_name
        leader = self._members.leader_id or ""
        members = self._members.as_seen_by_leader(protocol_name)

        def answer_to(ticket: object, member_id: str) -> JoinAnswer:
            return JoinAnswer(
                ticket=ticket,
                error=ErrorCode.NONE,
                generation_id=generation_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                leader=leader,
                member_id=member_id,
                members=members if member_id == leader else (),
            )

        self._alike.append((answer_to, tickets, member_ids))
        self._tell("generation", f"{len(self._members)} members, {self._members.leader_id} leads")

    def generation_answer(self, member: Member) -> JoinAnswer:
        """Return the answer that tells a member of the present generation what that is."""
        leads = member.member_id == self._members.leader_id
        return JoinAnswer(
            ticket=None,
            error=ErrorCode.NONE,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self._members.leader_id or "",
            member_id=member.member_id,
            members=self._members.as_seen_by_leader(self.protocol_name) if leads else (),
        )

    def _phase_ends(self, now_ms: int) -> None:
        self._phase_at_ms = None
        if self.state is GroupState.PREPARING_REBALANCE:
            if self._initial_end_ms is not None and self._initial_last_id in self._members.by_id:
                self._initial_last_id = ""
                self._phase_at_ms = min(now_ms + self._config.initial_rebalance_delay_ms, self._initial_end_ms)
            if self._phase_at_ms is None or self._phase_at_ms <= now_ms:
                self._complete_join(now_ms)
        else:
            count = len(self._members)
            late = (member for member in self._members if member.awaits_sync)
            if not self._remove_many(late, lambda _: "did not ask for its assignment in time"):
                self._phase_at_ms = now_ms + 1
            if len(self._members) < count:
                self._changed("members did not ask for their assignments in time", now_ms)

    # Saving.

    def _save_group(
        self, assignments: Mapping[str, bytes] | None, *, assigns: bool = False, replacement: Replacement | None = None
    ) -> None:
        self._save = SavedGroup(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader=self._members.leader_id,
            current_state_timestamp_ms=_UNSTAMPED,
            members=self._members.to_saved(self.protocol_name, assignments),
        )
        held_bytes = self.saving_bytes(assignments)
        self._saves.append(_Save(self._save, assigns, replacement, held_bytes))
        self._saves_bytes += held_bytes

    def saving_bytes(self, assignments: Mapping[str, bytes] | None) -> int:
        """Return what is held while the group is saved, with these assignments of its members or the ones they have."""
        members = self._members
        count = len(members) - members.new_count
        assigned = members.assigned_bytes if assignments is None else sum(map(len, assignments.values()))
        return members.record_bytes + count * SAVED_MEMBER_BYTES + assigned

    def _assignment_saved(self, error: ErrorCode, now_ms: int) -> None:
        assert self._assigning is not None
        if error != ErrorCode.NONE:
            self._refuse_assignment(error, now_ms)
            return
        protocol_type = self.protocol_type
        protocol_name = self.protocol_name

        def answer_to(ticket: object, share: bytes) -> SyncAnswer:
            return SyncAnswer(
                ticket=ticket,
                error=ErrorCode.NONE,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignment=share,
            )

        tickets, given = self._share_out(self._assigning, now_ms)
        self._alike.append((answer_to, tickets, given))
        self._assigning = None
        self._enter(GroupState.STABLE)
        self._spacing.settled(now_ms)
        self._tell("stable", f"{len(self._members) - self._members.new_count} members, {self.protocol_name}")
        if self._member_departed or self._members.new_count:
            self._delayed_until_ms = self._spacing.may_begin_at(now_ms)

    def _refuse_assignment(self, error: ErrorCode, now_ms: int) -> None:
        """Tell all who wait for it that it could not be saved, and begin anew."""
        self._refuse_syncs(coordinator_error(error), now_ms)
        self._begin(f"the assignment could not be saved: {error.name}", now_ms)

    def _replacement_saved(self, replacement: Replacement, error: ErrorCode, now_ms: int) -> None:
        member = self._members.by_id.get(replacement.member_id)
        if member is None or not member.joining:
            return
        self._start_session(member, now_ms)
        answer = self.generation_answer(member)
        if error != ErrorCode.NONE:
            answer = JoinAnswer(None, coordinator_error(error))
        elif replacement.skips_assignment:
            answer = answer._replace(skip_assignment=bool(answer.members))
        else:
            answer = answer._replace(leader=replacement.old_leader, members=())
        self._answer_join(member, answer)

    # Members.

    def _remove(self, member: Member, cause: str) -> None:
        """Take a member out and answer what it waits for; the caller says what follows for the group.

        The caller also says `elect_successor` when all that it removes are out.
        """
        if member.join_ticket is not None:
            self._answer_join(member, JoinAnswer(None, ErrorCode.UNKNOWN_MEMBER_ID))
        if member.sync_ticket is not None:
            self._answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        led = self._members.leader_id == member.member_id
        self._members.take_out(member)
        if member.is_new:
            return  # It changes nothing for the others, and one that comes and goes must not fill the history.
        self._gone_count += 1
        if self._gone_count <= NAMED_MAX:
            self._tell("member gone", f"{member.member_id} {cause}")
        self._member_departed |= self.state in _WORKING
        self._leader_departed |= led and self.state is GroupState.COMPLETING_REBALANCE and self._assigning is None

    def _remove_many(self, leaving: Iterable[Member], cause_of: Callable[[Member], str]) -> bool:
        """Take out the first `GONE_MAX` of these; False: there may be more."""
        found = list(islice(leaving, GONE_MAX))
        for member in found:
            self._remove(member, cause_of(member))
        self._members.elect_successor()
        return len(found) < GONE_MAX

    def _drop_forgotten_newcomers(self) -> bool:
        """Return as `_remove_many`."""
        if not self._members.new_count:
            return True
        forgotten = (member for member in self._members if member.is_new and member.join_ticket is None)
        return self._remove_many(forgotten, lambda _: "hung up before it was let in")

    def _start_session(self, member: Member, now_ms: int, timeout_ms: int | None = None) -> None:
        member.expires_at_ms = now_ms + max(1, member.session_timeout_ms if timeout_ms is None else timeout_ms)
        self._first_session_ends(member.expires_at_ms)

    def _expire_sessions(self, now_ms: int) -> None:
        for member_id in [member_id for member_id, at_ms in self._pending_ids.items() if at_ms <= now_ms]:
            self._forget_pending(member_id)
        count = len(self._members)
        expired = (one for one in self._members if one.expires_at_ms <= now_ms and not one.waits)
        were_all = self._remove_many(expired, lambda one: f"was not heard of for {one.session_timeout_ms} ms")
        running = [member.expires_at_ms for member in self._members if not member.waits]
        next_at_ms = min((*running, *self._pending_ids.values()), default=None)
        grain_ms = SESSION_GRAIN_MS if were_all else 1
        self._sessions_at_ms = None if next_at_ms is None else max(next_at_ms, now_ms + grain_ms)
        if len(self._members) < count or self.state is GroupState.PREPARING_REBALANCE:
            self._changed("members were not heard of", now_ms)

    def _give_out(self, member_id: str, expires_at_ms: int) -> None:
        """Note that somebody may come back with that id until then."""
        if len(self._pending_ids) >= PENDING_IDS_MAX:
            self._forget_pending(next(iter(self._pending_ids)))
        self._pending_ids[member_id] = expires_at_ms
        self._pending_bytes += PENDING_ID_BYTES + text_bytes(member_id)
        self._sessions_at_ms = min(expires_at_ms, self._sessions_at_ms or expires_at_ms)

    def _forget_pending(self, member_id: str) -> bool:
        """Take back a member id that was given out; tell whether it was."""
        if self._pending_ids.pop(member_id, None) is None:
            return False
        self._pending_bytes -= PENDING_ID_BYTES + text_bytes(member_id)
        return True

    # Effects.

    def _enter(self, state: GroupState) -> None:
        assert may_follow(self.state, self._event, state), (self.state, self._event, state)
        self.state = state

    def _tell(self, kind: str, cause: str) -> None:
        self._facts.append(Fact(kind, self.generation_id, cause))

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        """Answer a parked JoinGroup, if there is one and somebody still waits."""
        ticket = self._members.stop_joining(member)
        if ticket is not None:
            self._answers.append(answer._replace(ticket=ticket))

    def _answer_sync(self, member: Member, error: ErrorCode) -> bool:
        """Answer a parked SyncGroup and say whether there was one."""
        was_syncing = member.syncing
        ticket = self._members.stop_syncing(member)
        if ticket is not None:
            if error == ErrorCode.NONE:
                answer = SyncAnswer(
                    ticket=ticket,
                    error=error,
                    protocol_type=self.protocol_type,
                    protocol_name=self.protocol_name,
                    assignment=member.assignment,
                )
            else:
                answer = SyncAnswer(ticket, error)
            self._answers.append(answer)
        return was_syncing

    def _refuse_syncs(self, error: ErrorCode, now_ms: int) -> None:
        self._alike.append((lambda ticket, _: SyncAnswer(ticket, error), *self._share_out({}, now_ms)))

    def _share_out(self, shares: Mapping[str, bytes], now_ms: int) -> tuple[list[object], list[bytes]]:
        tickets, given, shortest_ms = self._members.share_out(shares, now_ms)
        if shortest_ms is not None:
            self._first_session_ends(now_ms + shortest_ms)
        return tickets, given

    def _first_session_ends(self, at_ms: int) -> None:
        if self._sessions_at_ms is None or at_ms < self._sessions_at_ms:
            self._sessions_at_ms = at_ms

    def _effects(self) -> Effects:
        alike = [one for one in self._alike if one[1]]
        self._alike = []
        if not (self._answers or alike or self._save is not None or self._facts):
            return _NOTHING
        if self._gone_count > NAMED_MAX:
            self._tell("member gone", f"{self._gone_count - NAMED_MAX} more at once")
        self._gone_count = 0
        answers = Answers(tuple(self._answers), alike) if alike else tuple(self._answers)
        effects = Effects(answers, self._save, tuple(self._facts))
        self._answers = []
        self._save = None
        self._facts = []
        return effects


def _ended(ticket: object, own: tuple[str, bool], error: ErrorCode) -> Answer:
    member_id, is_joining = own
    return JoinAnswer(ticket, error, member_id=member_id) if is_joining else SyncAnswer(ticket, error)


_NOTHING = Effects()
