"""What both formats promise: exactly the version that was compared, and ranges that the table keeps by itself."""

from pathlib import Path

import pytest
from spark.lake.formats.archives import ARCHIVES, Archive, commit_ranges, key_of, range_of, rows_of

from barnabas_spark.lake.ranges import NotNextError, Purpose
from barnabas_spark.lake.table import ConflictError, TableError


@pytest.fixture(params=sorted(ARCHIVES))
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    return ARCHIVES[request.param](tmp_path)


def test_a_table_that_is_not_there_has_no_ranges_and_no_files(archive: Archive) -> None:
    table = archive.open()
    state = table.load()
    assert (state.version, dict(state.spans)) == (None, {})
    assert table.files(state) == []


def test_rows_and_ranges_are_committed_together(archive: Archive) -> None:
    archive.add((0, 0, 5), (1, 10, 13))
    archive.add((0, 5, 8))
    assert archive.rows() == rows_of((0, 0, 8), (1, 10, 13))
    assert archive.spans(0) == [(0, 8)]
    assert archive.spans(1) == [(10, 13)]


def test_the_files_of_a_version_are_its_live_ones(archive: Archive) -> None:
    first = archive.add((0, 0, 5))
    archive.add((0, 5, 8))
    table = archive.open()
    assert [str(archive.root / path) for path in table.files(table.load())] == archive.live()
    assert len(table.files(first)) == 1


def test_nothing_is_committed_onto_a_version_that_was_not_compared(archive: Archive) -> None:
    """Also when the commits in between are of another partition, or nobody's archive at all."""
    archive.add((0, 0, 5))
    table = archive.open()
    state = table.load()
    archive.add((1, 0, 3))
    with pytest.raises(ConflictError):
        table.commit(state, [archive.write(0, 5, 8)], [range_of(0, 5, 8)], Purpose.ARCHIVE)
    state = table.load()
    archive.append_by_another()
    with pytest.raises(ConflictError):
        table.commit(state, [archive.write(0, 5, 8)], [range_of(0, 5, 8)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 5), (1, 0, 3))


def test_two_that_create_a_table_do_not_both_succeed(archive: Archive) -> None:
    table, other = archive.open(), archive.open()
    state, other_state = table.load(), other.load()
    table.commit(state, [archive.write(0, 0, 5)], [range_of(0, 0, 5)], Purpose.ARCHIVE)
    with pytest.raises(ConflictError):
        other.commit(other_state, [archive.write(0, 0, 5)], [range_of(0, 0, 5)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 5))


def test_another_writer_only_costs_a_round(archive: Archive) -> None:
    archive.add((0, 0, 5))
    archive.append_by_another()
    archive.add((0, 5, 8))
    archive.append_by_another()
    assert archive.rows() == rows_of((0, 0, 8))
    assert archive.spans(0) == [(0, 8)]


def test_a_range_without_rows_is_committed_without_a_file(archive: Archive) -> None:
    archive.add((0, 0, 5))
    table = archive.open()
    table.commit(table.load(), [], [range_of(0, 5, 9)], Purpose.GAP)
    archive.add((0, 9, 12))
    assert archive.rows() == rows_of((0, 0, 5), (0, 9, 12))
    assert archive.spans(0) == [(0, 12)]


def test_a_table_may_begin_with_a_range_without_rows(archive: Archive) -> None:
    table = archive.open()
    table.commit(table.load(), [], [range_of(0, 0, 9)], Purpose.GAP)
    archive.add((0, 9, 12))
    assert archive.rows() == rows_of((0, 9, 12))
    assert archive.spans(0) == [(0, 12)]


def test_back_fills_leave_disjoint_ranges_that_grow_together(archive: Archive) -> None:
    archive.add((0, 100, 110))
    archive.add((0, 50, 60), purpose=Purpose.BACKFILL)
    assert archive.spans(0) == [(50, 60), (100, 110)]
    archive.add((0, 110, 120))
    assert archive.spans(0) == [(50, 60), (100, 120)]
    archive.add((0, 60, 100), purpose=Purpose.BACKFILL)
    assert archive.spans(0) == [(50, 120)]
    archive.add((0, 20, 30), purpose=Purpose.BACKFILL)
    assert archive.spans(0) == [(20, 30), (50, 120)]
    assert archive.rows() == rows_of((0, 20, 30), (0, 50, 120))


def test_a_range_that_the_table_has_is_refused_by_the_format_too(archive: Archive) -> None:
    archive.add((0, 0, 5))
    table = archive.open()
    with pytest.raises(NotNextError):
        table.commit(table.load(), [archive.write(0, 3, 7)], [range_of(0, 3, 7)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 5))


def test_leader_epochs_come_back(archive: Archive) -> None:
    table = archive.open()
    table.commit(table.load(), [archive.write(0, 0, 5)], [range_of(0, 0, 5, epoch=4)], Purpose.ARCHIVE)
    table.commit(table.load(), [archive.write(1, 0, 5)], [range_of(1, 0, 5, epoch=-1)], Purpose.ARCHIVE)
    spans = archive.open().load().spans
    assert (spans[key_of(0)][-1].leader_epoch, spans[key_of(1)][-1].leader_epoch) == (4, -1)


def test_small_files_are_replaced_by_a_larger_one_of_the_same_rows(archive: Archive) -> None:
    for start in range(0, 12, 3):
        archive.add((0, start, start + 3))
    archive.add((1, 0, 2))
    table = archive.open()
    state = table.load()
    small = [path for path in table.files(state) if archive.partition_of(path) == 0]
    table.rewrite(state, small, [archive.write(0, 0, 12)])
    assert archive.rows() == rows_of((0, 0, 12), (1, 0, 2))
    assert len(archive.live()) == 2
    archive.add((0, 12, 14))
    assert archive.spans(0) == [(0, 14)]


def test_a_rewrite_of_another_number_of_rows_or_of_a_file_that_is_gone_is_refused(archive: Archive) -> None:
    archive.add((0, 0, 5))
    table = archive.open()
    state = table.load()
    (path,) = table.files(state)
    with pytest.raises(TableError, match="5 rows, and those in their place 4"):
        table.rewrite(state, [path], [archive.write(0, 0, 4)])
    with pytest.raises(TableError, match=r"no live file 'data/gone.parquet'"):
        table.rewrite(state, ["data/gone.parquet"], [archive.write(0, 0, 5)])
    assert archive.rows() == rows_of((0, 0, 5))


def test_a_rewrite_that_drops_rows_says_so_and_adds_none(archive: Archive) -> None:
    archive.add((0, 0, 5))
    table = archive.open()
    state = table.load()
    with pytest.raises(TableError, match="5 rows, and those in their place 6"):
        table.rewrite(state, table.files(state), [archive.write(0, 0, 6)], drops_rows=True)
    table.rewrite(state, table.files(state), [archive.write(0, 1, 5)], drops_rows=True)
    assert archive.rows() == rows_of((0, 1, 5))
    assert archive.spans(0) == [(0, 5)]


def test_a_rewrite_of_a_version_that_has_passed_is_a_conflict(archive: Archive) -> None:
    archive.add((0, 0, 5))
    table = archive.open()
    state = table.load()
    archive.add((0, 5, 8))
    with pytest.raises(ConflictError):
        table.rewrite(state, table.files(state), [archive.write(0, 0, 5)])
    assert archive.rows() == rows_of((0, 0, 8))


def test_a_table_of_a_new_topic_has_its_own_ranges(archive: Archive) -> None:
    archive.add((0, 0, 5))
    table = archive.open()
    again = range_of(0, 0, 4)._replace(key=key_of(0)._replace(topic_id="another-id"))
    commit_ranges(table, [archive.write(0, 0, 4)], [again], Purpose.ARCHIVE)
    assert set(table.load().spans) == {key_of(0), again.key}
