"""One Spark session for all tests: a JVM takes seconds to start, and a process has only one."""

import os
import sys
import warnings
from collections.abc import Iterator

import pyspark
import pytest
from bench import systems
from machines.cache import NotInstalledError
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def connector() -> str:
    """Return the class path of Spark's own Kafka connector; empty if there is none of this version of Spark.

    The tests that need it fail or are left out then (`spark_with_connector`). All others can do without.
    """
    try:
        return os.pathsep.join(map(str, systems.install_spark_kafka(pyspark.__version__)))
    except NotInstalledError:
        return ""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**SETTINGS, "spark.driver.extraClassPath": connector()}.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # The JVM keeps the environment that it starts with, and so do the workers that it forks: they find the source's
        # packages only there. Nobody else is to see it.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
            patch.setenv("PYSPARK_PYTHON", sys.executable)
            patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def spark_with_connector(spark: SparkSession) -> SparkSession:
    """The session, in which `format("kafka")` can be used. That it cannot is a failure where CI is set."""
    if "spark-sql-kafka" not in (spark.conf.get("spark.driver.extraClassPath", "") or ""):
        reason = "needs Spark's Kafka connector of this version of PySpark, which Maven (mvn) fetches once"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return spark
