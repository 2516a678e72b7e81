"""A session's JVM and its workers find what the job's process has, and no other process is told."""

import os
import sys

import pytest

from barnabas_spark.jobs.session import _environment


def test_variables_are_there_while_the_jvm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.9")
    before = dict(os.environ)
    with _environment(is_local=True):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [path for path in sys.path if path]
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.9", "who has said so knows better"
        os.environ["PYSPARK_GATEWAY"] = "set by PySpark"
    assert os.environ.pop("PYSPARK_GATEWAY") == "set by PySpark"
    assert dict(os.environ) == before


@pytest.mark.parametrize("is_local", [True, False])
def test_only_a_session_of_this_machine_is_bound_to_it(monkeypatch: pytest.MonkeyPatch, is_local: bool) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with _environment(is_local=is_local):
        assert os.environ.get("SPARK_LOCAL_IP") == ("127.0.0.1" if is_local else None)
    assert "SPARK_LOCAL_IP" not in os.environ
