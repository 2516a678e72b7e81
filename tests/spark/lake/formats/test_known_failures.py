"""Failures that the Iceberg sink of Kafka Connect has had, as its users reported them: none of them strikes here.

There, a coordinator learns of files and offsets from a control topic, and keeps its own position in a consumer group.
Here, an archiver learns where to go on from the table alone; so "the coordinator was replaced" is a new archiver, with
files and ranges of the old one at hand or without.
"""

from pathlib import Path

import pytest
from spark.lake.formats.archives import ARCHIVES, Archive, commit_ranges, key_of, range_of, rows_of

from barnabas_spark.lake.ranges import NotNextError, Purpose
from barnabas_spark.lake.table import ConflictError


class DriverKilledError(BaseException):
    """The driver is dead here."""


@pytest.fixture(params=sorted(ARCHIVES))
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    return ARCHIVES[request.param](tmp_path)


def test_iceberg_17340_a_replacement_that_hears_of_committed_files_again_commits_none_of_them_twice(
    archive: Archive,
) -> None:
    """Its position goes back, so it takes files of the last commit for new, and commits them together with new ones."""
    files = [archive.write(0, 0, 5), archive.write(1, 0, 4)]
    ranges = [range_of(0, 0, 5), range_of(1, 0, 4)]
    commit_ranges(archive.open(), files, ranges, Purpose.ARCHIVE)

    replacement = archive.open()
    new = archive.write(1, 4, 6)
    with pytest.raises(NotNextError, match="the table ends at 5"):
        commit_ranges(replacement, [files[0], new], [ranges[0], range_of(1, 4, 6)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 5), (1, 0, 4))

    with pytest.raises(NotNextError, match=r"the table has \[0, 5\)"):
        commit_ranges(replacement, [files[0]], [ranges[0]], Purpose.BACKFILL)
    commit_ranges(replacement, [new], [range_of(1, 4, 6)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 5), (1, 0, 6))


@pytest.mark.parametrize("with_same_file", [True, False], ids=["same file", "rows read again"])
def test_iceberg_16282_a_commit_whose_author_died_before_noting_it_is_not_made_again(
    archive: Archive, with_same_file: bool
) -> None:
    archive.add((0, 0, 5))
    first = archive.open()
    file, one = archive.write(0, 5, 8), range_of(0, 5, 8)
    commit = first.commit

    def dies_after(*args: object) -> None:
        commit(*args)  # type: ignore[arg-type]
        raise DriverKilledError

    first.commit = dies_after  # type: ignore[method-assign, assignment]
    with pytest.raises(DriverKilledError):
        commit_ranges(first, [file], [one], Purpose.ARCHIVE)

    again = file if with_same_file else archive.write(0, 5, 8)
    with pytest.raises(NotNextError, match="the table ends at 8"):
        commit_ranges(archive.open(), [again], [one], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 8))


def test_iceberg_16282_what_the_table_says_never_goes_back(archive: Archive) -> None:
    """There, an old coordinator's lower position was written beside new files, and let committed ones in again."""
    old = archive.open()
    state = old.load()
    ends = [0]
    for start in range(0, 12, 3):
        archive.add((0, start, start + 3))
        behind = range_of(0, ends[-1], ends[-1] + 1)  # what comes next, by what the old one has seen
        for files, purpose in (([archive.write(0, start, start + 1)], Purpose.ARCHIVE), ([], Purpose.GAP)):
            with pytest.raises(ConflictError):
                old.commit(state, files, [behind], purpose)
        state = old.load()
        ends.append(state.spans[key_of(0)][-1].end_offset)
    assert ends == [0, 3, 6, 9, 12]
    assert archive.rows() == rows_of((0, 0, 12))


def test_iceberg_18006_files_that_were_written_and_not_committed_are_written_again_and_not_skipped(
    archive: Archive,
) -> None:
    """There, the workers' positions had passed the rows, and the replacement began at the end of the control topic."""
    archive.write(0, 0, 5)  # written by an archiver that dies before its first commit
    assert archive.open().load().spans == {}  # so the replacement begins at the start of the log
    archive.add((0, 0, 5))
    archive.write(0, 5, 8)  # and one that dies before a later commit

    replacement = archive.open()
    with pytest.raises(NotNextError, match="the table ends at 5"):
        commit_ranges(replacement, [archive.write(0, 8, 9)], [range_of(0, 8, 9)], Purpose.ARCHIVE)
    assert replacement.load().spans[key_of(0)][-1].end_offset == 5
    archive.add((0, 5, 8))
    archive.add((0, 8, 9))
    assert archive.rows() == rows_of((0, 0, 9))
    assert len(archive.live()) == 3


def test_iceberg_17551_a_zombie_cannot_put_the_position_back_by_which_others_go_on(archive: Archive) -> None:
    """There, it wrote its old position again and again, without any file, and the last writer won."""
    archive.add((0, 0, 5))
    zombie = archive.open()
    seen = zombie.load()
    archive.add((0, 5, 8))  # by the coordinator that was elected after it

    for purpose in (Purpose.ARCHIVE, Purpose.GAP):
        with pytest.raises(ConflictError):
            zombie.commit(seen, [], [range_of(0, 5, 6)], purpose)
        with pytest.raises(NotNextError, match="the table ends at 8"):
            commit_ranges(zombie, [], [range_of(0, 5, 6)], purpose)

    replacement = archive.open()  # after the elected one has died, too
    assert replacement.load().spans[key_of(0)][-1].end_offset == 8
    commit_ranges(replacement, [archive.write(0, 8, 12)], [range_of(0, 8, 12)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 12))
