"""Builds one replica of an internal topic's partition under the real runtime.

A test plays the rest. Nothing happens by itself: the test says when something commits, when tasks take a step
(`breathe`), when time passes (`advance`), who leads. The loop is the current one while a step runs, and does not turn:
callbacks that a step makes ready wait for the next `breathe`, so any other step may come between two steps of a task.

`history` is everything that was ever committed, entry for entry, also entries that the log has dropped; `truth_of` says
what that means, naively: the last value of each name. A world of one coordinator says what entries say (`said_in`,
`frame_of`).
"""

import asyncio
from asyncio import events
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, Generic, Self, TypeVar, cast

from barnabas_broker.coordinators.runtime.contracts import Writer
from barnabas_broker.coordinators.runtime.coordinator import CoordinatorRuntime, Replica
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.coordinators.runtime.standby import Standby
from barnabas_broker.partition.contracts import PendingAppend
from barnabas_broker.partition.log_starts import encode_start
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.record_rules import RecordRules
from barnabas_broker.partition.replica_state import ReplicaState
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.header import ControlKind, control_frame, parse_header, stamp

__all__ = ["NODE", "OTHERS", "WALL_MS", "Log", "Outcome", "ReplicaWorld", "writer_for"]

NODE = 1
OTHERS = (2, 3)
WALL_MS = 1_000_000

N = TypeVar("N")
V = TypeVar("V")
S = TypeVar("S")


class Log:
    """Entries in a list; those before a start that was committed are gone at once, to the last one."""

    durable_index = property(lambda self: self.last_index)
    has_segments_before = staticmethod(lambda offset: False)
    save_state = staticmethod(lambda index, blob: None)

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first_index = 1
        self.last_index = 0
        self.log_start_offset = 0
        self.size_bytes = 0

    @property
    def log_end_offset(self) -> int:
        return self.offset_after(self.last_index)

    def offset_after(self, index: int) -> int:
        if index < self.first_index:
            return self.log_start_offset
        return parse_header(self.entries[index - self.first_index].frame).end_offset

    def term_at(self, index: int) -> int | None:
        return self.entries[index - self.first_index].term if self.first_index <= index <= self.last_index else None

    def put(self, term: int, frame: Buffer) -> Entry:
        entry = Entry(self.last_index + 1, term, frame)
        self.last_index += 1
        self.entries.append(entry)
        return entry

    def put_batch(self, term: int, frame: bytearray) -> Entry:
        stamp(frame, self.log_end_offset, term)
        return self.put(term, frame)

    def put_control(self, term: int, kind: ControlKind, body: bytes = b"") -> Entry:
        return self.put(term, control_frame(self.log_end_offset, term, kind, body))

    async def replay(self, from_index: int) -> AsyncIterator[Entry]:
        index = from_index
        while (index := max(index, self.first_index)) <= self.last_index:
            yield self.entries[index - self.first_index]
            index += 1

    def drop_before(self, offset: int, committed_index: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        while self.first_index < committed_index and self.offset_after(self.first_index) <= offset:
            del self.entries[0]
            self.first_index += 1

    def truncate_from(self, index: int) -> None:
        del self.entries[index - self.first_index :]
        self.last_index = index - 1


class ManualTimers(Timers):
    """Fires when the test moves the clock, not when the loop's does."""

    def _arm(self) -> None: ...


class RaftGroup:
    """A Raft group as its partition sees it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.term = 0
        self.leads = False
        self.confirmed = False
        self.failed = None
        self.is_witness = False
        self.configuration = configuration_of(frozenset((NODE, *OTHERS)))
        self.core = SimpleNamespace(
            transfer_target=None,
            progress={
                peer: SimpleNamespace(match_index=0, live=True, lacks_something=False, is_in_sync=lambda *_: True)
                for peer in OTHERS
            },
        )
        self.confirmations: list[asyncio.Future[None]] = []

    def check_may_propose(self) -> None:
        if not self.leads:
            raise NotLeaderError(None)

    def propose(self, frame: bytearray) -> Entry:
        self.check_may_propose()
        return self.log.put_batch(self.term, frame)

    def propose_control(self, kind: ControlKind, body: bytes = b"") -> Entry:
        self.check_may_propose()
        return self.log.put_control(self.term, kind, body)

    async def confirm(self) -> None:
        self.check_may_propose()
        if self.confirmed:
            return
        future = asyncio.get_running_loop().create_future()
        self.confirmations.append(future)
        await future


class PartitionHost:
    """A broker as its partition sees it."""

    node_id = NODE
    wake = gained = review_soon = announce = learn = staticmethod(lambda *_: None)
    is_live = staticmethod(lambda _: True)

    def finish(self, waiters: Sequence[PendingAppend]) -> None:
        for waiter in waiters:
            waiter.on_committed()

    def fail(self, waiters: Sequence[PendingAppend], code: ErrorCode) -> None:
        for waiter in waiters:
            waiter.on_failed(code)

    def __init__(self, world: "ReplicaWorld[Any, Any, Any]") -> None:
        self.now_ms = lambda: world.now_ms
        self.wall_ms = world.wall_ms


class ReplicaWorld(Generic[N, V, S]):
    """See the module. `now_ms` and `wall_ms()` run together. `partitions` is what the coordinator is given.

    A subclass makes its coordinator and calls `observe`; `runtime` is the coordinator's from then on.
    """

    runtime: CoordinatorRuntime[Any, Any]
    observer: Replica[Any, Any]

    def __init__(self, topic_name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_ms = 0
        self.history: list[Entry] = []
        self.failures: list[BaseException] = []
        self.log = Log()
        self.raft = RaftGroup(self.log)
        self.topic = Topic(bytes([9] * 16), topic_name, (PartitionPlacement((NODE, *OTHERS)),), {})
        self.partition = Partition(
            cast("Any", PartitionHost(self)),
            self.topic,
            0,
            cast("Any", self.log),
            ReplicaState(),
            min_insync=1,
            rules=RecordRules(1 << 20),
            lag_ms_max=1_000,
            expiration_ms=1_000,
        )
        self.partition.group = cast("Any", self.raft)
        self.timers = ManualTimers(lambda: self.now_ms)
        self.clocks = Clocks(lambda: self.now_ms, self.wall_ms)
        hosted = SimpleNamespace(topic=self.topic, partitions={0: self.partition})
        self.partitions: Any = SimpleNamespace(observers={}, topics={topic_name: hosted})

    def observe(self, runtime: CoordinatorRuntime[Any, Any]) -> None:
        """Let the coordinator hear what happens to the replica."""
        self.runtime = runtime
        self.observer = runtime.attach(self.partition)
        self.partition.observer = self.observer

    def said_in(self, entry: Entry) -> Mapping[N, V | None]:
        """Return what the records of one entry say; None is a tombstone."""
        raise NotImplementedError

    def frame_of(self, said: Mapping[N, V | None]) -> bytes:
        """Return a batch that says so, as another leader would have written it."""
        raise NotImplementedError

    def known_to(self, table: Any) -> Mapping[N, V]:
        """Return what a table knows."""
        raise NotImplementedError

    async def close_coordinator(self) -> None:
        raise NotImplementedError

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    @contextmanager
    def step(self) -> Iterator[None]:
        """Have the loop as the running one, without letting it turn."""
        events._set_running_loop(self.loop)
        try:
            yield
        finally:
            events._set_running_loop(None)
        assert not self.failures, self.failures

    def breathe(self, turns: int = 1) -> None:
        """Let every task that can go on take a step."""
        for _ in range(turns):
            self.loop.run_until_complete(asyncio.sleep(0))
        assert not self.failures, self.failures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Check what must always hold, unless something has gone wrong already, and close."""
        try:
            if kind is None:
                self.check()
        finally:
            self.close()

    def close(self) -> None:
        self.loop.run_until_complete(self.close_coordinator())
        self.loop.close()

    # Raft.

    @property
    def shard(self) -> S | None:
        """The shard that serves now."""
        runtime = self.runtime.shards.get(0)
        return cast("S", runtime.shard) if runtime is not None and runtime.state is ShardState.ACTIVE else None

    def win(self) -> None:
        """Lead in a new term, and be sure of it."""
        raft = self.raft
        partition = self.partition
        assert not raft.leads
        raft.term += 1
        raft.leads = True
        raft.confirmed = False
        with self.step():
            partition.on_leadership(raft.term, NODE, is_leader=True, confirmed=False)
            no_op = self.log.put_control(raft.term, ControlKind.NO_OP)
            partition.on_appended([no_op])
            raft.confirmed = True
            self._commit(self.log.last_index)
            partition.on_leadership(raft.term, NODE, is_leader=True, confirmed=True)

    def lead(self) -> S:
        """Lead, and have everything read."""
        self.win()
        for _ in range(100):
            self.breathe()
            if self.shard is not None:
                return self.shard
        raise AssertionError("it does not load")

    def commit(self, count: int = 1_000_000, *, copies: int = 3) -> None:
        """Let `count` more entries commit; `copies` replicas have them."""
        index = min(self.partition.producers.commit_index + count, self.log.last_index)
        for peer in OTHERS[: copies - 1]:
            follower = self.raft.core.progress[peer]
            follower.match_index = max(follower.match_index, index)
        with self.step():
            self._commit(index)

    def copy(self) -> None:
        """Let every replica have what is committed."""
        for follower in self.raft.core.progress.values():
            follower.match_index = self.partition.producers.commit_index
        with self.step():
            self.partition.review(self.now_ms)

    def _commit(self, index: int) -> None:
        begin = self.partition.producers.commit_index
        self.history += self.log.entries[begin + 1 - self.log.first_index : index + 1 - self.log.first_index]
        if index > begin:
            self.partition.on_committed(index)

    def lose(self, *, kept: int = 0, said: Iterable[Mapping[N, V | None]] = (), is_told_late: bool = False) -> None:
        """Have another leader, which has the first `kept` entries that are not committed here, and appends `said`.

        All of that is committed. `is_told_late`: it arrives within one drive, which tells of leaders at its end.
        """
        raft = self.raft
        partition = self.partition
        log = self.log
        raft.leads = False
        raft.confirmed = False
        raft.term += 1
        for future in raft.confirmations:
            future.set_exception(NotLeaderError(2))
        raft.confirmations.clear()
        with self.step():
            if not is_told_late:
                partition.on_leadership(raft.term, OTHERS[0], is_leader=False, confirmed=False)
            cut = partition.producers.commit_index + 1 + kept
            if cut <= log.last_index:
                log.truncate_from(cut)
                partition.on_truncated(cut)
            appended = [log.put_control(raft.term, ControlKind.NO_OP)]
            appended += [log.put_batch(raft.term, bytearray(self.frame_of(one))) for one in said]
            partition.on_appended(appended)
            self._commit(log.last_index)
            partition.on_leadership(raft.term, OTHERS[0], is_leader=False, confirmed=False)

    def follow(self, said: Iterable[Mapping[N, V | None]]) -> None:
        """Hear from another leader what is committed now."""
        assert not self.raft.leads
        with self.step():
            appended = [self.log.put_batch(self.raft.term, bytearray(self.frame_of(one))) for one in said]
            self.partition.on_appended(appended)
            self._commit(self.log.last_index)

    def rewrite_elsewhere(self) -> None:
        """Hear from another leader, which has written again all that counts, and drops what was before."""
        raft = self.raft
        log = self.log
        assert not raft.leads
        start_offset = log.log_end_offset
        with self.step():
            frames = [self.frame_of({name: value}) for name, value in self.truth().items()]
            appended = [log.put_batch(raft.term, bytearray(frame)) for frame in frames]
            appended.append(log.put_control(raft.term, ControlKind.PREFIX_TRUNCATION, encode_start(start_offset)))
            self.partition.on_appended(appended)
            self._commit(log.last_index)

    def truth_of(self, entries: Iterable[Entry]) -> dict[N, V]:
        """Return what these entries, all of a log, say."""
        found: dict[N, V] = {}
        for entry in entries:
            for name, value in self.said_in(entry).items():
                found.pop(name, None)
                if value is not None:
                    found[name] = value
        return found

    def truth(self) -> dict[N, V]:
        """Return what is committed."""
        return self.truth_of(self.history)

    def all_entries(self) -> list[Entry]:
        """Return what was ever committed, and what is under way behind it."""
        return [*self.history, *self.log.entries[len(self.history) + 1 - self.log.first_index :]]

    def stall(self, length_ms: int = 0) -> None:
        """Stand still for so long: leadership means nothing until it is confirmed anew."""
        self.raft.confirmed = False
        self.advance(length_ms)

    def recover(self) -> None:
        """A majority says that this node leads still."""
        self.raft.confirmed = self.raft.leads
        waiting = self.raft.confirmations
        self.raft.confirmations = []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # Time.

    def advance(self, length_ms: int) -> None:
        """Let time pass; every deadline on the way has its turn at its moment."""
        until_ms = self.now_ms + length_ms
        while (at_ms := self.timers._deadlines.next_at_ms) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            with self.step():
                self.timers._fire()
        self.now_ms = until_ms

    # Invariants.

    def check(self) -> None:
        """The leader's shard knows what the log says, and so does a replica that follows."""
        commit_index = self.partition.producers.commit_index
        assert len(self.history) == commit_index
        fresh = Standby(self.runtime.make_table)
        self._read_to(fresh, commit_index)
        assert self.known_to(fresh.table) == self.truth(), "the log has dropped what counts"
        runtime = self.runtime.shards.get(0)
        if runtime is None or runtime.state is not ShardState.ACTIVE:
            # In the middle of a log that was cut it knows only a part of what was before; the rest is still to come.
            self._check_further(self.observer._standby)
        else:
            self._check_further(runtime.standby)
            assert runtime.standby.applied_index == commit_index or runtime._is_applying
            assert not runtime.is_recovering or self.runtime.host._tasks, "nobody sees to it that the shard goes on"

    def _check_further(self, standby: Standby[Any]) -> None:
        """What a table knows, with what it has yet to read, is the truth; that may begin with a half of something."""
        if standby.applied_index < self.partition.producers.commit_index:
            standby = deepcopy(standby)
            self._read_to(standby, self.partition.producers.commit_index)
        assert self.known_to(standby.table) == self.truth()

    def _read_to(self, standby: Standby[Any], commit_index: int) -> None:
        with self.step():
            run_through(standby.advance(cast("Any", self.log), commit_index, lambda: True))


def writer_for(partition: Partition, producer_id: int, epoch: int = 0) -> Writer:
    """Return a producer that may write to the partition as part of a transaction: nobody has said anything else."""
    guard = partition.verification(producer_id, epoch, 0, bumps_epoch=False) if partition.is_leader else None
    return Writer(producer_id, epoch, guard)


def run_through(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nobody to its end, without letting anything else run."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        pass


class Outcome:
    """The code that somebody was told, once."""

    def __init__(self) -> None:
        self.code: ErrorCode | None = None

    def __call__(self, code: ErrorCode) -> None:
        assert self.code is None, "told twice"
        self.code = code
