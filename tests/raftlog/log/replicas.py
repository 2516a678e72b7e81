"""Three replicas of one partition: real Raft, storage and partition, on virtual time and memory.

Nothing moves by itself. Workers of a node's storage work when told to, so one node's disk may be far behind another's;
nodes die between any two calls to their files, or in one, and come back with the bytes that a killed process or a loss
of power leaves. The leader is asked to append and to let the log start later; all that was acknowledged is noted.
"""

import asyncio
import random
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast
from uuid import UUID

from barnabas_broker.partition.contracts import PartitionLog, PendingAppend
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.producer_state import OutOfOrderSequenceError
from barnabas_broker.partition.record_rules import RecordRules
from barnabas_broker.partition.replica_state import load_replica_state
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.catch_up.receiving import CatchUp
from barnabas_raftlog.errors import BarnabasError, NotLeaderError, StorageFailedError
from barnabas_raftlog.links.framing import Buffer, frame_of, read_header
from barnabas_raftlog.links.raft_frames import Heard, decode_frame
from barnabas_raftlog.links.rpc import Handler, LinkDownError, RemoteError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.multiraft.multiraft import MultiRaft
from barnabas_raftlog.raft.core import Timing
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import Fact, GroupId
from barnabas_raftlog.raft.state import RoundTrip
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.wire.crc32c import crc32c

from .memory_files import CrashError, ManualWorker, MemoryFiles

GROUP = GroupId(bytes(19) + b"\7")
TOPIC = Topic(bytes(16), "t", (PartitionPlacement((1, 2, 3)),), {})
CONFIG = StorageConfig(
    journal_file_bytes=16 << 10,
    journal_step_bytes=4 << 10,
    journal_files_max=3,
    segment_bytes=2 << 10,
    tail_cache_bytes=3 << 10,
    loaded_bytes_max=1 << 10,
    checkpoint_bytes=24 << 10,
    open_files_max=3,
)


def batch(producer_id: int, sequence: int, count: int, body_bytes: int) -> bytearray:
    tail = struct.pack(">hiqqqhii", 0, count - 1, 1_000, 1_000, producer_id, 0, sequence, count) + bytes(body_bytes)
    return bytearray(struct.pack(">qiibI", 0, 9 + len(tail), 0, 2, crc32c(tail)) + tail)


class Links:
    """One node's end of the network: frames cross in the next loop iteration, if both ends live and are connected."""

    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.busy_peers = set[int]()
        self.round_trip = RoundTrip()
        self.on_messages: object = None
        self.on_fact: object = None
        self.on_peer: list[Callable[[int, bool], None]] = []
        self.live_peers: list[int] = []
        self.handlers: dict[str, Handler] = {}
        self.silence_ms = lambda _node_id: 0

    def serve(self, method: str, handler: Handler) -> None:
        self.handlers[method] = handler

    def refuse(self, node_id: int, text: str) -> None:
        raise AssertionError(f"node {node_id} is honest: {text}")

    def post(self, node_id: int, method: str, body: bytes) -> None: ...

    def is_live(self, node_id: int) -> bool:
        return node_id in self.live_peers

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        target = self.world.members[node_id]
        if node_id not in self.live_peers or not target.is_up:
            raise LinkDownError("cut off")
        links = target.links
        try:
            answer = await links.handlers[method](self.node_id, body)
        except (BarnabasError, OSError) as error:
            raise RemoteError(type(error).__name__, str(error)) from error
        if node_id not in self.live_peers or target.links is not links or not target.is_up:
            raise LinkDownError("cut off")
        return answer

    def is_connected(self, node_id: int) -> bool:
        return node_id in self.live_peers

    def buffered_bytes(self, _: int) -> int:
        return 0

    def send_frames(self, node_id: int, frames: list[list[Buffer]]) -> bool:
        for buffers in frames:
            frame = frame_of(memoryview(b"".join(buffers))[4:], owned=True)
            messages = decode_frame(read_header(frame.header), frame.payload, self.node_id, node_id, owned=frame.owned)
            asyncio.get_running_loop().call_soon(self.world.carry, self, node_id, messages)
        return True


class Waiter:
    """Somebody who waits for an index (PendingAppend)."""

    is_closed = False

    def __init__(self, world: "World", acknowledge: object) -> None:
        self.world = world
        self.acknowledge = acknowledge

    def on_committed(self) -> None:
        self.acknowledge()  # type: ignore[operator]

    def on_failed(self, code: ErrorCode) -> None: ...


class Member:
    """One node: its parts while it runs, and its files, which outlive it."""

    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.files = MemoryFiles()
        self.files.make_directory("data")
        self.files.sync_directory("")
        self.is_up = False
        self.facts = list[str]()

    async def boot(self) -> None:
        self.sync_worker = ManualWorker()
        self.write_worker = ManualWorker(inline=True)
        self.storage = await Storage.open(
            self.files,
            "data",
            CONFIG,
            sync_worker=self.sync_worker,
            write_worker=self.write_worker,
            on_durable=lambda: self.raft.on_durable(),  # noqa: PLW0108 - there is none before the storage
            cluster_id="cluster",
            node_id=self.node_id,
            read_worker=ManualWorker(inline=True),
            new_id=lambda: str(UUID(int=7)),
            call_later=lambda _, action: None,
        )
        self.write_worker.inline = False
        self.links = Links(self.world, self.node_id)
        self.raft = MultiRaft(
            self.node_id,
            self.storage,
            cast("object", self.links),  # type: ignore[arg-type]
            Timing(),
            self.now_ms,
            random.Random(f"{self.world.seed} {self.node_id}"),
            self._on_fact,
        )
        self.catch_up = CatchUp(
            self.node_id, self.links, self.raft, self.now_ms, 1 << 30, self._on_fact, self._on_broken
        )
        self.log: ReplicaLog = self.storage.open_log(GROUP, "t-0", self.world.mode)
        assert self.log.failed is None, self.log.failed
        state = await load_replica_state(self.log, 0)
        self.partition = Partition(
            self,
            TOPIC,
            0,
            cast("PartitionLog", self.log),
            state,
            min_insync=1,
            rules=RecordRules(1 << 20),
            lag_ms_max=30_000,
            expiration_ms=1 << 60,
        )
        configuration = configuration_of(frozenset(self.world.members))
        self.partition.group = self.raft.add_group(
            GROUP, self.log, configuration, self.partition, preferred=self.node_id == 1
        )
        group = self.partition.group
        group.sends_files = True
        group.prepare_state = state.prepare
        self.is_up = True

    async def die(self, rng: random.Random, *, power: bool) -> None:
        """Be gone at once; files keep what the operating system, or the disk, has."""
        self.is_up = False
        await self.catch_up._tasks.close()
        await self.raft.close()
        self.links.live_peers = []
        if power:
            self.files.lose_power(rng)
        else:
            self.files.kill()

    def work(self, *, sync: bool = True, write: bool = True) -> None:
        """Let both workers do what is queued, or one of them: nothing orders the two."""
        for _ in range(3):
            self.storage.flush()
            if sync:
                self.sync_worker.run()
            if write:
                self.write_worker.run()

    def _on_broken(self, error: BaseException) -> None:
        assert isinstance(error, CrashError), error  # The disk dies under a transfer as under everything else.

    def _on_fact(self, group: GroupId, fact: Fact) -> None:
        self.facts.append(fact.kind)
        assert fact.kind != "replica failed", fact

    # PartitionHost.

    def now_ms(self) -> int:
        return self.world.now_ms

    def wall_ms(self) -> int:
        return self.world.now_ms

    def is_live(self, node_id: int) -> bool:
        return node_id in self.links.live_peers

    def wake(self, partition: Partition) -> None: ...
    def gained(self, partition: Partition, start_offset: int, decided_offset: int) -> None: ...
    def finish(self, waiters: Sequence[PendingAppend]) -> None:
        call_each(waiters, lambda waiter: waiter.on_committed())

    def fail(self, waiters: Sequence[PendingAppend], code: ErrorCode) -> None:
        call_each(waiters, lambda waiter: waiter.on_failed(code))

    def on_failed(self, partition: Partition, error: StorageFailedError) -> None: ...
    def review_soon(self, partition: Partition) -> None: ...
    def on_doubts(self, partition: Partition) -> None: ...
    def announce(self, partition: Partition, term: int, leader_id: int, isr: tuple[int, ...]) -> None: ...
    def learn(self, partition: Partition, term: int, leader_id: int) -> None: ...


class World:
    """The group, its clients, and all that was promised to them.

    `records`: by base offset, every batch that was acknowledged, with its producer and sequence. `start`: the highest
    start that was acknowledged, `asked`: all starts that anybody has asked for.
    """

    def __init__(self, seed: int, mode: Mode) -> None:
        self.seed = seed
        self.mode = mode
        self.rng = random.Random(seed)
        self.now_ms = 1_000
        self.term = self.carried = 0
        self.members = {node_id: Member(self, node_id) for node_id in (1, 2, 3)}
        self.cut: set[frozenset[int]] = set()
        self.records: dict[int, tuple[int, int, int, bytes]] = {}
        self.sequences = dict.fromkeys(range(7, 12), 0)
        self.start = 0
        self.asked = {0}
        self.end = 0

    # The network and time.

    def carry(self, links: Links, target: int, messages: Sequence[Heard]) -> None:
        self.carried += 1
        source = self.members[links.node_id]
        receiver = self.members[target]
        alive = source.is_up and source.links is links and receiver.is_up
        if alive and links.node_id in receiver.links.live_peers and target in links.live_peers:
            receiver.links.on_messages(links.node_id, messages)  # type: ignore[operator]

    def connect(self) -> None:
        """Make the links what they should be: up between nodes that are up and not cut off from each other."""
        for one in self.members.values():
            for other in self.members.values():
                if one is other or not one.is_up:
                    continue
                live = other.is_up and frozenset((one.node_id, other.node_id)) not in self.cut
                known = other.node_id in one.links.live_peers
                if live != known:
                    peers = {*one.links.live_peers} ^ {other.node_id}
                    one.links.live_peers = sorted(peers)
                    for callback in one.links.on_peer:
                        callback(other.node_id, live)

    async def settle(self) -> None:
        """Let the loop run until nobody says or does anything more."""
        quiet = 0
        before = (-1, -1)
        while quiet < 4:
            await asyncio.sleep(0)
            drives = sum(member.raft.stats.drives for member in self.members.values() if member.is_up)
            quiet = quiet + 1 if (self.carried, drives) == before else 0
            before = (self.carried, drives)
        self.check()

    async def pass_ms(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 25):
            self.now_ms += 25
            for member in self.members.values():
                if member.is_up:
                    member.raft.tick()
            await self.settle()

    # Events.

    def leader(self) -> Member | None:
        leading = [m for m in self.members.values() if m.is_up and m.partition.is_leader]
        return max(leading, key=lambda member: member.partition.term, default=None)

    def produce(self) -> None:
        """Append the batch after the last one that was acknowledged: perhaps for the second time."""
        leader = self.leader()
        if leader is None:
            return
        producer_id = self.rng.choice(sorted(self.sequences))
        sequence = self.sequences[producer_id]
        # A repetition must be the same batch, so its shape follows from its place.
        count = 1 + (producer_id + sequence) % 3
        body_bytes = (sequence * 37) % 500
        frame = batch(producer_id, sequence, count, body_bytes)
        try:
            base_offset, index = leader.partition.append(parse_header(frame), memoryview(frame))
        except (NotLeaderError, StorageFailedError):
            return
        except OutOfOrderSequenceError:
            assert leader.partition.term < self.term, "the leader lacks what was acknowledged"
            return

        def acknowledge() -> None:
            if self.sequences[producer_id] == sequence:
                self.sequences[producer_id] += count
                self.records[base_offset] = (producer_id, sequence, count, bytes(frame[61:]))
                self.end = max(self.end, base_offset + count)

        if not leader.partition.wait_for(index, Waiter(self, acknowledge)):
            acknowledge()

    def drop(self) -> None:
        """Let the log start at a readable offset."""
        leader = self.leader()
        if leader is None or leader.partition.high_watermark < leader.log.log_start_offset:
            return
        low = leader.log.log_start_offset
        high = leader.partition.high_watermark
        offset = self.rng.choice((high, self.rng.randint(low, high)))
        try:
            index = leader.partition.drop_before(offset)
        except (NotLeaderError, StorageFailedError):
            return
        self.asked.add(offset)

        def acknowledge() -> None:
            self.start = max(self.start, offset)

        if not leader.partition.wait_for(index, Waiter(self, acknowledge)):
            acknowledge()

    async def crash(self, member: Member) -> None:
        """Die somewhere in the work that is due."""
        power = self.mode == "fsync" and self.rng.random() < 0.5
        if self.rng.random() < 0.4:
            self.drop()
            await self.settle()
            for other in self._members(up=True):
                other.work(write=other is not member)
            await self.pass_ms(100)
        member.files.crash_in = self.rng.randrange(40)
        with suppress(CrashError):
            member.work()
        await member.die(self.rng, power=power)
        self.connect()

    async def start_again(self, member: Member) -> None:
        await member.boot()
        self.connect()

    async def step(self) -> None:
        """Let one thing happen, and everything that follows from it."""
        events = {
            self._produce_some: 20,
            self._drop_once: 8,
            self._work_some: 20,
            self._pass_time: 15,
            self._crash_one: 3,
            self._boot_one: 3,
            self._cut_some: 2,
            self._heal: 4,
            self._transfer: 2,
            self._checkpoint: 3,
            self._go_well: 12,
        }
        await self.rng.choices(list(events), list(events.values()))[0]()
        await self.settle()

    def _members(self, *, up: bool) -> list[Member]:
        return [member for member in self.members.values() if member.is_up is up]

    async def _produce_some(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.produce()

    async def _go_well(self) -> None:
        """Nothing bad happens for a while: without such times there is little to lose."""
        for _ in range(8):
            await self._produce_some()
            await self.settle()
            for member in self._members(up=True):
                member.work()
            await self.pass_ms(25)

    async def _drop_once(self) -> None:
        self.drop()

    async def _work_some(self) -> None:
        for member in self._members(up=True):
            sync, write = self.rng.choice(((True, True), (True, True), (True, False), (False, True), (False, False)))
            member.work(sync=sync, write=write)

    async def _pass_time(self) -> None:
        await self.pass_ms(self.rng.choice((25, 100, 500, 1500)))

    async def _crash_one(self) -> None:
        if up := self._members(up=True):
            await self.crash(self.rng.choice(up))

    async def _boot_one(self) -> None:
        if down := self._members(up=False):
            await self.start_again(self.rng.choice(down))

    async def _cut_some(self) -> None:
        self.cut = {frozenset(self.rng.sample((1, 2, 3), 2)) for _ in range(self.rng.randint(1, 2))}
        self.connect()

    async def _heal(self) -> None:
        self.cut = set()
        self.connect()

    async def _transfer(self) -> None:
        if (leader := self.leader()) is not None:
            leader.partition.transfer(self.rng.choice((1, 2, 3)))

    async def _checkpoint(self) -> None:
        if up := self._members(up=True):
            self.rng.choice(up).storage.checkpoint()

    # Judgement.

    def check(self) -> None:
        """Check that a leader that may serve clients shows all that was promised to them.

        A leader that was cut off and does not know it yet is left out: it stays confirmed for up to an election
        timeout.
        """
        self.term = max([self.term, *(m.partition.term for m in self.members.values() if m.is_up)])
        for member in self.members.values():
            if not member.is_up:
                continue
            log = member.log
            partition = member.partition
            assert log.failed is None, log.failed
            assert log.base_offset <= log.log_start_offset <= log.log_end_offset
            # Nothing is deleted that is not below a start that somebody asked for.
            assert log.base_offset <= max(self.asked)
            if partition.can_serve and partition.term == self.term:
                assert log.log_start_offset in self.asked
                assert log.log_start_offset >= self.start, "deleted records are back"
                assert partition.high_watermark >= self.end, "acknowledged records are not readable"
                assert partition.high_watermark >= log.log_start_offset

    async def recover(self) -> Member:
        """End all trouble, wait until everybody has everything, and return the leader."""
        self.cut = set()
        for member in self.members.values():
            if not member.is_up:
                await member.boot()
        self.connect()
        for _ in range(400):
            await self.pass_ms(100)
            for member in self.members.values():
                member.work()
            await self.settle()
            leader = self.leader()
            if leader is None or not leader.partition.can_serve:
                continue
            others = [m for m in self.members.values() if m is not leader]
            if all(
                (m.log.last_index, m.partition.high_watermark, m.log.log_start_offset)
                == (leader.log.last_index, leader.partition.high_watermark, leader.log.log_start_offset)
                for m in others
            ):
                return leader
        ends = [(member.log.last_index, member.log.log_start_offset) for member in self.members.values()]
        raise AssertionError(f"no agreement on where the log ends and starts: {ends}")

    def check_all(self, leader: Member) -> None:
        """Check that every replica has every acknowledged record that was not deleted, and knows its producers."""
        start = leader.log.log_start_offset
        assert start >= self.start
        for member in self.members.values():
            held: dict[int, tuple[int, bytes]] = {}
            index = member.log.first_index
            while index <= member.log.last_index:
                run = member.log.entries(index, 1 << 20) or member.log.entries(index, 1 << 20)
                assert run, member.log.failed
                for entry in run:
                    header = parse_header(entry.frame)
                    if header.record_count:
                        held[header.base_offset] = (header.end_offset, bytes(entry.frame[61:]))
                    index = entry.index + 1
            for base_offset, (producer_id, sequence, count, body) in self.records.items():
                if base_offset + count > start:
                    assert held.get(base_offset) == (base_offset + count, body), (member.node_id, base_offset)
                    original = member.partition.producers.batches(producer_id)
                    assert original, f"producer {producer_id} is forgotten"
                assert sequence < self.sequences[producer_id]
            for producer_id, sequence in self.sequences.items():
                self._check_producer(member, producer_id, sequence)

    def _check_producer(self, member: Member, producer_id: int, sequence: int) -> None:
        """Check that its last acknowledged batch is recognised, wherever that is now, and the next one accepted."""
        acknowledged = [item for item in self.records.items() if item[1][0] == producer_id]
        if not acknowledged:
            return
        base_offset, (_, last_sequence, count, _) = max(acknowledged)
        producers = member.partition.producers
        assert producers.forgotten_id_max == -1
        try:
            original = producers.check(producer_id, 0, last_sequence, count - 1)
        except BarnabasError as error:
            raise AssertionError(f"node {member.node_id}: {error}") from error
        assert original is not None, f"node {member.node_id} would take {last_sequence} of {producer_id} twice"
        assert original.base_offset == base_offset
