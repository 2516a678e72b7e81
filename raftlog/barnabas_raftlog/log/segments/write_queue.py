"""Carries out what must happen to segment files, in order, on the write worker.

Every log has a queue of operations. Once in every iteration of the loop `flush` takes the operations that are ready
from all logs that have some and hands them to the write worker as one job; while that runs, further frames of a log are
added to the operation that waits.

*Gates.* A truncation must be durable in the journal before a segment file shows it; else a crash in between would
leave files that are shorter than the checkpoint says, or bring truncated entries back. So each function that takes
entries away puts a `Gate` into its log's queue, and nothing behind it goes to the worker before the journal has the
gate's record. In fsync mode that record is in the journal's queue already, in its order among the entries. In
page-cache mode it goes there when everything before the gate was carried out, and a second gate says that the files
show it (see `recovery.plan`).

A checkpoint that meets a closed gate takes the state from before it, which the gate keeps: the journal may wait for
that checkpoint, so it must not wait for the gate. The record of a closed gate is not in the journal yet, or is not
durable, so it comes after the place in the journal that the checkpoint names.

*Syncs* of a checkpoint go to a worker of their own, because a disk takes its time with a thousand of them, and writes
would pile up behind. Before a log is synced everything before that is written; while it is synced only writes go on,
which add to the files and take nothing from them. Many syncs that are due together are one call for the whole file
system. That call waits for everything that anybody has written there, but nobody waits for it.
(A stop, 2,000 dirty logs on a file system of their own: 2.4 to 7.7 s one by one, 0.7 to 4.0 s together; on one that
others kept writing to, 3 and 6 s. A load on 1,000 partitions: 76 to 83 MB/s one by one, 102 and 109 together.) If it
fails, or if there is none, the files are synced one by one: each of them then says itself whether everything that was
written to it is there.

*Stores.* In fsync mode the frames of a log wait for the batch of the journal that has their records. If that batch is
large and much of it is this log's, it takes the frames along (`hand_out`): the sync worker writes them into the segment
and syncs that first, and the journal says no more than that they are there, so that the disk is given each byte once
(docs/adr/storage/0013-large-entries-are-written-once.md). Meanwhile nothing else is done to that log. All other frames
go to the write worker, and nothing is stored while something else of the log is to be done, or under way: so when the
journal says of an entry that it is stored, everything before it in the log is synced in its segment file, too.

*Failures.* For want of room, a descriptor or memory, the log's operations go back into its queue and wait for `retry`;
nothing is lost, because the tail cache keeps all frames that are not written. Any other error is final for that log
(`disk_errors`). A file whose sync has failed is copied then, and meanwhile nothing is written to it.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from barnabas_raftlog.log.machine.disk_errors import is_disk_full, will_pass
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import OpenFiles
from barnabas_raftlog.log.machine.worker import Worker

from .operations import Gate, Operation, QueuedLog, Store, Sync, Write

__all__ = ["NOTHING_STORED", "Outcome", "Work", "WriteQueue"]

NOTHING_STORED = 1 << 62  # more bytes than any log has in a batch
Work = tuple[QueuedLog, Operation]
Outcome = list[tuple[QueuedLog, Operation, OSError | None]]


class WriteQueue:
    """Owned by the loop; at most one job of this kind is with each worker.

    Limits: the frames in it are bounded by `StorageConfig.queued_bytes_max`.
    """

    def __init__(
        self,
        files: Files,
        opened: OpenFiles,
        worker: Worker,
        durable_ticket: Callable[[], int],
        on_done: Callable[[], None],
        file_system: int,
        many: int,
        sync_worker: Worker | None,
    ) -> None:
        """`file_system`: a descriptor in it, opened before anything was written; `many` syncs are one of all of it."""
        self._files = files
        self._opened = opened
        self._worker = worker
        self._sync_worker = sync_worker or worker
        self._durable_ticket = durable_ticket
        self._on_done = on_done
        self._waiting: dict[QueuedLog, None] = {}
        self._gated: dict[QueuedLog, None] = {}
        self._stalled: dict[QueuedLog, OSError] = {}
        self._retried: dict[QueuedLog, OSError] = {}  # they were stalled; the next outcome shows whether that is over
        self._syncing: dict[QueuedLog, Sync] = {}  # their syncs are in `_to_sync`, or with the worker
        self._to_sync: list[Work] = []
        self._storing: dict[QueuedLog, None] = {}
        self._in_flight = self._sync_in_flight = False
        self.waiting_bytes = 0
        self._sync_with = (file_system, many)

    @property
    def is_idle(self) -> bool:
        waiting = self._waiting or self._gated or self._stalled
        return not (self._in_flight or waiting or self._syncing or self._storing)

    @property
    def stalled_by(self) -> OSError | None:
        """The reason why some log waits for `retry`, or is being tried again; want of room, if that is one of them."""
        reasons = [*self._stalled.values(), *self._retried.values()]
        return next(filter(is_disk_full, reasons), next(iter(reasons), None))

    @property
    def is_stalled(self) -> bool:
        """True while some log waits for `retry`."""
        return bool(self._stalled)

    def add(self, log: QueuedLog) -> None:
        """Note that `log` has operations that are not with the worker yet."""
        self._waiting[log] = None

    def add_sync(self, log: QueuedLog, now: Callable[[], Sync]) -> bool:
        """Queue a checkpoint's sync: of the state that the first closed gate keeps, else of the state as of `now`.

        Return whether it was the latter.
        """
        is_current = True
        durable = self._durable_ticket()
        for place, operation in enumerate(log.operations):
            if isinstance(operation, Gate) and (operation.ticket is None or operation.ticket > durable):
                log.operations.insert(place, operation.before)
                is_current = False
                break
        else:
            log.operations.append(now())
        # It is released now: the batch that holds something back may wait for the checkpoint itself.
        self._release(log)
        return is_current

    def hand_out(self, logs: Iterable[tuple[QueuedLog, int]], stored_bytes_min: int) -> list[Work]:
        """Begin with a batch of the journal that has so many bytes of each of these logs.

        Return the stores that go with it, of logs with `stored_bytes_min` or more; `stored` must follow. All other
        operations of these logs go to the write worker.
        """
        work: list[Work] = []
        for log, size_bytes in logs:
            store = log.store(size_bytes) if size_bytes >= stored_bytes_min and log not in self._stalled else None
            if store is not None:
                self._storing[log] = None
                log.under_way += 1
                work.append((log, store))
            elif log.operations:
                self._release(log)
        self.flush()
        return work

    def _release(self, log: QueuedLog) -> None:
        """Let the write worker have the operations that `log` has queued so far."""
        for operation in log.operations:
            if isinstance(operation, Write):
                operation.is_held = False
        self.add(log)

    def store(self, work: list[Work]) -> Outcome:
        """Carry out stores, in any thread. All writes come first: the disk has the next file while one is synced."""
        errors: dict[QueuedLog, OSError] = {}
        for half in (partial(Store.write, begin=len(work) > 1), Store.sync):
            for log, operation in work:
                assert isinstance(operation, Store)
                if log not in errors:
                    try:
                        half(operation, self._files, self._opened)
                    except OSError as error:
                        errors[log] = error.with_traceback(None)
        return [(log, operation, errors.get(log)) for log, operation in work]

    def stored(self, outcome: Outcome) -> None:
        """Take note that the stores of `hand_out` were carried out."""
        for log, _, _ in outcome:
            del self._storing[log]
        if outcome:
            self._carried_out(outcome)

    def open_gates(self) -> None:
        """Look at the gates again: `durable_ticket` has moved."""
        if self._gated:
            self._waiting |= self._gated
            self._gated = {}

    def retry(self) -> None:
        """Try again with the logs that are stalled: the reason for that may be over."""
        self._waiting |= dict.fromkeys(self._stalled)
        self._retried |= self._stalled
        self._stalled = {}
        self.flush()

    def flush(self) -> None:
        """Hand everything that is ready to the workers that are free."""
        if self._waiting and not self._in_flight:
            work: list[Work] = []
            waiting = self._waiting
            self._waiting = {}
            for log in waiting:
                if log not in self._stalled:
                    self._take(log, work)
                    if not log.under_way:
                        self._retried.pop(log, None)  # Nothing is left that could show it.
            if work:
                self._in_flight = True
                self._worker.submit(partial(self._job().run, work), self._written)
        if self._to_sync and not self._sync_in_flight:
            self._sync_in_flight = True
            syncs = self._to_sync
            self._to_sync = []
            self._sync_worker.submit(partial(self._job().run, syncs), self._synced)

    def _job(self) -> "_Job":
        return _Job(self._files, self._opened, self._sync_with)

    def _take(self, log: QueuedLog, work: list[Work]) -> None:
        """Move operations that can be done now to `work`, and a sync with nothing before it to those that are due."""
        operations = log.operations
        if log in self._storing:
            return  # `stored` comes back to it
        while operations:
            operation = operations[0]
            if (syncing := self._syncing.get(log)) is not None and (
                syncing.is_exclusive or not isinstance(operation, Write)
            ):
                return  # `_synced` comes back to it
            if isinstance(operation, Gate):
                if operation.ticket is None and not log.under_way:
                    operation.ticket = operation.put()
                if operation.ticket is None or operation.ticket > self._durable_ticket():
                    self._gated[log] = None
                    return
                del operations[0]
                continue
            if isinstance(operation, Write) and operation.is_held:
                return  # `hand_out` comes back to it
            if isinstance(operation, Sync) and log.under_way:
                return  # `_written` comes back to it
            del operations[0]
            log.under_way += 1
            if isinstance(operation, Sync):
                self._syncing[log] = operation
                self._to_sync.append((log, operation))
                return
            work.append((log, operation))

    def _written(self, outcome: Outcome) -> None:
        self._in_flight = False
        self._carried_out(outcome)

    def _synced(self, outcome: Outcome) -> None:
        self._sync_in_flight = False
        for log, _, _ in outcome:
            del self._syncing[log]
        self._carried_out(outcome)

    def _carried_out(self, outcome: Outcome) -> None:
        returned: dict[QueuedLog, tuple[list[Operation], OSError]] = {}
        for log, operation, error in outcome:
            self._retried.pop(log, None)
            log.under_way -= 1
            if error is not None and will_pass(error):
                returned.setdefault(log, ([], error))[0].append(operation)
                continue
            self.waiting_bytes -= operation.queued_bytes
            if error is None:
                log.on_operation(operation)
            else:
                log.on_operation_failed(operation, error)
        for log, _, _ in outcome:
            if log.operations:
                self._waiting[log] = None
        for log, (operations, error) in returned.items():
            log.operations[:0] = operations
            self._stalled[log] = error
        # A gate may have been waiting for this; its record then waits for the flush that `on_done` leads to.
        self.open_gates()
        self.flush()
        self._on_done()


class _Job:
    """The work of one `flush` in a worker: operations in order, syncs of different logs together.

    After an error of a log, its later operations get it, too.
    """

    def __init__(self, files: Files, opened: OpenFiles, sync_with: tuple[int, int]) -> None:
        self._files = files
        self._opened = opened
        self._sync_with = sync_with
        self._outcome: Outcome = []
        self._errors: dict[QueuedLog, OSError] = {}
        self._syncs: dict[QueuedLog, Sync] = {}

    def run(self, work: list[Work]) -> Outcome:
        for log, operation in work:
            if log in self._syncs:
                self._run_syncs()
            if isinstance(operation, Sync):
                self._syncs[log] = operation
            else:
                self._run(log, operation)
        self._run_syncs()
        return self._outcome

    def _run(self, log: QueuedLog, operation: Operation) -> None:
        error = self._errors.get(log)
        if error is None:
            try:
                operation.run(self._files, self._opened)
            except OSError as caught:
                # Its traceback would hold this job in a circle, and with it logs that have been deleted since.
                error = self._errors[log] = caught.with_traceback(None)
        self._outcome.append((log, operation, error))

    def _run_syncs(self) -> None:
        file_system, many = self._sync_with
        if len(self._syncs) >= many:
            with suppress(OSError):  # The syncs one by one show which file it is.
                self._sync_together(file_system)
        self._files.run_all([partial(self._run, log, operation) for log, operation in self._syncs.items()])
        self._syncs.clear()

    def _sync_together(self, fd: int) -> None:
        """Sync as many logs as can be in one call, and take them out of those that are to be synced."""
        prepared: list[QueuedLog] = []
        for log, operation in self._syncs.items():
            with suppress(OSError):  # As above.
                if log not in self._errors and not operation.is_exclusive:
                    operation.prepare(self._files, self._opened)
                    prepared.append(log)
        if self._files.sync_file_system(fd):
            self._outcome += [(log, self._syncs.pop(log), None) for log in prepared]
