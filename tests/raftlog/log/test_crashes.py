"""The whole storage against a list, crashing at every file call: what was durable is there, nothing else comes back.

After a crash the recovered log must be the beginning of the log as it was, or of what it was before a truncation that
was not durable yet, and must have every entry that had been called durable. In page-cache mode that holds for a killed
process; after a loss of power the log may be shorter, but is still such a beginning.
"""

import asyncio
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.append_log import Mode
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.log.segment_log import ReplicaLog
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.raft.messages import Entry, GroupId, HardState
from barnabas_raftlog.records.header import ControlKind, control_frame, next_offset, parse_header, stamp, verify

from .frames import data_frame
from .memory_files import CrashError, ManualWorker, MemoryFiles

CONFIG = StorageConfig(
    journal_file_bytes=16 << 10,
    journal_step_bytes=4 << 10,
    journal_files_max=3,
    segment_bytes=9 << 10,
    tail_cache_bytes=6 << 10,
    checkpoint_bytes=24 << 10,
    open_files_max=3,
)
GROUPS: list[tuple[GroupId, str, Mode]] = [
    (GroupId(bytes(19) + b"\1"), "a-0", "fsync"),
    (GroupId(bytes(19) + b"\2"), "b-0", "page-cache"),
    (GroupId(bytes(19) + b"\3"), "c-0", "fsync"),
]
Item = tuple[int, bytes]  # term, frame


class Model:
    """What one log should hold. `before`: what it held before each truncation that is not durable yet."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.before: list[tuple[int, list[Item]]] = []
        self.durable = 0

    def accepts(self, found: list[Item], *, at_least: int) -> bool:
        candidates = [self.items, *(items for _, items in self.before)]
        return len(found) >= at_least and any(found == items[: len(found)] for items in candidates)


class CrashMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.files = MemoryFiles()
        self.models = {group: Model() for group, _, _ in GROUPS}
        self.hard_states: dict[GroupId, list[tuple[int, HardState]]] = {
            group: [(0, HardState(0, None))] for group, _, _ in GROUPS
        }
        self.term = 1
        self.storage: Storage

    def teardown(self) -> None:
        self.loop.close()

    @initialize()
    def start(self) -> None:
        self.files.make_directory("data")
        self._open()

    def _open(self) -> None:
        self.sync_worker, self.write_worker = ManualWorker(), ManualWorker(inline=True)
        self.storage = self.loop.run_until_complete(
            Storage.open(
                self.files,
                "data",
                CONFIG,
                sync_worker=self.sync_worker,
                write_worker=self.write_worker,
                on_durable=self._note_durable,
                cluster_id="cluster",
                node_id=1,
                read_worker=ManualWorker(inline=True),
                new_id=lambda: "id",
            )
        )
        self.write_worker.inline = False
        self.logs: dict[GroupId, ReplicaLog] = {
            group: self.storage.open_log(group, name, mode) for group, name, mode in GROUPS
        }

    def _note_durable(self) -> None:
        for group, log in self.logs.items():
            model = self.models[group]
            assert log.durable_index <= log.last_index == len(model.items)
            model.durable = log.durable_index
            model.before = [item for item in model.before if item[0] > self.storage.durable_ticket]
        for saved in self.hard_states.values():
            while len(saved) > 1 and saved[1][0] <= self.storage.durable_ticket:
                saved.pop(0)

    def _append(self, number: int, frames: list[bytes], *, follower: bool) -> None:
        group = GROUPS[number][0]
        log, model = self.logs[group], self.models[group]
        try:
            if follower:
                entries = [Entry(log.last_index + 1 + i, self.term, frame) for i, frame in enumerate(frames)]
                log.append(entries)
            else:
                for frame in frames:
                    log.append_batch(self.term, bytearray(frame))
        except DiskFullError:
            assert self.files.full_at_bytes is not None
            # The file is cut back to what it was, but after a loss of power whole frames of what was refused may be
            # there. They can only be a follower's, which are genuine: a leader's single frame is never whole.
            if follower and not log._journaled:
                model.before.append((1 << 62, model.items + [(self.term, frame) for frame in frames]))
            return
        model.items += [(self.term, frame) for frame in frames]
        if not log._journaled:
            model.durable = log.durable_index

    @rule(
        number=st.integers(0, 2), sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=4), follower=st.booleans()
    )
    def append(self, number: int, sizes: list[int], follower: bool) -> None:
        offset = self.logs[GROUPS[number][0]].log_end_offset
        for size in sizes:
            frame = data_frame(1 + size % 3, size, 1000 + size, fill=offset)
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
        log, model = self.logs[group], self.models[group]
        if not model.items or log.failed:
            return
        index = 1 + int(share * (len(model.items) - 1))
        log.truncate_from(index)
        model.before.append((self.storage.ticket(), model.items))
        model.items = model.items[: index - 1]
        model.durable = min(model.durable, index - 1)
        assert log.durable_index == model.durable
        self.term += 1

    @rule(
        number=st.integers(0, 2),
        share=st.floats(0, 1),
        sizes=st.lists(st.integers(0, 800), min_size=1, max_size=3),
        checkpoint=st.booleans(),
    )
    def rewrite(self, number: int, share: float, sizes: list[int], checkpoint: bool) -> None:
        """What a new leader does to a follower: replace the end of its log. Single rules seldom get this far."""
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

    @rule()
    def flush(self) -> None:
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
    def work(self) -> None:
        for _ in range(3):
            self.storage.flush()
            self.sync_worker.run()
            self.write_worker.run()

    @precondition(lambda self: self.files.full_at_bytes is None)
    @rule(call=st.sampled_from(["write", "sync"]), after=st.integers(0, 3))
    def fail_the_journal_once(self, call: str, after: int) -> None:
        """One write or sync of a journal file fails: it must be replaced, and nobody notices."""
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
        for _ in range(6):
            self.storage.flush()
            self.sync_worker.run()
            self.write_worker.run()
        assert self.storage.failed is None
        assert self.storage._host.refusal is None

    @rule(number=st.integers(0, 2))
    def read_everything(self, number: int) -> None:
        group = GROUPS[number][0]
        self._check(self.logs[group], self.models[group].items)

    @rule()
    def restart_cleanly(self) -> None:
        self.files.full_at_bytes = None
        self.sync_worker.inline = self.write_worker.inline = True
        self.sync_worker.run()
        self.write_worker.run()
        self.loop.run_until_complete(self.storage.close())
        self._open()
        assert self.storage.was_clean
        for group, log in self.logs.items():
            self._settle_on(group, log, len(self.models[group].items))

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
        try:
            for _ in range(2):
                self.storage.flush()
                # Nothing orders the two threads: either may be ahead of the other.
                first, second = self.sync_worker, self.write_worker
                if write_first:
                    first, second = second, first
                first.run()
                second.run()
        except CrashError:
            pass
        assert self.storage.failed is None
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
            self._settle_on(group, log, 0 if is_lost else self.models[group].durable)
            found = self.storage.hard_state(group)
            assert found in [state for _, state in self.hard_states[group]]
            self.hard_states[group] = [(0, found)]

    def _go_down(self, rng: Random, *, power: bool) -> None:
        if power:
            self.files.lose_power(rng)
        else:
            self.files.kill()

    def _settle_on(self, group: GroupId, log: ReplicaLog, at_least: int) -> None:
        """Compare the recovered log with the model, and go on with what is there."""
        found = self._entries(log)
        model = self.models[group]
        assert model.accepts(found, at_least=at_least), (len(found), at_least, len(model.items), log.name)
        model.items, model.before, model.durable = found, [], len(found)
        assert log.durable_index == log.last_index == len(found)
        self._check(log, found)

    def _entries(self, log: ReplicaLog) -> list[Item]:
        found: list[Item] = []
        while len(found) < log.last_index:
            # After a loss of power an index may be gone: that is found out in the thread, so ask again.
            run = log.entries(len(found) + 1, 4000) or log.entries(len(found) + 1, 4000)
            assert run, log.failed
            for entry in run:
                assert entry.index == len(found) + 1
                verify(memoryview(entry.frame))
                found.append((entry.term, bytes(entry.frame)))
        return found

    def _check(self, log: ReplicaLog, items: list[Item]) -> None:
        assert self._entries(log) == items
        assert log.size_bytes == sum(len(frame) for _, frame in items)
        assert [log.term_at(index) for index in range(1, len(items) + 1)] == [term for term, _ in items]
        offset = 0
        for index, (_, frame) in enumerate(items, 1):
            offset = next_offset(frame)
            assert log.offset_after(index) == offset
        assert log.log_end_offset == offset
        data = b"".join(frame for _, frame in items if parse_header(frame).record_count)
        got = b""
        offset = 0
        while offset < log.log_end_offset:
            frames = self.loop.run_until_complete(log.read_cold(offset, log.log_end_offset, 4000))
            assert frames, (offset, log.log_end_offset)
            got += b"".join(frames)
            offset = self._end_offset(got)
        assert got == data

    @staticmethod
    def _end_offset(data: bytes) -> int:
        position = offset = 0
        while position < len(data):
            header = parse_header(data, position)
            offset, position = header.end_offset, position + header.size_bytes
        return offset


TestCrashes = CrashMachine.TestCase
TestCrashes.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
