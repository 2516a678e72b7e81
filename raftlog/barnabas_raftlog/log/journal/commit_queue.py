"""The queue before the journal: group commit, as the loop sees it.

A caller that wants something durable puts a record here and gets a *ticket*. Once in every iteration of the loop
`flush` hands everything that waits to the disk, unless it is busy; then it waits for the next turn, and thousands of
groups share one sync. When a batch is on the disk, `durable_ticket` moves and the logs that took part are told.

There are two ways to the disk. A small batch the kernel writes and syncs while the loop goes on (`Syncer`); if it must
go through the page cache, that copy is made here. So it is with a batch of middling size if it is made of small parts:
when thousands of clients have a small request each under way, the hop to a thread and back, for whose turns the loop
does not stop, took four times as long as the sync. A batch that is large, or needs another file or more room, goes to
the sync worker. So does everything while the disk takes its time (`is_prompt`): then a write into the page cache may
wait for it, too.

Limit: `waiting_bytes` is what `StorageConfig.queued_bytes_max` bounds; the callers that may be refused (leaders)
check it before they append.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from barnabas_raftlog.log.machine.worker import Worker, run_in
from barnabas_raftlog.log.segments.operations import QueuedLog
from barnabas_raftlog.log.segments.write_queue import NOTHING_STORED, Outcome, Work, WriteQueue
from barnabas_raftlog.raft.messages import Buffer

from .format import RECORD_BYTES, QueuedRecord, as_stored
from .journal import Journal, WriteResult
from .kernel_sync import Syncer

__all__ = ["CommitQueue", "Journaled"]

SMALL_BYTES = 64 << 10  # copied in a few tens of microseconds; a larger batch is worth the hop to a thread
MIDDLING_BYTES = 256 << 10  # in a tenth of a millisecond
SMALL_PART_BYTES = 4 << 10  # on average; with parts of 16 KiB a thread that does it took a fifth more a second
PROMPT_S = 0.05  # a disk that takes longer for a batch makes others wait
T = TypeVar("T")


class Journaled(QueuedLog, Protocol):
    """A log whose records are in the queue."""

    def on_journaled(self, durable_ticket: int) -> None: ...


class CommitQueue:
    """The queue of one node, owned by the loop. Tickets count records from 1; one batch at most is on its way.

    Invariants: durable_ticket <= ticket; the records after `durable_ticket` are in `_records` or on their way. While
    `_in_flight` the journal is the worker's, or waits for a sync; else it is the loop's.
    """

    __slots__ = (
        "_began_s",
        "_clock",
        "_held",
        "_in_flight",
        "_is_closed",
        "_jobs",
        "_journal",
        "_last_s",
        "_on_result",
        "_records",
        "_stored_bytes_min",
        "_syncer",
        "_touched",
        "_worker",
        "_writes",
        "durable_ticket",
        "ticket",
        "waiting_bytes",
    )

    def __init__(
        self,
        journal: Journal,
        worker: Worker,
        syncer: Syncer | None,
        on_result: Callable[[WriteResult], None],
        writes: WriteQueue,
        stored_bytes_min: int,
    ) -> None:
        """`stored_bytes_min`: a log with so many bytes in a large batch has its entries stored in the segment."""
        self._writes = writes
        self._stored_bytes_min = stored_bytes_min
        self._journal = journal
        self._worker = worker
        self._on_result = on_result
        self._clock = asyncio.get_running_loop().time
        self._syncer = syncer
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._began_s = 0.0  # when the batch that is in flight went on its way
        self._last_s = 0.0  # how long the last one took
        self._records: list[QueuedRecord] = []
        # Logs by the bytes that they wrote, told in the order in which they did: a set would give another in each run.
        self._touched: dict[Journaled, int] = {}
        self._in_flight = False
        self._held = False
        self._is_closed = False
        self.ticket = 0
        self.durable_ticket = 0
        self.waiting_bytes = 0

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._records and not self._jobs

    @property
    def is_prompt(self) -> bool:
        """True while the disk keeps nobody waiting: then a small write into the page cache will not wait for it."""
        return self._last_s <= PROMPT_S and not (self._in_flight and self._clock() - self._began_s > PROMPT_S)

    def may_write_here(self, size_bytes: int) -> bool:
        """Tell whether a log may write so much into the page cache from the loop."""
        return size_bytes <= SMALL_BYTES and self.is_prompt

    def _may_sync_here(self) -> bool:
        is_of_many = self.waiting_bytes <= SMALL_PART_BYTES * len(self._records)
        return self.is_prompt and self.waiting_bytes <= (MIDDLING_BYTES if is_of_many else SMALL_BYTES)

    def put(
        self, kind: int, group: bytes, index: int, term: int, payload: Buffer = b"", log: Journaled | None = None
    ) -> int:
        """Queue a record and return its ticket. `log` is told when it is durable."""
        self._records.append((kind, group, index, term, payload))
        if log is not None:
            self._touched[log] = self._touched.get(log, 0) + len(payload)
        self.waiting_bytes += len(payload) + RECORD_BYTES
        self.ticket += 1
        return self.ticket

    def flush(self) -> None:
        """Let the waiting records go to the disk, if nothing else is on its way."""
        if self._in_flight:
            return
        if self._jobs:
            self._in_flight = True
            job, done = self._jobs.popleft()
            self._worker.submit(job, partial(self._finish_job, done))
        elif self._records and not self._held and not self._is_closed:
            here = self._syncer is not None and self._may_sync_here()
            records = self._records
            self._records = []
            touched = self._touched
            self._touched = {}
            self._in_flight = True
            self._began_s = self._clock()
            if here and self._begin_sync(records, touched):
                self._writes.hand_out(touched.items(), NOTHING_STORED)
            else:
                self._submit(records, touched, self._writes.hand_out(touched.items(), self._stored_bytes_min))

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Let the sync worker do something else with the journal, between two batches. See `Worker`."""
        self._jobs.append((job, done))
        self.flush()

    def resume(self) -> None:
        """Try again: the cause that held the queue up (no free journal file, no room on the disk) may be over."""
        self._held = False
        self.flush()

    async def close(self) -> None:
        """Close the journal when it is free. Records that wait then are not written any more."""
        self._is_closed = True
        await run_in(self, self._journal.close)

    def _begin_sync(self, records: list[QueuedRecord], touched: dict[Journaled, int]) -> bool:
        """Write now, and let the kernel sync; False if that is to be done by the worker."""
        assert self._syncer is not None
        return self._journal.begin(records, self._syncer, partial(self._synced, records, touched))

    def _synced(self, records: list[QueuedRecord], touched: dict[Journaled, int], error: OSError | None) -> None:
        result = self._journal.finish(len(records), error)
        if error is None:
            self._written(records, touched, ([], result))
        else:
            self._submit(records, touched, [])  # into another file: this one is not trusted any more

    def _submit(self, records: list[QueuedRecord], touched: dict[Journaled, int], work: list[Work]) -> None:
        self._worker.submit(partial(self._write, records, work), partial(self._written, records, touched))

    def _write(self, records: list[QueuedRecord], work: list[Work]) -> tuple[Outcome, WriteResult]:
        """Store frames, then write the journal, which says that they are on the disk. Runs in the sync worker."""
        outcome = self._writes.store(work)
        stored = {log.group for log, _, error in outcome if error is None}
        if stored:
            records = [as_stored(record) if record[1] in stored else record for record in records]
        return outcome, self._journal.write(records)

    def _finish_job(self, done: Callable[[T], None], result: T) -> None:
        self._in_flight = False
        done(result)
        self.flush()

    def _written(
        self, records: list[QueuedRecord], touched: dict[Journaled, int], results: tuple[Outcome, WriteResult]
    ) -> None:
        outcome, result = results
        self._writes.stored(outcome)
        self._in_flight = False
        self._last_s = self._clock() - self._began_s
        count = result.durable_count
        self.durable_ticket += count
        done = records
        if count < len(records):
            done = records[:count]
            self._records[:0] = records[count:]
            for log, size_bytes in touched.items():
                self._touched[log] = self._touched.get(log, 0) + size_bytes
            self._held = True
        self.waiting_bytes -= sum([len(record[4]) for record in done]) + RECORD_BYTES * count
        if count:
            ticket = self.durable_ticket
            for log in touched:
                log.on_journaled(ticket)
        self._on_result(result)
        self.flush()
