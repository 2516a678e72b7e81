"""Fixtures of all tests: a real cluster, Hypothesis without chance, and a search for leftovers."""

import gc
import hashlib
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

# Two workers of pytest-xdist do one piece of work after the other. The longest one is all that starts brokers and looks
# at what they do, one test at a time. Beside it run folders whose brokers are only used: Spark's tests, which share a
# session, the examples of the pages, wheels, which are built for the most part, and other people's clients.
BESIDE = ("spark", "docs", "packages", "interop")
# Tests of these calculate, or talk to a server of their own that needs no time: each file is a piece.
CALCULATING = (
    "broker/access",
    "broker/config",
    "broker/coordinators/groups/consumer/test_assignors.py",
    "broker/coordinators/groups/consumer/test_topics.py",
    "broker/coordinators/groups/staging/test_staging.py",
    "broker/coordinators/groups/state_machine",
    "broker/coordinators/groups/test_many.py",
    "broker/coordinators/groups/test_mutants.py",
    "broker/coordinators/groups/test_shard.py",
    "broker/coordinators/runtime",
    "broker/coordinators/test_patterns.py",
    "broker/coordinators/transactions",
    "broker/history",
    "broker/partition",
    "broker/status",
    "broker/timing",
    "clients",
    "fuzzing",
    "metadata_quorum",
    "process/scripts",
    "raftlog",
    "seams",
    "sim",
    "test_architecture.py",
)
STARTING_BROKERS = (  # all the same, though they lie in one of those folders
    "broker/coordinators/transactions/live",
    "broker/partition/test_log_start.py",
    "broker/partition/test_racks.py",
    "broker/partition/test_uncommitted_tail.py",
    "clients/groups/test_frozen_coordinator.py",
    "clients/live",
    "clients/outages",
    "clients/producer/test_failover.py",
)
# What takes long must not come last, when the other worker is idle.
FIRST = ("others", *BESIDE, "sim", "seams")


def piece(path: Path) -> str:
    """Name the piece of work that a file below tests/ belongs to."""
    if any(map(path.is_relative_to, CALCULATING)) and not any(map(path.is_relative_to, STARTING_BROKERS)):
        return str(path)
    return path.parts[0] if path.parts[0] in BESIDE else "others"


def place_in_line(piece: str) -> int:
    """Say how many kinds of pieces go before this one. Of one kind, that with the most tests is the first."""
    return next((place for place, first in enumerate(FIRST) if Path(piece).is_relative_to(first)), len(FIRST))


if WORKER := os.environ.get("PYTEST_XDIST_WORKER", ""):
    # A folder of its own for each worker, and a short one, because the path of a Unix socket may have 107 bytes.
    os.environ["TMPDIR"] = tempfile.tempdir = f"{tempfile.gettempdir()}/{WORKER}"
    Path(tempfile.tempdir).mkdir(exist_ok=True)


def pytest_configure(config: pytest.Config) -> None:
    if WORKER:
        config.option.basetemp = Path(tempfile.gettempdir(), "t")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python's collector rest: all that is made here stays, and to look through it again and again is a third."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what divides tests into pieces, and hands out a long one before a short one."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByKind(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return piece(Path(nodeid.partition("::")[0]).relative_to("tests"))

        def _assign_work_unit(self, node: Any) -> None:
            self.workqueue.move_to_end(min(self.workqueue, key=place_in_line), last=False)
            super()._assign_work_unit(node)

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


@pytest.fixture
def own_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has. Other fixtures use it: a test may have a parameter `name`."""
    return "t" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]


@pytest.fixture
def name(own_name: str) -> str:
    """The same, for tests."""
    return own_name


@pytest.fixture(scope="session")
def cluster() -> Iterator[cluster_handle.ClusterHandle]:
    """Three brokers, started as a user starts them, shared by every test that harms none of them."""
    # Some write records of long ago, and read them later.
    settings = {"log.retention.ms": "-1"}
    with cluster_handle.cluster(settings=settings) as brokers:
        yield brokers
