"""The loop thread of a worker: made when needed, shared, bounded, gone when closed."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas_clients.errors import DeadlineExceededError
from barnabas_spark import clusters as connections
from barnabas_spark.options.reads import ReadOptions, parse_read_options


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()
    assert "barnabas-spark" not in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Yield a port that is taken and where nobody listens."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield deaf.getsockname()[1]


def options(port: int, limit: str) -> ReadOptions:
    return parse_read_options({"kafka.bootstrap.servers": f"127.0.0.1:{port}", "subscribe": "t", limit: "50"})


async def thread_name() -> str:
    return threading.current_thread().name


def test_coroutines_run_on_one_thread_for_the_process() -> None:
    assert connections.run(thread_name(), 5) == "barnabas-spark"
    assert [thread.name for thread in threading.enumerate()].count("barnabas-spark") == 1


def test_a_cancelled_future_cancels_its_coroutine() -> None:
    started, ended = threading.Event(), threading.Event()

    async def wait_for_ever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    future = connections.submit(wait_for_ever())
    assert started.wait(5)
    future.cancel()
    assert ended.wait(5)


@pytest.mark.parametrize("limit", ["kafka.request.timeout.ms", "kafkaConsumer.pollTimeoutMs"])
def test_nobody_at_the_bootstrap_servers_is_said_within_the_deadline_and_not_remembered(
    deaf_port: int, limit: str
) -> None:
    for _ in range(2):
        with pytest.raises(DeadlineExceededError, match="connecting"):
            connections.run(connections.cluster_for(options(deaf_port, limit), is_driver=True), 5)
        assert not connections._this_process().clusters


def test_a_fork_starts_its_own_thread() -> None:
    parent = connections._this_process()
    parent.pid = os.getpid() + 1  # as a forked child finds it
    assert connections._this_process() is not parent
    parent.loop.call_soon_threadsafe(parent.loop.stop)
    parent.thread.join(5)
    parent.loop.close()
