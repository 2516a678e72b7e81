"""Spark's own Kafka source beside ours, over topics that are written once."""

import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from .sources import Pair
from .topics import Topics, write_topics


@pytest.fixture(scope="session")
def pair(spark_with_connector: SparkSession, cluster: Any) -> Pair:
    return Pair(spark_with_connector, cluster.bootstrap)


@pytest.fixture(scope="session")
def topics(cluster: Any) -> Topics:
    # Recent, so that no broker takes the records for older than its retention allows.
    return write_topics(cluster.bootstrap, time.time_ns() // 1_000_000 - 3_600_000)
