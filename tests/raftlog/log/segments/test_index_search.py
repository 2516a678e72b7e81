"""Bisection of an index, in memory and in its file, against a look at every row."""

import struct
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.log.segments.index_search import BLOCK_ROWS, BY_OFFSET, BY_POSITION, Row, around, rows_in
from barnabas_raftlog.log.segments.offset_index import OffsetIndex

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=400)


def rows_from(steps: list[tuple[int, int]]) -> list[Row]:
    """Return rows whose offsets never decrease and whose positions increase."""
    return list(zip(accumulate(step for step, _ in steps), accumulate(step for _, step in steps), strict=True))


def expected(rows: list[Row], by: int, place: int) -> tuple[Row | None, Row | None]:
    before = [row for row in rows if row[by] <= place]
    after = [row for row in rows if row[by] > place]
    return before[-1] if before else None, after[0] if after else None


@given(STEPS, st.sampled_from((BY_OFFSET, BY_POSITION)), st.integers(-1, 2500))
@settings(max_examples=150)
def test_both_ways_find_the_rows_around_a_place(steps: list[tuple[int, int]], by: int, place: int) -> None:
    rows = rows_from(steps)
    wanted = expected(rows, by, place)
    assert around(len(rows), lambda first, count: rows[first : first + count], by, place) == wanted
    index = OffsetIndex()
    for number, (offset, position) in enumerate(rows, 1):
        index.add(number, offset, position)
    assert index.in_memory_around(by, place) == wanted
    assert rows_in(index.unstored() + b"torn") == rows


def test_few_rows_are_read_of_many() -> None:
    rows = [(number, 4096 * number) for number in range(262_144)]  # a segment of 1 GiB
    asked: list[int] = []

    def read(first: int, count: int) -> list[Row]:
        asked.append(count)
        return rows[first : first + count]

    assert around(len(rows), read, BY_POSITION, 4096 * 77_777 + 1) == (rows[77_777], rows[77_778])
    assert len(asked) <= 12
    assert sum(asked) <= 12 + BLOCK_ROWS + 2


@given(st.binary(max_size=4000), st.integers(0, 200), st.integers(-(2**63), 2**63 - 1))
def test_garbage_and_a_file_that_is_too_short_give_some_answer(data: bytes, count: int, place: int) -> None:
    def read(first: int, rows: int) -> list[Row]:
        return rows_in(data[24 * first : 24 * (first + rows)])

    for by in (BY_OFFSET, BY_POSITION):
        before, after = around(count, read, by, place)
        assert {before, after} <= {None, *rows_in(data)}


def test_a_row_is_what_the_file_has() -> None:
    assert rows_in(struct.pack("<qqq", 5, 17, 4100)) == [(17, 4100)]
