"""The judges of the trials see what is lost, doubled or foreign, and which attempts lived at the same time."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.faults.drivers import committed_files, moments
from spark.faults.rows import Difference, compared
from spark.faults.speculation import attempts_in, overlapping


def file_of(path: Path, *rows: tuple[bytes | None, bytes]) -> Path:
    columns = {"key": pa.array([row[0] for row in rows], pa.binary()), "value": [row[1] for row in rows]}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ([(b"a", b"1"), (None, b"2")], Difference(2, 0, 0, 0)),
        ([(b"a", b"1")], Difference(1, 1, 0, 0)),
        ([(b"a", b"1"), (None, b"2"), (None, b"2")], Difference(3, 0, 1, 0)),
        ([(b"a", b"1"), (b"", b"2")], Difference(2, 1, 0, 1)),
        ([], Difference(0, 2, 0, 0)),
    ],
)
def test_rows_are_compared_one_by_one(
    found: list[tuple[bytes | None, bytes]], difference: Difference, tmp_path: Path
) -> None:
    expected = file_of(tmp_path / "expected", (b"a", b"1"), (None, b"2"))
    files = [file_of(tmp_path / "found", *found)] if found else []
    assert compared(expected, files, ("key", "value")) == difference
    assert difference.is_exact == (difference == Difference(2, 0, 0, 0))


def ended(task: int, host: str, times: tuple[int, int], *, speculative: bool = False, stage: int = 0) -> str:
    info: dict[str, Any] = {"Index": task, "Host": host, "Launch Time": times[0], "Finish Time": times[1]}
    info |= {"Speculative": speculative, "Killed": False}
    return json.dumps({"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Info": info})


def test_attempts_that_lived_at_once_are_found_in_the_log_of_events() -> None:
    log = [
        json.dumps({"Event": "SparkListenerLogStart"}),
        ended(0, "a", (0, 10)),
        ended(1, "a", (0, 20)),
        ended(1, "b", (12, 18), speculative=True),
        ended(2, "a", (0, 5)),
        ended(2, "b", (6, 9), speculative=True),  # behind the other's end
        ended(3, "a", (0, 20)),
        ended(3, "a", (5, 9), speculative=True),  # on the same host
        ended(1, "b", (13, 14), speculative=True, stage=1),  # alone
    ]
    assert [(first.task, first.host, second.host) for first, second in overlapping(attempts_in(log))] == [(1, "a", "b")]


def test_a_seed_gives_the_same_moments_again() -> None:
    first, second = moments(7), moments(7)
    assert [next(first) for _ in range(20)] == [next(second) for _ in range(20)]


def test_files_of_a_stream_are_those_that_its_sink_has_committed(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name in ("part-0", "part-1", "part 2", "lost"):
        (tmp_path / f"{name}.parquet").touch()
    entry = '{{"path":"file://{}/{}.parquet","action":"add"}}'
    (log / "0").write_text("v1\n" + entry.format(tmp_path, "part-0"))
    (log / "1.compact").write_text(
        "v1\n" + "\n".join(entry.format(tmp_path, name) for name in ("part-0", "part-1", "part%202"))
    )
    assert [path.name for path in committed_files(tmp_path)] == ["part 2.parquet", "part-0.parquet", "part-1.parquet"]
