"""The whole storage against a list, with crashes at every file call.

After a crash the recovered log must be the beginning of the log as it was, or was before a truncation that was not
durable yet, with every entry that had been called durable. In page-cache mode that holds for a kill; after a loss of
power the log may be shorter.

A log may have lost entries from its beginning: never any but those that were dropped, never one without a saved state
that covers it; and once the journal has it, they do not come back.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from raftlog.log.transfer.transfers import frames_of_segments, received

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.raft.messages import Entry, GroupId, HardState
from barnabas_raftlog.records.header import ControlKind, control_frame, next_offset, parse_header, stamp, verify

from .frames import data_frame
from .log_model import GATED, NEVER, Item, Model
from .memory_files import CrashError, ManualSyncer, ManualWorker, MemoryFiles

CONFIG = StorageConfig(
    journal_file_bytes=16 << 10,
    journal_step_bytes=4 << 10,
    journal_files_max=3,
    segment_bytes=9 << 10,
    tail_cache_bytes=6 << 10,
    checkpoint_bytes=24 << 10,
    open_files_max=3,
    synced_together_min=2,
)
GROUPS: list[tuple[GroupId, str, Mode]] = [
    (GroupId(bytes(19) + b"\1"), "a-0", "fsync"),
    (GroupId(bytes(19) + b"\2"), "b-0", "page-cache"),
    (GroupId(bytes(19) + b"\3"), "c-0", "fsync"),
]


class CrashMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.files = MemoryFiles()
        self.models = {group: Model() for group, _, _ in GROUPS}
        nothing = (0, HardState(0, None))
        self.hard_states: dict[GroupId, list[tuple[int, HardState]]] = {group: [nothing] for group, _, _ in GROUPS}
        self.term = 1
        self.storage: Storage

    def teardown(self) -> None:
        self.loop.close()

    @initialize(has_syncer=st.booleans(), has_direct=st.booleans(), stored_min=st.sampled_from([0, 2000, 1 << 40]))
    def start(self, has_syncer: bool, has_direct: bool, stored_min: int) -> None:
        self.has_syncer = has_syncer
        self.files.has_direct = has_direct
        self.config = replace(CONFIG, stored_bytes_min=stored_min)
        self.files.make_directory("data")
        self._open()

    def _open(self) -> None:
        self.sync_worker = ManualWorker()
        self.checkpoint_worker = ManualWorker()
        self.write_worker = ManualWorker(inline=True, other=self.checkpoint_worker)
        self.syncer = ManualSyncer(self.files, self.sync_worker)
        self.timers: list[Callable[[], None]] = []
        self.storage = self.loop.run_until_complete(
            Storage.open(
                self.files,
                "data",
                self.config,
                sync_worker=self.sync_worker,
                write_worker=self.write_worker,
                checkpoint_worker=self.checkpoint_worker if self.has_syncer else None,
                on_durable=self._note_durable,
                cluster_id="cluster",
                node_id=1,
                read_worker=ManualWorker(inline=True),
                new_id=lambda: str(UUID(int=7)),
                call_later=lambda _, action: self.timers.append(action),
                syncer=self.syncer if self.has_syncer else None,
            )
        )
        self.write_worker.inline = False
        self.logs: dict[GroupId, ReplicaLog] = {
            group: self.storage.open_log(group, name, mode) for group, name, mode in GROUPS
        }

    def _note_durable(self) -> None:
        for group, log in self.logs.items():
            model = self.models[group]
            assert log.durable_index <= log.last_index == model.last_index
            model.note_durable(log, self.storage.durable_ticket)
        self.note_what_was_dropped()
        for saved in self.hard_states.values():
            while len(saved) > 1 and saved[1][0] <= self.storage.durable_ticket:
                saved.pop(0)

    def _append(self, number: int, frames: list[bytes], *, follower: bool) -> None:
        group = GROUPS[number][0]
        log = self.logs[group]
        model = self.models[group]
        try:
            if follower:
                entries = [Entry(log.last_index + 1 + i, self.term, frame) for i, frame in enumerate(frames)]
                log.append(entries)
            else:
                for frame in frames:
                    log.append_batch(self.term, bytearray(frame))
        except DiskFullError:
            assert self.files.full_at_bytes is not None
            # The file is cut back, but after a loss of power whole frames that were refused may be there. They can only
            # be a follower's, which are genuine: a leader's single frame is never whole.
            if follower and not log.is_journaled:
                refused = [(self.term, frame) for frame in frames]
                model.before.append((NEVER, (model.base, model.items + refused, model.start)))
            return
        model.items += [(self.term, frame) for frame in frames]
        if not log.is_journaled:
            model.durable = log.durable_index

    @rule(
        number=st.integers(0, 2), sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=4), follower=st.booleans()
    )
    def append(self, number: int, sizes: list[int], follower: bool) -> None:
        offset = self.logs[GROUPS[number][0]].log_end_offset
        for size in sizes:
            frame = data_frame(1 + size % 3, size, 1000 + size, fill=31 * offset + size)
            stamp(frame, offset, self.term)
            before = len(self.models[GROUPS[number][0]].items)
            self._append(number, [bytes(frame)], follower=follower)
            if len(self.models[GROUPS[number][0]].items) > before:
                offset = next_offset(frame)

    @rule(number=st.integers(0, 2), count=st.integers(1, 3))
    def append_controls(self, number: int, count: int) -> None:
        offset = self.logs[GROUPS[number][0]].log_end_offset
        self._append(number, [control_frame(offset, self.term, ControlKind.NO_OP)] * count, follower=True)

    @rule(number=st.integers(0, 2), share=st.floats(0, 1))
    def truncate(self, number: int, share: float) -> None:
        group = GROUPS[number][0]
        log = self.logs[group]
        model = self.models[group]
        if model.last_index == model.committed or log.failed:
            return
        index = 1 + model.committed + int(share * (model.last_index - model.committed - 1))
        log.truncate_from(index)
        model.note_before(log, self.storage.ticket())
        model.items = model.items[: index - 1 - model.base]
        model.durable = min(model.durable, index - 1)
        assert log.durable_index == model.durable
        self.term += 1

    @rule(number=st.integers(0, 2), share=st.floats(0, 1), back=st.integers(0, 1))
    def drop(self, number: int, share: float, back: int) -> None:
        """Commit something, and let the log start there, or inside the last batch before."""
        group = GROUPS[number][0]
        log = self.logs[group]
        model = self.models[group]
        committed = model.committed + int(share * (model.last_index - model.committed))
        offset = log.offset_after(committed)
        model.committed = committed
        if log.has_segments_before(offset):
            index = max(log.first_index - 1, log.adopted_index, min(committed, log.durable_index))
            log.save_state(index, b"as of %d" % index)
        log.drop_before(max(offset - back, log.log_start_offset), committed)
        assert log.log_start_offset >= offset - back

    @rule(
        number=st.integers(0, 2),
        sizes=st.lists(st.integers(1500, 3000), min_size=4, max_size=8),
        checkpoint=st.booleans(),
        again=st.booleans(),
    )
    def shorten(self, number: int, sizes: list[int], checkpoint: bool, again: bool) -> None:
        """Act as an owner: write more than a segment, then let go of it. Single rules seldom get this far."""
        if checkpoint:
            self.storage.checkpoint()
        self.append(number, sizes, follower=True)
        self.work()
        self.drop(number, 1.0, 0)
        if again:
            self.work()
            self.append(number, sizes[:2], follower=True)

    @invariant()
    def note_what_was_dropped(self) -> None:
        for group, log in self.logs.items():
            model = self.models[group]
            start = log.first_index - 1
            if start > model.start:
                assert start <= min(model.committed, model.durable), "entries are gone that somebody may need"
                model.start = start
                model.starts.append((self.storage.ticket() if log.mode == "fsync" else GATED, start))

    @rule(number=st.integers(0, 2), ahead=st.integers(1, 12), hole=st.integers(0, 3))
    def install(self, number: int, ahead: int, hole: int) -> None:
        """Install a snapshot: a leader has nothing before some entry any more, and this log lacks that entry."""
        group = GROUPS[number][0]
        log = self.logs[group]
        model = self.models[group]
        self.term += 1
        index = model.committed + ahead
        offset = log.offset_after(index) if index <= model.last_index else log.log_end_offset + hole
        log.install_snapshot(index, self.term, offset, b"as of %d" % index)
        model.note_before(log, self.storage.ticket())
        model.base = model.start = model.committed = index
        model.starts.append((self.storage.ticket() if log.mode == "fsync" else GATED, index))
        model.base_term = self.term
        model.base_offset = offset
        model.items = []
        model.durable = log.durable_index
        assert model.durable < index

    @precondition(lambda self: self.files.full_at_bytes is None)
    @rule(number=st.integers(0, 2), ahead=st.integers(1, 12), held=st.integers(0, 14), checkpoint=st.booleans())
    def adopt(self, number: int, ahead: int, held: int, checkpoint: bool) -> None:
        """Adopt the last `held` entries of a leader as segments: it has no entries for this log any more."""
        group = GROUPS[number][0]
        log = self.logs[group]
        model = self.models[group]
        if log.is_adopting:
            return
        if not self.files.exists(log.directory):
            self.work()
        self.term += 1
        index = model.committed + ahead
        start = max(0, index - held)
        frames = frames_of_segments(start, index, self.term)
        if checkpoint:
            self.storage.checkpoint()
        log.adopt(received(log, frames, start, self.term, b"as of %d" % index))
        model.note_before(log, self.storage.ticket())
        model.base = start
        model.start = start
        model.committed = index
        model.starts.append((self.storage.ticket() if log.mode == "fsync" else GATED, start))
        model.base_term = self.term
        model.base_offset = 3 * start
        model.items = [(self.term, frame) for frame in frames]
        model.durable = log.durable_index
        assert model.durable < index == log.last_index

    @rule(
        number=st.integers(0, 2),
        share=st.floats(0, 1),
        sizes=st.lists(st.integers(0, 800), min_size=1, max_size=3),
        checkpoint=st.booleans(),
    )
    def rewrite(self, number: int, share: float, sizes: list[int], checkpoint: bool) -> None:
        """Act as a new leader: replace the end of a follower's log. Single rules seldom get this far."""
        self.append(number, sizes, follower=True)
        self.work()
        if checkpoint:
            self.storage.checkpoint()
            self.work()
        self.truncate(number, share)
        self.append(number, sizes, follower=True)

    @rule(number=st.integers(0, 2), voted_for=st.sampled_from([None, 0, 2]))
    def save_hard_state(self, number: int, voted_for: int | None) -> None:
        self.term += 1
        state = HardState(self.term, voted_for)
        self.storage.save_hard_state(GROUPS[number][0], state)
        self.hard_states[GROUPS[number][0]].append((self.storage.ticket(), state))

    @rule(is_busy=st.booleans())
    def flush(self, is_busy: bool) -> None:
        self.syncer.is_busy = is_busy  # then batches go as large ones do
        self.storage.flush()

    @rule()
    def sync(self) -> None:
        self.storage.flush()
        self.sync_worker.run_one()

    @rule()
    def write(self) -> None:
        self.storage.flush()
        self.write_worker.run_one()

    @rule()
    def sync_segments(self) -> None:
        self.checkpoint_worker.run_one()

    @rule()
    def work(self) -> None:
        for _ in range(3):
            self.storage.flush()
            self.sync_worker.run()
            self.write_worker.run()

    @precondition(lambda self: self.files.full_at_bytes is None)
    @rule(call=st.sampled_from(["write", "sync"]), after=st.integers(0, 3))
    def fail_the_journal_once(self, call: str, after: int) -> None:
        """Let one write or sync of a journal file fail: it must be replaced, and nobody notices."""
        self.sync_worker.run()  # one that has just failed is replaced first: two in a row are another story
        left = after

        def fails(what: str, path: str) -> bool:
            nonlocal left
            if what != call or not path.endswith(".journal"):
                return False
            left -= 1
            return left == -1

        self.files.failing = fails

    @rule()
    def checkpoint(self) -> None:
        self.storage.checkpoint()

    @rule(room=st.integers(0, 20 << 10))
    def fill_disk(self, room: int) -> None:
        self.files.failing = lambda call, path: False  # a bad disk that is also full is a bad disk
        self.files.full_at_bytes = room + sum(len(i.data) for i in self.files.names.values() if i is not None)

    @precondition(lambda self: self.files.full_at_bytes is not None)
    @rule()
    def empty_disk(self) -> None:
        self.files.full_at_bytes = None
        self._wait()
        assert self.storage.shared.refusal is None

    def _wait(self) -> None:
        timers = self.timers
        self.timers = []
        for action in timers:
            action()
        self.work()
        self.work()

    @precondition(lambda self: self.files.full_at_bytes is None)
    @rule(
        call=st.sampled_from(["write", "sync", "open"]),
        can_remove=st.booleans(),
        crash=st.booleans(),
        seed=st.integers(0, 1 << 16),
    )
    def fail_the_journal_for_a_while(self, call: str, can_remove: bool, crash: bool, seed: int) -> None:
        """Let no file take the writes that wait: nothing more is acknowledged until the disk works again, or dies."""
        journal = self.storage._journal
        whole = {file.path for file in (*journal._full, *journal._free)}

        def fails(what: str, path: str) -> bool:
            if not path.endswith(".journal") or path in whole:
                return False
            is_meant = what == call or (what in {"write", "sync"} and call == "open")
            return is_meant or (what == "remove" and not can_remove)

        self.sync_worker.run()  # what is written already may become durable
        self.files.failing = fails
        ticket = self.storage.durable_ticket
        for _ in range(3):
            self._wait()
        if self.storage.failed is not None:
            assert self.storage.durable_ticket == ticket
        if crash:
            self._restart(bool(seed % 2), seed, 1_000)
            return
        self.files.failing = lambda call, path: False
        self._wait()
        assert self.storage.failed is None
        assert self.storage.shared.refusal is None

    @rule(number=st.integers(0, 2))
    def read_everything(self, number: int) -> None:
        group = GROUPS[number][0]
        model = self.models[group]
        assert self.logs[group].first_index - 1 == model.start
        self._check(self.logs[group], model.items[model.start - model.base :])

    @rule()
    def restart_cleanly(self) -> None:
        self.files.full_at_bytes = None
        self.sync_worker.inline = self.write_worker.inline = self.checkpoint_worker.inline = True
        self.sync_worker.run()
        self.write_worker.run()
        self.loop.run_until_complete(self.storage.close())
        self.note_what_was_dropped()
        self._open()
        assert self.storage.was_clean
        for group, log in self.logs.items():
            assert log.first_index - 1 == self.models[group].start
            self._settle_on(group, log, self.models[group].last_index)

    @rule(
        calls=st.integers(0, 25),
        power=st.booleans(),
        seed=st.integers(0, 1 << 16),
        calls_again=st.integers(0, 60),
        write_first=st.booleans(),
    )
    def crash(self, calls: int, power: bool, seed: int, calls_again: int, write_first: bool) -> None:
        """Die somewhere in the work that is due; perhaps again during recovery."""
        self.files.crash_in = calls
        with suppress(CrashError):
            for _ in range(2):
                self.storage.flush()
                # Nothing orders the two threads: either may be ahead of the other.
                for worker in (self.sync_worker, self.write_worker)[:: -1 if write_first else 1]:
                    worker.run()
        assert self.storage.failed is None
        self._restart(power, seed, calls_again)

    def _restart(self, power: bool, seed: int, calls_again: int) -> None:
        self.note_what_was_dropped()
        self.files.full_at_bytes = None
        rng = Random(seed)
        self._go_down(rng, power=power)
        self.files.crash_in = calls_again
        try:
            self._open()
        except CrashError:
            self._go_down(rng, power=power)
            self._open()
        except StorageFailedError as error:
            raise AssertionError(error) from error
        self.files.crash_in = None
        for group, log in self.logs.items():
            assert log.failed is None, log.failed
            is_lost = power and log.mode == "page-cache"
            self._settle_on(group, log, 0 if is_lost else self.models[group].durable, is_lost=is_lost)
            found = self.storage.hard_state(group)
            assert found in [state for _, state in self.hard_states[group]]
            self.hard_states[group] = [(0, found)]

    def _go_down(self, rng: Random, *, power: bool) -> None:
        self.files.lose_power(rng) if power else self.files.kill()

    def _settle_on(self, group: GroupId, log: ReplicaLog, at_least: int, *, is_lost: bool = False) -> None:
        """Compare the recovered log with the model, and go on from there."""
        found = self._entries(log)
        model = self.models[group]
        start = log.first_index - 1
        assert model.accepts(start, found, at_least=at_least), (start, len(found), at_least, model.last_index, log.name)
        assert start >= min([model.durable_start, *(known for _, known in model.starts)]), start
        saved = log.load_state()
        if saved is None:
            # A page-cache log that lost the entry which the state was kept with has lost that, too.
            model.lacks_state |= is_lost
            assert not start or model.lacks_state, "what was dropped cannot be replayed"
        else:
            model.lacks_state = False
            assert saved[0] >= start
            assert saved[1] == b"as of %d" % saved[0]
        model.settle_on(log, found)
        assert log.durable_index == log.last_index == model.last_index
        self._check(log, found)

    def _entries(self, log: ReplicaLog) -> list[Item]:
        found: list[Item] = []
        index = log.first_index
        while index <= log.last_index:
            # After a loss of power an index may be gone: that is found out in the thread, so ask again.
            run = log.entries(index, 4000) or log.entries(index, 4000)
            assert run, log.failed
            for entry in run:
                assert entry.index == index
                verify(memoryview(entry.frame))
                found.append((entry.term, bytes(entry.frame)))
                index += 1
        return found

    def _check(self, log: ReplicaLog, items: list[Item]) -> None:
        first = log.first_index
        assert self._entries(log) == items
        assert log.size_bytes == sum(len(frame) for _, frame in items)
        assert [log.term_at(index) for index in range(first, first + len(items))] == [term for term, _ in items]
        assert log.offset_after(first - 1) == log.base_offset <= log.log_start_offset <= log.log_end_offset
        offset = log.base_offset
        for index, (_, frame) in enumerate(items, first):
            assert parse_header(frame).base_offset == offset
            offset = next_offset(frame)
            assert log.offset_after(index) == offset
        assert log.log_end_offset == offset
        start = log.log_start_offset
        data = b"".join(frame for _, frame in items if parse_header(frame).record_count and next_offset(frame) > start)
        got = b""
        offset = start
        while offset < log.log_end_offset:
            frames = self.loop.run_until_complete(log.read_cold(offset, log.log_end_offset, 4000))
            assert frames, (offset, log.log_end_offset)
            got += b"".join(frames)
            offset = self._end_offset(got)
        assert got == data
        if start:
            assert self.loop.run_until_complete(log.read_cold(start - 1, log.log_end_offset, 4000)) == []

    @staticmethod
    def _end_offset(data: bytes) -> int:
        position = offset = 0
        while position < len(data):
            header = parse_header(data, position)
            offset = header.end_offset
            position += header.size_bytes
        return offset


TestCrashes = CrashMachine.TestCase
TestCrashes.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
