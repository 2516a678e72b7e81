"""Directories and object stores keep what they have when they are told to create only; others are refused."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from spark.lake.buckets import S3, bucket, s3_server
from spark.lake.faults import Forgetful

from barnabas_spark.lake import opening
from barnabas_spark.lake.opening import open_store, probe
from barnabas_spark.lake.store import (
    UNFINISHED,
    DirectoryStore,
    Location,
    MissingError,
    PresentError,
    Store,
    StoreError,
)

__all__ = ["bucket", "s3_server"]


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.slow)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    return Location(str(tmp_path / "lake")) if request.param == "directory" else request.getfixturevalue("bucket")


@pytest.fixture
def store(location: Location) -> Store:
    return open_store(location)


def test_the_probe_passes_and_leaves_nothing(store: Store, location: Location) -> None:
    probe(store, location)
    assert not [*store.list("")]


def test_one_of_many_creates_a_path(store: Store) -> None:
    def attempt(number: int) -> bool:
        try:
            store.put_if_absent("_manifests/1", b"%d" % number)
        except PresentError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, done in enumerate(pool.map(attempt, range(16))) if done]
    assert [store.get("_manifests/1")] == [b"%d" % number for number in won]
    assert [one.path for one in store.list("_manifests/")] == ["_manifests/1"]


def test_files_are_put_listed_and_deleted(store: Store) -> None:
    for path in ("a/1", "a/2", "a/b/3", "c"):
        store.put(path, path.encode())
    store.put("a/2", b"again")
    assert store.get("a/2") == b"again"
    assert sorted(one.path for one in store.list("a/")) == ["a/1", "a/2", "a/b/3"]
    assert sorted((one.path, one.size_bytes) for one in store.list("a/", "a/1")) == [("a/2", 5), ("a/b/3", 5)]
    store.delete("a/1")
    store.delete("a/1")
    with pytest.raises(MissingError):
        store.get("a/1")
    assert not [*store.list("nothing/")]


def test_a_large_file_is_there_once_it_is_finished(store: Store) -> None:
    file = store.create("data/x.parquet")
    file.stream.write(b"x" * 1000)
    assert "data/x.parquet" not in {one.path for one in store.list("data/")}
    assert file.finish() == 1000
    assert store.get("data/x.parquet") == b"x" * 1000
    with store.open("data/x.parquet") as stream:
        assert (stream.seek(-10, 2), stream.read(), stream.seek(990), stream.read(4)) == (990, b"x" * 10, 990, b"xxxx")
    with pytest.raises(MissingError):
        store.open("data/nothing")
    other = store.create("data/y.parquet")
    other.stream.write(b"y")
    other.abandon()
    assert [one.path for one in store.list("data/")] == ["data/x.parquet"]


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    location = Location(str(tmp_path / "file"))
    with pytest.raises(StoreError, match="file cannot be written"):
        probe(open_store(location), location)


def test_a_store_that_ignores_the_condition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"s3://b overwrites .* \(If-None-Match: \*\), and has b'second' now"):
        probe(Forgetful(tmp_path), Location("s3://b"))
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]


class _Hasty(DirectoryStore):
    """A store that looks first and writes later: when all who create a path have looked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.looked = threading.Barrier(opening.RACERS)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if (self.root / path).exists():
            raise PresentError(path)
        if data not in {b"first", b"second"}:
            self.looked.wait(30)
        self.put(path, data)


def test_a_store_that_looks_first_and_writes_later_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"s3://b told 8 of 8 writers at the same time that they had created one file"):
        probe(_Hasty(tmp_path), Location("s3://b"))
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]


def test_what_a_crash_left_half_written_is_known_by_its_name(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    file = store.create("data/x.parquet")
    file.stream.write(b"half")
    file.stream.close()
    assert [one.path for one in store.list("data/")] == [f"data/{UNFINISHED}x.parquet"]


@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_named(s3_server: S3) -> None:
    location = Location("s3://nowhere/lake", s3_server.options)
    with pytest.raises(StoreError, match="nowhere/lake"):
        probe(open_store(location), location)


def test_wrong_options_of_a_store_are_named() -> None:
    with pytest.raises(StoreError, match="colour"):
        open_store(Location("s3://bucket/lake", {"colour": "blue"}))
