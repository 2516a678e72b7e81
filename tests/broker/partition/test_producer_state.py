"""The producer table against a model that keeps and searches the whole log."""

import msgpack
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.partition import producer_state
from barnabas_broker.partition.producer_state import (
    ANY_ID,
    FORGOTTEN_AT_ONCE,
    PIECE,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    PerhapsForgottenError,
    ProducerImage,
    ProducerTable,
)
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.steps import at_once

LAST = (1 << 31) - 1
PRODUCERS = st.integers(1, 3)
SEQUENCES = st.integers(0, 12) | st.integers(LAST - 5, LAST)


def read(blob: bytes) -> ProducerTable:
    return at_once(ProducerTable.from_blob_in_steps(blob))


def add(table: ProducerTable, index: int, base_sequence: int, delta: int = 0, *, epoch: int = 0, pid: int = 1) -> None:
    table.append(pid, epoch, base_sequence, delta, index, base_offset=100 + index, timestamp_ms=index)


class TableFollowsTheLog(RuleBasedStateMachine):
    """`log` is the truth: (producer, epoch, base_sequence, delta) at index position + 1, or None without a producer.

    `forgotten`: how many of its first entries belong to producers that were forgotten before they wrote again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable()
        self.log: list[tuple[int, int, int, int] | None] = []
        self.commit_index = 0
        self.forgotten: dict[int, int] = {}
        self.images: list[tuple[ProducerImage, int, list[tuple[int, list[int]]]]] = []

    def entries_of(self, pid: int) -> list[tuple[int, tuple[int, int, int, int]]]:
        """Return index and entry of each batch of a producer since it was last forgotten."""
        since = self.forgotten.get(pid, 0)
        return [(i + 1, entry) for i, entry in enumerate(self.log) if entry and entry[0] == pid and i >= since]

    def expected(self, pid: int, epoch: int, base: int, delta: int) -> object:
        mine = self.entries_of(pid)
        if not mine:
            is_new = all(pid > known for known in self.forgotten)
            return None if base == 0 else OutOfOrderSequenceError if is_new else PerhapsForgottenError
        _, last_epoch, last_base, last_delta = mine[-1][1]
        if epoch < last_epoch:
            return InvalidProducerEpochError
        if epoch > last_epoch:
            return None if base == 0 else OutOfOrderSequenceError
        if base == (last_base + last_delta + 1) % 2**31:
            return None
        for index, entry in mine[-5:]:
            if entry == (pid, epoch, base, delta):
                return index
        return OutOfOrderSequenceError

    @rule(pid=PRODUCERS, epoch=st.integers(0, 2), base=SEQUENCES, delta=st.integers(0, 2))
    def produce(self, pid: int, epoch: int, base: int, delta: int) -> None:
        expected = self.expected(pid, epoch, base, delta)
        if isinstance(expected, type):
            assert issubclass(expected, Exception)
            with pytest.raises(expected) as raised:
                self.table.check(pid, epoch, base, delta)
            assert raised.type is expected
            if expected is not PerhapsForgottenError:
                return
            original = None
        else:
            original = self.table.check(pid, epoch, base, delta)
            assert (original.log_index if original else None) == expected
        if original is None:
            self.log.append((pid, epoch, base, delta))
            add(self.table, len(self.log), base, delta, epoch=epoch, pid=pid)
        else:
            assert original.base_offset == 100 + original.log_index

    @rule(pid=PRODUCERS, delta=st.integers(0, 1), count=st.integers(1, 4))
    def produce_in_order(self, pid: int, delta: int, count: int) -> None:
        for _ in range(count):
            mine = [entry for _, entry in self.entries_of(pid)]
            epoch, base = (mine[-1][1], (mine[-1][2] + mine[-1][3] + 1) % 2**31) if mine else (0, 0)
            self.produce(pid, epoch, base, delta)

    @rule()
    def append_without_producer(self) -> None:
        self.log.append(None)
        self.table.skip(len(self.log))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_index = data.draw(st.integers(self.commit_index, len(self.log)))
        self.table.commit_index = self.commit_index

    @precondition(lambda self: self.commit_index < len(self.log))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.commit_index + 1, len(self.log)))
        del self.log[index - 1 :]
        self.table.truncate_from(index)

    @rule()
    def forget_the_oldest(self) -> None:
        """They are as old as their last index; those that are not committed stay."""
        pid = next(iter(self.table.producer_ids()), None)
        last = self.entries_of(pid)[-1][0] if pid is not None else 0
        assert self.table.forget_before(last + 1) == (0 < last <= self.commit_index)
        if pid is not None and last <= self.commit_index:
            self.forgotten[pid] = last

    @rule()
    def take_an_image(self) -> None:
        """As of the committed entries: what a table knew that had never seen more."""
        committed = {
            pid: [index for index, _ in self.entries_of(pid) if index <= self.commit_index] for pid in (1, 2, 3)
        }
        order = sorted((mine[-1], pid) for pid, mine in committed.items() if mine)
        known = [(pid, committed[pid][-5:]) for _, pid in order]
        self.images.append((self.table.committed(), min(len(self.log), self.commit_index), known))

    @rule()
    def encode_the_images(self) -> None:
        """Later events do not change it."""
        for image, applied_index, known in self.images:
            table = read(image.to_blob())
            assert table.applied_index == applied_index
            found = [(pid, [one.log_index for one in table.batches(pid)][-5:]) for pid in table.producer_ids()]
            assert found == known
        self.images.clear()

    @rule()
    def save_and_load(self) -> None:
        self.table = read(self.table.image().to_blob())

    @invariant()
    def is_at_the_end_of_the_log(self) -> None:
        assert self.table.applied_index == len(self.log)

    @invariant()
    def knows_exactly_the_producers_of_the_log(self) -> None:
        order = {pid: mine[-1][0] for pid in (1, 2, 3) if (mine := self.entries_of(pid))}
        assert list(self.table.producer_ids()) == sorted(order, key=lambda pid: order[pid])


TestTableFollowsTheLog = TableFollowsTheLog.TestCase
TestTableFollowsTheLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_sequence_wraps_at_2_to_the_31() -> None:
    table = ProducerTable()
    add(table, 1, LAST - 1, 3)  # LAST-1, LAST, 0, 1
    assert table.check(1, 0, 2, 0) is None
    original = table.check(1, 0, LAST - 1, 3)
    assert original is not None
    assert original.last_sequence == 1


def test_the_sequence_after_the_last_one_is_0() -> None:
    table = ProducerTable()
    add(table, 1, LAST - 4, 4)  # ends with LAST
    assert table.check(1, 0, 0, 9) is None
    with pytest.raises(OutOfOrderSequenceError):
        table.check(1, 0, 1, 0)
    add(table, 2, 0, 9)
    assert table.check(1, 0, 10, 0) is None
    for index, base, delta in ((1, LAST - 4, 4), (2, 0, 9)):
        original = table.check(1, 0, base, delta)
        assert original is not None
        assert original.log_index == index


def test_history_of_a_producer_is_bounded_once_committed() -> None:
    table = ProducerTable()
    for index in range(1, 101):
        add(table, index, index - 1)
        table.commit_index = index - 1
    assert len(table.batches(1)) <= 7


def test_whoever_is_newer_than_all_that_were_forgotten_must_begin_with_0() -> None:
    table = ProducerTable()
    add(table, 1, 0, pid=5)
    table.commit_index = 1
    assert table.forget_before(2) == 1
    for known in (table, read(table.image().to_blob())):
        with pytest.raises(PerhapsForgottenError):
            known.check(5, 0, 1, 0)
        with pytest.raises(OutOfOrderSequenceError) as raised:
            known.check(6, 0, 1, 0)
        assert not isinstance(raised.value, PerhapsForgottenError)
        assert known.check(6, 0, 0, 0) is None


@pytest.mark.parametrize(("is_complete", "forgotten_id_max"), [(True, -1), (False, ANY_ID)])
def test_a_table_that_was_saved_with_a_flag_is_read(is_complete: bool, forgotten_id_max: int) -> None:
    table = read(msgpack.packb((1, 7, 6, is_complete, [])))
    assert (table.applied_index, table.commit_index, table.forgotten_id_max) == (7, 6, forgotten_id_max)
    assert read(table.image().to_blob()).forgotten_id_max == forgotten_id_max


def test_uncommitted_producers_are_not_forgotten() -> None:
    table = ProducerTable()
    add(table, 1, 0)
    assert table.forget_before(1_000) == 0


def test_oldest_writer_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 2)
    table = ProducerTable()
    table.commit_index = 10
    for index, pid in enumerate((1, 2, 1, 3), start=1):
        add(table, index, index - 1 if pid == 1 else 0, pid=pid)
    assert list(table.producer_ids()) == [1, 3]
    assert table.forgotten_id_max == 2


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\x95\x03\x00\x00\xc3\x90"])
def test_unreadable_blob_is_refused(blob: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        read(blob)


def test_a_table_is_read_in_pieces_and_written_as_ever() -> None:
    table = ProducerTable()
    count = 5 * PIECE // 2
    for pid in range(count):
        add(table, pid + 1, 0, pid=pid)
    table.commit_index = count
    blob = table.image().to_blob()
    rows = [(pid, [tuple(one) for one in table.batches(pid)]) for pid in range(count)]
    assert blob == msgpack.packb((2, count, count, -1, rows))
    assert len(list(ProducerTable.from_blob_in_steps(blob))) == 3
    assert read(blob).image() == table.image()


@pytest.mark.parametrize("blob", [b"", msgpack.packb((2, 1, 1, -1)), msgpack.packb((2, 1, 1, -1, [])) + b"x"])
def test_what_is_too_short_or_too_long_is_no_table(blob: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        read(blob)


def test_so_many_producers_are_forgotten_at_once_and_the_others_next() -> None:
    table = ProducerTable()
    count = FORGOTTEN_AT_ONCE + 5
    for pid in range(count):
        add(table, pid + 1, 0, pid=pid)
    table.commit_index = count
    assert [table.forget_before(count + 2) for _ in range(3)] == [FORGOTTEN_AT_ONCE, 5, 0]
