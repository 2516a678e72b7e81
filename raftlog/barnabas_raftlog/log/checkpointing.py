"""Makes checkpoints: has the logs synced that changed, then writes the checkpoint file.

A checkpoint begins when a journal file is full, when enough went to segments only, and at a clean stop. It takes the
journal's durable end as its starting point, has each log that changed synced (`write_queue`), a few at a time or all of
very many together, then writes the checkpoint file; then the journal files before that point are free again.

One is made at a time. A checkpoint that is asked for meanwhile follows it. One whose file could not be written costs
nothing but time: the journal keeps what the older one needs, and it is made again when storage tries again.
"""

from collections.abc import Callable, Container
from functools import partial

from barnabas_raftlog.log.journal.format import FILE_HEADER_BYTES
from barnabas_raftlog.log.journal.journal import Journal
from barnabas_raftlog.log.machine.worker import Worker
from barnabas_raftlog.log.recovery.replica import empty_row
from barnabas_raftlog.log.recovery.startup import save
from barnabas_raftlog.raft.messages import HardState

from .checkpoint import Checkpoint, JournalPlace, ReplicaRow, decode_row, encode, encode_row
from .hard_states import HardStates
from .shared import CompactedLog, SharedStorage, SharingLog

__all__ = ["Checkpointer"]

SYNCS_AT_ONCE = 64  # logs that a checkpoint hands to the write worker together


class Checkpointer:
    """One per node, owned by `Storage`, on the loop. The file is written in the write worker.

    `rows`: of all replicas, packed (thousands of rows as objects take megabytes), as the newest checkpoint has them or
    the one that is being made. `number`: of the newest checkpoint. `is_due`: the last one could not be written.
    `full_count`: journal files that wait for one.
    """

    def __init__(
        self,
        shared: SharedStorage,
        directory: str,
        known: Checkpoint,
        journal: Journal,
        hard_states: HardStates,
        logs: Container[bytes],
        worker: Worker,
        on_done: Callable[[str], None],
    ) -> None:
        """`logs`: those that are open. `on_done`: called with nothing when a step is done, or with why it failed."""
        self._shared = shared
        self._directory = directory
        self._journal = journal
        self._hard_states = hard_states
        self._logs = logs
        self._worker = worker
        self._on_done = on_done
        self.rows = {group: encode_row(row) for group, row in known.rows.items()}
        self.number = known.number
        self.place = known.journal  # the durable end of the journal
        self._is_journal_used = False
        self.full_count = 0
        self.is_due = False
        self._is_wanted = False  # another one, when this one is made

        # The one that is being made.
        self._begins_at: JournalPlace | None = None
        self._to_sync: list[SharingLog] = []
        self._syncing: set[SharingLog] = set()
        self._syncs_at_once = SYNCS_AT_ONCE
        self._is_writing = False
        self._replaced: list[tuple[CompactedLog, ReplicaRow]] = []  # as the file has them that is being written

        shared.on_synced = self._on_synced

    @property
    def is_idle(self) -> bool:
        """True while no checkpoint is being made."""
        return self._begins_at is None

    def on_journaled(self, place: JournalPlace) -> None:
        """Note where the journal ends now."""
        self.place = place
        self._is_journal_used = True

    def free_journal(self, full_count: int) -> None:
        """Begin a checkpoint because a journal file is full, or was given up: it can be used again after that."""
        self.full_count = full_count
        self.begin()

    def begin(self, *, at_end: bool = False) -> None:
        """Begin a checkpoint; if one is being made, another one follows it. `at_end`: the journal is not used again."""
        if self._begins_at is not None:
            self._is_wanted = True
            return
        shared = self._shared
        shared.bytes_since_checkpoint = 0
        self._is_wanted = False
        self.is_due = False
        place = self.place
        if at_end and self._is_journal_used:
            place = JournalPlace(place.sequence + 1, FILE_HEADER_BYTES, place.batch)
        self._begins_at = place
        self._to_sync = list(shared.dirty)
        is_together = at_end or len(self._to_sync) >= shared.config.synced_together_min
        self._syncs_at_once = len(self._to_sync) if is_together else SYNCS_AT_ONCE
        shared.dirty = {}
        self._go_on()
        shared.writes.flush()
        shared.commits.flush()

    def forget(self, log: SharingLog) -> None:
        """Wait for `log`, which was deleted, no longer."""
        if log in self._syncing:
            self._syncing.discard(log)
            self._go_on()

    def _go_on(self) -> None:
        """Let the next logs be synced; when all are, write the checkpoint file."""
        place = self._begins_at
        if place is None or self._is_writing:
            return
        while self._to_sync and len(self._syncing) < self._syncs_at_once:
            log = self._to_sync.pop()
            if log.failed is not None:
                self._note_failed(log)
            elif not log.is_deleted:
                self._syncing.add(log)
                log.queue_checkpoint()
        if self._to_sync or self._syncing:
            return
        self._is_writing = True
        rows = list(self.rows.values())
        replaced = [log for log in self._shared.replaced if log.group in self.rows]
        self._replaced = [(log, decode_row(self.rows[log.group])) for log in replaced]
        hard_states = self._hard_states.for_checkpoint(self.rows, self._logs)
        self._worker.submit(partial(self._write, self.number + 1, place, rows, hard_states), self._written)

    def _on_synced(self, log: SharingLog, row: ReplicaRow) -> None:
        """Take note that the write worker has synced `log` as `row` describes it, or could not."""
        if log.failed is not None:
            self._note_failed(log)
        elif not log.is_deleted:
            self.rows[log.group] = encode_row(row)
        self._syncing.discard(log)
        self._go_on()

    def _note_failed(self, log: SharingLog) -> None:
        """Keep the last good state of a failed replica, why it failed, and what must be there to trust it again."""
        known = self.rows.get(log.group)
        row = decode_row(known) if known else empty_row(log.group, log.name, page_cache=False)
        row.page_cache = log.mode == "page-cache"
        row.failed = str(log.failed)
        if log.durable_when_failed is not None:
            row.durable = log.durable_when_failed
        self.rows[log.group] = encode_row(row)

    def _write(self, number: int, place: JournalPlace, rows: list[bytes], hard_states: dict[bytes, HardState]) -> str:
        """Return why it failed, or nothing. Runs in the write worker."""
        files = self._shared.files
        try:
            files.sync_directory(f"{self._directory}/replicas")
            save(files, f"{self._directory}/checkpoint", encode(number, place, rows, hard_states))
        except OSError as error:
            return f"cannot write the checkpoint: {error}"
        return ""

    def _written(self, error: str) -> None:
        place = self._begins_at
        assert place is not None
        self._begins_at = None
        self._is_writing = False
        if error:
            self.is_due = True  # Records that wait for a journal file may have nothing else to wait for.
        else:
            self.is_due = False
            self.number += 1
            self._shared.stats.checkpoints += 1
            for log, row in self._replaced:
                if not log.is_deleted:
                    log.forget_replaced(row)
            self._shared.commits.submit(partial(self._journal.release, place.sequence), self._released)
            if self._is_wanted:
                self.begin()
        self._on_done(error)

    def _released(self, full_count: int) -> None:
        self.full_count = full_count
        self._shared.commits.resume()
        self._on_done("")
