"""Fixtures of all tests: a real cluster, Hypothesis without chance, and a search for leftovers."""

import gc
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from machines import cluster_handle

from barnabas_broker.replicas import retention

# The same examples in every run: a failure here is never "flaky", and `scripts/sim` is where chance looks for more.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

# Tests of these calculate: in one process, without a port, in simulated time. One of two workers of pytest-xdist runs
# what starts brokers, one test at a time; the other one Spark's tests, which share a session and brokers, and these.
CALCULATING = ("clients/protocol", "fuzzing", "metadata_quorum", "raftlog", "seams", "sim", "test_architecture.py")

if WORKER := os.environ.get("PYTEST_XDIST_WORKER", ""):
    # A folder of its own for each worker, and a short one, because the path of a Unix socket may have 107 bytes.
    os.environ["TMPDIR"] = tempfile.tempdir = f"{tempfile.gettempdir()}/{WORKER}"
    Path(tempfile.tempdir).mkdir(exist_ok=True)


def pytest_configure(config: pytest.Config) -> None:
    if WORKER:
        config.option.basetemp = Path(tempfile.gettempdir(), "t")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what divides tests: in files if they calculate, those of Spark together, and all others together."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByKind(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = Path(nodeid.partition("::")[0]).relative_to("tests")
            if any(path.is_relative_to(folder) for folder in CALCULATING):
                return str(path)
            return "spark" if path.is_relative_to("spark") else "others"

    return ByKind(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what is no text: a worker cannot hand over a log line with half a character in it."""
    report = yield
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    return report


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Set up first, so torn down last: no process that works in this run's temporary folder may outlive the run.

    `scripts/test` gives each run a folder of its own. Without it the folder is everybody's, and says nothing.
    """
    yield
    if "TMPDIR" not in os.environ:
        return
    left = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # It ended meanwhile.
        if f"{tempfile.gettempdir()}/" in command and "barnabas_broker" in command:
            left.append(command)
    assert not left, f"still running: {left}"


@pytest.fixture(scope="session", autouse=True)
def old_records_stay() -> Iterator[None]:
    """Let brokers in this process look for expired records after five minutes, not for the first time after half a one.

    Many tests write records of 1970. How long the brokers of a module live depends on the machine.
    """
    with mock.patch.object(retention, "FIRST_ROUND_MS", 300_000):
        yield


@pytest.fixture(scope="module", autouse=True)
def out_of_the_collectors_sight() -> None:
    """Let the collector look at nothing older than this module, as a broker does with all that it has when it starts.

    The tests alone are 600,000 objects. To look through them takes 0.3 to 0.8 s, and brokers in this process stand
    still: longer than an election takes, so they lead nothing until a majority has confirmed them, and say so to who
    asks.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def cluster() -> Iterator[cluster_handle.ClusterHandle]:
    """Three brokers, started as a user starts them, shared by every test that harms none of them."""
    # Some write records of long ago, and read them later; some use what is not finished.
    settings = {"log.retention.ms": "-1", "unstable.api.versions.enable": "true"}
    with cluster_handle.cluster(settings=settings) as brokers:
        yield brokers
