"""Starts the Spark session of a job, or takes the one that is there (`spark-submit`, a notebook)."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.shipping import ship

__all__ = ["LOCAL", "SessionError", "session"]

LOCAL = "local[*]"
_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


class SessionError(BarnabasError):
    """Spark does not start: no master is there, or it gave the job up."""


@contextmanager
def session(name: str, master: str = "") -> Iterator[Any]:
    """Yield a session on `master`, else as Spark is configured, else on all cores. Stop it if it was started here.

    The executors of a cluster get our packages.

    Raises:
        SessionError: there is none to be had.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with PySpark
    from pyspark import SparkConf  # noqa: PLC0415 - starts nothing, and takes a second
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see above

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    chosen = master or SparkConf().get("spark.master", "") or LOCAL
    builder: Any = SparkSession.builder.appName(f"barnabas-spark {name}").master(chosen)
    if chosen.startswith("local"):
        builder = builder.config("spark.ui.enabled", "false")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    try:
        with _environment(is_local=chosen.startswith("local")):
            spark = builder.getOrCreate()
    except Py4JJavaError as error:
        reason = str(error.java_exception).split("\n", 1)[0]
        raise SessionError(f"Spark did not start on {chosen}: {reason}") from error
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="barnabas-spark-") as folder:
        try:
            if not chosen.startswith("local"):
                ship(spark.sparkContext, Path(folder))
            yield spark
        finally:
            spark.stop()


@contextmanager
def _environment(*, is_local: bool) -> Iterator[None]:
    """Let the JVM start with the variables by which its workers find what this process has, and nobody else see them.

    It keeps the environment that it starts with, and so do the workers that it forks.
    """
    ours = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ours["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if is_local:
        ours["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
