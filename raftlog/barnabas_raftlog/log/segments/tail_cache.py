"""Keeps the newest frames of every log in memory, for followers and tailing consumers.

`LogTail` holds an unbroken run of entries that ends with the log's last one. `TailCache` bounds the bytes of all tails
of a node; at the bound it takes the oldest entries of the log that was used longest ago. An entry that is not yet in
its segment file is never taken, because it could be read from nowhere else: the bound on those is the bound on bytes
that wait for the disk (`StorageConfig.queued_bytes_max`).

A tail has columns instead of one list of objects, so that a read is a bisection and a slice, whatever the number of
frames.

The cost: a cached frame is a view, and keeps the whole buffer alive that it was received in; the code that appends sees
to it that this is not much more than the frame. `TailCache` counts the bytes of the frames, and `ENTRY_BYTES` for each:
so much the objects take around a frame that came alone. Without them a bound of 32 MiB full of commits of 140 bytes
took 120 MiB.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict

from barnabas_raftlog.raft.messages import Buffer, Entry

__all__ = ["ENTRY_BYTES", "LogTail", "TailCache"]

ENTRY_BYTES = 384  # an entry, its view and buffer, three integers and five places in columns


class TailCache:
    """The node-wide bound. Owned by the loop."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._by_use: OrderedDict[LogTail, None] = OrderedDict()

    def touch(self, tail: "LogTail") -> None:
        """Note that `tail` is used now, and may have something to evict later."""
        by_use = self._by_use
        by_use[tail] = None
        by_use.move_to_end(tail)

    def offer(self, tail: "LogTail") -> None:
        """Note that `tail` may have something to evict; a place that it has already stays as it is."""
        self._by_use.setdefault(tail, None)

    def forget(self, tail: "LogTail") -> None:
        """Note that `tail` is empty, and stays so."""
        self._by_use.pop(tail, None)

    def shrink(self) -> None:
        """Evict until the bound is kept, or nothing may be evicted any more."""
        by_use = self._by_use
        while self.bytes > self.bytes_max and by_use:
            tail = next(iter(by_use))
            freed = tail.evict(self.bytes - self.bytes_max)
            self.bytes -= freed
            if not freed:
                # All of it is unwritten: it comes back when something of it was written.
                del by_use[tail]


class LogTail:
    """Entries `first_index` to `last_index` of one log.

    Invariant: the columns have equal lengths; `_ends[i]` counts the bytes from some start to the end of entry i.
    `written_index` bounds what may be evicted.
    """

    __slots__ = (
        "_base_offsets",
        "_cache",
        "_controls",
        "_ends",
        "_entries",
        "_frames",
        "_start",
        "first_index",
        "written_index",
    )

    def __init__(self, cache: TailCache, next_index: int) -> None:
        self._cache = cache
        self.first_index = next_index
        self.written_index = next_index - 1
        self._entries: list[Entry] = []
        self._frames: list[Buffer] = []
        self._base_offsets: list[int] = []
        self._ends: list[int] = []  # cumulated bytes
        self._start = 0  # of the first entry, in the same count
        self._controls: list[int] = []  # indexes of control frames

    @property
    def bytes(self) -> int:
        return self._ends[-1] - self._start if self._ends else 0

    @property
    def cost(self) -> int:
        """Its share of the cache's bound, in bytes."""
        return self.bytes + ENTRY_BYTES * len(self._ends)

    @property
    def count(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry, size_bytes: int, base_offset: int, *, is_control: bool) -> None:
        """Append the log's newest entry."""
        ends = self._ends
        self._entries.append(entry)
        self._frames.append(entry.frame)
        self._base_offsets.append(base_offset)
        ends.append((ends[-1] if ends else self._start) + size_bytes)
        if is_control:
            self._controls.append(entry.index)
        cache = self._cache
        cache.touch(self)
        cache.bytes += size_bytes + ENTRY_BYTES
        if cache.bytes > cache.bytes_max:
            cache.shrink()

    def written(self, index: int) -> None:
        """Note that entries up to `index` are in their segment files."""
        self.written_index = index
        cache = self._cache
        # Even below the bound: a tail that had nothing to give when it was asked has something now.
        cache.offer(self)
        if cache.bytes > cache.bytes_max:
            cache.shrink()

    def truncate_from(self, index: int) -> None:
        """Forget the entries at and after `index`. The log's last entry is then `index` - 1."""
        before = self.cost
        keep = max(0, index - self.first_index)
        if keep == 0:
            self.first_index = index
            if self._ends:
                self._start = self._ends[-1]
        for column in (self._entries, self._frames, self._base_offsets, self._ends):
            del column[keep:]
        del self._controls[bisect_left(self._controls, index) :]
        self.written_index = min(self.written_index, index - 1)
        self._cache.bytes -= before - self.cost

    def reset(self, next_index: int) -> None:
        """Forget everything; the next entry has `next_index`."""
        self.truncate_from(self.first_index)
        self.first_index = next_index
        self.written_index = next_index - 1

    def forget_all(self) -> None:
        """Let go of everything at once: a reference to a deleted log must not keep its frames."""
        self.reset(self.first_index + self.count)
        self._cache.forget(self)

    def evict(self, bytes_wanted: int) -> int:
        """Forget the oldest entries, those that cost about `bytes_wanted`; return how much that gave."""
        ends = self._ends
        start = self._start
        evictable = min(self.written_index - self.first_index + 1, len(ends))
        if evictable <= 0:
            return 0
        # It is at least a sixteenth: each removal from the front of a list moves the rest, so there must not be many.
        wanted = max(bytes_wanted, self.cost // 16)
        last = bisect_left(range(evictable), wanted, key=lambda place: ends[place] - start + (place + 1) * ENTRY_BYTES)
        return self._forget(min(last + 1, evictable))

    def drop_before(self, index: int) -> None:
        """Forget the entries before `index`, written or not: they are not part of the log any more."""
        count = min(index - self.first_index, len(self._ends))
        if count > 0:
            self._cache.bytes -= self._forget(count)

    def _forget(self, count: int) -> int:
        """Forget the first `count` entries; return what they cost."""
        ends = self._ends
        new_start = ends[count - 1]
        freed = new_start - self._start + count * ENTRY_BYTES
        del self._entries[:count]
        del self._frames[:count]
        del self._base_offsets[:count]
        del ends[:count]
        self._start = new_start
        self.first_index += count
        del self._controls[: bisect_left(self._controls, self.first_index)]
        return freed

    def holds_offset(self, offset: int) -> bool:
        """True if the frame that holds `offset`, and everything after it, is here."""
        offsets = self._base_offsets
        return bool(offsets) and offset >= offsets[0]

    def base_offset_at(self, index: int) -> int:
        """Return the base offset of the entry at `index`, which must be here."""
        return self._base_offsets[index - self.first_index]

    def entry_at(self, index: int) -> Entry:
        return self._entries[index - self.first_index]

    def bytes_from(self, index: int) -> int:
        """Return how many bytes the entries from `index`, which must be here, to the last one have."""
        position = index - self.first_index
        return self._ends[-1] - (self._ends[position - 1] if position else self._start)

    def entries_from_offset(self, offset: int) -> list[Entry]:
        """Return the entries at and after the one that holds `offset`, control frames included."""
        return self._entries[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def entries(self, start_index: int, bytes_max: int) -> list[Entry]:
        """Return entries from `start_index`, which must be here, on: at least one, about `bytes_max` bytes."""
        position = start_index - self.first_index
        ends = self._ends
        before = ends[position - 1] if position else self._start
        stop = bisect_right(ends, before + bytes_max, position)
        return self._entries[position : max(stop, position + 1)]

    def read(self, start_offset: int, end_offset: int, bytes_max: int, log_end_offset: int) -> list[Buffer]:
        """Return data frames as `ReplicaLog.read` does; `holds_offset(start_offset)` must be true."""
        offsets = self._base_offsets
        ends = self._ends
        self._cache.touch(self)
        first = bisect_right(offsets, start_offset) - 1
        next_base = offsets[first + 1] if first + 1 < len(offsets) else log_end_offset
        if next_base <= start_offset:
            first += 1  # a trailing control frame, or nothing
        stop = bisect_left(offsets, end_offset, first)
        if stop > first:
            last_end = offsets[stop] if stop < len(offsets) else log_end_offset
            if last_end > end_offset:
                stop -= 1  # `end_offset` is within the last frame
        before = ends[first - 1] if first else self._start
        stop = max(min(stop, bisect_right(ends, before + bytes_max, first)), min(stop, first + 1))
        if self._controls:
            return self._without_controls(first, stop, end_offset, log_end_offset)
        return self._frames[first:stop]

    def _without_controls(self, first: int, stop: int, end_offset: int, log_end_offset: int) -> list[Buffer]:
        low = bisect_left(self._controls, self.first_index + first)
        high = bisect_left(self._controls, self.first_index + stop)
        if low == high:
            return self._frames[first:stop]
        out = {index - self.first_index for index in self._controls[low:high]}
        frames = [self._frames[position] for position in range(first, stop) if position not in out]
        if not frames and stop < len(self._frames):
            # There were control frames only up to the byte bound: the first data frame counts whatever its size.
            start_offset = self._base_offsets[stop]
            if start_offset < end_offset:
                return self.read(start_offset, end_offset, 1, log_end_offset)
        return frames
