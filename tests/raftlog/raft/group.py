"""A small group of cores that a test moves by hand.

Every message waits until the test delivers or loses it.
"""

from collections.abc import Iterable
from random import Random

import msgspec
from sim.disk import CHANGE, Disk

from barnabas_raftlog.raft.core import RaftCore, Timing
from barnabas_raftlog.raft.invariants import check_member
from barnabas_raftlog.raft.membership import Configuration, Member
from barnabas_raftlog.raft.messages import (
    AppendEntries,
    Entry,
    Event,
    InstallSnapshot,
    Message,
    PeerLive,
    PeerSilent,
    Persisted,
    Proposed,
    Ready,
    Tick,
    VoteResponse,
)
from barnabas_raftlog.raft.state import RoundTrip

STEPS_MAX = 2_000  # Many times more than any test takes.


class Group:
    """Cores, disks, and the messages under way. Disks are quick unless a test makes one slow."""

    def __init__(
        self,
        voters: Iterable[int],
        learners: Iterable[int] = (),
        *,
        preferred: int = 1,
        timing: Timing | None = None,
        known_disks: bool = False,
        witnesses: Iterable[int] = (),
    ) -> None:
        self.voters = frozenset(voters)
        self.learners = frozenset(learners)
        self.preferred = preferred
        self.timing = timing or Timing()
        self.now_ms = 0
        self.step_count = 0
        self.rng = Random(0)
        self.round_trip = RoundTrip()
        self.lot: int | None = None
        self.inbox = list[Message]()
        self.lines = list[str]()  # Every effect, in order, as the stories print it.
        self.slow = set[int]()
        self.dead = set[int]()
        self.page_cache = False
        self.held = dict[int, list[Message]]()
        self.saving = dict[int, int]()
        # Each with its first disk; unless `known_disks`, nobody can tell that from another.
        self.members = {n: Member(n, disk_id(int(known_disks))) for n in sorted(self.voters | self.learners)}
        configuration = self.configuration(self.voters, self.learners, witnesses)
        self.disks = {n: Disk(configuration) for n in sorted(self.voters | self.learners)}
        self.cores = {n: self.boot(n) for n in self.disks}

    def boot(self, node: int) -> RaftCore:
        disk = self.disks[node]
        self.held[node] = []
        return RaftCore(
            member=self.members[node],
            hard_state=disk.hard_state,
            log=disk.log,
            commit_index=0,
            timing=self.timing,
            rng=self.rng,
            preferred=node == self.preferred,
            now_ms=self.now_ms,
            snapshot=lambda start: self._snapshot(node, start),
            uncertain=disk.is_uncertain,
            blank=disk.is_blank,
            lot=self.lot,
            round_trip=self.round_trip,
        )

    def set_page_cache(self) -> None:
        """From now on logs are durable at once, but for changes of members."""
        self.page_cache = True
        for disk in self.disks.values():
            disk.page_cache = True

    def lose_power(self, node: int, kept_count: int) -> None:
        """Cut the power of a node whose log is in page-cache mode, and boot it with the first entries of its log."""
        disk = self.disks[node]
        disk.page_cache = True
        disk.lose_power(kept_count)
        disk.crash(0)
        self.cores[node] = self.boot(node)

    def configuration(
        self, voters: Iterable[int], learners: Iterable[int] = (), witnesses: Iterable[int] = ()
    ) -> Configuration:
        """Return a configuration of nodes with the disks that they have now."""
        ends = [tuple(self.members[n] for n in sorted(nodes)) for nodes in (voters, learners)]
        return Configuration(ends[0], ends[1], tuple(sorted(witnesses)))

    def join(self, node: int) -> None:
        """Start a node that belongs to nothing yet; or, if there was one, with another disk, which is empty."""
        self.dead.discard(node)
        known = self.members.get(node)
        number = 0 if known is None else known.directory_id[-1] + 1
        self.members[node] = Member(node, disk_id(number or max(m.directory_id[-1] for m in self.members.values())))
        self.disks[node] = Disk()
        self.cores[node] = self.boot(node)

    def die(self, node: int) -> None:
        """Crash for as long as `restart_as_after_a_crash` or `join` does not end it; all others are told."""
        self.dead.add(node)
        for other in sorted(self.cores.keys() - self.dead):
            self.step(other, PeerSilent(node))

    def restart_as_after_a_crash(self, node: int) -> None:
        """Forget all but the disk."""
        self.dead.discard(node)
        self.disks[node].crash(0)
        self.cores[node] = self.boot(node)

    def change(self, node: int, configuration: Configuration) -> None:
        """Have a leader propose other members."""
        core = self.cores[node]
        log = self.disks[node].log
        core.check_change(configuration)
        log.append([Entry(log.last_index + 1, core.term, CHANGE + configuration.encode())])
        self.step(node, Proposed())

    def connect(self) -> None:
        """Report all links live, everywhere."""
        for node, core in self.cores.items():
            for peer in core.peers:
                self.step(node, PeerLive(peer))

    def step(self, node: int, event: Event) -> Ready:
        self.step_count += 1
        assert self.step_count <= STEPS_MAX, "they never stop talking"
        log = self.disks[node].log
        durable_index = log.durable_index
        ready = self.cores[node].step(event, self.now_ms)
        self._carry_out(node, ready)
        if self.page_cache and log.durable_index > durable_index:  # at once
            self._carry_out(node, self.cores[node].step(Persisted(log.durable_index), self.now_ms))
        self._keep(node)
        check_member(self.cores[node])
        if ready.append_no_op or ready.repeat_members:
            self.step(node, Proposed())
        if node not in self.slow:
            self.sync(node)
        return ready

    def sync(self, node: int) -> None:
        disk = self.disks[node]
        while disk.queue:
            moved = disk.sync()
            for message in self.held[node]:
                self._send(message)
            self.held[node] = []
            if moved:
                self._carry_out(node, self.cores[node].step(Persisted(disk.log.durable_index), self.now_ms))
        self._keep(node)

    def _keep(self, node: int) -> None:
        """As a witness, drop all entries that every full voter has; or all, if the beginning is needed."""
        log = self.disks[node].log
        if self.cores[node].lacks_beginning:
            self._restart_core(node)
        index = min(self.cores[node].forgettable_index, log.durable_index)
        if index >= log.first_index:
            log.forget(index, self.cores[node].configuration_place)
            self._print(node, f"forget up to {index}")

    def _restart_core(self, node: int) -> None:
        """Empty the log of one that was a witness."""
        self._print(node, "empty the log, and begin anew")
        disk = self.disks[node]
        disk.log.install(0, 0, disk.log.configuration)
        disk.is_uncertain = True
        disk.is_blank = True
        self.cores[node] = self.boot(node)
        for peer in sorted(self.cores.keys() - self.dead - {node}):
            self.step(node, PeerLive(peer))

    def propose(self, node: int, *values: str) -> None:
        log = self.disks[node].log
        entries = [
            Entry(log.last_index + 1 + position, self.cores[node].term, value.encode())
            for position, value in enumerate(values)
        ]
        log.append(entries)
        self.step(node, Proposed())

    def deliver(self, source: int | None = None, target: int | None = None) -> int:
        """Deliver the messages that are under way now (on one link); return their number."""
        batch = self._take(source, target)
        for message in batch:
            if message.target not in self.dead:
                self.step(message.target, message)
        return len(batch)

    def lose(self, source: int | None = None, target: int | None = None) -> int:
        return len(self._take(source, target))

    def settle(self) -> None:
        """Deliver until nothing is under way."""
        while self.deliver():
            pass

    def elect(self, node: int = 1) -> None:
        """Let `node`'s timer fire, everybody agree, and all fall silent."""
        self.connect()
        self.to_deadline(node)
        self.settle()
        if self.cores[node].deadline_ms is not None:
            self.now_ms += 20
            self.to_deadline(node)
            self.settle()
        self.now_ms += 20

    def to_deadline(self, node: int) -> None:
        """Let time pass until `node` must act, and tick it."""
        deadline_ms = self.cores[node].deadline_ms
        assert deadline_ms is not None, f"node {node} waits for nothing"
        self.now_ms = max(self.now_ms, deadline_ms)
        self.step(node, Tick())

    def values(self, node: int) -> list[str]:
        return [_shown(bytes(entry.frame)) for entry in self.disks[node].log.held]

    def _take(self, source: int | None, target: int | None) -> list[Message]:
        chosen = [m for m in self.inbox if source in {None, m.source} and target in {None, m.target}]
        self.inbox = [m for m in self.inbox if m not in chosen]
        return chosen

    def _carry_out(self, node: int, ready: Ready) -> None:
        log = self.disks[node].log
        disk = self.disks[node]
        for fact in ready.facts:
            self._print(node, f"fact: {fact.kind}, {fact.cause}")
        if ready.truncate_from is not None:
            self._print(node, f"truncate from {ready.truncate_from}")
            log.truncate_from(ready.truncate_from)
        if ready.append:
            self._print(node, f"append {_entries(ready.append)}")
            log.append(ready.append)
        if ready.append_no_op:
            self._print(node, f"append no-op at {log.last_index + 1}")
            log.append([Entry(log.last_index + 1, self.cores[node].term, b"no-op")])
        if ready.repeat_members:
            self._print(node, f"repeat members[{_members(log.configuration)}] at {log.last_index + 1}")
            log.append([Entry(log.last_index + 1, self.cores[node].term, CHANGE + log.configuration.encode())])
        if ready.install is not None:
            self._print(node, f"install the snapshot of {ready.install.snapshot_index}")
            place = (ready.install.snapshot_index, ready.install.snapshot_term, ready.install.configuration)
            log.install(*place, ready.install.witness_since)
        if ready.hard_state is not None:
            self._print(node, f"save term={ready.hard_state.term} voted_for={ready.hard_state.voted_for}")
            disk.save(ready.hard_state)
        for message in ready.messages:
            self._print(node, f"-> n{message.target} {_message(message)}")
            self._send(message)
        for message in ready.messages_after_persist:
            self._print(node, f"-> n{message.target} when saved: {_message(message)}")
            if disk.queue:
                self.held[node].append(message)
            else:
                self._send(message)

    def _send(self, message: Message) -> None:
        self.inbox.append(message)

    def _print(self, node: int, text: str) -> None:
        self.lines.append(f"n{node} {text}")

    def _snapshot(self, node: int, start_index: int | None) -> tuple[int, int, bytes]:
        index = self.cores[node].commit_index if start_index is None else start_index
        return index, self.disks[node].log.term_at(index) or 0, b"state" if start_index is None else b""


def disk_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _entries(entries: Iterable[Entry]) -> str:
    return " ".join(f"{e.index}:{_shown(bytes(e.frame))}(t{e.term})" for e in entries)


def _shown(frame: bytes) -> str:
    if frame.startswith(CHANGE):
        return f"members[{_members(Configuration.decode(frame[len(CHANGE) :]))}]"
    return frame.decode()


def _message(message: Message) -> str:
    """All fields but the ends, which stand before it, and those with their usual value."""
    fields = msgspec.structs.asdict(message)
    if isinstance(message, AppendEntries):
        fields["entries"] = f"[{_entries(message.entries)}]"
    if isinstance(message, InstallSnapshot):
        fields["data"] = bytes(message.data).decode()
        fields["configuration"] = _members(message.configuration)
    usual = {"quiesce": False, "entries": "[]", "rejected": False, "hint_index": 0, "hint_term": 0, "transfer": False}
    usual |= {"uncertain": 0, "blank": False, "certain": 0, "released_index": 0, "commit_term": 0}
    if isinstance(message, VoteResponse):
        usual |= {"commit_index": 0}
    usual |= {"is_learner": False, "disk": 0, "witness_since": None}
    if "directory_id" in fields:
        fields["disk"] = max(0, fields.pop("directory_id")[-1] - 1)  # how often it was replaced
    shown = [f"{name}={value}" for name, value in fields.items() if usual.get(name) != value]
    return f"{type(message).__name__}({', '.join(shown[:1] + [text for text in shown[1:] if not _is_end(text)])})"


def _members(configuration: Configuration) -> str:
    """Voters; learners behind a plus; a prime for each time that a node's disk was replaced; witnesses with a w."""
    names = [
        " ".join(
            f"{member.node_id}"
            + "'" * (member.directory_id[-1] - 1)
            + "w" * (member.node_id in configuration.witnesses)
            for member in members
        )
        for members in (configuration.voters, configuration.learners)
    ]
    return " + ".join(filter(None, names))


def _is_end(text: str) -> bool:
    return text.startswith(("source=", "target="))
