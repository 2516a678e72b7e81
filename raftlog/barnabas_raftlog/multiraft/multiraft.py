"""MultiRaft: all Raft groups of one node, between the links, the storage and the clock.

`driver` steps the cores; this module decides what they get to hear. Messages come from the links and go to the group
they name; those for a group that is about to be hosted wait a moment (`strays`). A peer that falls silent is news for
every group shared with it, the metadata group and those it led first; with one that comes back, digests are exchanged
(`greetings`), and only groups in which the two differ hear of it.

*Time.* One task ticks every `TICK_MS`, or `IDLE_TICK_MS` while all groups are at rest, and takes due groups from a heap
(`deadlines`); quiescent groups are not in it and cost nothing. A tick that comes more than half an election timeout
late means that this node did not run: then the sockets are drained first, and every group that leads or waits is
stepped with `Stalled` before any deadline is judged. From the lateness on until then, `RaftGroup.confirmed` is False.
Peers that noticed close their connections and make them anew, so for an election timeout after a stall the silence of
a peer is told to no group unless it lasts as long as that: else thousands of groups would lose leaders that are there.
Where every tick is so late, the next stall is noticed before a deadline has been judged behind the last one: behind a
few of these it is judged as soon as its group has heard of a stall.

Not here: choosing members, moving leaderships, retention; the broker asks for those.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import msgspec

from barnabas_raftlog.errors import MalformedMessageError, StorageFailedError
from barnabas_raftlog.links.interfaces import RaftLinks
from barnabas_raftlog.links.raft_frames import METADATA_GROUP, Heard
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.raft.core import RaftCore, Role, Timing
from barnabas_raftlog.raft.membership import Configuration, Member
from barnabas_raftlog.raft.messages import (
    TERM_HONEST_MAX,
    TERM_JUMP_MAX,
    EntriesLoaded,
    Fact,
    GroupId,
    InstallSnapshot,
    PeerDigest,
    PeerSilent,
    Rng,
)
from barnabas_raftlog.tasks import failure_of

from .driver import STALLED, TICK, Driver
from .greetings import Greetings
from .group import RaftGroup, SnapshotFetcher
from .interfaces import GroupListener, GroupLog, GroupStorage
from .outbox import Outbox
from .stats import MultiRaftStats
from .strays import Strays

__all__ = ["METADATA_GROUP", "GroupListener", "MultiRaft", "MultiRaftStats", "RaftGroup"]

TICK_MS = 25
ELECTION_MS_MIN = 100
IDLE_TICK_MS = 100  # while no group has a deadline
DRAIN_ITERATIONS_MAX = 50
DRAIN_ITERATIONS_MIN = 2  # also of a loop that is slow: one reads what came, the next steps it
RELEASED_AT_ONCE = 200
TOLD_AT_ONCE = 2_000  # groups that are about to hear of a silence, or a stall; 1 us each
HELD_MS = 1_000  # A node that opens nothing for so long is held up by one group; the others go on.
PATIENT_MS = (500, 1_001)  # for a live node, which may still be opening the groups in which it is preferred,
PATIENT_MS_PER_GROUP = 0.5  # and has as many elections before it; measured: 0.3 ms each, three brokers on two cores
OTHERS_MS = (150, 401)  # as the core waits for a preferred replica that may be there (`stand_without_leader`)

logger = logging.getLogger(__name__)


class MultiRaft:
    """All groups of one node. Not for threads: everything here runs on one loop."""

    def __init__(
        self,
        node_id: int,
        storage: GroupStorage,
        links: RaftLinks,
        timing: Timing,
        clock: Callable[[], int],
        rng: Rng,
        on_fact: Callable[[GroupId, Fact], None],
        meter: LoopMeter | None = None,
    ) -> None:
        self.node_id = node_id
        self.groups: dict[GroupId, RaftGroup] = {}
        self._storage = storage
        self._links = links
        self._timing = timing
        self._rng = rng
        self._on_fact = on_fact
        self._meter = meter or LoopMeter()
        self._outbox = Outbox(links, storage.directory_id)
        self._strays = Strays()
        self._held: list[RaftGroup] | None = None  # held back by `hold_elections`; None: nothing is to be
        self._held_until_ms = 0
        self._driver = Driver(
            node_id=node_id,
            storage=storage,
            outbox=self._outbox,
            clock=clock,
            on_fact=on_fact,
            on_broken=self._on_broken,
            groups=self.groups,
            live_peers=lambda: links.live_peers,
            on_members=self._on_members,
            meter=self._meter,
        )
        self._driver.on_refused = links.refuse
        self._driver.stall_ms = max(timing.election_timeout_ms // 2, 4 * TICK_MS)
        self._greetings = Greetings(node_id, links, self._driver, storage)
        self._sharing: dict[int, dict[RaftGroup, None]] = {}  # peer: the groups that we share with it
        self._strangers: dict[RaftGroup, None] = {}  # groups that know no member: any peer may be one
        self._doubtful_until_ms = 0  # after a stall: peers that fall silent may be back in a moment
        self._held_silences: dict[int, int] = {}  # peer: when its silence is told
        self._silences: dict[int, _Silence] = {}  # peer: a silence that is about to be told
        self._broken: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._on_storage_failed_too, storage.on_failed = storage.on_failed, self._on_storage_failed
        self._on_storage_recovered_too, storage.on_recovered = storage.on_recovered, self._on_storage_recovered
        links.on_messages = self._on_messages
        links.on_peer.append(self._on_peer)
        if links.on_fact is None:
            links.on_fact = lambda fact: on_fact(METADATA_GROUP, fact)

    @property
    def stats(self) -> MultiRaftStats:
        return self._driver.stats

    @property
    def is_punctual(self) -> bool:
        """False while this node's tick is so late that peers may already have elected somebody else."""
        return self._driver.is_punctual

    def status(self) -> dict[str, int]:
        """Return all counters by name."""
        counters: dict[str, int] = msgspec.structs.asdict(self.stats)
        counters |= {"groups": len(self.groups), "groups_awake": len(self._driver.deadlines)}
        counters |= {"groups_waiting_to_stand": self._driver.candidacies.waiting_count}
        counters |= {"messages_out": self._outbox.sent, "messages_dropped": self._outbox.dropped}
        counters |= {"digests_out": self._greetings.said, "digest_bytes_out": self._greetings.said_bytes}
        return counters | {"messages_stray": self._strays.dropped}

    def add_group(
        self,
        group_id: GroupId,
        log: GroupLog,
        configuration: Configuration | None,
        listener: GroupListener,
        *,
        preferred: bool,
    ) -> RaftGroup:
        """Take part in a group from now on. Messages that came for it in the last seconds are not lost.

        `configuration` is the one that the group began with. It counts only as long as the log knows of none, which
        writes it down. None: this node belongs to nothing yet, and learns from the leader what it is.
        """
        assert group_id not in self.groups
        driver = self._driver
        now_ms = self._driver.now()

        if configuration is not None and log.failed is None:
            log.begin_with(configuration)
        make_core = self._core_maker(group_id, log, preferred=preferred)
        group = RaftGroup(driver, group_id, log, make_core, listener)
        log.on_loaded = self._on_loaded
        log.on_failed = self._on_log_failed
        self.groups[group_id] = group
        if not group.members:
            self._strangers[group] = None
        for member in group.members - {self.node_id}:
            self._sharing.setdefault(member, {})[group] = None
        if log.failed is not None:
            driver.fail(group, log.failed)
        elif self._storage.failed is not None:
            driver.suspend(group, self._storage.failed)
        for peer in self._links.live_peers:  # All: the leader may be none of the members that this log knows.
            self._greetings.ask(peer, group)
        for message in self._strays.claim(group_id, now_ms):
            if not (isinstance(message, InstallSnapshot) and not message.data):
                driver.post(group, message)  # An offer that is left out is made again.
        self._begin(group, now_ms)
        return group

    def _core_maker(self, group_id: GroupId, log: GroupLog, *, preferred: bool) -> Callable[[int], RaftCore]:
        """Return a function that makes a group's core, and makes it again, of the stored state and a commit index."""

        def snapshot(start_index: int | None) -> tuple[int, int, bytes] | None:
            return self.groups[group_id].snapshot(start_index)  # Not `group`, which would hold itself by that.

        def make_core(commit_index: int) -> RaftCore:
            return RaftCore(
                member=Member(self.node_id, self._storage.directory_id),
                hard_state=self._storage.hard_state(group_id),
                log=log,
                commit_index=commit_index,
                timing=self._timing,
                rng=self._rng,
                preferred=preferred,
                # Not a newer time: a drive in which the core is renewed steps it again, with the time it began at.
                now_ms=self._driver.now_ms,
                snapshot=snapshot,
                uncertain=log.is_uncertain,
                blank=log.is_blank,
                # A node that is behind with records must hear all the same who its leaders are, and what is decided.
                busy_peers=() if group_id == METADATA_GROUP else self._links.busy_peers,
                lot=int.from_bytes(group_id[-4:], "big"),
                round_trip=self._links.round_trip,
            )

        return make_core

    def _begin(self, group: RaftGroup, now_ms: int) -> None:
        """Let a group that was added look at its deadline, or hold it."""
        if self._held is None or group.group_id == METADATA_GROUP or group.core.is_lone_voter:
            self._driver.post(group, TICK)
            return
        group.is_held = True
        self._held.append(group)
        self._held_until_ms = now_ms + HELD_MS
        self._driver.touch(group)  # A tick that comes late would make it stand.

    def hold_elections(self) -> None:
        """Let the groups that are added from now on stand for no election before `release_elections`.

        A node that starts opens thousands of groups at once. Without this, half of the votes would be asked of nodes
        that have not come to that group yet, again and again, and the asking would keep them from getting there. A held
        group votes, and follows a leader; it is held until it knows one, and not for longer than `HELD_MS` after the
        newest group was added: one that takes long to open keeps nobody waiting.
        """
        if self._held is None:
            self._held = []
            self._held_until_ms = self._driver.now() + HELD_MS

    def release_elections(self) -> None:
        """Let every group stand again: preferred replicas at once, the others as if they had just been opened."""
        held, self._held = self._held or [], None
        self._release(held)

    def _release(self, held: Sequence[RaftGroup]) -> None:
        self._release_some(deque(held), int(PATIENT_MS_PER_GROUP * len(held)))

    def _release_some(self, held: deque[RaftGroup], patient_ms: int) -> None:
        driver = self._driver
        live = {self.node_id, *self._links.live_peers}
        now_ms = driver.now()
        for _ in range(min(len(held), RELEASED_AT_ONCE)):
            group = held.popleft()
            if not group.is_held:
                continue
            group.is_held = False
            if group.deadline_ms is not None and group.failed is None and not group.is_removed:
                if group.core.preferred:
                    delay_ms = 0
                elif live.issuperset(group.members):
                    delay_ms = patient_ms + self._rng.randrange(*PATIENT_MS)
                else:
                    delay_ms = self._rng.randrange(*OTHERS_MS)
                driver.deadlines.set(group, max(group.deadline_ms, now_ms + delay_ms))
        driver.on_due(now_ms)
        if held:
            self._soon("elections that were held", self._release_some, held, patient_ms)

    def remove_group(self, group_id: GroupId) -> None:
        """Leave a group; a leader tells the members. Its log is the caller's to close or delete.

        The listener is told its last news in the next drive, and is let go.
        """
        group = self.groups.pop(group_id)
        self._driver.resign(group)
        self._driver.retire(group)
        group.is_removed = True
        self._driver.touch(group)
        if self._driver.catch_up is not None:
            self._driver.catch_up.on_removed(group)
        for member in group.members - {self.node_id}:
            del self._sharing[member][group]
        self._strangers.pop(group, None)
        self._strays.remove(group_id)

    async def run(self) -> None:
        """Tick until `close`; raise the bug that broke a drive. Cancelled, it stops ticking and nothing else."""
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        self._driver.last_tick_ms = self._driver.now()
        ticking = loop.create_task(self._tick_for_ever())
        ticking.add_done_callback(self._on_ticking_ended)
        try:
            await self._broken
        finally:
            ticking.cancel()
            await asyncio.wait([ticking])

    async def close(self) -> None:
        """Stop. Logs, storage and links are for their openers to close."""
        for group in self.groups.values():
            self._driver.retire(group)
            group.is_removed = True
        self.groups.clear()
        self._sharing.clear()
        self._silences.clear()
        self._strangers.clear()
        self._driver.clear()
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(None)

    def attach(self, catch_up: SnapshotFetcher) -> None:
        """Let snapshots that are files be fetched by `catch_up`."""
        self._driver.catch_up = catch_up

    def post(self, group: RaftGroup, message: InstallSnapshot) -> None:
        """Step `message` as if it had just come from its source."""
        if not group.is_removed:
            self._driver.post(group, message)

    # Told by the storage and the links.

    def on_durable(self) -> None:
        """Note that the storage's durable ticket or the durable index of some log has moved."""
        self._driver.on_durable()

    def _on_loaded(self, group_id: GroupId) -> None:
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.is_suspended and self._storage.failed is None:
            self._driver.resume(group)
        self._driver.post(group, EntriesLoaded())

    def _on_log_failed(self, group_id: GroupId, error: StorageFailedError) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            self._driver.fail(group, error)

    def _on_storage_failed(self, error: StorageFailedError) -> None:
        """Leave every group: nothing that this node says can become durable, until the storage has recovered."""
        for group in list(self.groups.values()):
            self._driver.suspend(group, error)
        if self._on_storage_failed_too is not None:
            self._on_storage_failed_too(error)

    def _on_storage_recovered(self) -> None:
        for group in list(self.groups.values()):
            self._driver.resume(group)
        if self._on_storage_recovered_too is not None:
            self._on_storage_recovered_too()

    def _on_messages(self, source: int, messages: Sequence[Heard]) -> None:
        groups = self.groups
        driver = self._driver
        driver.stats.messages_in += len(messages)
        if driver.is_full:
            driver.stats.messages_refused += len(messages)
            return
        for group_id, message in messages:
            group = groups.get(group_id)
            if group is not None and message.term > group.term_bound:
                self._check_term(source, group, message.term)
            if group is None:
                self._strays.keep(group_id, message, driver.now())
            elif type(message) is InstallSnapshot and not message.data:
                self._on_offer(group, message)
            elif type(message) is PeerDigest:
                self._on_digest(source, group, message)
            else:
                # Member or not is for the core to say: the newest members may be in entries that it has not got yet.
                driver.post(group, message)

    def _check_term(self, source: int, group: RaftGroup, term: int) -> None:
        """Refuse a term that no elections can have reached since this node has known one.

        `TERM_JUMP_MAX` is counted once in a life, beside the elections that there may have been since; so nobody can
        lead a group through all terms by many small steps.
        """
        known = group.core.term
        now_ms = self._driver.now()
        bound = TERM_HONEST_MAX
        if known:
            if not group.first_term:
                group.first_term = known
                group.first_ms = now_ms
            bound = group.first_term + TERM_JUMP_MAX + (now_ms - group.first_ms) // ELECTION_MS_MIN
            group.term_bound = bound
        if term > bound:
            raise MalformedMessageError(f"node {source} is in term {term} of a group that is in term {known} here")

    def _on_digest(self, source: int, group: RaftGroup, digest: PeerDigest) -> None:
        """Hand on a digest. A node that asks or claims to lead is answered: its log may be the newer one.

        A member that a leader has never heard of would be thought away, and nothing is said to those.
        """
        is_known = source in group.members
        claims_to_lead = digest.leader_id == source
        if is_known or claims_to_lead or group in self._strangers:
            self._driver.post(group, digest)
        else:
            self._driver.stats.messages_refused += 1
        if digest.wants_answer or (claims_to_lead and not is_known):
            self._greetings.answer(source, group)

    def _on_offer(self, group: RaftGroup, offer: InstallSnapshot) -> None:
        """A snapshot without data is not for the core: its data are files that must be fetched first."""
        if self._driver.catch_up is None:
            self._driver.stats.messages_refused += 1
        else:
            self._driver.catch_up.on_offer(group, offer)

    def _on_members(self, group: RaftGroup, members: frozenset[int]) -> None:
        """Note whose silence concerns `group`: its members', and its leader's whether that is one or not."""
        if group.is_removed:
            return
        for gone in group.members - members - {self.node_id}:
            del self._sharing[gone][group]
        if group.configuration.voters:
            self._strangers.pop(group, None)  # Not for having heard of a leader: another may lead next.
        for new in sorted(members - group.members - {self.node_id}):
            self._sharing.setdefault(new, {})[group] = None
        group.members = members

    def _on_peer(self, peer: int, live: bool) -> None:
        if live:
            self._held_silences.pop(peer, None)
            self._silences.pop(peer, None)  # Groups that were still to hear of it never will.
            self._greetings.greet(peer, self._sharing.get(peer, {}))
            for group in self._strangers:
                self._greetings.ask(peer, group)
            return
        self._greetings.forget(peer)
        driver = self._driver
        if not driver.is_punctual or driver.now() < self._doubtful_until_ms:
            # It was this node that fell silent, and its peers make their connections to it anew.
            self._held_silences[peer] = max(self._doubtful_until_ms, driver.now() + self._timing.election_timeout_ms)
            return
        self._tell_silence(peer, self._links.silence_ms(peer))

    def _tell_silence(self, peer: int, for_ms: int) -> None:
        """Tell all groups that are shared with `peer`; where those are many, they are gone through in slices first."""
        self._silences[peer] = _Silence(PeerSilent(peer, for_ms), self._sharing.get(peer, {}))
        self._tell_silence_to_some(peer, self._silences[peer])

    def _tell_silence_to_some(self, peer: int, silence: "_Silence") -> None:
        if self._silences.get(peer) is not silence:
            return  # It is live again.
        # A group without its leader waits; the others only learn that one of them is gone. All nodes go by group id,
        # so that nodes that are asked for a pre-vote have just heard of the silence, too.
        some = sorted(islice(silence.groups, TOLD_AT_ONCE), key=lambda group: group.group_id)
        for group in some:
            is_urgent = group.group_id == METADATA_GROUP or group.core.leader_id == peer
            (silence.urgent if is_urgent else silence.others).append(group)
        self._driver.post_bulk(silence.event, silence.urgent)
        silence.urgent = []
        if len(some) == TOLD_AT_ONCE:
            self._soon("a peer that fell silent", self._tell_silence_to_some, peer, silence)
        else:
            del self._silences[peer]
            self._driver.post_bulk(silence.event, silence.others)

    def _soon(self, name: str, call: Callable[..., None], *args: object) -> None:
        asyncio.get_running_loop().call_soon(self._meter.run, name, call, *args)

    def _on_broken(self, error: BaseException) -> None:
        logger.critical("node %d: the Raft driver is broken", self.node_id, exc_info=error)
        self._failure = error
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    # Time.

    async def _tick_for_ever(self) -> None:
        driver = self._driver
        while True:
            if driver.deadlines:
                await asyncio.sleep(TICK_MS / 1000)
            else:
                # Nothing to judge: only a stall is to be noticed. The first deadline ends the wait.
                driver.has_deadlines.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_TICK_MS / 1000):
                        await driver.has_deadlines.wait()
            self._meter.run("Raft tick", self.tick)

    def _on_ticking_ended(self, task: "asyncio.Task[None]") -> None:
        if (error := failure_of(task)) is not None:
            self._on_broken(error)

    def tick(self) -> None:
        """Let time pass: called by `run`, or by a test."""
        driver = self._driver
        now_ms = driver.now()
        gap_ms = now_ms - driver.last_tick_ms
        driver.last_tick_ms = now_ms
        driver.stats.loop_lag_ms_max = max(driver.stats.loop_lag_ms_max, gap_ms - TICK_MS)
        self._strays.expire(now_ms)
        for peer in [peer for peer, until_ms in self._held_silences.items() if until_ms <= now_ms]:
            del self._held_silences[peer]
            self._tell_silence(peer, 0)  # It may have been this node all the time.
        if self._held and self._held_until_ms <= now_ms:
            held, self._held = self._held, []
            self._release(held)
        if gap_ms > driver.stall_ms:
            self._on_stall(gap_ms)
        elif not driver.is_paused:
            driver.on_due(now_ms)

    def _on_stall(self, gap_ms: int) -> None:
        """Let the sockets speak first; `_drain` then judges."""
        driver = self._driver
        driver.stats.stalls += 1
        self._doubtful_until_ms = driver.now() + self._timing.election_timeout_ms
        text = f"this node did not run for {gap_ms} ms; it drains its sockets before it judges its peers"
        logger.warning("node %d: %s", self.node_id, text)
        if not driver.is_paused:
            driver.is_paused = True
            self._drain(DRAIN_ITERATIONS_MAX, -1, driver.now() + driver.stall_ms)
        self._on_fact(METADATA_GROUP, Fact("stall", 0, text))

    def _drain(self, iterations_left: int, messages_before: int, until_ms: int) -> None:
        """Go on until a loop iteration brought no message, or for long enough.

        Meanwhile no leader sends heartbeats: where every iteration takes long, a few must do.
        """
        driver = self._driver
        in_time = driver.now() < until_ms or iterations_left > DRAIN_ITERATIONS_MAX - DRAIN_ITERATIONS_MIN
        if iterations_left and in_time and (driver.stats.messages_in != messages_before or not driver.is_idle):
            messages = driver.stats.messages_in
            asyncio.get_running_loop().call_soon(self._drain, iterations_left - 1, messages, until_ms)
            return
        metadata = self.groups.get(METADATA_GROUP)
        others = (group for group in list(self.groups.values()) if group is not metadata)
        self._doubt_some(chain([metadata] if metadata is not None else [], others), [])

    def _doubt_some(self, groups: Iterator[RaftGroup], doubtful: list[RaftGroup]) -> None:
        """Let every group that leads or waits confirm nothing before it has heard of the stall; then judge again.

        One whose only voter is this node hears of it too, and is in no doubt meanwhile.
        """
        driver = self._driver
        some = list(islice(groups, TOLD_AT_ONCE))
        for group in some:
            if group.failed is None and (group.core.deadline_ms is not None or group.core.role is Role.LEADER):
                group.stall_pending = not group.core.is_lone_voter
                doubtful.append(group)
        if len(some) == TOLD_AT_ONCE:
            self._soon("groups after a stall", self._doubt_some, groups, doubtful)
            return
        driver.is_paused = False
        driver.unjudged_drains += 1
        driver.post_bulk(STALLED, doubtful)
        driver.on_due(driver.now())


class _Silence:
    """The silence of a peer on its way to the groups that are shared with it."""

    __slots__ = ("event", "groups", "others", "urgent")

    def __init__(self, event: PeerSilent, sharing: Iterable[RaftGroup]) -> None:
        self.event = event
        self.groups = iter(list(sharing))
        self.urgent: list[RaftGroup] = []
        self.others: list[RaftGroup] = []
