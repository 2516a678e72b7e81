"""A sink on the shared brokers."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from .sink import Sink


@pytest.fixture
def sink(spark: SparkSession, cluster: Any) -> Sink:
    return Sink(spark, cluster.bootstrap)
