"""Spark's executors write the files, and an attempt that is killed leaves nothing in the table."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from spark.lake.produced import PARTITIONS, Topic, expected_rows, file_rows, new_topic, produce
from spark.lake.sweep import FILES, settings_for

from barnabas_spark.jobs import archiving, cli
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.store import DirectoryStore, Location
from barnabas_spark.lake.tasks import run_on_spark, task_failure
from barnabas_spark.lake.writing import Piece, Unreadable, Written, write_piece

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(90))
    return made


def assert_is_exact(root: Path, topic: Topic, rows: int) -> None:
    table = ParquetFormat(DirectoryStore(root))
    assert file_rows(root, table.files(table.load())) == expected_rows(topic, range(rows))


def test_the_command_archives_and_says_what_it_did(
    spark: Any, topic: Topic, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["archive", topic.name, "--to", str(tmp_path / "lake"), "-b", topic.bootstrap, "--partition-by", "hour"]
    capfd.readouterr()
    assert cli.main([*words, "--json"]) == 0
    said = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(one["partition"], one["start_offset"], one["end_offset"], one["rows"]) for one in said] == [
        (each, 0, 30, 30) for each in range(PARTITIONS)
    ]
    assert_is_exact(tmp_path / "lake", topic, 90)
    produce(topic, range(90, 120))
    assert cli.main([*words, "--compact", "--remove-orphans", "6"]) == 0
    out = capfd.readouterr()
    assert "30,  40" not in out.out
    assert "30 rows in 1 commit," in out.err
    assert re.search(r"\d+ files became \d+, \d+ rows\n0 orphans were removed", out.err)
    assert cli.main([*words, "--holes"]) == 0
    assert capfd.readouterr().out == "partition  from  to  offsets  in the log\n"
    assert_is_exact(tmp_path / "lake", topic, 120)
    assert {one.name.partition("=")[0] for one in (tmp_path / "lake/_data").glob("*/*")} == {"hour"}


def test_a_continuous_archive_takes_what_is_new_until_it_is_asked_to_stop(
    spark: Any, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []

    def shown(result: Any, *_: Any, **__: Any) -> None:
        ends.append(result.partitions[0].end_offset)
        if len(ends) == 1:
            produce(topic, range(90, 120))
        else:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(archiving, "_show", shown)
    words = ["archive", topic.name, "--to", str(tmp_path / "lake"), "-b", topic.bootstrap]
    assert cli.main([*words, "--continuous", "--interval", "0.01"]) == 0
    assert ends == [30, 40]
    assert_is_exact(tmp_path / "lake", topic, 120)


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["archive"], 2, "Missing argument 'TOPIC'"),
        (["archive", "t", "--to", "x", "--format", "orc"], 2, "--format: 'orc' is not known; write one of parquet"),
        (["archive", "t", "--to", "x", "--file-size", "big"], 2, "--file-size: 'big' is not a size; write 64m"),
        (["archive", "t", "--to", "s3://b/x", "--store-option", "x"], 2, "--store-option: 'x' is not NAME=VALUE"),
        (["archive", "t", "--to", "x", "--from-offset", "9", "--to-offset", "9"], 2, "--from-offset 9 is not before"),
        (["archive", "t", "--to", "/proc/nowhere"], 1, "/proc/nowhere cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], status: int, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == status
    assert capfd.readouterr().err.startswith(f"barnabas-spark: {complaint}")


class _KilledOnce:
    """Writes a piece, and is killed before it says so if the file `armed` is there, which it takes away."""

    def __init__(self, armed: Path, write: Any) -> None:
        self.armed = armed
        self.write = write

    def __call__(self, piece: Piece) -> Written | Unreadable:
        written: Written | Unreadable = self.write(piece)
        if self.armed.exists():
            self.armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def killing(spark: Any, topic: Topic, root: Path, armed: Path) -> Any:
    """Return what runs pieces on Spark, with one Python worker killed when its files are written."""
    settings = settings_for(topic)

    def write(piece: Piece) -> Written | Unreadable:
        return write_piece(piece, Location(str(root)), settings.options, FILES)

    task = _KilledOnce(armed, write)
    context = spark.sparkContext

    def run(pieces: Sequence[Piece]) -> Sequence[Written | Unreadable]:
        results: list[Written | Unreadable] = context.parallelize(pieces, len(pieces)).map(task).collect()
        return results

    return run


def test_a_task_that_is_killed_for_good_fails_the_run_and_the_next_one_is_exact(
    spark: Any, topic: Topic, tmp_path: Path
) -> None:
    root, armed = tmp_path / "lake", tmp_path / "armed"
    armed.touch()
    table = ParquetFormat(DirectoryStore(root))
    with pytest.raises(Exception, match=r"(?i)crashed|connection"):
        archive(table, settings_for(topic), killing(spark, topic, root, armed))
    assert not armed.exists()
    assert table.load().version == 0
    assert [*root.glob("data/**/*.parquet")], "the killed attempt had written files"
    location, settings = Location(str(root)), settings_for(topic, 2_000)
    archive(table, settings, run_on_spark(spark, location, settings.options, FILES))
    assert_is_exact(root, topic, 90)


def test_an_attempt_that_is_killed_is_made_again_and_its_files_are_not_taken(topic: Topic, tmp_path: Path) -> None:
    """In a session of its own: the others' retries nothing."""
    (tmp_path / "armed").touch()
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "SPARK_LOCAL_IP": "127.0.0.1"}
    words = [sys.executable, __file__, topic.bootstrap, topic.name, str(tmp_path)]
    environment["PYSPARK_PYTHON"] = sys.executable
    subprocess.run(words, env=os.environ | environment, check=True, timeout=120)
    assert not (tmp_path / "armed").exists()
    assert_is_exact(tmp_path / "lake", topic, 90)
    table = ParquetFormat(DirectoryStore(tmp_path / "lake"))
    written = {one.relative_to(tmp_path / "lake").as_posix() for one in tmp_path.glob("lake/data/**/*.parquet")}
    assert written > set(table.files(table.load()))


def test_the_reason_of_a_failed_task_is_found_in_what_spark_says() -> None:
    text = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
barnabas_clients.errors.DeadlineExceededError: fetching t-0 at 5: timed out after 1 s

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""
    assert task_failure(text) == "fetching t-0 at 5: timed out after 1 s (DeadlineExceededError)"
    assert task_failure("java.lang.Oops\n\tat x") == "java.lang.Oops"


def main() -> None:
    from barnabas_spark.jobs.session import session

    bootstrap, name, folder = sys.argv[1:]
    topic = Topic(bootstrap, name)
    root = Path(folder) / "lake"
    with session("test", "local[2,4]") as spark:
        archive(
            ParquetFormat(DirectoryStore(root)),
            settings_for(topic, 1 << 30),
            killing(spark, topic, root, Path(folder) / "armed"),
        )


if __name__ == "__main__":
    main()
