"""A node's storage: one journal, one checkpoint, all logs.

It is the only thing that other packages make of this folder. The driver appends to logs and saves hard states, which
queues work, and calls `flush` once in every iteration of its loop. Workers do the rest: the sync worker writes and
syncs the journal, one batch for everybody (`commit_queue` spares it small ones), and large entries in their segments;
the write worker carries entries on into segment files, the checkpoint worker syncs those. `on_durable` says that
`durable_ticket`, or the `durable_index` of some log, has moved.

Failures: without room appends are refused (`DiskFullError`) until there is room; an append that is refused looks
whether there is, and so does a timer, every `retry_s`. Work that cannot be done for want of descriptors, memory and the
like (`disk_errors`) waits for the same timer; `hampered` says why. So does a checkpoint that could not be written. A
journal that cannot be written, not even in a new file, is as good as a disk that takes very long: records that wait for
it stay in memory, nothing is acknowledged, appends are refused, `failed` says why, and `on_failed` is called once.
Every `retry_s` all that waits is written to yet another new file; when that succeeds `failed` is None again and
`on_recovered` is called. A bad segment file fails its replica only, also after a restart.
"""

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.journal.commit_queue import CommitQueue
from barnabas_raftlog.log.journal.format import RecordKind
from barnabas_raftlog.log.journal.journal import Journal, JournalLimits, WriteResult
from barnabas_raftlog.log.journal.kernel_sync import Syncer
from barnabas_raftlog.log.machine.disk_errors import is_disk_full, is_passing, will_pass
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import OpenFiles
from barnabas_raftlog.log.machine.worker import Worker, run_in
from barnabas_raftlog.log.recovery.replica import empty_row, recover_replica
from barnabas_raftlog.log.recovery.startup import CLEAN_STOP, Started, save, start
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.segments.cold_reads import ColdReads
from barnabas_raftlog.log.segments.write_queue import WriteQueue
from barnabas_raftlog.raft.messages import GroupId, HardState

from .checkpoint import ReplicaRow, decode_row
from .checkpointing import Checkpointer
from .errors import DiskFullError, StorageBusyError
from .hampered import Hampered
from .hard_states import HardStates
from .removals import Removals
from .shared import SharedStorage, StorageConfig, StorageStats

__all__ = ["Storage", "StorageConfig", "StorageStats"]

T = TypeVar("T")
CallLater = Callable[[float, Callable[[], None]], object]  # seconds, what to do then


class _Workers(NamedTuple):
    """The workers that `Storage.open` was given; None: as it says there."""

    sync: Worker
    write: Worker
    read: Worker | None
    checkpoint: Worker | None


class Storage:
    """The storage of one data directory, owned by the loop that opened it."""

    __slots__ = (  # CPython keeps 30 attributes of an instance in place; of more, each costs a look-up
        "_call_later",
        "_checkpointer",
        "_commits",
        "_directory",
        "_files",
        "_hard_states",
        "_has_told_of_room",
        "_is_closed",
        "_is_looking_for_room",
        "_is_retry_due",
        "_journal",
        "_journal_full",
        "_lock_fd",
        "_logs",
        "_on_durable",
        "_removals",
        "_retry_s",
        "_waiter",
        "_write_worker",
        "_writes",
        "directory_id",
        "failed",
        "hampered",
        "last_error",
        "on_failed",
        "on_recovered",
        "on_room",
        "shared",
        "was_clean",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        config: StorageConfig,
        started: Started,
        workers: _Workers,
        on_durable: Callable[[], None],
        on_failed: Callable[[StorageFailedError], None] | None,
        call_later: CallLater,
        syncer: Syncer | None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._lock_fd = started.lock_fd
        self.directory_id = started.directory_id  # 16 bytes, made with the directory, half of a voter's identity
        self.was_clean = started.was_clean
        self._write_worker = workers.write
        self._logs: dict[GroupId, ReplicaLog] = {}
        self._is_closed = False
        self._waiter: asyncio.Future[None] | None = None

        # Callbacks.
        self._on_durable = on_durable
        self.on_failed = on_failed
        self.on_recovered: Callable[[], None] | None = None
        self.on_room: Callable[[str], None] | None = None  # why the disk lacks room now; empty: it has room again

        # Failures, and attempts to get over them.
        self.failed: StorageFailedError | None = None
        self.last_error = ""  # of something that was repaired, or will be tried again
        self.hampered = Hampered()
        self._call_later = call_later
        self._retry_s = config.retry_s
        self._is_retry_due = True  # False while a timer says when to look at the disk again
        self._journal_full = False  # there was no room for it
        self._is_looking_for_room = False
        self._has_told_of_room = False

        self._assemble(config, started, workers, syncer)

    def _assemble(self, config: StorageConfig, started: Started, workers: _Workers, syncer: Syncer | None) -> None:
        """Put together what does the work."""
        files = self._files
        checkpoint = started.checkpoint
        opened = OpenFiles(files, config.open_files_max)
        limits = JournalLimits(config.journal_file_bytes, config.journal_step_bytes, config.journal_files_max)
        self._journal = Journal(files, f"{self._directory}/journal", limits, checkpoint.journal)
        self._journal.adopt(started.journal_paths)
        self._removals = Removals(files, workers.write, lambda: self._commits.durable_ticket)
        self._writes = WriteQueue(
            files,
            opened,
            workers.write,
            lambda: self._commits.durable_ticket,
            self._on_carried_out,
            started.lock_fd,
            config.synced_together_min,
            workers.checkpoint,
        )
        self._commits = CommitQueue(
            self._journal, workers.sync, syncer, self._on_written, self._writes, config.stored_bytes_min
        )
        self._hard_states = HardStates(checkpoint.hard_states, self._commits)
        cold = ColdReads(files, opened, workers.read)
        self.shared = SharedStorage(files, config, opened, self._commits, self._writes, cold, workers.write)
        self.shared.on_hampered = self._on_hampered
        self.shared.stats.recovered_entries = started.written_count
        self.shared.stats.cut_bytes = started.cut_bytes
        self._checkpointer = Checkpointer(
            self.shared,
            self._directory,
            checkpoint,
            self._journal,
            self._hard_states,
            self._logs,
            workers.write,
            self._on_checkpoint,
        )

    @classmethod
    async def open(  # noqa: PLR0913 - everything that it uses is brought by the caller
        cls,
        files: Files,
        directory: str,
        config: StorageConfig,
        *,
        sync_worker: Worker,
        write_worker: Worker,
        on_durable: Callable[[], None],
        cluster_id: str | None = None,
        node_id: int | None = None,
        on_failed: Callable[[StorageFailedError], None] | None = None,
        read_worker: Worker | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        call_later: CallLater | None = None,
        boot_id: str | None = None,
        syncer: Syncer | None = None,
        checkpoint_worker: Worker | None = None,
    ) -> "Storage":
        """Open, and after a crash recover, the data in `directory`.

        Without `read_worker` cold reads go to the loop's default executor, without `call_later` timers to the loop,
        without `syncer` and `checkpoint_worker` syncs to the worker that writes. `boot_id`: see `startup.start`.

        Raises:
            StorageFailedError: the directory is in use, belongs to another node, or is damaged as a whole.
        """
        job = partial(start, files, directory, config, cluster_id, node_id, new_id, boot_id)
        started = await ColdReads(files, OpenFiles(files, 1), write_worker).in_thread(job)
        workers = _Workers(sync_worker, write_worker, read_worker, checkpoint_worker)
        call_later = call_later or asyncio.get_running_loop().call_later
        return cls(files, directory, config, started, workers, on_durable, on_failed, call_later, syncer)

    @property
    def stats(self) -> StorageStats:
        return self.shared.stats

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def logs(self) -> list[ReplicaLog]:
        """The logs that are open."""
        return list(self._logs.values())

    async def in_write_worker(self, job: Callable[[], T]) -> T:
        """Run `job`, which must not raise, in order with everything else that is done to segment files."""
        return await run_in(self._write_worker, job)

    @property
    def refusal(self) -> str:
        """The reason why nothing may be appended on this node at the moment, or empty."""
        return str(self.shared.refusal or "")

    @property
    def lacks_room(self) -> bool:
        """True while appends are refused because the disk is full."""
        return self.shared.lacks_room

    @property
    def durable_ticket(self) -> int:
        return self._commits.durable_ticket

    def ticket(self) -> int:
        """Return a number: all that was queued so far for the journal is durable when `durable_ticket` reaches it."""
        return self._commits.ticket

    def take_durable(self) -> list[GroupId]:
        """Return the groups whose `durable_index` was moved by a worker since the last call."""
        moved = self.shared.moved
        self.shared.moved = {}
        return list(moved)

    def hard_state(self, group: GroupId) -> HardState:
        return self._hard_states.get(group)

    def save_hard_state(self, group: GroupId, hard_state: HardState) -> None:
        """Queue it; it is durable when `durable_ticket` reaches what `ticket()` says now."""
        self._hard_states.save(group, hard_state)

    def open_log(self, group: GroupId, name: str, mode: Mode, *, segment_bytes: int | None = None) -> ReplicaLog:
        """Return the log of `group`, made if there is none. `name` is its directory under `replicas/`.

        Blocks for a scan only where a directory exists that no checkpoint and no journal knows.

        Raises:
            DiskFullError, StorageBusyError: that directory cannot be looked at now. Nothing was changed.
        """
        assert group not in self._logs, name
        assert len(group) == 20, group
        config = self.shared.config
        directory = f"{self._directory}/replicas/{name}"
        page_cache = mode == "page-cache"
        known = self._checkpointer.rows.get(group)
        if known is not None:
            row = decode_row(known)
            assert row.name == name, (row.name, name)
        else:
            row = self._adopted(group, name, directory, page_cache=page_cache)
            self._hard_states.say_again(group)
        is_changed = known is None or row.page_cache != page_cache
        row.page_cache = page_cache
        log = ReplicaLog(self.shared, group, directory, row, mode, segment_bytes or config.segment_bytes)
        self._logs[group] = log
        if is_changed:
            # In page-cache mode the files count from here on, in fsync mode the journal.
            self._commits.put(RecordKind.REPLICA, group, row.last_index, page_cache, name.encode(), log)
            log.created()
        return log

    def _adopted(self, group: GroupId, name: str, directory: str, *, page_cache: bool) -> ReplicaRow:
        """Return the row of a replica that nothing is known of, with what is in its directory, if there is one."""
        row = empty_row(group, name, page_cache=page_cache)
        # A hard state is a predecessor's, and what that acknowledged is gone.
        row.uncertain = group in self._hard_states
        row.blank = row.uncertain
        try:
            if self._files.exists(directory):
                segment_bytes = self.shared.config.segment_bytes
                found = recover_replica(self._files, directory, row, None, _no_payload, segment_bytes)
                row = found.row
                row.uncertain |= found.may_lack
                self.stats.cut_bytes += found.cut_bytes
        except OSError as error:
            if not will_pass(error):
                raise StorageFailedError(f"cannot look at {directory}: {error}") from error
            kind = DiskFullError if is_disk_full(error) else StorageBusyError
            raise kind(f"cannot look at {directory} now: {error}") from error
        return row

    def has_log(self, group: GroupId) -> bool:
        """Tell whether a replica of `group` is open, or known to the checkpoint or the journal."""
        return group in self._logs or group in self._checkpointer.rows

    def unopened(self, is_expected: Callable[[GroupId], bool]) -> list[tuple[GroupId, str, Mode]]:
        """Return (group, name, mode) of replicas that the checkpoint knows and that nobody has opened or expects."""
        packed = self._checkpointer.rows
        left = [GroupId(group) for group in packed if group not in self._logs]
        rows = {group: decode_row(packed[group]) for group in left if not is_expected(group)}
        return [(group, row.name, "page-cache" if row.page_cache else "fsync") for group, row in rows.items()]

    def delete_log(self, group: GroupId, *, for_good: bool = True) -> None:
        """Forget a replica and its files; `for_good`: its hard state, too. Else one may be made here again."""
        log = self._logs.pop(group)
        ticket = self._hard_states.delete(group, for_good=for_good)
        self._checkpointer.rows.pop(group, None)
        self.shared.dirty.pop(log, None)
        log.deleted()
        self.shared.replaced.pop(log, None)
        self._removals.add(log.directory, ticket)
        self._checkpointer.forget(log)
        self._commits.flush()  # A node at rest may not come to it for long.

    def left_behind(self) -> list[GroupId]:
        """Return the groups of which only the hard state is here."""
        return self._hard_states.left_behind(self.has_log)

    def forget(self, group: GroupId) -> None:
        """Forget the hard state that a deleted replica may have left behind: the group is no more."""
        if group in self._hard_states and not self.has_log(group):
            self._hard_states.delete(group, for_good=True)

    def flush(self) -> None:
        """Hand queued work to the workers. The driver calls it once in every iteration of its loop."""
        self._commits.flush()
        self._writes.flush()
        shared = self.shared
        if shared.bytes_since_checkpoint > shared.config.checkpoint_bytes:
            self._checkpointer.begin()
        if shared.refusal is not None:
            self._look_for_room()  # also for `close`, which waits for no timer
        self._commits.flush()  # of gates that the write queue has just reached

    async def close(self) -> None:
        """Finish what is queued, write a checkpoint that makes scanning unnecessary, and let go of the directory."""
        self._is_retry_due = True  # a disk that was full may have room again
        is_settled = await self._settled()
        if is_settled:
            number = self._checkpointer.number
            self._checkpointer.begin(at_end=True)
            is_settled = await self._settled() and self._checkpointer.number > number
        self._is_closed = True
        await self._commits.close()
        if is_settled:
            self.last_error = await run_in(self._write_worker, self._mark_clean_stop) or self.last_error
        self.shared.opened.close_all()
        self._files.close(self._lock_fd)

    def _mark_clean_stop(self) -> str:
        """Return why it failed, after which the next start takes longer, or nothing. Runs in the write worker."""
        try:
            save(self._files, f"{self._directory}/{CLEAN_STOP}", str(self._checkpointer.number).encode())
        except OSError as error:
            return f"cannot mark this stop as a clean one: {error}"
        return ""

    def checkpoint(self) -> None:
        """Begin a checkpoint; if one is being made, another one follows it."""
        self._checkpointer.begin()

    def _on_written(self, result: WriteResult) -> None:
        """Take note of a batch that the sync worker has finished."""
        self._checkpointer.on_journaled(result.place)
        self.stats.journal_syncs += 1
        self._journal_full = result.disk_full
        if result.reopened:
            self.stats.journal_reopened += 1
            self.last_error = result.reopened
        if result.failed:
            self._fail(StorageFailedError(result.failed))
        elif self.failed is not None and not result.disk_full:
            self._recover()
        self._update_refusal()
        self._writes.open_gates()
        self._removals.go_on()
        # A file that is full, or was given up, can be released by a checkpoint.
        if result.full_count > self._checkpointer.full_count or result.blocked:
            self._checkpointer.free_journal(result.full_count)
        self._on_durable()
        self._writes.flush()
        self._wake()

    def _on_carried_out(self) -> None:
        """Take note of a job that the write worker has finished."""
        self._update_refusal()
        error = self._writes.stalled_by
        if error is not None and is_passing(error):
            self._on_hampered(error)
        self._commits.flush()
        if self.shared.moved:
            self._on_durable()
        self._wake()

    def _update_refusal(self) -> None:
        if self.failed is not None:
            self.shared.refusal = self.failed
        elif self._journal_full or self._is_stalled_by_disk:
            self.shared.refusal = DiskFullError(f"no room for {self._directory}")
        else:
            self.shared.refusal = None
        # While the journal fails it is not known whether there would be room.
        if self.failed is None and self.lacks_room != self._has_told_of_room:
            self._has_told_of_room = self.lacks_room
            if self.on_room is not None:
                self.on_room(self.refusal)
        if self.shared.refusal is not None:
            # This is not left to `flush`: an append that is refused gives the driver nothing to do.
            self._look_for_room()

    @property
    def _is_stalled_by_disk(self) -> bool:
        error = self._writes.stalled_by
        return error is not None and is_disk_full(error)

    def _look_for_room(self) -> None:
        """See whether a full disk has room again. At most one look is under way, and one begins every `retry_s`."""
        if self._is_looking_for_room or self.failed is not None or not self._is_retry_due or self._is_closed:
            return
        self._is_looking_for_room = True
        self._commits.submit(self._journal.retry_room, self._looked_for_room)

    def _looked_for_room(self, has_room: bool) -> None:
        self._is_looking_for_room = False
        self._journal_full = not has_room
        self._retry_later()
        self._writes.retry()
        self._commits.resume()
        self._update_refusal()
        self._wake()

    def _fail(self, error: StorageFailedError) -> None:
        is_news = self.failed is None
        self.failed = error
        self._retry_later()
        if is_news:
            self.stats.journal_failures += 1
            self._update_refusal()
            if self.on_failed is not None:
                self.on_failed(error)

    def _recover(self) -> None:
        self.failed = None
        self._update_refusal()
        if self.on_recovered is not None:
            self.on_recovered()

    def _retry_later(self) -> None:
        if self._is_retry_due and not self._is_closed:
            self._is_retry_due = False
            self._call_later(self._retry_s, self._retry)

    def _retry(self) -> None:
        """Try a journal that failed once more, look for room on a disk that was full, do work that had to wait."""
        self._is_retry_due = True
        if self._is_closed:
            return
        if self._checkpointer.is_due:
            self._checkpointer.begin()
        if self.hampered.begin_retry():
            self._retry_hampered()
        if self.failed is not None:
            self._retry_later()  # Here, for an attempt may also end because the disk is full.
            self._commits.resume()
        elif self.shared.refusal is not None:
            self._look_for_room()

    def _on_hampered(self, error: BaseException) -> None:
        """Try again later what could not be done for a reason that will pass."""
        self.hampered.note(error)
        self._retry_later()

    def _retry_hampered(self) -> None:
        self._retry_later()
        self._writes.retry()
        hampered = self.shared.hampered
        self.shared.hampered = {}
        call_each(hampered, lambda log: log.may_be_read())

    def _on_checkpoint(self, error: str) -> None:
        if error:
            self.last_error = error
            self._retry_later()
        self._wake()

    async def _settled(self) -> bool:
        """Wait until nothing is queued and no checkpoint is under way; False if that cannot be."""
        loop = asyncio.get_running_loop()
        while True:
            self.flush()
            if self.failed is not None or self._writes.is_stalled or self._journal_full:
                return False
            if self._commits.is_idle and self._writes.is_idle and self._checkpointer.is_idle:
                return True
            self._waiter = loop.create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _no_payload(_: object) -> bytearray:
    raise AssertionError("a directory that the journal does not know has no entries in it")
