"""A group of Raft cores in one thread, on virtual time, driven by one seed.

Every node has a core, a disk and the few duties of a driver: carry out each `Ready` in its order, hold back messages
that wait for the disk, tick when the deadline has passed, report which peers are live. The network and the disk are
unreliable in the ways that the seed has chosen. Invariants are checked after every step.

Not simulated, on purpose: an fsync that lies, rotten bits, and a clock that runs backwards.
"""

import heapq
import itertools
import zlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import NamedTuple

from barnabas_raftlog.raft.core import RaftCore, Timing
from barnabas_raftlog.raft.invariants import GroupHistory, check_member, check_quorum
from barnabas_raftlog.raft.membership import NOBODY, Configuration, Member
from barnabas_raftlog.raft.messages import (
    AppendResponse,
    Entry,
    Event,
    InstallSnapshot,
    Message,
    PeerLive,
    PeerSilent,
    Persisted,
    Proposed,
    Ready,
    Stalled,
    StartRound,
    Tick,
)

from .disk import CHANGE, Disk
from .swarm import Swarm
from .witness import keep_what_a_witness_keeps

TICK_MS = 25
STALL_MS = 500  # A gap in ticks that a driver would notice: half the election timeout.
TRACE_EVENTS = 60
STEPS_MAX = 300_000  # Five times the longest of 2,000 seeds.
WITNESS_SHARE = 0.4  # of the seeds with three voters or more


class Proposal(NamedTuple):
    """A client's value on its way; `after_index` was acknowledged to somebody before it was proposed."""

    term: int
    value: bytes
    after_index: int


class Node:
    """One node: its disk survives, the rest is lost when it crashes."""

    def __init__(self, member: Member, disk: Disk) -> None:
        self.member = member
        self.node_id = member.node_id
        self.disk = disk
        self.core: RaftCore
        self.configuration = NOBODY  # As far as the core was told which of them are live.
        self.is_up = False
        self.incarnation = 0
        self.busy_peers = set[int]()  # To whom it sends no entries.
        self.view = dict[int, int]()  # Peers that the core was told are live: their incarnation.
        self.stalled_until_ms = 0
        self.stall_is_noticed = False
        self.backlog = list[Event]()
        self.held = deque[tuple[int, Message]]()
        self.saved_ticket = 0
        self.syncing = False
        self.tick_at_ms: int | None = None
        self.waiting = dict[int, Proposal]()  # By index: proposed here and not yet answered.
        self.reads = list[tuple[int, int, int]]()  # (term, round, commit index that must be seen)


class Simulator:
    """Same seed, same run. Nothing here reads the wall clock or an unseeded generator."""

    def __init__(self, seed: int, *, digest: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now_ms = 0
        self.swarm = Swarm.chosen_by(self.rng)
        self.power_rng = Random(f"power {seed}")
        if self.swarm.page_cache and self.swarm.voter_count > 1:
            # A generator of its own, so that other seeds stay the same.
            self.swarm = replace(self.swarm, power_interval_ms=self.power_rng.choice([0, 400, 1500]))
        if self.swarm.voter_count >= 3 and Random(f"witness {seed}").random() < WITNESS_SHARE:
            self.swarm = replace(self.swarm, witness_count=1)
        self.busy_rng = Random(f"disks behind {seed}")
        self.swarm = replace(self.swarm, busy_interval_ms=self.busy_rng.choice([0, 0, 0, 200]))
        voters = range(1, self.swarm.voter_count + 1)
        learners = range(101, 101 + self.swarm.learner_count)
        spares = range(201, 201 + self.swarm.spare_count)
        self.members = [*voters, *learners, *spares]  # of the world; those of the group change
        self._directories = itertools.count(1)
        self.history = GroupHistory()
        self.cut = set[tuple[int, int]]()  # (source, target) whose messages do not arrive
        self.trace = deque[tuple[int, int, object]](maxlen=TRACE_EVENTS)
        self.digest = 0 if digest else None
        self.acknowledged = dict[bytes, int]()  # value: index
        self.proposed_count = 0
        self.acknowledged_index = 0
        self.counts = Counter[str]()
        self._queue = list[tuple[int, int, Callable[[], object]]]()
        self._order = itertools.count()  # Breaks ties, so that the heap never compares callables.
        self._arrival_ms = dict[tuple[int, int], int]()
        identities = {n: Member(n, self.new_directory()) for n in self.members}
        witnesses = tuple(voters)[len(voters) - self.swarm.witness_count :]
        first = Configuration(tuple(identities[n] for n in voters), tuple(identities[n] for n in learners), witnesses)
        self.nodes = {
            n: Node(identities[n], Disk(NOBODY if n in spares else first, page_cache=self.swarm.page_cache))
            for n in self.members
        }
        self.disks = {node.member: node.disk.image for node in self.nodes.values()}  # the lost ones as they were
        self.lost = set[Member]()
        for n in self.members:
            self.boot(n)

    # Time.

    def after(self, delay_ms: int, action: Callable[[], object]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = end_ms

    # The driver's duties.

    def boot(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.is_up = True
        node.incarnation += 1
        node.view.clear()
        node.backlog.clear()
        node.held.clear()
        node.waiting.clear()
        node.reads.clear()
        node.syncing = False
        node.tick_at_ms = None
        node.stalled_until_ms = 0
        self.make_core(node)
        self.schedule_tick(node)
        self.links_changed()

    def make_core(self, node: Node) -> None:
        """Begin with the stored state, and with the writes on their way there."""
        node.core = RaftCore(
            node.member,
            node.disk.newest_hard_state,
            node.disk.log,
            0,
            Timing(bytes_per_append=self.swarm.bytes_per_append, bytes_in_flight_max=self.swarm.bytes_in_flight_max),
            self.rng,
            preferred=node.node_id == 1,
            now_ms=self.now_ms,
            snapshot=partial(self._snapshot, node),
            uncertain=node.disk.is_uncertain,
            blank=node.disk.is_blank,
            busy_peers=node.busy_peers,
        )
        node.configuration = node.core.configuration

    def boot_if_down(self, node_id: int) -> None:
        if not self.nodes[node_id].is_up:
            self.boot(node_id)

    def crash_for(self, node_id: int, down_ms: int) -> None:
        if self.nodes[node_id].is_up:
            self.crash(node_id)
            self.after(down_ms, partial(self.boot_if_down, node_id))

    def crash(self, node_id: int) -> None:
        """Lose all but the disk, and of the writes queued for it all but some first part."""
        node = self.nodes[node_id]
        node.is_up = False
        self.counts["crashes"] += 1
        node.disk.crash(self.rng.randrange(0, len(node.disk.queue) + 1))
        self.history.forget_lost(node_id, node.disk.log.last_index)
        self.links_changed()

    def new_directory(self) -> bytes:
        return next(self._directories).to_bytes(16, "big")

    def stall(self, node_id: int, duration_ms: int) -> None:
        node = self.nodes[node_id]
        if node.is_up and self.now_ms >= node.stalled_until_ms:
            self.counts["stalls"] += 1
            node.stalled_until_ms = self.now_ms + duration_ms
            node.stall_is_noticed = duration_ms >= STALL_MS
            self.after(duration_ms, partial(self._resume, node, node.incarnation))
            self.links_changed()

    def _resume(self, node: Node, incarnation: int) -> None:
        if not self._runs(node, incarnation):
            return
        node.stalled_until_ms = 0
        backlog = node.backlog
        node.backlog = []
        if node.stall_is_noticed:
            backlog.insert(self.rng.choice([0, len(backlog)]), Stalled())
        for event in backlog:
            self.step(node, event)
        self.schedule_tick(node)
        self.links_changed()

    def _runs(self, node: Node, incarnation: int) -> bool:
        return node.is_up and node.incarnation == incarnation

    def deliver(self, node: Node, event: Event) -> None:
        """Step a node that runs; keep the messages that a stalled one will find in its sockets."""
        if not node.is_up:
            return
        if self.now_ms < node.stalled_until_ms:
            node.backlog.append(event)
        else:
            self.step(node, event)

    def step(self, node: Node, event: Event) -> None:
        self.trace.append((self.now_ms, node.node_id, event))
        if self.digest is not None:
            self.digest = zlib.crc32(f"{self.now_ms} {node.node_id} {event}".encode(), self.digest)
        self.counts["steps"] += 1
        assert self.counts["steps"] <= STEPS_MAX, "they never stop talking"
        core = node.core
        before_index = core.commit_index
        ready = core.step(event, self.now_ms)
        self._carry_out(node, ready)
        if not core.uncertain:
            node.disk.is_uncertain = False
            node.disk.is_blank = False
        check_member(core)
        if type(event) is Tick:
            check_quorum(core)
        self.history.on_stepped(core, self.disks)
        if core.commit_index > before_index:
            self.history.check_commits(core, before_index)
            self._answer_clients(node)
        if node.reads:
            self._answer_reads(node)
        if core.configuration is not node.configuration:
            self._introduce(node)
        if core.is_witness or core.lacks_beginning:
            keep_what_a_witness_keeps(self, node)
        if ready.append_no_op:
            self.counts["elections"] += 1
        if ready.append_no_op or ready.repeat_members:
            self.step(node, Proposed())
        self.schedule_tick(node)

    def _carry_out(self, node: Node, ready: Ready) -> None:
        log = node.disk.log
        disk = node.disk
        durable_before = log.durable_index
        if ready.truncate_from is not None:
            self.counts["truncations"] += 1
            log.truncate_from(ready.truncate_from)
        if ready.append:
            self.history.on_appended(log.last_term, ready.append)
            log.append(ready.append)
        if ready.append_no_op:
            # Distinct, as if it carried a time: two leaderships of one term must show.
            self.append(node, b"no-op %d" % self.counts["elections"])
        if ready.repeat_members:
            self.append(node, CHANGE + log.configuration.encode())
        if ready.install is not None:
            self._install(node, ready.install)
        if ready.hard_state is not None:
            node.saved_ticket = disk.save(ready.hard_state)
            if self.rng.random() < self.swarm.ambush_rate:
                delay_ms = self.rng.randrange(0, self.swarm.sync_ms_max + 2)
                self.after(delay_ms, partial(self.crash_for, node.node_id, self.rng.choice([0, 100])))
        for message in ready.messages:
            self._send(node, message)
        for message in ready.messages_after_persist:
            if disk.done_count >= node.saved_ticket:
                self._send(node, message)
            else:
                node.held.append((node.saved_ticket, message))
        if log.durable_index > durable_before:
            self.after(0, partial(self._report_durable, node, node.incarnation))
        self._start_sync(node)

    def _start_sync(self, node: Node) -> None:
        """Begin a sync: it covers the writes queued now; later ones wait for the next."""
        if node.disk.queue and not node.syncing:
            node.syncing = True
            delay_ms = self.rng.randrange(0, self.swarm.sync_ms_max + 1)
            self.after(delay_ms, partial(self._synced, node, node.incarnation, node.disk.queued_count))

    def _synced(self, node: Node, incarnation: int, ticket: int) -> None:
        if not self._runs(node, incarnation):
            return
        node.syncing = False
        moved = node.disk.sync(ticket)
        while node.held and node.held[0][0] <= ticket:
            self._send(node, node.held.popleft()[1])
        if moved:
            self._report_durable(node, incarnation)
        self._start_sync(node)

    def _report_durable(self, node: Node, incarnation: int) -> None:
        if self._runs(node, incarnation):
            self.deliver(node, Persisted(node.disk.log.durable_index))

    def append(self, node: Node, value: bytes) -> Entry:
        log = node.disk.log
        entry = Entry(log.last_index + 1, node.core.term, value)
        self.history.on_appended(log.last_term, [entry])
        log.append([entry])
        if log.durable_index == entry.index:  # In `page-cache` mode, at once.
            self.after(0, partial(self._report_durable, node, node.incarnation))
        return entry

    def _install(self, node: Node, snapshot: InstallSnapshot) -> None:
        self.counts["snapshots"] += 1
        index = snapshot.snapshot_index
        term = snapshot.snapshot_term
        assert self.history.committed[index][0] == term
        is_for_witness = snapshot.witness_since is not None
        assert bool(snapshot.data) != is_for_witness, "a witness needs no state, and everybody else does"
        self.counts["witnesses placed"] += is_for_witness
        node.disk.log.install(index, term, snapshot.configuration, snapshot.witness_since)

    def _snapshot(self, node: Node, start_index: int | None) -> tuple[int, int, bytes] | None:
        index = node.core.commit_index if start_index is None else start_index
        term = node.disk.log.term_at(index)
        assert term is not None
        return index, term, b"state" if start_index is None else b""

    def _introduce(self, node: Node) -> None:
        """Report which of its new peers are live, as a driver does: the core asked for no news of them before."""
        known = node.configuration
        node.configuration = node.core.configuration
        for member in node.configuration.members:
            if member not in known.members and node.view.get(member.node_id) is not None:
                self.after(1, partial(self.introduce_peer, node, node.incarnation, member.node_id))

    def introduce_peer(self, node: Node, incarnation: int, peer: int) -> None:
        if self._runs(node, incarnation) and peer in node.view:
            self.deliver(node, PeerLive(peer))

    def schedule_tick(self, node: Node) -> None:
        """Schedule a tick: on a grid, and only if the deadline has passed, as a driver with a heap does."""
        deadline_ms = node.core.deadline_ms
        if deadline_ms is None:
            return
        at_ms = max(-(-deadline_ms // TICK_MS) * TICK_MS, self.now_ms + 1)
        if node.tick_at_ms is None or at_ms < node.tick_at_ms:
            node.tick_at_ms = at_ms
            self.after(at_ms - self.now_ms, partial(self._tick, node, node.incarnation, at_ms))

    def _tick(self, node: Node, incarnation: int, at_ms: int) -> None:
        if not self._runs(node, incarnation) or node.tick_at_ms != at_ms:
            return
        node.tick_at_ms = None
        if self.now_ms < node.stalled_until_ms:
            return  # It resumes with a look at the deadline.
        if node.core.deadline_ms is not None and self.now_ms >= node.core.deadline_ms:
            self.step(node, Tick())
        else:
            self.schedule_tick(node)

    # The network.

    def _send(self, node: Node, message: Message) -> None:
        self.counts["messages"] += 1
        self.history.on_sent(message, node.disk.hard_state, node.disk.image.last_term, node.member)
        if isinstance(message, AppendResponse) and not message.rejected:
            leader = self.nodes[message.target].core
            self.history.on_acknowledged(message, node.disk.image, leader)
        assert not (isinstance(message, InstallSnapshot) and node.core.is_witness), "a witness gives out a state"
        link = (message.source, message.target)
        if link in self.cut or self.rng.random() < self.swarm.drop_rate:
            return
        swarm = self.swarm
        for _ in range(1 + (self.rng.random() < swarm.duplicate_rate)):
            arrival_ms = self.now_ms + self.rng.randrange(swarm.delay_ms_min, swarm.delay_ms_max + 1)
            if not swarm.reorder:
                arrival_ms = max(arrival_ms, self._arrival_ms.get(link, 0))
                self._arrival_ms[link] = arrival_ms
            self.after(arrival_ms - self.now_ms, partial(self.deliver, self.nodes[message.target], message))

    def is_connected(self, one: int, other: int) -> bool:
        """True while datagrams and their echoes pass: both directions, both ends running."""
        ends = (self.nodes[one], self.nodes[other])
        return all(node.is_up and self.now_ms >= node.stalled_until_ms for node in ends) and not (
            {(one, other), (other, one)} & self.cut
        )

    def links_changed(self) -> None:
        """Let every node find out, each in its own time."""
        for node in self.nodes.values():
            for peer in self.members:
                if peer != node.node_id and node.is_up and self._is_news(node, peer):
                    # A closed connection shows at once, silence only after the liveness timeout.
                    at_once = self.is_connected(node.node_id, peer) or not self.nodes[peer].is_up
                    delay_ms = self.rng.randrange(0, 50) if at_once else self.rng.randrange(500, 1500)
                    self.after(delay_ms, partial(self._notice, node, node.incarnation, peer))

    def _is_news(self, node: Node, peer: int) -> bool:
        return node.view.get(peer) != self._truth(node, peer)

    def _truth(self, node: Node, peer: int) -> int | None:
        return self.nodes[peer].incarnation if self.is_connected(node.node_id, peer) else None

    def _notice(self, node: Node, incarnation: int, peer: int) -> None:
        """Report changes; a peer that came back as another incarnation was silent in between."""
        if self._runs(node, incarnation) and self._is_news(node, peer):
            if node.view.pop(peer, None) is not None:
                self.deliver(node, PeerSilent(peer))
            live_incarnation = self._truth(node, peer)
            if live_incarnation is not None:
                node.view[peer] = live_incarnation
                self.deliver(node, PeerLive(peer))

    def report_silent_by_mistake(self, node_id: int, peer: int) -> None:
        """Datagrams were lost: a live peer is reported silent, and live again a little later."""
        node = self.nodes[node_id]
        if node.is_up and node.view.pop(peer, None) is not None:
            self.counts["mistakes"] += 1
            self.deliver(node, PeerSilent(peer))
            self.after(self.rng.randrange(1, 300), partial(self._notice, node, node.incarnation, peer))

    def hold_back(self, node_id: int, peer: int, duration_ms: int) -> None:
        """Let a node believe for a while that the disk of a peer is behind, whether it is or not."""
        self.counts["busy"] += 1
        self.nodes[node_id].busy_peers.add(peer)
        self.after(duration_ms, partial(self.nodes[node_id].busy_peers.discard, peer))

    def heal(self) -> None:
        """End all faults: everybody runs, everything arrives in order and soon, the disk is quick."""
        self.swarm = replace(
            self.swarm,
            ambush_rate=0.0,
            drop_rate=0.0,
            duplicate_rate=0.0,
            delay_ms_max=min(self.swarm.delay_ms_max, 20),
            sync_ms_max=min(self.swarm.sync_ms_max, 20),
            reorder=False,
        )
        self.cut.clear()
        for node in self.nodes.values():
            node.busy_peers.clear()
        for node_id in self.members:
            self.boot_if_down(node_id)
        self.links_changed()

    def compact(self, node_id: int) -> None:
        """Drop the committed part of a log from memory, as after a snapshot; a witness makes none."""
        node = self.nodes[node_id]
        if node.is_up and not node.core.is_witness and node.core.commit_index >= node.disk.log.first_index:
            node.disk.log.drop_prefix(node.core.commit_index)

    # Clients.

    def propose(self, node_id: int) -> bool:
        """Append a value of its own to a node that believes it leads; return False if it does not."""
        node = self.nodes[node_id]
        core = node.core
        if not node.is_up or self.now_ms < node.stalled_until_ms or core.role.name != "LEADER" or core.is_witness:
            return False
        if core.transfer_target is not None:
            return False
        self.proposed_count += 1
        value = b"value %d " % self.proposed_count + bytes(self.rng.randrange(0, 100))
        entry = self.append(node, value)
        node.waiting[entry.index] = Proposal(entry.term, value, self.acknowledged_index)
        self.step(node, Proposed())
        return True

    def _answer_clients(self, node: Node) -> None:
        core = node.core
        for index in [index for index in node.waiting if index <= core.commit_index]:
            proposal = node.waiting.pop(index)
            if core.role.name == "LEADER" and core.term == proposal.term:
                assert index > proposal.after_index, "a value is placed before one that was acknowledged earlier"
                self.acknowledged[proposal.value] = index
                self.acknowledged_index = max(self.acknowledged_index, index)

    def start_read(self, node_id: int) -> None:
        """Ask a leader for a round; all earlier acknowledgements must be visible once it is answered."""
        node = self.nodes[node_id]
        serves = node.core.role.name == "LEADER" and not node.core.is_witness
        if node.is_up and self.now_ms >= node.stalled_until_ms and serves:
            seen_index = self.acknowledged_index
            self.step(node, StartRound())
            node.reads.append((node.core.term, node.core.round, seen_index))

    def _answer_reads(self, node: Node) -> None:
        core = node.core
        waiting = [read for read in node.reads if core.role.name == "LEADER" and read[0] == core.term]
        node.reads = waiting
        if not core.confirmed:
            return
        answered_round = core.answered_round
        for read in [read for read in waiting if read[1] <= answered_round]:
            assert core.commit_index >= read[2], f"node {core.node_id} reads the past: {core.commit_index} < {read[2]}"
            node.reads.remove(read)
            self.counts["reads"] += 1
