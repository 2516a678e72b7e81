"""Spark's own Kafka connector on the brokers that all tests share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from .own import Own, Progress


@pytest.fixture
def own(spark_with_connector: SparkSession, cluster: Any, tmp_path: Path) -> Iterator[Own]:
    yield Own(spark_with_connector, cluster.bootstrap, tmp_path)
    for query in spark_with_connector.streams.active:
        query.stop()


@pytest.fixture
def progress(spark_with_connector: SparkSession) -> Iterator[Progress]:
    listener = Progress()
    spark_with_connector.streams.addListener(listener)
    yield listener
    spark_with_connector.streams.removeListener(listener)
