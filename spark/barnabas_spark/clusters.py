"""Keeps the clusters of a Python worker open, on an event loop in a thread.

Spark calls sources from ordinary blocking code, and reuses a worker process for many tasks. So two costly things live
in module globals: a daemon thread that runs an asyncio loop, and the `Cluster`s that are open in it, by their settings.
So are the producers of the sink (writing/producers.py), which have clusters of their own.
Blocking code hands coroutines to the loop and waits with a deadline.

Limits: `CLUSTERS_MAX` clusters stay open; the least recently used one is closed for another. The client limits the
connections within a cluster. Every wait has a deadline. If the waiter gives up, the coroutine is cancelled.

A forked child has no loop thread, even if the parent has one, and starts its own.
"""

import asyncio
import atexit
import concurrent.futures
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, NamedTuple, TypeVar

from barnabas_clients.cluster.cluster import Cluster
from barnabas_spark.options.reads import ReadOptions

__all__ = ["close_all", "cluster_for", "forget", "kept", "result", "run", "submit", "task_client_id"]

T = TypeVar("T")

CLUSTERS_MAX = 8
# A blocking wait is so much longer than the deadline inside, whose error says more.
GRACE_S = 5.0


class _Key(NamedTuple):
    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    connecting_timeout_ms: int


class _Worker:
    """The loop thread of this process. Only the loop touches `clusters`, which has the oldest use first."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.clusters: dict[Hashable, asyncio.Task[Any]] = {}
        self.thread = threading.Thread(target=self.loop.run_forever, name="barnabas-spark", daemon=True)
        self.thread.start()


_worker: _Worker | None = None
_starting = threading.Lock()


def _this_process() -> _Worker:
    global _worker  # noqa: PLW0603 - the one place that makes it
    with _starting:
        if _worker is None or _worker.pid != os.getpid():
            _worker = _Worker()
        return _worker


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Start a coroutine on the loop. Cancelling the future cancels it."""
    return asyncio.run_coroutine_threadsafe(coroutine, _this_process().loop)


def result(future: concurrent.futures.Future[T], timeout_s: float) -> T:
    """Wait for a submitted coroutine, a little longer than its own deadline `timeout_s`.

    Raises:
        TimeoutError: neither a result nor an error came; the coroutine is cancelled.
    """
    try:
        return future.result(timeout_s + GRACE_S)
    except concurrent.futures.TimeoutError:
        if future.done():
            raise
        future.cancel()
        raise TimeoutError(f"nothing came within {timeout_s:g} s (kafkaConsumer.pollTimeoutMs)") from None


def run(coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Run a coroutine that keeps the deadline `timeout_s` itself, and return its result."""
    return result(submit(coroutine), timeout_s)


async def cluster_for(options: ReadOptions, *, is_driver: bool) -> Cluster:
    """Return an open cluster, connecting if this process has none for these options. Call it on the loop.

    Raises:
        ClientError: no bootstrap server answers.
    """
    client_id = f"barnabas-spark-driver-{os.getpid()}" if is_driver else task_client_id()
    connecting_timeout_ms = min(options.request_timeout_ms, options.poll_timeout_ms)
    key = _Key(options.bootstrap_servers, client_id, options.request_timeout_ms, connecting_timeout_ms)
    cluster: Cluster = await kept(key, lambda: _open(key))
    return cluster


async def kept(key: Hashable, open_one: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return what `open_one` opens, or what this process has open under this key. Call it on the loop.

    It has a coroutine `close`, which is called when the process ends, or when others have been used later.
    """
    clusters = _this_process().clusters
    opening = clusters.pop(key, None)
    if opening is None:
        opening = asyncio.create_task(open_one())
    clusters[key] = opening
    while len(clusters) > CLUSTERS_MAX:
        await _close(clusters.pop(next(iter(clusters))))
    try:
        return await asyncio.shield(opening)
    except BaseException:
        if clusters.get(key) is opening and opening.done():
            del clusters[key]
        raise


def forget(key: Hashable) -> None:
    """Open another one at the next use of this key. The caller closes this one. Call it on the loop."""
    _this_process().clusters.pop(key, None)


def task_client_id() -> str:
    """Return the name that brokers see of a worker process."""
    return f"barnabas-spark-{socket.gethostname()}-{os.getpid()}"


def close_all() -> None:
    """Close every connection of this process and end its loop thread. The next use starts anew."""
    global _worker
    with _starting:
        worker, _worker = _worker, None
    if worker is None or worker.pid != os.getpid():
        return

    async def close() -> None:
        await asyncio.gather(*(_close(opening) for opening in worker.clusters.values()))

    asyncio.run_coroutine_threadsafe(close(), worker.loop).result(GRACE_S)
    worker.loop.call_soon_threadsafe(worker.loop.stop)
    worker.thread.join(GRACE_S)
    worker.loop.close()


atexit.register(close_all)


async def _open(key: _Key) -> Cluster:
    cluster = Cluster(
        key.bootstrap_servers,
        client_id=key.client_id,
        request_timeout_s=key.request_timeout_ms / 1000,
        timeout_s=key.connecting_timeout_ms / 1000,
    )
    return await cluster.__aenter__()


async def _close(opening: "asyncio.Task[Any]") -> None:
    opening.cancel()
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().close()
