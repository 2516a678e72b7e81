"""`compact` keeps the latest record of each key, once, however often it runs."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from spark.jobs.demo_input import produce_all, source
from spark.lake.produced import Topic, new_topic

from barnabas_spark.jobs import cli
from barnabas_spark.latest.read import read_latest

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

NOW_MS = int(time.time() * 1000)


def changes(share: slice) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return a part of the demo's input as a changelog: timestamps go back, and every seventh line deletes its key."""
    lines = list(source())[share]
    return [
        (None if number % 11 == 0 else name, None if number % 7 == 0 else line, NOW_MS - number)
        for number, (name, line) in enumerate(lines, share.start or 0)
    ]


def expected(records: list[tuple[bytes | None, bytes | None, int]]) -> dict[bytes, bytes]:
    kept: dict[bytes, bytes | None] = {key: value for key, value, _ in records if key is not None}
    return {key: value for key, value in kept.items() if value is not None}


def run(topic: Topic, location: Path, kind: str, capfd: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    capfd.readouterr()
    words = ["compact", topic.name, "--to", str(location), "--format", kind, "-b", topic.bootstrap, "--json", *more]
    assert cli.main(words) == 0, capfd.readouterr().err
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def latest(spark: Any, location: Path, kind: str) -> dict[bytes, bytes]:
    rows = read_latest(spark, str(location), table_format=kind).select("key", "value").collect()
    found = {bytes(row.key): bytes(row.value) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_the_table_of_the_demos_input_is_what_a_dict_says(
    spark: Any, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    topic = new_topic(cluster.bootstrap)
    records = changes(slice(0, 2000))
    produce_all(topic, records)
    table = tmp_path / "latest"
    first = run(topic, table, kind, capfd)
    assert sum(one["read"] for one in first) == 2000
    assert sum(one["null_keys"] for one in first) == sum(key is None for key, _, _ in records)
    assert latest(spark, table, kind) == expected(records)
    # Nothing is new: nothing is read, and nothing changes.
    again = run(topic, table, kind, capfd)
    assert [(one["read"], one["files"]) for one in again] == [(0, 0)] * 3
    more = changes(slice(2000, 3000))
    produce_all(topic, more)
    assert sum(one["read"] for one in run(topic, table, kind, capfd)) == 1000
    assert latest(spark, table, kind) == expected(records + more)
