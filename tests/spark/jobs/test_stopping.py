"""An archive that is asked to stop ends behind a commit, and its positions stand in a group for tools that show lag."""

import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from spark.lake.produced import PARTITIONS, Topic, expected_rows, file_rows, new_topic, produce
from spark.lake.sweep import in_process, settings_for

from barnabas_spark.jobs import archiving, cli
from barnabas_spark.jobs.positions import GroupPositions
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.store import DirectoryStore

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(90))
    return made


def positions_of(bootstrap: str, group: str) -> dict[int, int]:
    """Return the positions that a group has in the topic of its name."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        stored = consumer.committed([TopicPartition(group, each) for each in range(PARTITIONS)], 30)
        return {one.partition: one.offset for one in stored}
    finally:
        consumer.close()


def table_of(root: Path) -> ParquetFormat:
    return ParquetFormat(DirectoryStore(root))


def test_a_run_that_is_asked_to_stop_ends_behind_the_commit_of_its_round(topic: Topic, tmp_path: Path) -> None:
    settings = settings_for(topic)
    store = DirectoryStore(tmp_path)
    write = in_process(store, settings)
    rounds = 0

    def run(pieces: Any) -> Any:
        nonlocal rounds
        rounds += 1
        return write(pieces)

    stopped = archive(ParquetFormat(store), settings, run, should_stop=lambda: rounds == 2)
    assert (rounds, stopped.rounds) == (2, 2)
    assert stopped.left > 0
    spans = table_of(tmp_path).load().spans
    assert sum(one[-1].end_offset for one in spans.values()) == 90 - stopped.left
    done = archive(ParquetFormat(store), settings, write)
    assert done.left == 0
    assert file_rows(tmp_path, table_of(tmp_path).files(table_of(tmp_path).load())) == expected_rows(topic, range(90))


@pytest.mark.spark
def test_a_single_run_that_did_not_get_to_the_end_says_so_and_its_status_is_not_0(
    spark: Any, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tell = archiving._tell

    def told(*given: Any) -> None:
        tell(*given)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(archiving, "_tell", told)
    words = ["archive", topic.name, "--to", str(tmp_path / "lake"), "-b", topic.bootstrap, "--group", topic.name]
    assert cli.main(words) == 130
    assert "asked to stop: 90 offsets left\n" in capfd.readouterr().err
    assert table_of(tmp_path / "lake").load().version == 0
    assert positions_of(topic.bootstrap, topic.name) == dict.fromkeys(range(PARTITIONS), 0)
    monkeypatch.setattr(archiving, "_tell", tell)
    assert cli.main(words) == 0
    assert positions_of(topic.bootstrap, topic.name) == dict.fromkeys(range(PARTITIONS), 30)


def test_a_backfill_has_no_position(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["archive", "t", "--to", "x", "--group", "g", "--from-offset", "5"]) == 2
    assert "--group shows the end of the table" in capfd.readouterr().err


def test_a_group_with_members_is_complained_of_once_and_stops_nothing(
    topic: Topic, capfd: pytest.CaptureFixture[str]
) -> None:
    member = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": topic.name, "auto.offset.reset": "earliest"})
    try:
        member.subscribe([topic.name])
        assert member.consume(1, 30)
        positions = GroupPositions(settings_for(topic).options, topic.name, topic.name)
        positions.store({0: 5})
        positions.store({0: 6})
    finally:
        member.close()
    assert capfd.readouterr().err == (
        f"barnabas-spark: the positions were not stored in group {topic.name}: "
        "it has members; name a group that nobody else uses\n"
    )
    positions.store({0: 7})
    assert positions_of(topic.bootstrap, topic.name)[0] == 7
