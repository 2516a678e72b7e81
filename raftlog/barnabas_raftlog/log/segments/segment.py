"""A segment: one file of frames and its two sparse indexes.

The name of the file says where it begins, twice: `<base_offset>.<first_index>.log`. So the Raft index of every frame
in it follows from the name and the frame's ordinal, and nothing has to be synced when a segment is made. A frame never
crosses files. `size_bytes` is the size by the log; how much of it is in the file already the write queue knows.

Each time that a segment is compacted it gets a new file, with one more number in its name, its *generation*:
`<base_offset>.<first_index>.<generation>.log`.
"""

from zlib import crc32

from barnabas_raftlog.log.checkpoint import SegmentRow
from barnabas_raftlog.log.machine.open_files import FileHandle

from .offset_index import INDEX_ROW_BYTES, INTERVAL_BYTES, TIME_ROW_BYTES, OffsetIndex, TimeIndex

__all__ = [
    "NEVER_CLEANED",
    "NO_TIMESTAMP",
    "IndexWrite",
    "Segment",
    "index_files_from",
    "parse_generation",
    "parse_stem",
]

NO_TIMESTAMP = -1
NEVER_CLEANED = -1
IndexWrite = tuple[FileHandle, int, bytes, int]  # file, position, rows, size afterwards
DIGITS = 20  # of a 64-bit number; so that names sort as numbers do
# Frames without index rows: to pass so many bytes of them takes 2 ms if each has 1 KiB, and 20 ms if it has 100 bytes.
WALKED_BYTES_MAX = 1 << 20


def index_files_from(segment_bytes: int) -> int:
    """Return at which size the newest segment of a log gets index files, if it is sealed at `segment_bytes`.

    If partitions are many, most are small: each has two files less to make, to open and to delete.
    """
    return min(WALKED_BYTES_MAX, segment_bytes // 2)


def parse_generation(name: str) -> tuple[int, int, int] | None:
    """Return (base_offset, first_index, generation) of a compacted `.log` file's name; None for any other name."""
    parts = name.split(".")
    if len(parts) == 4 and parts[3] == "log" and len(parts[0]) == len(parts[1]) == DIGITS:
        try:
            return int(parts[0]), int(parts[1]), int(parts[2])
        except ValueError:
            return None
    return None


def parse_stem(name: str) -> tuple[int, int] | None:
    """Return (base_offset, first_index) of a `.log` file's name; None for any other name."""
    parts = name.split(".")
    if len(parts) == 3 and parts[2] == "log" and len(parts[0]) == len(parts[1]) == DIGITS:
        try:
            return int(parts[0]), int(parts[1])
        except ValueError:
            return None
    return None


class Segment:
    """Frames from (`base_offset`, `first_index`) on. Owned by the loop.

    Invariant: `index` has a row for each frame that begins at least 4 KiB after the last row's, but for those that
    were there when the log was opened and in no index file; `max_timestamp` is that of all frames, and
    `max_timestamp_offset` the base offset of the first batch that has it. `written` is the state of its file when
    somebody looked: its size in bytes, and the time of the last write; -1 is unknown.
    """

    __slots__ = (
        "_row_position",
        "base_offset",
        "cleaned_ms",
        "first_index",
        "first_timestamp",
        "generation",
        "index",
        "index_handle",
        "is_dirty",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "seen_ms",
        "size_bytes",
        "time_handle",
        "time_index",
        "write_back_shift",
        "written",
    )

    def __init__(self, directory: str, base_offset: int, first_index: int, generation: int = 0) -> None:
        stem = f"{directory}/{base_offset:0{DIGITS}d}.{first_index:0{DIGITS}d}"
        if generation:
            stem += f".{generation}"
        self.generation = generation  # how many times it was compacted
        self.cleaned_ms = NEVER_CLEANED  # since when no record in it is replaced by another one in it or before it
        self.log = FileHandle(f"{stem}.log")
        self.write_back_shift = crc32(stem.encode())  # see `operations.write_back_range`
        self.index_handle = FileHandle(f"{stem}.index")
        self.time_handle = FileHandle(f"{stem}.timeindex")
        self.base_offset = base_offset
        self.first_index = first_index
        self.size_bytes = 0
        self.index = OffsetIndex()
        self.time_index = TimeIndex()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.first_timestamp: int | None = NO_TIMESTAMP  # of the first batch; None: there is one, not looked at yet
        self.written = (-1, -1)
        self.seen_ms = -1  # the time at which it was first seen to have records, if their timestamps do not tell
        self.is_dirty = False  # not synced since it changed
        self._row_position = 0

    @classmethod
    def from_row(cls, directory: str, row: SegmentRow) -> "Segment":
        segment = cls(directory, row.base_offset, row.first_index, row.generation)
        segment.cleaned_ms = row.cleaned_ms
        segment.size_bytes = segment._row_position = row.size_bytes
        segment.max_timestamp = row.max_timestamp
        segment.first_timestamp = None if row.size_bytes else NO_TIMESTAMP
        segment.max_timestamp_offset = row.max_timestamp_offset
        segment.index = OffsetIndex(row.index_rows)
        segment.time_index = TimeIndex(row.time_rows)
        return segment

    def row(self) -> SegmentRow:
        """Return what a checkpoint says of this segment, without the index rows that are not stored yet."""
        return SegmentRow(
            base_offset=self.base_offset,
            first_index=self.first_index,
            size_bytes=self.size_bytes,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            index_rows=self.index.stored,
            time_rows=self.time_index.stored,
            generation=self.generation,
            cleaned_ms=self.cleaned_ms,
        )

    @property
    def newest_ms(self) -> int:
        """The largest timestamp, -1 if there is none; a segment that compaction has emptied is as old as can be."""
        return 0 if self.generation and self.max_timestamp < 0 else self.max_timestamp

    @property
    def modified_ms(self) -> int:
        """When the file got its last frame; -1: unknown, or not all frames were in it when somebody looked."""
        size_bytes, written_ms = self.written
        return written_ms if size_bytes == self.size_bytes else -1

    @property
    def handles(self) -> tuple[FileHandle, FileHandle, FileHandle]:
        return self.log, self.index_handle, self.time_handle

    def add(self, index: int, base_offset: int, size_bytes: int, max_timestamp: int) -> None:
        """Take note of a frame that goes to the end of the file."""
        position = self.size_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
            if self.first_timestamp == NO_TIMESTAMP:
                self.first_timestamp = max_timestamp
        if position - self._row_position >= INTERVAL_BYTES:
            self._row_position = position
            self.index.add(index, base_offset, position)
            if self.max_timestamp_offset >= 0:
                self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        self.size_bytes = position + size_bytes
        self.is_dirty = True

    def truncate_to(self, position: int, end_offset: int) -> None:
        """Forget the frames from `position` on. The maximum timestamp is then that of the last index row at most.

        The caller goes on with `renew_max` for the frames between that row and `position`.
        """
        self.index.truncate_to(position)
        self.time_index.truncate_to(end_offset)
        self.size_bytes = position
        last = self.index.before_index(1 << 62)
        self._row_position = last[2] if last else 0
        latest = self.time_index.latest(end_offset)
        self.max_timestamp, self.max_timestamp_offset = latest or (NO_TIMESTAMP, -1)
        self.written = (-1, -1)
        if not position:
            self.first_timestamp = NO_TIMESTAMP
            self.seen_ms = -1
        self.is_dirty = True

    def renew_max(self, max_timestamp: int, base_offset: int) -> None:
        """Count the timestamp of a frame that is still there after a truncation."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset

    def index_writes(self, files_from: int = 0) -> list[IndexWrite]:
        """Return what must be written for the index files to be complete, and count it as written.

        That is nothing while there are no such files and the segment has fewer than `files_from` bytes: the rows that
        a restart then forgets cost a walk over so many bytes at most.
        """
        writes: list[IndexWrite] = []
        index = self.index
        times = self.time_index
        if self.size_bytes < files_from and not (index.stored or times.stored):
            return writes
        if len(index) > index.stored:
            position = index.stored * INDEX_ROW_BYTES
            writes.append((self.index_handle, position, index.unstored(), len(index) * INDEX_ROW_BYTES))
            index.stored = len(index)
        if len(times) > times.stored:
            position = times.stored * TIME_ROW_BYTES
            writes.append((self.time_handle, position, times.unstored(), len(times) * TIME_ROW_BYTES))
            times.stored = len(times)
        return writes
