"""A Parquet table is what its manifests say, read in bounded time, and committed by one writer at a time."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas_spark.lake.committing import commit_ranges
from barnabas_spark.lake.formats.manifests import Contents, Manifest
from barnabas_spark.lake.formats.parquet import CHECKPOINT_EVERY, HINT, ParquetFormat
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.ranges import CommittedRange, PartitionKey, Purpose, Span
from barnabas_spark.lake.store import DirectoryStore, PresentError
from barnabas_spark.lake.table import ConflictError, DataFile, TableError, TableState, UnknownOutcomeError

KEY = PartitionKey("cluster", "8a2b", 3)


def proposed(start: int, end: int) -> CommittedRange:
    return CommittedRange(KEY, start, end, 5, "read_uncommitted", end - start, 7, "orders")


def file(number: int) -> DataFile:
    return DataFile(f"_data/{number}.parquet", 10, 1, {"date": "2026-11-27"})


def append(table: ParquetFormat, first: int, last: int) -> None:
    for number in range(first, last):
        table.commit(table.load(), [file(number)], [proposed(number, number + 1)], Purpose.ARCHIVE)


class Counting(DirectoryStore):
    """Counts what is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gets = 0

    def get(self, path: str) -> bytes:
        self.gets += 1
        return super().get(path)


def test_a_new_driver_finds_what_was_committed(tmp_path: Path) -> None:
    layout = Layout(partition_by="day")
    append(ParquetFormat(DirectoryStore(tmp_path), layout), 0, 3)
    table = ParquetFormat(DirectoryStore(tmp_path))
    assert table.load() == TableState(3, {KEY: [Span(0, 3, 5)]})
    assert table.files(table.load()) == [file(number).path for number in range(3)]
    assert table.data_files(table.load())[1] == file(1)
    assert table.layout == layout
    assert [(one.number, one.purpose, one.ranges) for one in table.commits()] == [
        (number + 1, "archive", [proposed(number, number + 1)]) for number in range(3)
    ]


def test_of_two_commits_onto_one_version_one_is_refused(tmp_path: Path) -> None:
    one, other = ParquetFormat(DirectoryStore(tmp_path)), ParquetFormat(DirectoryStore(tmp_path))
    state = other.load()
    append(one, 0, 1)
    with pytest.raises(ConflictError, match="somebody else has made commit 1"):
        other.commit(state, [file(9)], [proposed(0, 1)], Purpose.ARCHIVE)
    assert other.load().version == 1
    assert other.files(other.load()) == [file(0).path]


def test_a_commit_whose_answer_was_lost_inside_the_store_is_ours(tmp_path: Path) -> None:
    class Repeating(DirectoryStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            raise PresentError(path)

    table = ParquetFormat(Repeating(tmp_path))
    append(table, 0, 2)
    assert table.load().version == 2


def test_any_other_failure_of_a_commit_is_of_unknown_outcome(tmp_path: Path) -> None:
    class Failing(DirectoryStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            raise OSError("the network")

    table = ParquetFormat(Failing(tmp_path))
    with pytest.raises(UnknownOutcomeError, match="may have gone through, or not: the network"):
        append(table, 0, 1)
    assert commit_ranges(table, [file(0)], [proposed(1, 2)], Purpose.ARCHIVE, wait=lambda _: None) == 2
    assert table.load().spans == {KEY: [Span(0, 2, 5)]}


@pytest.mark.slow
def test_loading_reads_no_more_than_the_manifests_since_a_checkpoint(tmp_path: Path) -> None:
    commits = 3 * CHECKPOINT_EVERY - 1
    append(ParquetFormat(DirectoryStore(tmp_path)), 0, commits)
    store = Counting(tmp_path)
    table = ParquetFormat(store)
    assert table.load() == TableState(commits, {KEY: [Span(0, commits, 5)]})
    assert store.gets <= CHECKPOINT_EVERY + 4
    assert len(table.files(table.load())) == commits
    store.gets = 0
    table.load()
    assert store.gets == 1  # whether there is a manifest more
    early = CHECKPOINT_EVERY + 5
    assert len(table.files(TableState(early, {}))) == early
    assert store.gets <= 8


def spoil_hint(root: Path) -> None:
    (root / HINT).write_text("{")


def lose_hint(root: Path) -> None:
    (root / HINT).unlink()


def spoil_newest_checkpoint(root: Path) -> None:
    newest = max(one for one in (root / "_checkpoints").iterdir() if one.name.isdecimal())
    newest.write_bytes(newest.read_bytes()[:-10])


def lose_all_checkpoints(root: Path) -> None:
    for one in (root / "_checkpoints").iterdir():
        one.unlink()


@pytest.mark.parametrize("harm", [spoil_hint, lose_hint, spoil_newest_checkpoint, lose_all_checkpoints])
def test_checkpoints_are_help_and_no_truth(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    append(ParquetFormat(DirectoryStore(tmp_path), checkpoint_every=4), 0, 11)
    harm(tmp_path)
    table = ParquetFormat(DirectoryStore(tmp_path), checkpoint_every=4)
    assert table.load() == TableState(11, {KEY: [Span(0, 11, 5)]})
    append(table, 11, 12)
    assert ParquetFormat(DirectoryStore(tmp_path)).load().version == 12


def test_a_checkpoint_that_cannot_be_written_harms_no_commit(tmp_path: Path) -> None:
    class Failing(DirectoryStore):
        def put(self, path: str, data: bytes) -> None:
            raise OSError("no space left")

    append(ParquetFormat(Failing(tmp_path), checkpoint_every=2), 0, 5)
    append(ParquetFormat(DirectoryStore(tmp_path), checkpoint_every=2), 5, 6)
    assert json.loads((tmp_path / HINT).read_bytes()) == {"number": 6}


def test_a_missing_manifest_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    append(ParquetFormat(DirectoryStore(tmp_path)), 0, 3)
    (tmp_path / f"_manifests/{2:020}").unlink()
    with pytest.raises(TableError, match=r"_manifests/0*2 is missing, though _manifests/0*3 is there"):
        ParquetFormat(DirectoryStore(tmp_path)).load()


def test_a_manifest_that_was_changed_by_hand_is_an_error(tmp_path: Path) -> None:
    append(ParquetFormat(DirectoryStore(tmp_path)), 0, 3)
    path = tmp_path / f"_manifests/{2:020}"
    path.write_bytes(path.read_bytes().replace(b'"rows": 1', b'"rows": 2'))
    with pytest.raises(TableError, match=r"_manifests/0*3 does not follow"):
        ParquetFormat(DirectoryStore(tmp_path)).load()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 2}', b"\xff"])
def test_damage_is_named(data: bytes) -> None:
    for read in (Manifest.decode, Contents.decode):
        with pytest.raises(TableError, match=r"x (is damaged|has format 2)"):
            read(data, "x")


def test_files_are_replaced_by_others_in_one_commit_and_the_ranges_stay(tmp_path: Path) -> None:
    table = ParquetFormat(DirectoryStore(tmp_path))
    append(table, 0, 3)
    before = table.load()
    table.rewrite(before, [file(0).path, file(1).path], [file(77)._replace(rows=2)])
    after = ParquetFormat(DirectoryStore(tmp_path))
    assert after.load() == TableState(4, before.spans)
    assert after.files(after.load()) == [file(2).path, file(77).path]
    assert after.files(before) == [file(number).path for number in range(3)]
    with pytest.raises(TableError, match=r"_data/0\.parquet is not in version 4"):
        after.rewrite(after.load(), [file(0).path], [])
    assert after.referenced(0) == {file(number).path for number in (0, 1, 2, 77)}
    assert after.referenced(2**60) == {file(2).path, file(77).path}
