"""The tail cache against a list: reads agree, the bound holds, unwritten frames stay."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas_raftlog.log.segments.tail_cache import ENTRY_BYTES, LogTail, TailCache
from barnabas_raftlog.raft.messages import Entry

BOUND = 8 * ENTRY_BYTES


class TailCacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = TailCache(BOUND)
        self.tails = [LogTail(self.cache, 1) for _ in range(3)]
        self.model: list[list[tuple[Entry, int, int]]] = [[] for _ in range(3)]  # entry, base offset, end offset
        self.written = [0, 0, 0]

    def _end(self, number: int) -> int:
        return self.model[number][-1][2] if self.model[number] else 0

    @rule(number=st.integers(0, 2), size=st.integers(1, 300), records=st.integers(0, 3))
    def add(self, number: int, size: int, records: int) -> None:
        base = self._end(number)
        entry = Entry(len(self.model[number]) + 1, 1, bytes(size))
        self.tails[number].add(entry, size, base, is_control=not records)
        self.model[number].append((entry, base, base + records))

    @rule(number=st.integers(0, 2), share=st.floats(0, 1))
    def write(self, number: int, share: float) -> None:
        self.written[number] += int(share * (len(self.model[number]) - self.written[number]))
        self.tails[number].written(self.written[number])

    @rule(number=st.integers(0, 2), share=st.floats(0, 1))
    def truncate(self, number: int, share: float) -> None:
        index = 1 + int(share * len(self.model[number]))
        if index <= len(self.model[number]):
            self.tails[number].truncate_from(index)
            del self.model[number][index - 1 :]
            self.written[number] = min(self.written[number], index - 1)

    @rule(number=st.integers(0, 2), share=st.floats(0, 1))
    def drop(self, number: int, share: float) -> None:
        """Drop the beginning of the log: those entries go, written or not."""
        tail = self.tails[number]
        index = 1 + int(share * len(self.model[number]))
        before = tail.first_index
        tail.drop_before(index)
        assert tail.first_index == max(before, index)
        self.written[number] = max(self.written[number], tail.first_index - 1)
        tail.written(self.written[number])

    @rule(number=st.integers(0, 2))
    def reset(self, number: int) -> None:
        self.tails[number].reset(1)
        self.model[number].clear()
        self.written[number] = 0

    @rule(number=st.integers(0, 2), start=st.floats(0, 1), end=st.floats(0, 1), bytes_max=st.integers(1, 900))
    def read(self, number: int, start: float, end: float, bytes_max: int) -> None:
        tail = self.tails[number]
        log_end = self._end(number)
        start_offset = int(start * log_end)
        end_offset = int(end * (log_end + 1))
        if not tail.holds_offset(start_offset) or start_offset >= min(end_offset, log_end):
            return
        expected: list[Entry] = []
        for entry, base, after in self.model[number]:
            if after > start_offset and after <= end_offset and after > base:
                expected.append(entry)
        frames = tail.read(start_offset, end_offset, bytes_max, log_end)
        assert frames == [entry.frame for entry in expected[: len(frames)]]
        assert bool(frames) == bool(expected)
        # Control frames count for the byte bound too, so a read may end earlier, never later.
        assert len(frames) == 1 or sum(map(len, frames)) <= bytes_max

    @rule(number=st.integers(0, 2), share=st.floats(0, 1), bytes_max=st.integers(1, 900))
    def entries(self, number: int, share: float, bytes_max: int) -> None:
        tail = self.tails[number]
        index = tail.first_index + int(share * tail.count)
        if index > len(self.model[number]):
            return
        found = tail.entries(index, bytes_max)
        assert found == [entry for entry, _, _ in self.model[number][index - 1 : index - 1 + len(found)]]
        assert len(found) == 1 or sum(len(entry.frame) for entry in found) <= bytes_max
        assert tail.bytes_from(index) == sum(len(entry.frame) for entry, _, _ in self.model[number][index - 1 :])

    @invariant()
    def ends_with_the_log_and_keeps_what_is_not_written(self) -> None:
        for tail, model, written in zip(self.tails, self.model, self.written, strict=True):
            assert tail.first_index + tail.count == len(model) + 1
            assert tail.first_index <= written + 1
            assert tail.bytes == sum(len(entry.frame) for entry, _, _ in model[tail.first_index - 1 :])

    @invariant()
    def keeps_the_bound(self) -> None:
        assert self.cache.bytes == sum(tail.bytes + ENTRY_BYTES * tail.count for tail in self.tails)
        unwritten = sum(
            len(entry.frame) + ENTRY_BYTES
            for model, written in zip(self.model, self.written, strict=True)
            for entry, _, _ in model[written:]
        )
        assert self.cache.bytes <= max(BOUND, unwritten)


TestTailCache = TailCacheMachine.TestCase
TestTailCache.settings = settings(max_examples=50, deadline=None)


def test_a_log_with_nothing_to_give_is_asked_again_once_something_of_it_is_written() -> None:
    cache = TailCache(1000 + 10 * ENTRY_BYTES)
    early = LogTail(cache, 1)
    late = LogTail(cache, 1)
    early.add(Entry(1, 1, bytes(200)), 200, 0, is_control=False)
    for index in range(1, 10):
        late.add(Entry(index, 1, bytes(100)), 100, index, is_control=False)
    assert cache.bytes == 1100 + 10 * ENTRY_BYTES  # nothing is written, so nothing may go
    late.truncate_from(9)
    early.written(1)
    late.add(Entry(9, 1, bytes(100)), 100, 9, is_control=False)
    assert early.count == 0
    assert cache.bytes == 900 + 9 * ENTRY_BYTES
