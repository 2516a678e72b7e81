"""The index of aborted transactions against a list that is searched from its beginning."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.partition import aborted_index
from barnabas_broker.partition.aborted_index import ROW_BYTES, AbortedIndex, AbortedTransaction
from barnabas_raftlog.steps import at_once


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aborted_index, "BLOCK", 4)
        patch.setattr(aborted_index, "PIECE", 2)
        yield


def read(index: AbortedIndex) -> AbortedIndex:
    """Return what is left of an index when it was saved and loaded."""
    image = index.image()
    data = b"".join(image.parts())
    assert len(data) == image.row_count * ROW_BYTES
    return at_once(AbortedIndex.read_in_steps(memoryview(data)))


def everything(index: AbortedIndex) -> list[AbortedTransaction]:
    return sorted(index.between(0, 1 << 60), key=lambda one: one.last_offset)


@st.composite
def transactions(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Return transactions as they stand in a log, some of which began long before they ended."""
    found = []
    last_offset = 0
    free = set[int]()
    for number in range(draw(st.integers(0, 30))):
        last_offset += 1
        free.update(range(last_offset, last_offset + draw(st.integers(1, 3))))
        first_offset = draw(st.sampled_from(sorted(free)))
        free.remove(first_offset)
        last_offset = max(last_offset, *free, first_offset) + 1
        found.append(AbortedTransaction(number, first_offset, last_offset))
    return found


def filled(rows: list[AbortedTransaction]) -> AbortedIndex:
    """Return an index of what a log has, where nothing but these transactions ever was open."""
    index = AbortedIndex()
    for row in rows:
        still_open = [one.first_offset for one in rows if one.first_offset < row.last_offset < one.last_offset]
        index.add(row, min([row.last_offset + 1, *still_open]))
    return index


@given(transactions(), st.data())
@settings(max_examples=150, deadline=None)
def test_t15_whatever_overlaps_a_range_is_found_sorted_by_first_offset(
    rows: list[AbortedTransaction], data: st.DataObject
) -> None:
    index = filled(rows)
    assert len(index) == len(rows)
    if data.draw(st.booleans()):
        index = read(index)
    end = max([one.last_offset for one in rows], default=0) + 2
    for _ in range(5):
        start_offset = data.draw(st.integers(0, end))
        end_offset = data.draw(st.integers(start_offset, end))
        found = [one for one in rows if one.last_offset >= start_offset and one.first_offset < end_offset]
        assert index.between(start_offset, end_offset) == sorted(found, key=lambda one: one.first_offset)


@given(transactions(), st.data())
@settings(max_examples=80, deadline=None)
def test_what_stands_before_the_start_of_the_log_is_forgotten_but_for_part_of_a_block(
    rows: list[AbortedTransaction], data: st.DataObject
) -> None:
    index = filled(rows)
    start = data.draw(st.integers(0, max([one.last_offset for one in rows], default=0) + 1))
    index.forget_before(start)
    left = [one for one in rows if one.last_offset >= start]
    assert index.between(start, 1 << 60) == sorted(left, key=lambda one: one.first_offset)
    assert len(index) < len(left) + aborted_index.BLOCK


@given(transactions(), st.data())
@settings(max_examples=80, deadline=None)
def test_what_ended_in_a_lost_part_of_the_log_is_forgotten(rows: list[AbortedTransaction], data: st.DataObject) -> None:
    index = filled(rows)
    image = index.image()
    end = data.draw(st.integers(0, max([one.last_offset for one in rows], default=0) + 1))
    index.forget_from(end)
    left = [one for one in rows if one.last_offset < end]
    assert everything(index) == left
    index.add(AbortedTransaction(99, 1 << 40, (1 << 40) + 1), 1 << 41)
    assert everything(index)[:-1] == left
    assert image.row_count == len(rows)
    assert b"".join(image.parts()) == b"".join(filled(rows).image().parts()), "an image never changes"


def test_a_long_transaction_costs_no_look_at_all_that_were_aborted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    index = AbortedIndex()
    for number in range(1_000):
        index.add(AbortedTransaction(number, 10 + 2 * number, 11 + 2 * number), 5)
    looked: list[int] = []
    within = aborted_index._within

    def counting(rows: "array[int]", start: int, end: int) -> list[AbortedTransaction]:
        looked.append(len(rows))
        return within(rows, start, end)

    monkeypatch.setattr(aborted_index, "_within", counting)
    assert index.between(5, 12) == [AbortedTransaction(0, 10, 11)]
    assert len(looked) <= 2, "one block, and the rows that fill none"


def test_rows_are_read_on_a_machine_of_the_other_byte_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [AbortedTransaction(number, number * 3, number * 3 + 1) for number in range(6)]
    index = filled(rows)
    monkeypatch.setattr("barnabas_broker.partition.aborted_index.sys.byteorder", "big")
    swapped = b"".join(index.image().parts())
    assert swapped[:16] == (0).to_bytes(16, "big")
    assert swapped[ROW_BYTES : ROW_BYTES + 16] == (1).to_bytes(8, "big") + (3).to_bytes(8, "big")
    assert everything(read(index)) == rows


def test_a_row_takes_32_bytes() -> None:
    index = AbortedIndex()
    for number in range(4 * 256):
        index.add(AbortedTransaction(number, 2 * number, 2 * number + 1), 2 * number + 2)
    image = index.image()
    held = sum(block.rows.itemsize * len(block.rows) for block in image.blocks)
    assert held == 32 * 4 * 256


def test_a_great_many_are_put_in_order_in_steps_and_what_was_chosen_does_not_change() -> None:
    index = AbortedIndex()
    for number in range(1_000):  # two hundred are open at any time
        index.add(AbortedTransaction(number, number * 10 if number % 2 else number * 10 - 2_000, number * 10 + 5), 0)
    chosen = index.range(0, 1 << 40)
    assert chosen.row_count_max == 1_000
    expected = index.between(0, 1 << 40)
    index.add(AbortedTransaction(1_000, 1, 20_000), 0)
    index.forget_before(5_000)
    assert at_once(chosen.in_steps()) == expected
    assert len(list(chosen.in_steps())) >= 249, "a block at a time, of four rows here"
    assert [one.first_offset for one in expected] == sorted(one.first_offset for one in expected)
