"""Answers what members of one group of KIP-848 say, and decides who is to have which partitions. Pure.

A member says in each heartbeat who it is, in which epoch, and what has changed; the answer says which partitions it may
use. There is no barrier: everybody goes from the old target to the new one by itself (`reconciling`).

Three numbers count up. The *group's epoch* rises when members, subscriptions or topics change. The *target* is of one
of these epochs, and a new one is made when it lags behind. A *member's epoch* is that of the target that it has
reached.

*Everything is records.* What changes is written as values of `values`, each in place of the older one under its name,
and taken in at once (`GroupRecords.put`). `take_changes` gives them to the caller, who appends them; what could not be
appended is taken back (`undo`). So the group is what its log says, or ahead by what is under way.

Who is told what, as Kafka 4.4 answers:

- *No such member,* no such instance: UNKNOWN_MEMBER_ID. The instance of another member id: FENCED_INSTANCE_ID; to join
  as an instance whose member has not said that it goes: UNRELEASED_INSTANCE_ID.
- *Another epoch* than the member's: FENCED_MEMBER_EPOCH, and it joins again with nothing. The epoch before is accepted
  if all that it says it has is among what it was given: an answer was lost (trap G3).
- *Too many:* GROUP_MAX_SIZE_REACHED, said to those who join and to no others: a client takes it for the end.

A static member that leaves with epoch -2 comes back: it stays in the group with what it had, nobody gets that, and
whoever joins as the same instance inherits it, under another member id (trap G4). A member that joins again under its
own id and instance finds itself: its first answer may have been lost. (Kafka refuses that one for ever.)

*Topics* are looked at when a target is made, and after a heartbeat if any has changed that the group subscribes to: in
steps, beside all else, for there may be tens of thousands. A heartbeat itself looks at none. While a broker that has
just started does not know yet which topics exist, nothing follows from one that is missing: nobody loses anything.

Not here: targets are made by assignors (`assignors`), and what patterns match is found for all groups of a broker
(`messages.Topics`); the wire; and the other requests of members that speak the classic protocol (`mixed`): each of
their JoinGroups is heard here.
"""

from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple, Self

from barnabas_clients.protocol.error_codes import ErrorCode

from .assignors.roster import MemberSubscription, in_order
from .classic_members import ClassicMembers
from .messages import (
    Assign,
    Beat,
    ConsumerAnswer,
    ConsumerConfig,
    Heard,
    Plan,
    Refusal,
    Topics,
)
from .reconciling import Step, is_among, reconciled
from .saved import GroupRecords
from .subscribed import TOPICS_MAX, SubscribedIds, SubscribedTopics
from .values import (
    NO_TARGET,
    NOTHING,
    STATIC_LEAVING_EPOCH,
    ConsumerKey,
    ConsumerValue,
    GroupEpoch,
    Kind,
    MemberAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
    ResolvedPattern,
    Target,
    TargetEpoch,
    partition_count,
)

__all__ = ["HURRY_MS", "Change", "ConsumerProtocolGroup"]

HURRY_MS = 200
"""How soon a member is to come again while its group changes, at the least."""
HURRY_PART = 10
"""While somebody is waited for, the others come again after this part of the time that they have waited already."""
EXPIRED_STEP = 100
"""Members that are thrown out in one go; the others a millisecond later."""
RESOLVING_MS = 10
"""While it is not known what a pattern matches a group looks again after so long."""
UNKNOWN_MS = 50
"""Likewise, while it is not known which topics exist."""
PATTERN_REFRESH_MS = 10_000
"""New topics are looked at with the patterns of a group at most this often."""
NAMES_STEP = 500  # names between two yields
TARGETS_STEP = 1_000  # topics of targets that are taken in, where a target counts as ten and ten partitions as one
SAVED_BYTES = 30_000  # of records that are taken in when a group is loaded, as they are counted
SHARE_MAX = 10_000
"""Partitions of one member. It says, hears and saves all of them at once, 8 ms; what is more waits for more members."""
SHARE_TOPICS_MAX = 2_000
"""Likewise, topics: one with one partition costs as much as five partitions."""
REVOKING_SPARE = 100
GROUP_BYTES = 3_000
MEMBER_BYTES = 1_000
NOBODY = MemberAssignment(0, 0)


class Change(NamedTuple):
    """A record that a group wants to have written. None is a tombstone; `old` is what was there."""

    key: ConsumerKey
    value: ConsumerValue | None
    old: ConsumerValue | None


class ConsumerProtocolGroup(GroupRecords):
    """One group, as its coordinator knows it.

    After every call the owner takes what has changed, appends it, and sees to it that `tick` is called when
    `deadline_ms` has come. Invariants: a partition is in `owners` while its member has it, or has not given it up yet,
    and no two members have one; `instances` has the static members by instance.

    Limits: `config.size_max` members, who subscribe to `TOPICS_MAX` topics together, and with patterns to as many more;
    `SHARE_MAX` partitions of each, of `SHARE_TOPICS_MAX` topics. `left_out` partitions were more than that in the last
    target, and are nobody's. `gathers_since_ms`: when the first member came, until a target was made for it.
    """

    __slots__ = (
        "_assign_in_steps",
        "_changed_at_ms",
        "_changes",
        "_config",
        "_held",
        "_is_cut",
        "_looked_version",
        "_now_ms",
        "_refreshed_at_ms",
        "_resolved_versions",
        "_revoking",
        "_revoking_at",
        "_sessions",
        "_subscribed",
        "_target_at_ms",
        "classic",
        "gathers_since_ms",
        "instances",
        "left_out",
        "owners",
    )

    def __init__(self, group_id: str, config: ConsumerConfig, assign_in_steps: Assign) -> None:
        super().__init__(group_id)
        self._config = config
        self._assign_in_steps = assign_in_steps
        self._held: set[str] = set()  # patterns
        self._changes: list[Change] = []
        self._subscribed = SubscribedTopics()
        self._sessions: dict[str, int] = {}  # in the order in which they end
        self._revoking: dict[str, int] = {}  # until when members may take to give partitions up
        self._revoking_at: list[tuple[int, str]] = []  # a heap; those that `_revoking` does not say are over
        self._resolved_versions: dict[str, int] = {}  # of topics that each pattern was resolved with
        self._is_cut = False  # Whether patterns match more than there is room for.
        self._looked_version = -1  # of topics that the epoch's hash was made of
        self._now_ms = 0
        self._changed_at_ms = self._refreshed_at_ms = self._target_at_ms = -(1 << 62)
        self.gathers_since_ms: int | None = None
        self.left_out = 0
        self.classic = ClassicMembers()
        self.instances: dict[str, str] = {}
        self.owners: dict[bytes, dict[int, str]] = {}

    @classmethod
    def from_saved_in_steps(
        cls, saved: GroupRecords, config: ConsumerConfig, assign_in_steps: Assign, now_ms: int
    ) -> Generator[None, None, Self]:
        """Return the group as a new coordinator finds it: sessions, and the time to give partitions up, begin now."""
        group = cls(saved.group_id, config, assign_in_steps)
        begun_bytes = 0
        for number, key in enumerate(list(saved.keys()), 1):
            value = saved.get(key)
            if value is not None and (key.kind is not Kind.MEMBER_ASSIGNMENT or key.subject in saved.members):
                group.put(key, value)
            if not number % EXPIRED_STEP or group.size_bytes - begun_bytes >= SAVED_BYTES:
                begun_bytes = group.size_bytes
                yield
        group.restart_sessions(now_ms)
        return group

    @property
    def held_total_bytes(self) -> int:
        """Memory that the group takes, with all that it knows beside its records."""
        return GROUP_BYTES + MEMBER_BYTES * len(self.members) + self.held_bytes

    @property
    def assignor(self) -> str:
        """The assignor that is used: the one that most members ask for, if the settings have it, else their first."""
        wanted = self.preferred_assignor
        assignors = self._config.assignors
        return wanted if wanted in assignors else assignors[0]

    def subscribed(self) -> Container[str]:
        """Return the topics that members subscribe to, by name or by a pattern, whether they exist or not; a view."""
        return self._subscribed

    # What changes.

    def put(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        old = self.get(key)
        super().put(key, value)
        match key.kind:
            case Kind.MEMBER_METADATA:
                assert old is None or isinstance(old, MemberMetadata)
                assert value is None or isinstance(value, MemberMetadata)
                self._note_metadata(key.subject, old, value)
            case Kind.MEMBER_ASSIGNMENT:
                assert old is None or isinstance(old, MemberAssignment)
                assert value is None or isinstance(value, MemberAssignment)
                self._note_assignment(key.subject, old, value)
            case Kind.PATTERN:
                assert value is None or isinstance(value, ResolvedPattern)
                self._subscribed.resolve(key.subject, value)
            case _:
                pass

    def _note_metadata(self, member_id: str, old: MemberMetadata | None, new: MemberMetadata | None) -> None:
        if old is not None and old.instance_id is not None and self.instances.get(old.instance_id) == member_id:
            del self.instances[old.instance_id]
        if new is not None and new.instance_id is not None:
            self.instances[new.instance_id] = member_id
        self._subscribed.change(old, new)
        self.classic.note(old, new)

    def _note_assignment(self, member_id: str, old: MemberAssignment | None, new: MemberAssignment | None) -> None:
        for had in () if old is None else (old.assigned, old.revoking):
            for topic_id, epochs in had.items():
                owners = self.owners[topic_id]
                if len(owners) == len(epochs):
                    del self.owners[topic_id]
                    continue
                for number in epochs:
                    del owners[number]
        for has in () if new is None else (new.assigned, new.revoking):
            for topic_id, epochs in has.items():
                owners = self.owners.setdefault(topic_id, {})
                count = len(owners)
                owners.update(dict.fromkeys(epochs, member_id))
                assert len(owners) == count + len(epochs), "two members have one partition"

    def _write(self, kind: Kind, subject: str, value: ConsumerValue | None) -> None:
        key = ConsumerKey(self.group_id, kind, subject)
        self._changes.append(Change(key, value, self.get(key)))
        self.put(key, value)

    def fill(self, kind: Kind, subject: str, value: ConsumerValue) -> None:
        """Write what a group begins with that was another one before."""
        self._write(kind, subject, value)

    def fill_epoch_in_steps(self, epoch: int, topics: Topics, *, is_settled: bool) -> Generator[None, None, None]:
        """Begin with an epoch whose target is there; if the group was not settled, with the next one, too.

        Topics are known (`Topics.is_known`).
        """
        version = topics.version
        metadata_hash = yield from self._subscribed.hash_in_steps(topics, {})
        self._looked_version = version
        self._write(Kind.GROUP_EPOCH, "", GroupEpoch(epoch, metadata_hash))
        self._write(Kind.TARGET_EPOCH, "", TargetEpoch(epoch))
        if not is_settled:
            self._begin_epoch(self._now_ms)

    def give_back(self, changes: list[Change]) -> None:
        """Have changes that were taken be taken again, before all others: nothing came of them yet."""
        self._changes[:0] = changes

    def tombstones(self) -> Iterator[Change]:
        """Yield what ends every record of the group, of which nothing is left then. It is not taken in here."""
        return (Change(key, None, self.get(key)) for key in self.keys())

    def configure(self, config: ConsumerConfig, now_ms: int) -> None:
        """Go by other settings from now on. With another session timeout all sessions begin anew."""
        before, self._config = self._config, config
        if config.session_timeout_ms != before.session_timeout_ms:
            for member_id in list(self._sessions):
                self.touch(member_id, now_ms)

    @property
    def config(self) -> ConsumerConfig:
        return self._config

    def take_changes(self) -> list[Change]:
        """Return what has changed since the last time, in order."""
        changes, self._changes = self._changes, []
        return changes

    def undo(self, changes: Iterable[Change] = ()) -> None:
        """Take back the last changes, given in their order, and all that nobody has taken yet."""
        undone = [*changes, *self.take_changes()]
        for change in reversed(undone):
            self.put(change.key, change.old)
            if change.key.kind in {Kind.GROUP_EPOCH, Kind.PATTERN}:
                # What was seen when it was written is to be seen again.
                self._looked_version = -1
                self._resolved_versions.clear()
        for member_id in {change.key.subject for change in undone}:
            if member_id not in self.members:
                self._forget_times(member_id)
            elif member_id not in self._sessions and member_id not in self.classic.sessions:
                self.touch(member_id, self._now_ms)
                self._time_revoking(member_id, self.assignments.get(member_id, NOBODY), self._now_ms)

    # Heartbeats.

    def hear(self, beat: Beat, topics: Topics, now_ms: int) -> Heard | Refusal:
        """Let a member in, or hear what it has to say. A `Refusal`: nothing has changed."""
        self._now_ms = now_ms
        refusal = self._refusal(beat) or self._find(beat)
        if refusal is None:
            refusal, heard = self._update(beat, topics, now_ms)
            if heard is not None:
                return heard
        assert refusal is not None
        self.undo()
        return refusal

    def _refusal(self, beat: Beat) -> Refusal | None:
        assignors = self._config.assignors
        if beat.server_assignor is not None and beat.server_assignor not in assignors:
            text = (
                f"ServerAssignor {beat.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
            )
            return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, text)
        return None

    def _find(self, beat: Beat) -> Refusal | None:
        """Find the member, with the place that it takes over if it comes back; or say why it is none."""
        if beat.instance_id is not None:
            refusal = self._find_instance(beat, beat.instance_id)
            if refusal is not None:
                return refusal
        if beat.member_id in self.members:
            return self._epoch_refusal(beat)
        if not beat.joins:
            return self._unknown(beat.member_id)
        size_max = self._config.size_max
        if len(self.members) >= size_max:
            text = f"The consumer group has reached its maximum capacity of {size_max} members."
            return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        return None

    def _find_instance(self, beat: Beat, instance_id: str) -> Refusal | None:
        holder = self.instances.get(instance_id)
        may_come = beat.joins and not beat.is_known
        if holder is None:
            return None if may_come else _unknown_instance(instance_id)
        if holder == beat.member_id:
            return None
        who = f"Static member {beat.member_id} with instance id {instance_id}"
        if not may_come or beat.member_id in self.members:
            return Refusal(ErrorCode.FENCED_INSTANCE_ID, f"{who} was fenced by member {holder}.")
        # Classic members do not say that they come back: whoever has the instance id takes over.
        is_classic = beat.classic is not None or self.members[holder].classic is not None
        if not is_classic and self.assignments.get(holder, NOBODY).epoch != STATIC_LEAVING_EPOCH:
            text = f"{who} cannot join the group because the instance id is owned by {holder} member."
            return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        self._replace(holder, beat.member_id)
        return None

    def _replace(self, old_id: str, new_id: str) -> None:
        """Let a static member go on under another member id, with all that it had."""
        metadata, target, assignment = self.members[old_id], self.targets.get(old_id), self.assignments.get(old_id)
        self._remove(old_id)
        self._write(Kind.MEMBER_METADATA, new_id, metadata)
        if target is not None:
            self._write(Kind.TARGET, new_id, target)
        if assignment is not None:  # It has none before it has been answered for the first time.
            self._write(Kind.MEMBER_ASSIGNMENT, new_id, assignment._replace(epoch=0, previous_epoch=0))

    def _unknown(self, member_id: str) -> Refusal:
        text = f"Member {member_id} is not a member of group {self.group_id}."
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, text)

    def _epoch_refusal(self, beat: Beat) -> Refusal | None:
        now = self.assignments.get(beat.member_id, NOBODY)
        if beat.joins:
            return None
        end = "The member must abandon all its partitions and rejoin."
        if now.state is MemberState.UNKNOWN and (beat.owned is None or beat.owned):
            return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"The consumer group member is in a unknown state. {end}")
        is_lost_answer = beat.epoch == now.previous_epoch and is_among(beat.owned, now.assigned)
        if beat.epoch == now.epoch or (beat.epoch < now.epoch and is_lost_answer):
            return None
        which = "greater" if beat.epoch > now.epoch else "smaller"
        text = (
            f"The consumer group member has a {which} member epoch ({beat.epoch}) than the one known by the group "
            f"coordinator ({now.epoch}). {end}"
        )
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, text)

    def _update(self, beat: Beat, topics: Topics, now_ms: int) -> tuple[Refusal | None, Heard | None]:
        member_id = beat.member_id
        before = self.members.get(member_id)
        after = _said(before or MemberMetadata(), beat)
        known = before or MemberMetadata()
        refusal = self._subscription_refusal(before, after, topics)
        if refusal is not None:
            return refusal, None
        assignor = self.assignor
        if not self.members:
            self.gathers_since_ms = now_ms
        if after != before:
            self._write(Kind.MEMBER_METADATA, member_id, after)
        assignment = self.assignments.get(member_id, NOBODY)
        if assignment.epoch < 0:
            self._write(Kind.MEMBER_ASSIGNMENT, member_id, assignment._replace(epoch=0, previous_epoch=0))
        has_resubscribed = (known.topic_names, known.topic_pattern) != (after.topic_names, after.topic_pattern)
        if has_resubscribed:
            self._forget_pattern(known.topic_pattern, topics)
        is_changed = before is None or has_resubscribed or self.assignor != assignor
        if self._held != self._subscribed.patterns.keys():
            self._hold(topics)
        if is_changed:
            self._begin_epoch(now_ms)
        self.touch(member_id, now_ms)
        self.classic.joins.drop(member_id)
        return None, Heard(beat, assignment.assigned, self.epoch_number, has_resubscribed)

    def _subscription_refusal(
        self, before: MemberMetadata | None, after: MemberMetadata, topics: Topics
    ) -> Refusal | None:
        pattern = after.topic_pattern
        is_new = pattern and (before is None or before.topic_pattern != pattern)
        if pattern and is_new and pattern not in self._subscribed.patterns:
            refusal = topics.pattern_refusal(pattern)
            if refusal is not None:
                return refusal
        growth = self._subscribed.growth(after)
        if growth and len(self._subscribed.names) + growth > TOPICS_MAX:
            text = f"The members of the group would subscribe to more than {TOPICS_MAX} topics together."
            return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        return None

    def _forget_pattern(self, pattern: str | None, topics: Topics) -> None:
        if pattern and pattern not in self._subscribed.patterns:
            if pattern in self.patterns:
                self._write(Kind.PATTERN, pattern, None)
            self._hold(topics)

    def _begin_epoch(self, now_ms: int) -> None:
        # The topics are looked at when the target for it is made.
        metadata_hash = 0 if self.epoch is None else self.epoch.metadata_hash
        self._write(Kind.GROUP_EPOCH, "", GroupEpoch(self.epoch_number + 1, metadata_hash))
        self._changed_at_ms = now_ms

    # Targets.

    def plan_due_ms(self, topics: Topics, now_ms: int) -> int | None:
        """Return when a new target, or a new look at topics, is wanted: at the earliest now."""
        if not self.members:
            return None
        if not topics.is_known:
            return now_ms + UNKNOWN_MS
        if not all(map(topics.is_ready, self._held)):
            return now_ms + RESOLVING_MS
        if self.target_number < self.epoch_number:
            due_ms = max(now_ms, self._target_at_ms + self._config.assignment_interval_ms)
            since_ms = self.gathers_since_ms
            return due_ms if since_ms is None else max(due_ms, since_ms + self._config.initial_delay_ms)
        if self._looked_version != topics.version:
            return now_ms
        return self._refresh_due_ms(topics, now_ms)

    def _refresh_due_ms(self, topics: Topics, now_ms: int) -> int | None:
        """Return when it is to be seen what patterns match by now; None: nothing has changed since it was."""
        versions = [self._resolved_versions.get(pattern) for pattern in self._subscribed.patterns]
        if None in versions:
            return now_ms
        if any(version != topics.version for version in versions):
            return max(now_ms, self._refreshed_at_ms + PATTERN_REFRESH_MS)
        return None

    def plan_in_steps(self, topics: Topics, now_ms: int, wall_ms: int) -> Generator[None, None, Plan]:
        """Return a plan for the group as it is now; members and topics may change meanwhile."""
        epoch = self.epoch_number
        version = topics.version
        known_hash = 0 if self.epoch is None else self.epoch.metadata_hash
        is_wanted = self.target_number < epoch
        patterns: dict[str, ResolvedPattern] = {}
        refresh_ms = self._refresh_due_ms(topics, now_ms)
        if is_wanted or (refresh_ms is not None and refresh_ms <= now_ms):
            self._refreshed_at_ms = now_ms
            patterns = yield from self._resolved_in_steps(topics, version, wall_ms)
        has_new = any(
            pattern not in self.patterns or self.patterns[pattern].topics != resolved.topics
            for pattern, resolved in patterns.items()
        )
        if not (is_wanted or has_new) and not self._is_concerned(topics):
            return Plan(epoch, version, known_hash, patterns, None)
        metadata_hash = yield from self._subscribed.hash_in_steps(topics, patterns)
        if not (is_wanted or has_new) and metadata_hash == known_hash:
            return Plan(epoch, version, known_hash, patterns, None)
        said, counts = yield from self._said_in_steps(patterns, topics)
        targets = yield from self._assign_in_steps(self.assignor, said, counts)
        return Plan(epoch, version, metadata_hash, patterns, targets)

    def _is_concerned(self, topics: Topics) -> bool:
        """Tell whether a topic may have changed that the group subscribes to, since its hash was made."""
        if self._looked_version == topics.version:
            return False
        return self._looked_version < 0 or self._subscribed.is_concerned(topics.changed_since(self._looked_version))

    def _resolved_in_steps(
        self, topics: Topics, version: int, wall_ms: int
    ) -> Generator[None, None, dict[str, ResolvedPattern]]:
        """Return what those patterns match that were not looked at with this version of topics.

        All patterns of the group together match `TOPICS_MAX` topics; of the last ones there may be less, or none.
        """
        patterns: dict[str, ResolvedPattern] = {}
        wanted = list(self._subscribed.patterns)
        self._is_cut = False
        is_old = [self._resolved_versions.get(one) != version or one not in self.patterns for one in wanted]
        left = TOPICS_MAX - sum(
            len(self.patterns[one].topics) for one, old in zip(wanted, is_old, strict=True) if not old
        )
        for pattern in (one for one, old in zip(wanted, is_old, strict=True) if old):
            found = yield from topics.matching_in_steps(pattern)
            names = yield from in_order(found, str)
            self._is_cut = self._is_cut or len(names) > left
            patterns[pattern] = ResolvedPattern(tuple(names[:left]), version, wall_ms)
            left -= len(patterns[pattern].topics)
        return patterns

    def _hold(self, topics: Topics) -> None:
        """Hold the patterns that members subscribe with, and no others."""
        wanted = set(self._subscribed.patterns)
        for pattern in wanted - self._held:
            topics.hold(pattern)
        for pattern in self._held - wanted:
            topics.let_go(pattern)
            self._resolved_versions.pop(pattern, None)
            if self._is_cut:
                self._resolved_versions.clear()
        self._held = wanted

    def close(self, topics: Topics) -> None:
        """Let everything go that is held: nobody asks for the group any more."""
        for pattern in self._held:
            topics.let_go(pattern)
        self._held = set()

    def _said_in_steps(
        self, patterns: Mapping[str, ResolvedPattern], topics: Topics
    ) -> Generator[None, None, tuple[dict[str, MemberSubscription], dict[bytes, int]]]:
        """Return what an assignor is told of the members, and the topics that there are of theirs."""
        said: dict[str, MemberSubscription] = {}
        counts: dict[bytes, int] = {}
        by_kind: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
        work = 0
        for member_id, metadata in list(self.members.items()):
            kind = (metadata.topic_names, metadata.topic_pattern)
            topic_ids = by_kind.get(kind)
            if topic_ids is None:
                resolved = patterns.get(metadata.topic_pattern or "") or self.patterns.get(metadata.topic_pattern or "")
                found = yield from _found_in_steps(topics, metadata.topic_names, resolved)
                counts.update(found)
                topic_ids = by_kind[kind] = frozenset(found)
                yield
            target = self.targets.get(member_id, NO_TARGET)
            said[member_id] = MemberSubscription(topic_ids, metadata.instance_id, target)
            work += 1
            if work >= NAMES_STEP:
                work = 0
                yield
        return said, counts

    def take_plan_in_steps(self, plan: Plan, now_ms: int, wall_ms: int) -> Generator[None, None, None]:
        """Take a plan in: members that have gone meanwhile get nothing, and those that have come wait for the next.

        What has changed may be taken after each step; the epoch of the target comes last.
        """
        has_new = self._take_patterns(plan)
        if has_new:
            yield
        epoch = self._take_epoch(plan, has_new=has_new)
        if plan.targets is None or epoch <= self.target_number:
            return
        left_out = work = 0
        for member_id, target in plan.targets.items():
            share = _cut(target)
            count = partition_count(share)
            left_out += partition_count(target) - count
            work += 10 + len(share) + count // 10
            if member_id in self.members and self.targets.get(member_id) != share:
                self._write(Kind.TARGET, member_id, share)
            if work >= TARGETS_STEP:
                work = 0
                yield
        if not self.members or epoch <= self.target_number:
            return
        if epoch == self.epoch_number and not self.members.keys() <= plan.targets.keys():
            # Somebody has come back under another id, and still has the target of before.
            self._begin_epoch(now_ms)
        self._write(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, wall_ms))
        self.left_out = left_out
        self.gathers_since_ms = None
        self._target_at_ms = self._changed_at_ms = now_ms

    def _take_patterns(self, plan: Plan) -> bool:
        has_new = False
        for pattern, resolved in plan.patterns.items():
            if pattern in self._subscribed.patterns:
                known = self.patterns.get(pattern)
                if known is None or known.topics != resolved.topics:
                    self._write(Kind.PATTERN, pattern, resolved)
                    has_new = True
                self._resolved_versions[pattern] = plan.version
        return has_new

    def _take_epoch(self, plan: Plan, *, has_new: bool) -> int:
        """Write what the topics are that a plan was made for; return the epoch that its target is for."""
        epoch = plan.epoch
        if epoch == self.epoch_number and self.members:
            self._looked_version = plan.version
            known_hash = 0 if self.epoch is None else self.epoch.metadata_hash
            if plan.targets is not None and (has_new or known_hash != plan.metadata_hash):
                # It is still what members were promised, unless there is a target for it.
                epoch += self.target_number >= epoch
                self._write(Kind.GROUP_EPOCH, "", GroupEpoch(epoch, plan.metadata_hash))
        return epoch

    # Answers.

    def answer(self, heard: Heard, topics: Topics, now_ms: int) -> ConsumerAnswer | Refusal:
        """Take a member that was heard a step further, and say what it is told."""
        member_id = heard.beat.member_id
        if member_id not in self.members:
            return self._unknown(member_id)
        now = after = self.assignments.get(member_id, NOBODY)
        if heard.has_unsubscribed or member_id not in self.reconciled:
            target = self.targets.get(member_id, NO_TARGET)
            metadata = self.members[member_id]
            topic_ids = SubscribedIds(metadata, self.patterns.get(metadata.topic_pattern or ""), topics)
            step = Step(member_id, now, self.target_number, target, topic_ids, self.owners, heard.beat.owned)
            after = reconciled(step, has_unsubscribed=heard.has_unsubscribed)
        if after is not now:
            self._write(Kind.MEMBER_ASSIGNMENT, member_id, after)
            self._changed_at_ms = now_ms
            self._time_revoking(member_id, after, now_ms)
        is_told = heard.beat.is_full or not _are_same(after.assigned, heard.before)
        return ConsumerAnswer(
            member_id, after.epoch, after.assigned if is_told else None, self.interval_ms(member_id, now_ms)
        )

    def interval_ms(self, member_id: str, now_ms: int) -> int:
        """Return how soon a member is to come again: soon while the group changes, and for a while behind that."""
        settled_ms = self._config.heartbeat_interval_ms
        unchanged_ms = now_ms - self._changed_at_ms
        if member_id in self.reconciled and self.target_number == self.epoch_number and unchanged_ms >= settled_ms:
            return settled_ms
        return min(settled_ms, max(HURRY_MS, unchanged_ms // HURRY_PART))

    # Who leaves, and who is thrown out.

    def leave(self, beat: Beat, topics: Topics, now_ms: int) -> Refusal | None:
        """Take a member out (epoch -1), or note that a static one comes back (-2)."""
        self._now_ms = now_ms
        member_id = beat.member_id
        if beat.instance_id is not None:
            holder = self.instances.get(beat.instance_id)
            if holder is None:
                return _unknown_instance(beat.instance_id)
            if holder != member_id:
                who = f"Static member {member_id} with instance id {beat.instance_id}"
                return Refusal(ErrorCode.FENCED_INSTANCE_ID, f"{who} was fenced by member {holder}.")
            if beat.epoch == STATIC_LEAVING_EPOCH:
                self._leave_for_a_while(member_id, now_ms)
                return None
        if member_id not in self.members:
            return self._unknown(member_id)
        self._fence([member_id], topics, now_ms)
        return None

    def _leave_for_a_while(self, member_id: str, now_ms: int) -> None:
        now = self.assignments.get(member_id, NOBODY)
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in now.assigned.items()}
        after = now._replace(epoch=STATIC_LEAVING_EPOCH, assigned=assigned, revoking=NOTHING)
        self._write(Kind.MEMBER_ASSIGNMENT, member_id, after)
        self._revoking.pop(member_id, None)
        self._changed_at_ms = now_ms

    def _fence(self, member_ids: Iterable[str], topics: Topics, now_ms: int) -> None:
        for member_id in member_ids:
            pattern = self.members[member_id].topic_pattern
            self._remove(member_id)
            self._forget_pattern(pattern, topics)
        if self.becomes_classic:
            return  # The generation goes on with the present epoch, which its members know.
        self._begin_epoch(now_ms)
        if not self.members:
            # Nobody is there to make a target for.
            self._write(Kind.TARGET_EPOCH, "", TargetEpoch(self.epoch_number))
            self._target_at_ms = -(1 << 62)

    def _remove(self, member_id: str) -> None:
        self._write(Kind.MEMBER_ASSIGNMENT, member_id, None)
        if member_id in self.targets:
            self._write(Kind.TARGET, member_id, None)
        self._write(Kind.MEMBER_METADATA, member_id, None)
        self._forget_times(member_id)

    def _forget_times(self, member_id: str) -> None:
        self._sessions.pop(member_id, None)
        self._revoking.pop(member_id, None)
        self.classic.drop(member_id)

    @property
    def becomes_classic(self) -> bool:
        """True if only members of the classic protocol are left, and may be a classic group again."""
        count = len(self.members)
        return 0 < count == self.classic.count and self._config.downgrades and count <= self._config.classic_size_max

    def stay(self, now_ms: int) -> None:
        """Go on with what classic members are left, as a group of KIP-848: there is a new target without the others."""
        self._begin_epoch(now_ms)

    def remove(self) -> None:
        """Write tombstones for everything; the group must be empty."""
        assert not self.members
        for key in list(self.keys()):
            self._write(key.kind, key.subject, None)

    # Time.

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` is to be called; it may be too early, never too late. None: there is nobody."""
        first_ms = next(iter(self._sessions.values()), None)
        found = [until_ms for until_ms in (first_ms, self.classic.deadline_ms) if until_ms is not None]
        if self._revoking_at:
            found.append(self._revoking_at[0][0])
        return min(found, default=None)

    def tick(self, topics: Topics, now_ms: int) -> list[tuple[str, str]]:
        """Throw out who has been silent, or has not given up its partitions; return (member id, why) of each."""
        self._now_ms = now_ms
        gone: dict[str, str] = {}
        for member_id, until_ms in self._sessions.items():
            if until_ms > now_ms or len(gone) >= EXPIRED_STEP:
                break
            gone[member_id] = f"was silent for {self._config.session_timeout_ms} ms"
        while self._revoking_at and self._revoking_at[0][0] <= now_ms and len(gone) < EXPIRED_STEP:
            until_ms, member_id = heappop(self._revoking_at)
            if self._revoking.get(member_id) == until_ms:
                gone[member_id] = "did not give up its partitions in time"
        gone |= self.classic.due(now_ms, EXPIRED_STEP)
        if gone:
            self._fence(gone, topics, now_ms)
        return list(gone.items())

    def restart_sessions(self, now_ms: int) -> None:
        """Let every session begin now, and the time to give partitions up: nobody could be heard."""
        self._sessions = {}
        self.classic.clear()
        for member_id in self.members:
            self.touch(member_id, now_ms)
        self._revoking.clear()
        self._revoking_at.clear()
        for member_id, assignment in self.assignments.items():
            self._time_revoking(member_id, assignment, now_ms)

    def touch(self, member_id: str, now_ms: int) -> None:
        """Let the session of a member begin now."""
        self._sessions.pop(member_id, None)
        classic = self.members[member_id].classic
        if classic is not None:
            self.classic.sessions.set(member_id, now_ms + max(1, classic.session_timeout_ms))
            return
        self.classic.drop(member_id)
        # It stands behind all others now: they have the same timeout.
        self._sessions[member_id] = now_ms + self._config.session_timeout_ms

    def _time_revoking(self, member_id: str, assignment: MemberAssignment, now_ms: int) -> None:
        is_asked = assignment.state is MemberState.UNREVOKED and assignment.epoch >= 0
        # Classic members have a time to join again instead.
        if not is_asked or member_id not in self.members or self.members[member_id].classic is not None:
            self._revoking.pop(member_id, None)
            return
        until_ms = now_ms + max(0, self.members[member_id].rebalance_timeout_ms)
        self._revoking[member_id] = until_ms
        heappush(self._revoking_at, (until_ms, member_id))
        if len(self._revoking_at) > 2 * len(self._revoking) + REVOKING_SPARE:
            self._revoking_at = sorted((until_ms, member_id) for member_id, until_ms in self._revoking.items())

    # Offsets.

    def commit_refusal(
        self, member_id: str, instance_id: str | None, epoch: int, *, version: int | None
    ) -> ErrorCode | Partitions:
        """Say whether a member may commit offsets: NONE, or what is wrong, or what decides for each partition.

        `version` is that of OffsetCommit, None for TxnOffsetCommit, whose members need not say who they are. A member
        of an older epoch may commit what it has had since then, or longer (trap G9).
        """
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        if version is None and epoch < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        now = self.assignments.get(member_id, NOBODY)
        if version is not None and version < EPOCHS_SINCE and self.members[member_id].classic is None:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == now.epoch:
            return ErrorCode.NONE
        if epoch > now.epoch:
            return self.stale(member_id)
        return _merged(now.assigned, now.revoking)


EPOCHS_SINCE = 9
"""The version of OffsetCommit from which on it carries member epochs."""


def _merged(assigned: Partitions, revoking: Partitions) -> Partitions:
    return {
        topic_id: {**revoking.get(topic_id, {}), **assigned.get(topic_id, {})} for topic_id in {**assigned, **revoking}
    }


def _found_in_steps(
    topics: Topics, names: tuple[str, ...], resolved: ResolvedPattern | None
) -> Generator[None, None, dict[bytes, int]]:
    """Return ids and numbers of partitions of those topics that exist."""
    found: dict[bytes, int] = {}
    for number, name in enumerate(names if resolved is None else chain(names, resolved.topics), 1):
        one = topics.find(name)
        if one is not None:
            found[one[0]] = one[1]
        if not number % NAMES_STEP:
            yield
    return found


def _said(known: MemberMetadata, beat: Beat) -> MemberMetadata:
    """Return what is known of a member now that it has said something."""
    names = known.topic_names
    if beat.topic_names is not None:
        names = tuple(sorted(set(beat.topic_names)))
    pattern = known.topic_pattern if beat.topic_pattern is None else beat.topic_pattern
    return MemberMetadata(
        instance_id=known.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=known.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=names,
        topic_pattern=pattern if beat.classic is None else None,  # Their patterns they resolve themselves.
        rebalance_timeout_ms=known.rebalance_timeout_ms if beat.rebalance_timeout_ms < 0 else beat.rebalance_timeout_ms,
        server_assignor=known.server_assignor if beat.server_assignor is None else beat.server_assignor,
        classic=beat.classic,
    )


def _cut(target: Target) -> Target:
    """Return what of a target one member may have, topics in order."""
    if len(target) <= SHARE_TOPICS_MAX and partition_count(target) <= SHARE_MAX:
        return target
    cut: dict[bytes, tuple[int, ...]] = {}
    left = SHARE_MAX
    for topic_id, numbers in sorted(target.items()):
        if left and numbers and len(cut) < SHARE_TOPICS_MAX:
            cut[topic_id] = numbers[:left]
            left -= len(cut[topic_id])
    return cut


def _unknown_instance(instance_id: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")


def _are_same(one: Partitions, other: Partitions) -> bool:
    """Tell whether these are the same partitions, whatever their epochs."""
    if one is other:
        return True
    return one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)
