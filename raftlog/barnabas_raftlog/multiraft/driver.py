"""Drives the cores: steps them, carries out their output, tells the listeners.

This is the only place where a core is stepped. Events are queued; the first of them schedules one drive for this loop
iteration. A drive steps each event's core and carries out its `Ready` at once, in the documented order, with no `await`
in between; then storage is flushed once (one group commit for all groups), one frame leaves for each peer, and the
listeners hear the news, in order. Groups of which something became durable are stepped with `Persisted`.

*A log that refuses an append*, for want of room or because its leader sent the impossible, leaves the core ahead of it:
the core is made anew from the stored state, as after a crash. A message that a core refuses has changed nothing.

*A drive is one callback of the loop, and must be short*: it steps cores for about `STEPS_MS`, and leaves the rest to
the next drive, in order. The metadata group comes first, then received messages, then deadlines, and then news for
thousands of groups (`post_bulk`), some in every drive. If thousands are to be told of something, no core is stepped
before all have been told. `docs/raft.md` ("The driver") has the reasons.

A listener that raises, a core that asserts: the drive is broken for good and `on_broken` gets the error, because a
half-carried-out `Ready` cannot be taken back. A log that fails takes its own group out of service and no other; a
storage that cannot write suspends all groups until it can.

Limit: `EVENTS_MAX` queued events, kept by those that queue messages (`is_full`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain, islice

from barnabas_raftlog.errors import (
    CorruptBatchError,
    ImpossibleMessageError,
    MalformedMessageError,
    NotLeaderError,
    StorageFailedError,
)
from barnabas_raftlog.links.raft_frames import METADATA_GROUP
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.raft.core import NOTHING, Role
from barnabas_raftlog.raft.messages import (
    Entry,
    Event,
    Fact,
    GroupId,
    InstallSnapshot,
    LeadershipEnded,
    PeerLive,
    PeerSilent,
    Persisted,
    Proposed,
    Ready,
    Stalled,
    Tick,
)
from barnabas_raftlog.records.header import ControlKind

from .candidacies import Candidacies
from .deadlines import Deadlines
from .group import START_ROUND, RaftGroup, SnapshotFetcher
from .interfaces import NOBODY_LISTENS, GroupStorage
from .outbox import Outbox
from .promises import Promises
from .stats import MultiRaftStats

__all__ = ["STALLED", "TICK", "Driver"]

STEPS_MS = 2  # by a clock of whole milliseconds, so 1 to 2; the rest of a drive takes about twice as long
STEPS_BETWEEN_LOOKS = 4  # at the clock
# Stalls, one after the other, behind which no deadline is judged. Where each tick is late, none would ever be.
DRAINS_MAX = 3
EVENTS_PER_DRIVE = 128
DRIVES_AT_ONCE = 4
BULK_PER_DRIVE = 32
BULK_WHEN_BUSY = 8  # Overload that lasts must not keep groups from hearing that their leader is gone.
# Groups that may have been touched for more to be stepped, as the drive goes on: each kind of work has its share.
TOUCHED_BY_DURABLE = 24
TOUCHED_BY_EVENTS = 52
TOUCHED_BY_DUE = 64
TOUCHED_BY_TURN = 70
TOUCHED_BY_BULK = 76
TOLD_PER_DRIVE = TOUCHED_BY_BULK + 2 * STEPS_BETWEEN_LOOKS  # all that steps can have touched
FACTS_PER_DRIVE = 200
EVENTS_MAX = 100_000
PLACE_MAX = 1 << 62  # of a snapshot: later entries must have indexes and offsets, too, and those have 63 bits
NO_ROOM_MS = 1_000  # how long a group that would stand is left alone while the disk is full

PROPOSED = Proposed()
TICK = Tick()
TICK_BEHIND = Tick(is_behind=True)
STALLED = Stalled()


class Driver:
    """The event queue of one node, and its drives. Owned by `MultiRaft`.

    `is_paused`: deadlines are not judged (this node is coming out of a stall). `unjudged_drains`: how many stalls there
    were, one after the other, since one was judged that was due.
    """

    __slots__ = (  # CPython keeps 30 attributes of an instance in place; of more, each costs a look-up
        "_bulk",
        "_clock",
        "_drives_more",
        "_durable",
        "_events",
        "_facts",
        "_first",
        "_groups",
        "_has_due",
        "_has_durable_news",
        "_is_scheduled",
        "_live_peers",
        "_meter",
        "_on_broken",
        "_on_fact",
        "_on_members",
        "_promises",
        "_refused",
        "_storage",
        "_touched",
        "candidacies",
        "catch_up",
        "deadlines",
        "has_deadlines",
        "is_paused",
        "last_tick_ms",
        "node_id",
        "now_ms",
        "on_refused",
        "outbox",
        "stall_ms",
        "stats",
        "unjudged_drains",
    )

    def __init__(  # noqa: PLR0913 - it stands on all of these
        self,
        node_id: int,
        storage: GroupStorage,
        outbox: Outbox,
        clock: Callable[[], int],
        on_fact: Callable[[GroupId, Fact], None],
        on_broken: Callable[[BaseException], None],
        groups: dict[GroupId, RaftGroup],
        live_peers: Callable[[], list[int]],
        on_members: Callable[[RaftGroup, frozenset[int]], None],
        *,
        meter: LoopMeter,
    ) -> None:
        self._groups = groups
        self._live_peers = live_peers
        self._on_members = on_members
        self.on_refused: Callable[[int, str], None] | None = None  # hears of peers that broke the protocol
        self.node_id = node_id
        self.stats = MultiRaftStats()
        self.outbox = outbox
        self.deadlines: Deadlines[RaftGroup] = Deadlines()
        self.candidacies: Candidacies[RaftGroup] = Candidacies()
        self.is_paused = False
        self.unjudged_drains = 0
        self.now_ms = clock()
        self.last_tick_ms = self.now_ms
        self.stall_ms = 500
        self.catch_up: SnapshotFetcher | None = None
        self._storage = storage
        self._clock = clock
        self._on_fact = on_fact
        self._on_broken = on_broken
        self._meter = meter
        self._promises = Promises(storage, outbox)
        self._events: deque[tuple[RaftGroup, Event]] = deque()
        self._first: deque[tuple[RaftGroup, Event]] = deque()  # of the metadata group
        self._bulk: deque[tuple[Event, deque[RaftGroup]]] = deque()
        self._touched: dict[RaftGroup, None] = {}
        self._facts: list[tuple[GroupId, Fact]] = []
        self._refused: list[tuple[int, str]] = []  # (node id, its message in words), to be told after the steps
        self._durable: list[GroupId] = []  # have moved in the storage, and their cores have not heard of it
        self._drives_more = 0  # that follow in this iteration of the loop
        self._is_scheduled = False
        self._has_durable_news = False
        self._has_due = False
        self.has_deadlines = asyncio.Event()  # set while some group has a deadline

    # Queueing. None of these steps a core.

    @property
    def is_full(self) -> bool:
        return len(self._events) > EVENTS_MAX

    @property
    def is_idle(self) -> bool:
        return not (self._events or self._first)

    @property
    def is_punctual(self) -> bool:
        """False while the tick is so late that peers may already have elected somebody else."""
        return not self.is_paused and self._clock() - self.last_tick_ms <= self.stall_ms

    def now(self) -> int:
        """Return the time; it never goes back, even if the clock does: cores insist on it."""
        self.now_ms = max(self.now_ms, self._clock())
        return self.now_ms

    def post(self, group: RaftGroup, event: Event) -> None:
        """Queue `event` for the next drive."""
        (self._first if group.group_id == METADATA_GROUP else self._events).append((group, event))
        if not self._is_scheduled:
            self.schedule()

    def touch(self, group: RaftGroup) -> None:
        """Have the news of `group` told at the end of the next drive, without an event."""
        self._touched[group] = None
        self.schedule()

    def post_bulk(self, event: Event, groups: Sequence[RaftGroup]) -> None:
        """Queue one event for many groups, to be worked off in slices, in this order."""
        if groups:
            self._bulk.append((event, deque(groups)))
            self.schedule()

    def unheard_silence(self, peer: int) -> dict[RaftGroup, None]:
        """Return the groups that are still to hear that `peer` fell silent, in their order (`post_bulk`)."""
        told = (groups for event, groups in self._bulk if isinstance(event, PeerSilent) and event.peer == peer)
        return dict.fromkeys(chain.from_iterable(told))

    def on_proposed(self, group: RaftGroup, entry: Entry) -> None:
        """Note that `entry` was appended to the log of a group that this node leads."""
        self.stats.proposals += 1
        appended = group.proposed
        if appended:
            appended.append(entry)
            return
        group.proposed = [entry]
        group.notices.append((group.listener.on_appended, group.proposed))
        self.post(group, PROPOSED)

    def on_durable(self) -> None:
        self._has_durable_news = True
        if not self._is_scheduled:
            self.schedule()

    def on_due(self, now_ms: int) -> None:
        """Have due deadlines judged, if there are any."""
        if self.deadlines.has_due(now_ms) or self.candidacies.has_turn:
            self._has_due = True
            self.schedule()
        else:
            self.unjudged_drains = 0

    def schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._meter.run, "Raft drive", self._drive)

    def clear(self) -> None:
        self._durable.clear()
        self._events.clear()
        self._first.clear()
        self._bulk.clear()

    # Leaving.

    def fail(self, group: RaftGroup, error: StorageFailedError) -> None:
        """Take a group whose log failed out of service: it resigns, and its peers elect somebody else."""
        if group.failed is not None and not group.is_suspended:
            return
        self.resign(group)
        group.failed = error
        group.is_suspended = False
        self._facts.append((group.group_id, Fact("replica failed", group.core.term, str(error))))
        group.notices.append((group.listener.on_failed, error))
        self.retire(group)
        self.touch(group)

    def leave(self, group: RaftGroup, error: StorageFailedError) -> None:
        """Take a group out of service whose log cannot go on, for good or until the disk, or a segment, is mended."""
        if group.log.failed is None:
            self.suspend(group, error)
        else:
            self.fail(group, error)

    def suspend(self, group: RaftGroup, error: StorageFailedError) -> None:
        """Take a group out of service while the node's storage cannot write, or cannot read a part of its log.

        No fact for each group if it is the storage: that says why, once for all.
        """
        if group.failed is None:
            if self._storage.failed is None:
                self._facts.append((group.group_id, Fact("replica suspended", group.core.term, str(error))))
            self.resign(group)
            group.failed = error
            group.is_suspended = True
            self.retire(group)
            self.touch(group)

    def resume(self, group: RaftGroup) -> None:
        """Let a suspended group take part again, with the content of its log and the storage, as after a crash.

        Messages that it could not send yet still rest on their tickets, which the storage keeps.
        """
        if not group.is_suspended:
            return
        group.failed = None
        group.is_suspended = False
        group.deadline_ms = None
        group.restart_core()
        self._greet(group, group.members)
        self.post(group, TICK)

    def _greet(self, group: RaftGroup, peers: AbstractSet[int]) -> None:
        """Tell a core which of these nodes live."""
        for peer in self._live_peers():
            if peer in peers:
                self.post(group, PeerLive(peer))

    def resign(self, group: RaftGroup) -> None:
        """Tell the members that this node does not lead any more; their trust in a live node would last else."""
        if group.core.role is Role.LEADER and group.failed is None:  # also a witness
            for member in sorted(group.members - {self.node_id}):
                self.outbox.add(group.group_id, [LeadershipEnded(group.core.term, self.node_id, member)])
            self.schedule()

    def retire(self, group: RaftGroup) -> None:
        self.deadlines.set(group, None)
        self.candidacies.end(group)
        group.fail_readers(NotLeaderError())

    # The drive.

    def _drive(self, *, is_one_more: bool = False) -> None:
        self._is_scheduled = is_one_more and self._is_scheduled
        try:
            self._drive_once()
        except BaseException as error:
            # The loop's exception handler would only log it; the node must end.
            self._on_broken(error)
            raise

    def _drive_on(self) -> None:
        self._drives_more -= 1
        if self._events:
            self._drive(is_one_more=True)

    def _drive_once(self) -> None:
        self.stats.drives += 1
        now_ms = self.now()
        promises = self._promises
        has_much_to_tell = bool(self._touched) and len(self._touched) > TOUCHED_BY_DURABLE
        # No await and no call to a listener from here to the flush: the cores see a frozen world.
        if not has_much_to_tell:
            stop_ms = now_ms + STEPS_MS
            if self._has_durable_news or self._durable:
                self._step_durable(now_ms, stop_ms)
            if self._first:
                self._step_events(self._first, now_ms, stop_ms)
            if self._events:
                self._step_events(self._events, now_ms, stop_ms)
            if self._has_due or self._bulk:
                self._step_due_and_bulk(now_ms)
        promises.seal()
        self._storage.flush()
        if promises:
            self.stats.held_max = max(self.stats.held_max, len(promises))
            promises.release()
        for group_id, message in self.outbox.flush():
            text = f"a message of {type(message).__name__} is larger than any frame may be"
            self._facts.append((group_id, Fact("message too large", message.term, text)))
        touched, self._touched = self._touched, {}
        self._tell(self._first_of(touched) if has_much_to_tell else touched)
        if self._facts or self._refused:
            self._tell_facts()
            self._tell_refused()
        if self.deadlines:
            self.has_deadlines.set()
        if self._is_behind:
            self._drive_again()

    @property
    def _is_behind(self) -> bool:
        """True if a drive has left something over."""
        if self._events or self._first or self._bulk or (self._has_due and not self.is_paused):
            return True
        return bool(self._durable or self._touched or self._facts or self._promises.is_behind or self.outbox.is_behind)

    def _drive_again(self) -> None:
        """Let a drive follow in the next iteration, some if there is much to do."""
        self.schedule()
        if not self._drives_more and len(self._events) > EVENTS_PER_DRIVE:
            self._drives_more = DRIVES_AT_ONCE - 1
            for _ in range(self._drives_more):
                asyncio.get_running_loop().call_soon(self._meter.run, "Raft drive", self._drive_on)

    def _is_enough(self, touched_max: int, stop_ms: int) -> bool:
        return len(self._touched) >= touched_max or self._clock() >= stop_ms

    def _step_durable(self, now_ms: int, stop_ms: int) -> None:
        news = self._durable
        if self._has_durable_news:
            self._has_durable_news = False
            news = [*news, *self._storage.take_durable()]
        self._durable = []
        for done, group_id in enumerate(news, 1):
            moved = self._groups.get(group_id)
            if moved is not None and moved.log.durable_index != moved.durable_index:
                self._report_durable(moved, now_ms)
            if not done % STEPS_BETWEEN_LOOKS and self._is_enough(TOUCHED_BY_DURABLE, stop_ms):
                self._durable = news[done:]
                break

    def _step_events(self, events: deque[tuple[RaftGroup, Event]], now_ms: int, stop_ms: int) -> None:
        for done in range(1, min(len(events), EVENTS_PER_DRIVE) + 1):
            group, event = events.popleft()
            self._step(group, event, now_ms)
            if not done % STEPS_BETWEEN_LOOKS and self._is_enough(TOUCHED_BY_EVENTS, stop_ms):
                break

    def _step_due(self, now_ms: int) -> None:
        """Judge the groups that are due: heartbeats at once, elections in their turn.

        The answer for a candidate may be in the queue, so it waits for that; not for ever, overload may last.
        """
        due_max = self._room(TOUCHED_BY_DUE)
        candidacies = self.candidacies
        due = self.deadlines.due(now_ms, due_max)
        live = {self.node_id, *self._live_peers()} if due else set[int]()
        for group in due:
            group.deadline_ms = None
            if group.stall_pending:
                # Nobody is judged by the time that this node did not run: `STALLED` comes first.
                group.deadline_ms = now_ms + 1
                self.deadlines.set(group, now_ms + 1)
                continue
            self.unjudged_drains = 0
            if self._storage.lacks_room and group.lacks_leader(now_ms):
                # It could not append the first entry of its term. Others stand, or this one when there is room.
                candidacies.end(group)
                group.deadline_ms = now_ms + NO_ROOM_MS
                self.deadlines.set(group, group.deadline_ms)
            elif group.may_miss_leader(now_ms):
                candidacies.wait(group, now_ms, group.line(self.node_id, live))
            else:
                self._step(group, TICK_BEHIND if self._events else TICK, now_ms)
        if not self._events or candidacies.waits_ms(now_ms) > 2 * self.stall_ms:
            for group in candidacies.admit(self._room(TOUCHED_BY_TURN)):
                self._step(group, TICK, now_ms)
        self._has_due = self.deadlines.has_due(now_ms) or candidacies.has_turn

    def _room(self, touched_max: int) -> int:
        """Return how many groups may be stepped, of one kind of work: in every drive some."""
        return min(BULK_PER_DRIVE, max(BULK_WHEN_BUSY, touched_max - len(self._touched)))

    def _step_due_and_bulk(self, now_ms: int) -> None:
        is_starved = self.unjudged_drains > DRAINS_MAX
        if self._has_due and not (self.is_paused or is_starved):
            self._step_due(now_ms)
        if self._bulk:
            self._step_bulk(now_ms, BULK_WHEN_BUSY if self._events else self._room(TOUCHED_BY_BULK))
        if self._has_due and is_starved:
            # Groups have just heard of the last stall. The next one may have been noticed already.
            self._step_due(now_ms)

    def _step_bulk(self, now_ms: int, left: int) -> None:
        while left and self._bulk:
            event, groups = self._bulk[0]
            while left and groups:
                group = groups.popleft()
                if event is STALLED:
                    # Its deadline may have passed, and waits for this: the next tick may be late again.
                    group.stall_pending = False
                    self._has_due = True
                self._step(group, event, now_ms)
                left -= 1
            if not groups:
                self._bulk.popleft()

    def _step(self, group: RaftGroup, event: Event, now_ms: int) -> None:
        """Step one core and carry out its output, until there is none any more."""
        if group.is_removed or group.failed is not None:
            return
        self.stats.steps += 1
        self._touched[group] = None
        if event is PROPOSED:
            group.proposed = None
        try:
            ready = group.core.step(event, now_ms)
        except ImpossibleMessageError as error:
            self._refuse(group, error)
            return
        if event is START_ROUND:
            group.on_round_started()
        if ready is not NOTHING:
            try:
                self._apply(group, ready, now_ms)
            except DiskFullError as error:
                self._facts.append((group.group_id, Fact("append refused", group.core.term, str(error))))
                self._restart_core(group)
                return
            except ImpossibleMessageError as error:
                self._refuse(group, error)
                self._restart_core(group)
                return
            except StorageFailedError as error:
                self.leave(group, error)
                return
        if group.log.durable_index != group.durable_index:
            self._report_durable(group, now_ms)
        if group.core.lacks_beginning:
            self._reset_log(group)
        elif group.core.is_witness:
            group.forget()

    def _refuse(self, group: RaftGroup, error: ImpossibleMessageError) -> None:
        self.stats.messages_refused += 1
        self._refused.append((error.source, f"of group {group.group_id.hex()}: {error}"))

    def _restart_core(self, group: RaftGroup) -> None:
        self.resign(group)
        group.restart_core()
        self._greet(group, group.members)

    def _reset_log(self, group: RaftGroup) -> None:
        """Empty the log of one that was a witness and is to have all of it from now on."""
        group.reset_log()
        core = group.core
        text = "its log lacks a beginning that this member needs, or that nobody has any more"
        self._facts.append((group.group_id, Fact("replica begun anew", core.term, text)))
        empty = InstallSnapshot(
            term=core.term,
            source=self.node_id,
            target=self.node_id,
            snapshot_index=0,
            snapshot_term=0,
            data=b"",
            configuration=group.log.configuration,
        )
        group.notices.append((group.listener.install, empty))
        self._greet(group, group.members)
        self.post(group, TICK)

    def _report_durable(self, group: RaftGroup, now_ms: int) -> None:
        durable_index = group.log.durable_index
        moved_ahead = durable_index > group.durable_index
        group.durable_index = durable_index
        if moved_ahead:
            self._step(group, Persisted(durable_index), now_ms)

    def _apply(self, group: RaftGroup, ready: Ready, now_ms: int) -> None:
        log = group.log
        notices = group.notices
        listener = group.listener
        if ready.truncate_from is not None:
            log.truncate_from(ready.truncate_from)
            group.proposed = None  # The next proposals are another story than those that were cut.
            notices.append((listener.on_truncated, ready.truncate_from))
        if ready.append:
            try:
                log.append(ready.append)
            except CorruptBatchError as error:
                assert group.core.leader_id is not None
                raise ImpossibleMessageError(
                    group.core.leader_id, f"sends entries that cannot follow: {error}"
                ) from error
            notices.append((listener.on_appended, ready.append))
        if ready.append_no_op:
            no_op = log.append_control(group.core.term, ControlKind.NO_OP)
            notices.append((listener.on_appended, [no_op]))
            self.stats.elections_won += 1
        if ready.repeat_members:
            repeated = log.append_control(group.core.term, ControlKind.MEMBERSHIP, log.configuration.encode())
            notices.append((listener.on_appended, [repeated]))
        if ready.install is not None:
            self._install(group, ready.install)
        if ready.hard_state is not None:
            self._promises.make(group, ready.hard_state)
        if ready.messages:
            self._promises.say(group, ready.messages)
        if ready.messages_after_persist:
            self._promises.say_after(group, ready.messages_after_persist)
        for fact in ready.facts:
            self._facts.append((group.group_id, fact))
        if ready.append_no_op or ready.repeat_members:
            self._step(group, PROPOSED, now_ms)

    def _install(self, group: RaftGroup, install: InstallSnapshot) -> None:
        """Replace the log; the listener's turn comes after the drive. `RaftGroup.snapshot` put the offset in front."""
        data = memoryview(install.data)
        index = install.snapshot_index
        term = install.snapshot_term
        prepared, group.prepared = group.prepared, None
        if prepared is not None and prepared.manifest.snapshot_index == index:
            assert self.catch_up is not None
            self.catch_up.adopt(group, prepared)
            group.notices.append((partial(self.catch_up.on_adopted, group), prepared))
        else:
            offset = int.from_bytes(data[:8], "big")
            if len(data) < 8 or max(offset, index) > PLACE_MAX:
                text = f"sends a snapshot of {len(data)} bytes that ends at entry {index} and offset {offset}"
                raise ImpossibleMessageError(install.source, text)
            state = _without_offset(install)
            if group.check_state is not None:
                try:
                    group.check_state(state)
                except MalformedMessageError as error:
                    text = f"sends a snapshot that cannot be read: {error}"
                    raise ImpossibleMessageError(install.source, text) from error
            put = partial(group.log.install_snapshot, partial_since=install.witness_since)
            put(index, term, offset, state.data, install.configuration)
        group.notices.append((group.listener.install, _without_offset(install)))

    def _first_of(self, touched: dict[RaftGroup, None]) -> list[RaftGroup]:
        """Return those that are told in this drive; the others are touched again."""
        groups = iter(touched)
        first = list(islice(groups, TOLD_PER_DRIVE))
        self._touched = dict.fromkeys(groups)
        return first

    def _tell_facts(self) -> None:
        facts, self._facts = self._facts[:FACTS_PER_DRIVE], self._facts[FACTS_PER_DRIVE:]
        for group_id, fact in facts:
            self._on_fact(group_id, fact)

    def _tell(self, touched: Iterable[RaftGroup]) -> None:
        """Compare each touched group with the state that its listener knows, and tell it."""
        for group in touched:
            core = group.core
            listener = group.listener
            if core.deadline_ms != group.deadline_ms:
                self._file_deadline(group)
            if group.notices:
                self._tell_notices(group)
            if group.log.configuration is not group.configuration:
                self._tell_configuration(group)
            if core.commit_index != group.commit_index:
                try:
                    high_watermark = group.log.offset_after(core.commit_index)
                except StorageFailedError as error:
                    self.leave(group, error)
                else:
                    group.commit_index = core.commit_index
                    group.high_watermark = high_watermark
                    listener.on_committed(core.commit_index)
            self._tell_leadership(group)
            group.after_steps()
            if self.candidacies.is_standing(group):
                self._look_at_turn(group)
            if group.is_removed:
                group.listener = NOBODY_LISTENS

    def _tell_refused(self) -> None:
        refused, self._refused = self._refused, []
        for node_id, text in refused:
            if self.on_refused is not None:
                self.on_refused(node_id, text)

    def _tell_notices(self, group: RaftGroup) -> None:
        notices, group.notices = group.notices, []
        group.proposed = None  # It is among the notices: nobody may add to it from here on.
        for notify, argument in notices:
            notify(argument)

    def _look_at_turn(self, group: RaftGroup) -> None:
        """Let the next one stand if this one has, or knows, a leader: also one that knew before its turn came."""
        if group.is_settled:
            self.candidacies.end(group)
            self._has_due = self._has_due or self.candidacies.has_turn

    def _file_deadline(self, group: RaftGroup) -> None:
        if group.failed is not None or group.is_removed:
            return
        group.deadline_ms = group.core.deadline_ms
        group.is_held = group.is_held and group.core.leader_id is None
        if not group.is_held:
            self.deadlines.set(group, group.deadline_ms)

    def _tell_configuration(self, group: RaftGroup) -> None:
        """Take in the new members; the core has not heard yet which of them are live."""
        known, group.configuration = group.configuration, group.log.configuration
        members = group.configuration.node_ids
        if group.core.leader_id is not None:
            members |= {group.core.leader_id}
        new = {member.node_id for member in group.configuration.members if member not in known.members}
        self._on_members(group, members)
        if not group.is_removed and group.failed is None:
            self._greet(group, new)
        group.listener.on_configuration(group.configuration)

    def _tell_leadership(self, group: RaftGroup) -> None:
        core = group.core
        leads = group.is_leader
        leadership = (core.term, group.leader_id, leads, leads and core.confirmed and not group.stall_pending)
        if leadership != group.leadership:
            if leads and not group.leadership[2]:  # Members that know only older ones live, and have asked those.
                self._greet(group, core.silent)
            group.leadership = leadership
            if core.leader_id is not None and core.leader_id not in group.members:
                self._on_members(group, group.members | {core.leader_id})
            group.listener.on_leadership(*leadership)


def _without_offset(install: InstallSnapshot) -> InstallSnapshot:
    """Return a snapshot as its listener gets it: `RaftGroup.snapshot` has put the log's end offset in front."""
    return InstallSnapshot(
        term=install.term,
        source=install.source,
        target=install.target,
        snapshot_index=install.snapshot_index,
        snapshot_term=install.snapshot_term,
        data=memoryview(install.data)[8:],
    )
