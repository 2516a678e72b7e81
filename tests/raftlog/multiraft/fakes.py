"""A log, storage, listener and network in memory, which do nothing by themselves."""

import asyncio
import random
from collections.abc import Callable, Sequence

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.links.framing import Buffer, frame_of, read_header
from barnabas_raftlog.links.raft_frames import Heard, decode_frame
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.multiraft.multiraft import MultiRaft, RaftGroup
from barnabas_raftlog.raft.core import Timing
from barnabas_raftlog.raft.membership import (
    NOBODY,
    UNKNOWN_DIRECTORY,
    Configuration,
    ConfigurationHistory,
    configuration_of,
)
from barnabas_raftlog.raft.messages import Entry, Fact, GroupId, HardState, InstallSnapshot, Place
from barnabas_raftlog.raft.state import RoundTrip
from barnabas_raftlog.records.header import (
    ControlKind,
    control_frame,
    control_kind,
    next_offset,
    parse_header,
    stamp,
)

Frame = bytearray | memoryview


def group_id(number: int) -> GroupId:
    return GroupId(number.to_bytes(20, "big"))


def data_frame(body: bytes = b"x") -> bytearray:
    """Return a frame of one record as far as anybody here can tell."""
    frame = bytearray(control_frame(0, 0, ControlKind.NO_OP, body))
    frame[23:27] = bytes(4)  # last_offset_delta 0
    frame[57:61] = (1).to_bytes(4, "big")
    from barnabas_raftlog.wire.crc32c import crc32c

    frame[17:21] = crc32c(frame[21:]).to_bytes(4, "big")
    return frame


class MemoryLog:
    """A list of entries. `is_lazy`: nothing is durable before `sync` is called."""

    def __init__(self, *, is_lazy: bool = False) -> None:
        self.items: list[Entry] = []
        self.is_lazy = is_lazy
        self.durable_index = 0
        self.broken: StorageFailedError | None = None
        self.is_uncertain = False
        self.is_blank = False
        self.may_forget = False
        self.failed: StorageFailedError | None = None
        self.on_loaded: Callable[[GroupId], None] | None = None
        self.on_failed: Callable[[GroupId, StorageFailedError], None] | None = None
        self.start_index = 0
        self.start_term = 0
        self.start_offset = 0
        self.segment_bytes = 1 << 30
        self.partial_since: Place | None = None
        self.members = ConfigurationHistory()

    @property
    def configuration(self) -> Configuration:
        return self.members.newest

    @property
    def configuration_index(self) -> int:
        return self.members.newest_index

    def configuration_at(self, index: int) -> Configuration:
        return self.members.at(index)

    def begin_with(self, configuration: Configuration) -> None:
        if not self.configuration.voters:
            self.members.restart(0, configuration)

    @property
    def first_index(self) -> int:
        return self.start_index + 1

    @property
    def last_index(self) -> int:
        return self.start_index + len(self.items)

    @property
    def last_term(self) -> int:
        return self.items[-1].term if self.items else self.start_term

    @property
    def end_offset(self) -> int:
        return self.offset_after(self.last_index)

    def term_at(self, index: int) -> int | None:
        if index == self.start_index:
            return self.start_term
        if not self.start_index < index <= self.last_index:
            return None
        return self.items[index - self.start_index - 1].term

    def entries(self, start_index: int, bytes_max: int) -> Sequence[Entry] | None:
        found: list[Entry] = []
        size = 0
        for entry in self.items[start_index - self.start_index - 1 :]:
            if found and size + entry.size_bytes > bytes_max:
                break
            found.append(entry)
            size += entry.size_bytes
        return found

    def append_batch(self, term: int, frame: Frame) -> Entry:
        stamp(frame, self.end_offset, term)
        return self._add(Entry(self.last_index + 1, term, frame))

    def append_control(self, term: int, kind: ControlKind, body: bytes = b"") -> Entry:
        return self._add(Entry(self.last_index + 1, term, control_frame(self.end_offset, term, kind, body)))

    def append(self, entries: Sequence[Entry]) -> None:
        first = entries[0]
        assert first.index == self.last_index + 1
        if parse_header(first.frame).base_offset != self.end_offset or first.term < self.last_term:
            raise CorruptBatchError(f"entry {first.index} of term {first.term} does not continue this log")
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Entry) -> Entry:
        if self.broken is not None:
            if not isinstance(self.broken, DiskFullError):
                self.failed = self.broken
            raise self.broken
        self.items.append(entry)
        if parse_header(entry.frame).is_raft_control:
            kind, body = control_kind(entry.frame)
            if kind is ControlKind.MEMBERSHIP:
                self.members.assign(entry.index, Configuration.decode(body))
        if not self.is_lazy:
            self.durable_index = entry.index
        return entry

    def became_certain(self) -> None:
        self.is_uncertain = False
        self.is_blank = False

    def sync(self) -> None:
        self.durable_index = self.last_index

    def truncate_from(self, index: int) -> None:
        del self.items[index - self.start_index - 1 :]
        self.members.truncate_from(index)
        self.durable_index = min(self.durable_index, index - 1)

    def drop_prefix(self, index: int, *, partial_since: Place | None = None) -> None:
        self.partial_since = self.partial_since or partial_since
        kept = self.items[index - self.start_index :]
        start = (index, self.term_at(index) or 0, self.offset_after(index))
        self.items = kept
        (self.start_index, self.start_term, self.start_offset) = start
        self.members.drop_prefix(index)

    def limit_segments(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes

    def offset_after(self, index: int) -> int:
        if index <= self.start_index:
            return self.start_offset
        return next_offset(self.items[index - self.start_index - 1].frame)

    def install_snapshot(
        self,
        index: int,
        term: int,
        end_offset: int,
        state: Buffer = b"",
        configuration: Configuration = NOBODY,
        *,
        partial_since: Place | None = None,
    ) -> None:
        self.partial_since = partial_since
        self.is_blank |= not index
        self.is_uncertain |= not index
        self.items.clear()
        self.members.restart(index, configuration if configuration.voters else self.configuration)
        self.start_index = index
        self.start_term = term
        self.start_offset = end_offset
        self.durable_index = index

    def shown(self) -> list[tuple[int, int, bytes]]:
        return [(entry.index, entry.term, bytes(entry.frame)) for entry in self.items]


class MemoryStorage:
    """Hard states in a dict. `is_lazy`: tickets become durable only with `sync`."""

    def __init__(self, *, is_lazy: bool = False) -> None:
        self.saved: dict[GroupId, HardState] = {}
        self.is_lazy = is_lazy
        self.queued = 0
        self.durable_ticket = 0
        self.flushes = 0
        self.on_failed: Callable[[StorageFailedError], None] | None = None
        self.on_recovered: Callable[[], None] | None = None
        self.failed: StorageFailedError | None = None
        self.lacks_room = False
        self.moved: list[GroupId] = []
        self.directory_id = UNKNOWN_DIRECTORY

    def hard_state(self, group: GroupId) -> HardState:
        return self.saved.get(group, HardState(0, None))

    def save_hard_state(self, group: GroupId, hard_state: HardState) -> None:
        self.saved[group] = hard_state
        self.queued += 1

    def take_durable(self) -> list[GroupId]:
        moved, self.moved = self.moved, []
        return moved

    def ticket(self) -> int:
        return self.queued

    def flush(self) -> None:
        self.flushes += 1
        if not self.is_lazy:
            self.sync()

    def sync(self) -> None:
        self.durable_ticket = self.queued


class Listener:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.state: tuple[int, int, bytes] | None = None
        self.changed = asyncio.Event()

    def _note(self, *what: object) -> None:
        self.heard.append(what)
        self.changed.set()

    def on_appended(self, entries: Sequence[Entry]) -> None:
        self._note("appended", *[entry.index for entry in entries])

    def on_truncated(self, index: int) -> None:
        self._note("truncated", index)

    def on_committed(self, commit_index: int) -> None:
        self._note("committed", commit_index)

    def on_failed(self, error: StorageFailedError) -> None:
        self._note("failed", str(error))

    def on_configuration(self, configuration: Configuration) -> None:
        self._note("configuration", sorted(configuration.voter_ids), sorted(configuration.learner_ids))

    def on_leadership(self, term: int, leader_id: int | None, is_leader: bool, confirmed: bool) -> None:
        self._note("leadership", term, leader_id, is_leader, confirmed)

    def install(self, snapshot: InstallSnapshot) -> None:
        self.state = (snapshot.snapshot_index, snapshot.snapshot_term, bytes(snapshot.data))
        self._note("installed", snapshot.snapshot_index)

    def snapshot(self) -> tuple[int, int, bytes] | None:
        return self.state

    async def until(self, claim: Callable[[], bool]) -> None:
        while not claim():
            self.changed.clear()
            await self.changed.wait()


class MemoryLinks:
    """One node's end of a `Network`: frames are encoded, carried in the next loop iteration, and decoded."""

    def __init__(self, network: "Network", node_id: int) -> None:
        self.network = network
        self.node_id = node_id
        self.on_messages: Callable[[int, Sequence[Heard]], None] | None = None
        self.on_fact: Callable[[Fact], None] | None = None
        self.on_peer: list[Callable[[int, bool], None]] = []
        self.live_peers: list[int] = []
        self.frames: list[tuple[int, Sequence[Heard]]] = []
        self.buffered = 0
        self.is_congested = False
        self.busy_peers = set[int]()
        self.round_trip = RoundTrip()
        self.refused: list[tuple[int, str]] = []

    def refuse(self, node_id: int, text: str) -> None:
        self.refused.append((node_id, text))

    def silence_ms(self, node_id: int) -> int:
        return 900  # as after a cut

    def is_connected(self, node_id: int) -> bool:
        return node_id in self.live_peers

    def buffered_bytes(self, node_id: int) -> int:
        return self.buffered

    def send_frames(self, node_id: int, frames: Sequence[list[Buffer]]) -> bool:
        if self.is_congested:
            return False
        for buffers in frames:
            frame = frame_of(memoryview(b"".join(buffers))[4:], owned=True)
            messages = decode_frame(read_header(frame.header), frame.payload, self.node_id, node_id, owned=frame.owned)
            self.frames.append((node_id, messages))
            asyncio.get_running_loop().call_soon(self.network.carry, self.node_id, node_id, messages)
        return True


class Node:
    """One node of a test: its driver on fake storage, its clock shared with the others."""

    def __init__(self, network: "Network", node_id: int, *, is_lazy: bool = False, disk: int = 0) -> None:
        self.network = network
        self.node_id = node_id
        self.links = MemoryLinks(network, node_id)
        self.storage = MemoryStorage(is_lazy=is_lazy)
        self.storage.directory_id = disk.to_bytes(16, "big")
        self.facts: list[tuple[GroupId, Fact]] = []
        self.logs: dict[GroupId, MemoryLog] = {}
        self.listeners: dict[GroupId, Listener] = {}
        self.raft = MultiRaft(
            node_id,
            self.storage,
            self.links,
            Timing(),
            lambda: network.now_ms,
            random.Random(node_id),
            lambda group, fact: self.facts.append((group, fact)),
        )

    def add(
        self,
        number: int,
        *,
        is_lazy: bool = False,
        preferred: bool | None = None,
        configuration: Configuration | None = None,
        nobody: bool = False,
    ) -> RaftGroup:
        """Take part in a group: of all nodes, of `configuration`, or without knowing its members (`nobody`)."""
        group = group_id(number)
        self.logs[group] = MemoryLog(is_lazy=is_lazy)
        self.listeners[group] = Listener()
        if configuration is None and not nobody:
            configuration = configuration_of(frozenset(self.network.nodes))
        preferred = self.node_id == 1 if preferred is None else preferred
        log = self.logs[group]
        listener = self.listeners[group]
        return self.raft.add_group(group, log, configuration, listener, preferred=preferred)

    def group(self, number: int) -> RaftGroup:
        return self.raft.groups[group_id(number)]

    def heard(self, number: int) -> list[tuple[object, ...]]:
        return self.listeners[group_id(number)].heard


class Network:
    """Nodes 1 to `count` on one virtual clock. `cut`: (source, target) pairs whose frames are lost."""

    def __init__(self, count: int, *, is_lazy: bool = False, disks: dict[int, int] | None = None) -> None:
        self.now_ms = 1_000
        self.carried = 0
        self.cut: set[tuple[int, int]] = set()
        self.nodes = {
            node_id: Node(self, node_id, is_lazy=is_lazy, disk=(disks or {}).get(node_id, 0))
            for node_id in range(1, count + 1)
        }

    def replace(self, node_id: int, *, disk: int) -> None:
        """Let a node that nobody is connected to come back with another, empty disk."""
        assert not any(node_id in node.links.live_peers for node in self.nodes.values())
        self.nodes[node_id] = Node(self, node_id, disk=disk)

    def carry(self, source: int, target: int, messages: Sequence[Heard]) -> None:
        self.carried += 1
        receive = self.nodes[target].links.on_messages
        if (source, target) not in self.cut and receive is not None:
            receive(source, messages)

    def connect(self, *pairs: tuple[int, int], live: bool = True) -> None:
        """Make pairs of nodes live or silent to each other; all of them by default."""
        everybody = [(a, b) for a in self.nodes for b in self.nodes if a < b]
        for pair in pairs or everybody:
            for here, there in (pair, pair[::-1]):
                links = self.nodes[here].links
                if live != (there in links.live_peers):
                    links.live_peers = sorted({*links.live_peers, there} if live else {*links.live_peers} - {there})
                    for callback in links.on_peer:
                        callback(there, live)

    async def settle(self) -> None:
        """Let the loop run until nobody sends or steps any more."""
        quiet = 0
        before = None
        iterations = 0
        while quiet < 4:
            await asyncio.sleep(0)
            iterations += 1
            assert iterations < 2_000, "they never stop talking"
            now = (self.carried, *(node.raft.stats.drives for node in self.nodes.values()))
            quiet = quiet + 1 if now == before else 0
            before = now

    async def pass_ms(self, duration_ms: int) -> None:
        """Tick every node each 25 ms of virtual time, and let what follows happen."""
        for _ in range(duration_ms // 25):
            self.now_ms += 25
            for node in self.nodes.values():
                node.raft.tick()
            await self.settle()
