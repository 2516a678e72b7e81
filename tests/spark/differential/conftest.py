"""Spark's own Kafka source beside ours, over topics that are written once."""

import os
import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from .sources import Pair
from .topics import Topics, write_topics


@pytest.fixture(scope="session")
def pair(spark: SparkSession, cluster: Any) -> Pair:
    if "spark-sql-kafka" not in (spark.conf.get("spark.driver.extraClassPath", "") or ""):
        reason = "needs Spark's Kafka connector of this version of PySpark, which Maven (mvn) fetches once"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return Pair(spark, cluster.bootstrap)


@pytest.fixture(scope="session")
def topics(cluster: Any) -> Topics:
    # Recent, so that no broker takes the records for older than its retention allows.
    return write_topics(cluster.bootstrap, time.time_ns() // 1_000_000 - 3_600_000)
