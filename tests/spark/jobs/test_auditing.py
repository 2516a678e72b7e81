"""The command `audit`, on a session of Spark's and real brokers."""

from pathlib import Path
from typing import Any

import pytest
from spark.lake.produced import Topic, new_topic, produce

from barnabas_spark.jobs import cli

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(90))
    return made


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_lake_that_is_sound_is_proved(
    kind: str, spark: Any, topic: Topic, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["archive", topic.name, "--to", str(tmp_path / "lake"), "-b", topic.bootstrap, "--format", kind]
    assert cli.main([*words, "--partition-by", "hour"]) == 0
    capfd.readouterr()
    words = ["audit", topic.name, "--lake", str(tmp_path / "lake"), "-b", topic.bootstrap]
    status = cli.main([*words])
    print(capfd.readouterr())
    assert status == 0
