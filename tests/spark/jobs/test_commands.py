"""The commands on Spark, over a share of the demonstration's input, against computations that share no code."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from demonstration.source import Source
from spark.lake.produced import Topic, new_topic
from spark.lake.sweep import FILES, in_process, settings_for

from barnabas_spark.jobs import cli
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import RECORD_SCHEMA, Layout
from barnabas_spark.lake.store import DirectoryStore

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

LINES = 3000
PARTITIONS = 3
FIRST_MS = 1_790_000_000_000


class Landed(NamedTuple):
    """A topic with lines of source code, and its table, which is partitioned by hours."""

    topic: Topic
    root: Path


@pytest.fixture(scope="module")
def landed(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    topic = new_topic(cluster.bootstrap, PARTITIONS)
    producer = Producer({"bootstrap.servers": topic.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5})
    for number, (key, value) in enumerate(Source(LINES)):
        headers = [("line", str(number).encode()), ("none", None)] if number % 3 == 0 else None
        # Three hours, and every tenth line is earlier than the one before.
        at = FIRST_MS + number * 3600 - (number % 10 == 9) * 20_000
        producer.produce(topic.name, key=key, value=value or None, headers=headers, timestamp=at)
    assert producer.flush(60) == 0
    root = tmp_path_factory.mktemp("landed") / "lake"
    store, settings = DirectoryStore(root), settings_for(topic, 60_000)
    files = FILES._replace(partition_by="hour", file_bytes=1 << 20, folder="_data/")
    table = ParquetFormat(store, Layout(RECORD_SCHEMA, "hour"))
    archive(table, settings, in_process(store, settings, files), wait=lambda _: None)
    return Landed(topic, root)


def consumed(topic: Topic) -> list[list[tuple[Any, ...]]]:
    """Return the records of each partition, as another client reads them."""
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic.name, each, 0) for each in range(PARTITIONS)])
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(PARTITIONS)]
    ended = 0
    while ended < PARTITIONS:
        record = consumer.poll(30)
        if record.error():
            ended += 1
        else:
            found[record.partition()].append(
                (record.offset(), record.key(), record.value(), record.headers(), record.timestamp())
            )
    consumer.close()
    return found


def run(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    capfd.readouterr()
    status = cli.main(words)
    return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_the_audit_says_what_others_compute(
    spark: Any, landed: Landed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = landed.topic
    report = tmp_path / "report.html"
    words = ["audit", topic.name, "--lake", str(landed.root), "--bootstrap-server", topic.bootstrap]
    status, said = run([*words, "--report", str(report), "--json"], capfd)
    assert status == 0
    with duckdb.connect() as connection:
        rows = connection.execute(
            'select "partition", count(*), count(distinct "offset"), min("offset"), max("offset") + 1, sum(back) from '
            '(select "partition", "offset", '
            'cast("timestamp" < lag("timestamp") over (partition by "partition" order by "offset") as int) back '
            "from read_parquet(?)) group by 1 order by 1",
            [str(landed.root / "_data/**/*.parquet")],
        ).fetchall()
    assert [
        (one["partition"], one["rows"], one["rows"], one["start_offset"], one["end_offset"], one["steps_back"])
        for one in said
        if one["rows"]
    ] == rows
    assert sum(row[1] for row in rows) >= LINES
    assert all(one["claims_proved"] == one["claims"] and one["log_proved"] == one["log_units"] for one in said)
    assert sum(one["claims"] for one in said) > PARTITIONS
    assert report.read_text().count("<svg") == 4


@pytest.mark.parametrize("partitions", ["keep", "by-key"])
def test_a_topic_is_filled_from_the_lake_as_it_was(
    partitions: str, spark: Any, landed: Landed, capfd: pytest.CaptureFixture[str]
) -> None:
    """By key, too: another producer has chosen the partitions of these keys in the same way."""
    target = new_topic(landed.topic.bootstrap, PARTITIONS)
    words = ["backfill", target.name, "--from", str(landed.root), "-b", target.bootstrap, "--partitions", partitions]
    status, said = run([*words, "--json"], capfd)
    assert status == 0
    expected = consumed(landed.topic)
    assert Counter({one["partition"]: one["written"] for one in said}) == Counter(
        {each: len(rows) for each, rows in enumerate(expected)}
    )
    assert consumed(target) == expected
    assert cli.main(words) == 1
    assert f"{target.name} is not empty; --append writes behind what it has" in capfd.readouterr().err
    assert cli.main([*words, "--resume"]) == 1
    assert "was begun and not ended; leave --resume out" in capfd.readouterr().err


def test_parts_of_the_lake_are_written_one_behind_the_other(
    spark: Any, landed: Landed, capfd: pytest.CaptureFixture[str]
) -> None:
    """By offsets, then by times, the second one behind what the first one has written."""
    target = new_topic(landed.topic.bootstrap, PARTITIONS)
    words = ["backfill", target.name, "--from", str(landed.root), "-b", target.bootstrap, "--json"]
    since, until = FIRST_MS + 1_000 * 3600, FIRST_MS + 2_000 * 3600
    assert run([*words, "--from-offset", "100", "--to-offset", "300"], capfd)[0] == 0
    assert run([*words, "--append", "--from-time", str(since), "--to-time", str(until)], capfd)[0] == 0
    expected = [
        [row[1:] for row in rows if 100 <= row[0] < 300] + [row[1:] for row in rows if since <= row[4][1] < until]
        for rows in consumed(landed.topic)
    ]
    found = consumed(target)
    assert [[row[1:] for row in rows] for rows in found] == expected
    assert [[row[0] for row in rows] for rows in found] == [[*range(len(rows))] for rows in expected]


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["audit"], 2, "Missing argument 'TOPIC'"),
        (["audit", "t", "--lake", "/nowhere", "--format", "orc"], 2, "--format: 'orc' is not known"),
        (["audit", "t", "--lake-only"], 2, "--lake-only needs --lake"),
        (["audit", "t", "--lake", "x", "--report", "/nowhere/r.html"], 2, "--report: the directory of"),
        (["backfill", "t"], 2, "Missing option '--from'"),
        (["backfill", "t", "--from", "x", "--append", "--resume"], 2, "--append begins a back-fill"),
        (["backfill", "t", "--from", "x", "--from-time", "noon"], 2, "--from-time: 'noon' is not a time; write 2026"),
        (["backfill", "t", "--from", "x", "--from-offset", "9", "--to-offset", "9"], 2, "--from-offset must be before"),
        (["backfill", "t", "--from", "x", "--partitions", "all"], 2, "--partitions: 'all' is not known"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_one_line(
    words: list[str], status: int, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == status
    assert capfd.readouterr().err.startswith(f"barnabas-spark: {complaint}")


def test_a_lake_that_is_not_there_is_one_line(spark: Any, landed: Landed, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", landed.topic.name, "--lake", "/nowhere", "-b", landed.topic.bootstrap]) == 1
    assert capfd.readouterr().err == "barnabas-spark: there is no table at /nowhere; --format says what to look for\n"
