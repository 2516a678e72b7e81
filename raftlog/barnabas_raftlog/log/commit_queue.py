"""The queue before the journal: group commit, as the loop sees it.

Whoever wants something durable puts a record here and gets a *ticket*. Once in every iteration of the loop `flush`
hands everything that waits to the sync worker, unless it is busy; then it waits for the next turn, and thousands of
groups share one sync. When a batch is on the disk, `durable_ticket` moves and the logs that took part are told.

Limit: `waiting_bytes` is what `StorageConfig.queued_bytes_max` bounds; the callers that may be refused (leaders)
check it before they append.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from barnabas_raftlog.raft.messages import Buffer

from .journal import Journal, WriteResult
from .journal_format import RECORD_BYTES, QueuedRecord
from .worker import Worker

__all__ = ["CommitQueue", "Journaled"]


class Journaled(Protocol):
    """A log whose records are in the queue."""

    def on_journaled(self, durable_ticket: int) -> None: ...


class CommitQueue:
    """Owned by the loop. Tickets count records from 1; at most one batch is with the worker.

    Invariant: durable_ticket <= ticket; the records after `durable_ticket` are in `_records` or with the worker.
    """

    __slots__ = ("_held", "_in_flight", "_journal", "_on_result", "_records", "_touched", "_worker", "durable_ticket",
                 "ticket", "waiting_bytes")  # fmt: skip

    def __init__(self, journal: Journal, worker: Worker, on_result: Callable[[WriteResult], None]) -> None:
        self._journal = journal
        self._worker = worker
        self._on_result = on_result
        self._records: list[QueuedRecord] = []
        # Told in the order in which they wrote: the same run gives the same order, as with sets it would not.
        self._touched: dict[Journaled, None] = {}
        self._in_flight = False
        self._held = False
        self.ticket = 0
        self.durable_ticket = 0
        self.waiting_bytes = 0

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._records

    def put(
        self, kind: int, group: bytes, index: int, term: int, payload: Buffer = b"", log: Journaled | None = None
    ) -> int:
        """Queue a record and return its ticket. `log` is told when it is durable."""
        self._records.append((kind, group, index, term, payload))
        if log is not None:
            self._touched[log] = None
        self.waiting_bytes += len(payload) + RECORD_BYTES
        self.ticket += 1
        return self.ticket

    def flush(self) -> None:
        """Hand what waits to the sync worker, if it is free."""
        if self._in_flight or self._held or not self._records:
            return
        records, self._records = self._records, []
        touched, self._touched = self._touched, {}
        self._in_flight = True
        self._worker.submit(partial(self._journal.write, records), partial(self._written, records, touched))

    def resume(self) -> None:
        """What held the queue up (no free journal file, no room on the disk) may be over: try again."""
        self._held = False
        self.flush()

    def _written(self, records: list[QueuedRecord], touched: dict[Journaled, None], result: WriteResult) -> None:
        self._in_flight = False
        count = result.durable_count
        self.durable_ticket += count
        done = records
        if count < len(records):
            done = records[:count]
            self._records[:0] = records[count:]
            self._touched |= touched
            self._held = True
        self.waiting_bytes -= sum([len(record[4]) for record in done]) + RECORD_BYTES * count
        if count:
            ticket = self.durable_ticket
            for log in touched:
                log.on_journaled(ticket)
        self._on_result(result)
        self.flush()
