"""Archivers that race for one table, in threads and in processes: each row is in it once."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from spark.lake.formats.archives import ARCHIVES, Archive, rows_of
from spark.lake.formats.racing import archive_up_to

END = 12
PARTITIONS = (0, 1)


@pytest.fixture(params=sorted(ARCHIVES))
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    return ARCHIVES[request.param](tmp_path)


def checked(archive: Archive) -> None:
    assert archive.rows() == rows_of(*((partition, 0, END) for partition in PARTITIONS))
    for partition in PARTITIONS:
        assert archive.spans(partition) == [(0, END)]


@pytest.mark.slow
def test_threads_that_archive_the_same_and_other_partitions_lose_and_double_nothing(archive: Archive) -> None:
    """Two want the same partitions, two want one each: of different partitions, Delta itself sees no conflict."""
    failures: list[BaseException] = []

    def race(partitions: tuple[int, ...]) -> None:
        try:
            archive_up_to(archive, partitions, END)
        except BaseException as error:  # noqa: BLE001 - told to the test below
            failures.append(error)

    threads = [threading.Thread(target=race, args=(which,)) for which in (PARTITIONS, PARTITIONS, (0,), (1,))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    checked(archive)


@pytest.mark.slow
def test_processes_that_archive_the_same_partitions_lose_and_double_nothing(
    archive: Archive, request: pytest.FixtureRequest
) -> None:
    kind = next(name for name, made in ARCHIVES.items() if type(archive) is made)
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}; from spark.lake.formats.racing import main; main()",
    ]
    arguments = [kind, str(archive.root), str(END), *map(str, PARTITIONS)]
    racers = [subprocess.Popen([*command, *arguments]) for _ in range(2)]
    assert [racer.wait(120) for racer in racers] == [0, 0]
    checked(archive)
