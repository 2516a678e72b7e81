"""The metadata log's entries that wait for their commit, and the image behind them. Pure.

Entries arrive when they are in this node's log (`append`), may be taken back while uncommitted (`truncate_from`), and
become part of the image after the commit index has passed them (`commit`): in order, exactly once, each entry as a
whole, and many entries in pieces. They are kept here in between, so that applying never has to read the log: the
uncommitted ones are a few frames.

Invariants: `applied_index` < every pending index; pending indexes are consecutive and begin at `applied_index` + 1;
`image` holds exactly the entries up to `applied_index`, the last of which is of `applied_term`.

`ahead` is the image that the active controller decides against: as if everything in the log were committed.

Limit: pending entries are bounded by Raft's limit on proposals ahead of commits, and after a restart by the log behind
the last snapshot (`SNAPSHOT_RECORDS` and `SNAPSHOT_BYTES`).
"""

from collections import deque
from collections.abc import Sequence

from barnabas_metadata_quorum.image.frames import decode_frame
from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import Record
from barnabas_metadata_quorum.image.snapshots import Snapshot
from barnabas_raftlog.raft.messages import Entry

__all__ = ["APPLIED_BYTES", "SNAPSHOT_BYTES", "SNAPSHOT_RECORDS", "MetadataReplica"]

# A snapshot after this much log: replaying 2,000 records takes about 20 ms, so a restart stays quick.
SNAPSHOT_RECORDS = 2_000
SNAPSHOT_BYTES = 1 << 20

APPLIED_BYTES = 8 << 10
"""Bytes that are applied in one go, and the rest of the entry that reaches them: about fifty topics, or one."""


class MetadataReplica:
    """See the module. Owned by the service; changed by the four calls that `GroupListener` makes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.image = snapshot.image
        self.applied_index = snapshot.raft_index
        self.applied_term = snapshot.raft_term
        self._pending: deque[Entry] = deque()
        self._records_since = 0
        self._bytes_since = 0

    @property
    def last_index(self) -> int:
        return self._pending[-1].index if self._pending else self.applied_index

    @property
    def snapshot_is_due(self) -> bool:
        """True once the log behind the last snapshot has grown enough."""
        return self._records_since >= SNAPSHOT_RECORDS or self._bytes_since >= SNAPSHOT_BYTES

    def snapshot(self) -> Snapshot:
        """Return a snapshot of now; the count towards the next one starts again."""
        self._records_since = 0
        self._bytes_since = 0
        return Snapshot(self.applied_index, self.applied_term, self.image)

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.last_index + 1, f"entry {entry.index} follows {self.last_index}"
            self._pending.append(entry)

    def truncate_from(self, index: int) -> None:
        assert index > self.applied_index, f"entry {index} is committed"
        while self._pending and self._pending[-1].index >= index:
            self._pending.pop()

    def due_bytes(self, commit_index: int) -> int:
        """Return the size of the next entry that may be applied, 0 if there is none."""
        is_due = self._pending and self._pending[0].index <= commit_index
        return self._pending[0].size_bytes if is_due else 0

    def commit(self, commit_index: int) -> list[Record]:
        """Apply the next entries up to `commit_index`, and return their records. Nothing has changed if this raises.

        Once `APPLIED_BYTES` are exceeded the rest waits for the next call, before which others are served.

        Raises:
            UnknownRecordError: a newer version wrote one of them.
            MalformedMessageError: an entry is no metadata frame.
        """
        due: list[Entry] = []
        due_bytes = 0
        for entry in self._pending:
            if entry.index > commit_index or due_bytes >= APPLIED_BYTES:
                break
            due.append(entry)
            due_bytes += entry.size_bytes
        if not due:
            return []
        records = [record for entry in due for record in decode_frame(entry.frame)]
        if records:
            self.image = apply_all(self.image, records)
        for entry in due:
            self._pending.popleft()
            self._bytes_since += entry.size_bytes
        self._records_since += len(records)
        self.applied_index = due[-1].index
        self.applied_term = due[-1].term
        return records

    def ahead(self) -> Image:
        """Return the image with every pending entry applied. Raises what `commit` raises."""
        records = [record for entry in self._pending for record in decode_frame(entry.frame)]
        return apply_all(self.image, records) if records else self.image

    def install(self, snapshot: Snapshot) -> None:
        """Replace everything by `snapshot`, which is ahead of the applied entries."""
        assert snapshot.raft_index > self.applied_index
        self.image = snapshot.image
        self.applied_index = snapshot.raft_index
        self.applied_term = snapshot.raft_term
        self._pending.clear()
        self._records_since = 0
        self._bytes_since = 0
