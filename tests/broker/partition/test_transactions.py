"""The table of transactions against a model that goes through the whole log after every step."""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.partition import transactions as transactions_module
from barnabas_broker.partition.aborted_index import AbortedTransaction
from barnabas_broker.partition.transactions import OpenTransaction, TransactionImage, TransactionTable
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.steps import at_once

PRODUCERS = st.integers(1, 4)


class Written(NamedTuple):
    """An entry of the log; `outcome`: None for data, else whether a marker commits."""

    producer_id: int
    epoch: int
    base_offset: int
    record_count: int
    outcome: bool | None


class Known(NamedTuple):
    """What the log up to an entry says."""

    undecided: list[OpenTransaction]
    aborted: list[AbortedTransaction]


def replayed(log: list[Written | None]) -> Known:
    """Go through a log from its beginning."""
    undecided: list[OpenTransaction] = []
    aborted: list[AbortedTransaction] = []
    for index, entry in enumerate(log, 1):
        if entry is None:
            continue
        mine = next((one for one in undecided if one.producer_id == entry.producer_id), None)
        if entry.outcome is None and mine is None:
            undecided.append(OpenTransaction(entry.producer_id, entry.epoch, entry.base_offset, index, 1_000 + index))
        elif entry.outcome is not None and mine is not None:
            undecided.remove(mine)
            if not entry.outcome:
                aborted.append(AbortedTransaction(entry.producer_id, mine.first_offset, entry.base_offset))
    return Known(undecided, aborted)


def read(image: TransactionImage, commit_index: int) -> TransactionTable:
    table = at_once(TransactionTable.from_blob_in_steps(image.to_blob()))
    table.commit_index = commit_index
    return table


class TableFollowsTheLog(RuleBasedStateMachine):
    """`log` is the truth; None stands for an entry without a transaction, which takes an offset."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TransactionTable()
        self.log: list[Written | None] = []
        self.commit_index = 0
        self.last_stable_offset = 0
        self.images: list[tuple[TransactionImage, Known]] = []

    @property
    def end_offset(self) -> int:
        return self.offset_after(len(self.log))

    def offset_after(self, index: int) -> int:
        return sum(1 if entry is None else entry.record_count for entry in self.log[:index])

    @rule(producer_id=PRODUCERS, epoch=st.integers(0, 2), count=st.integers(1, 3))
    def append_data(self, producer_id: int, epoch: int, count: int) -> None:
        self.log.append(Written(producer_id, epoch, self.end_offset, count, None))
        self.note()

    @rule(producer_id=PRODUCERS, is_commit=st.booleans())
    def append_marker(self, producer_id: int, is_commit: bool) -> None:
        self.log.append(Written(producer_id, 0, self.end_offset, 1, is_commit))
        self.note()

    @rule()
    def append_something_else(self) -> None:
        self.log.append(None)

    def note(self) -> None:
        entry = self.log[-1]
        assert entry is not None
        index = len(self.log)
        if entry.outcome is None:
            self.table.begin(entry.producer_id, entry.epoch, index, entry.base_offset, 1_000 + index)
        else:
            self.table.end(entry.producer_id, index, entry.base_offset, entry.outcome)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_index = data.draw(st.integers(self.commit_index, len(self.log)))
        self.table.commit(self.commit_index)

    @precondition(lambda self: self.commit_index < len(self.log))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.commit_index + 1, len(self.log)))
        del self.log[index - 1 :]
        self.table.truncate_from(index)

    @rule()
    def take_an_image(self) -> None:
        self.images.append((self.table.committed(), replayed(self.log[: self.commit_index])))

    @rule()
    def read_the_images(self) -> None:
        """Later events do not change one."""
        for image, known in self.images:
            table = read(image, 1 << 60)
            assert table.undecided() == table.open_transactions() == known.undecided
            assert table.aborted.between(0, 1 << 60) == sorted(known.aborted, key=lambda one: one.first_offset)
        self.images.clear()

    @rule()
    def save_and_load(self) -> None:
        """The log behind what was saved is replayed."""
        self.table = read(self.table.committed(), self.commit_index)
        log, self.log = self.log, self.log[: self.commit_index]
        for entry in log[self.commit_index :]:
            self.log.append(entry)
            if entry is not None:
                self.note()

    @invariant()
    def knows_what_is_open_as_of_the_end_of_the_log(self) -> None:
        known = replayed(self.log)
        found = self.table.open_transactions()
        assert sorted(found, key=lambda one: one.first_offset) == known.undecided
        for producer_id in range(1, 5):
            mine = [one for one in known.undecided if one.producer_id == producer_id]
            assert self.table.transaction_of(producer_id) == (mine[0] if mine else None)

    @invariant()
    def knows_what_is_undecided_and_aborted_as_of_the_commit_index(self) -> None:
        known = replayed(self.log[: self.commit_index])
        first = known.undecided[0].first_offset if known.undecided else None
        assert (self.table.undecided(), self.table.first_unstable_offset) == (known.undecided, first)
        assert self.table.aborted.between(0, 1 << 60) == sorted(known.aborted, key=lambda one: one.first_offset)

    @invariant()
    def last_stable_offset_never_goes_back(self) -> None:
        high_watermark = self.offset_after(self.commit_index)
        first = self.table.first_unstable_offset
        last_stable_offset = high_watermark if first is None else min(first, high_watermark)
        assert last_stable_offset >= self.last_stable_offset
        self.last_stable_offset = last_stable_offset

    @invariant()
    def each_row_says_up_to_where_all_was_decided(self) -> None:
        """As Kafka's index does, which other software reads; here it only ends a search."""
        image = self.table.aborted.image()
        rows = [block.rows[at : at + 4] for block in image.blocks for at in range(0, len(block.rows), 4)]
        rows += [image.tail[at : at + 4] for at in range(0, len(image.tail), 4)]
        for _, _, last_offset, last_stable_offset in rows:
            index = next(i for i, one in enumerate(self.log, 1) if one is not None and one.base_offset == last_offset)
            undecided = replayed(self.log[:index]).undecided
            assert last_stable_offset == (undecided[0].first_offset if undecided else last_offset + 1)


TestTableFollowsTheLog = TableFollowsTheLog.TestCase
TestTableFollowsTheLog.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_marker_counts_when_it_is_committed_and_its_transaction_is_over_when_it_is_appended() -> None:
    table = TransactionTable()
    seen: list[object] = []

    def look() -> None:
        seen.append((table.first_unstable_offset, len(table.open_transactions()), len(table.aborted)))

    table.begin(7, 0, 1, 100, 5)
    look()
    table.commit(1)
    look()
    table.end(7, 2, 103, is_commit=False)
    look()
    table.commit(2)
    look()
    assert seen == [(None, 1, 0), (100, 1, 0), (100, 0, 0), (None, 0, 1)]
    assert table.aborted.between(0, 200) == [AbortedTransaction(7, 100, 103)]


@pytest.mark.parametrize("index", [2, 3, 4])
def test_truncating_data_a_marker_or_between_them_leaves_the_transactions_of_the_log_that_remains(index: int) -> None:
    def write(table: TransactionTable, last_index: int) -> TransactionTable:
        for at in range(1, last_index + 1):
            if at in {1, 3}:
                table.begin(7, 0, at, 10 * at, at)
            else:
                table.end(7, at, 10 * at, is_commit=at == 4)
        return table

    table = write(TransactionTable(), 4)
    table.commit(1)
    table.truncate_from(index)
    assert table.open_transactions() == write(TransactionTable(), index - 1).open_transactions()
    assert table.first_unstable_offset == 10
    table.commit(index - 1)
    assert len(table.aborted) == (index > 2)


def test_a_million_markers_of_producers_without_a_transaction_leave_nothing() -> None:
    table = TransactionTable()
    for index in range(1, 1_000):
        table.end(index, index, index, is_commit=False)
    table.commit(1_000)
    assert table.committed().is_empty


def test_many_open_transactions_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_module, "PIECE", 4)
    table = TransactionTable()
    for number in range(10):
        table.begin(number, 1, number + 1, 5 * number, 7)
    table.commit(9)
    blob = table.committed().to_blob()
    assert len(list(TransactionTable.from_blob_in_steps(blob))) == 2
    again = read(table.committed(), 9)
    assert again.open_transactions() == table.open_transactions()[:9]


@pytest.mark.parametrize("blob", [b"", b"x" * 15, bytes(17), bytes([1]) + bytes(15), b"\xff" * 16, bytes(8) + b"\x01"])
def test_what_is_too_short_or_too_long_is_no_table(blob: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        at_once(TransactionTable.from_blob_in_steps(blob))
