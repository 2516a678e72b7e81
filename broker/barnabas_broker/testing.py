"""Real brokers in the caller's process, for tests and notebooks.

    async with Cluster(brokers=3) as cluster:
        client = connect(cluster.bootstrap)

The brokers run on the caller's event loop, on free ports of 127.0.0.1, which stay theirs while one of them is stopped,
with their data in a temporary directory that goes when the cluster does. A client that blocks must live in another
thread, or use `RunningCluster`, which keeps the loop in a thread of its own:

    with RunningCluster(brokers=1) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

The network between the brokers takes as long as `link_delay_ms` says, one way, and up to `link_jitter_ms` longer:

    async with Cluster(brokers=3, link_delay_ms=10, link_jitter_ms=2) as cluster: ...
    async with Cluster(brokers=3, link_delay_ms={(1, 2): 50}) as cluster: ...  # what 1 sends to 2, and nothing else

Clients reach every broker at once, whatever it says.

Not here: killing a broker the hard way. Within one process no broker dies; use `barnabas cluster start` for that.
"""

import asyncio
import contextlib
import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas_broker.config.broker import BrokerConfig
from barnabas_raftlog.links.link_delay import LinkDelay

from .environment import NodeEnvironment
from .node import Node

__all__ = ["Cluster", "RunningCluster", "Ways"]

T = TypeVar("T")
Ways = float | Mapping[tuple[int, int], float]
"""Milliseconds of every way between two brokers, or of each (from, to); those that are not named take none."""

START_TIMEOUT_S = 30.0
REPORTED_EVENTS = 20
SMALL = {
    "log.journal.file.bytes": 16 << 20,
    "log.segment.bytes": 64 << 20,
    "log.retention.ms": -1,
    "max.connections": 1_000,
}
"""Tests start many brokers, write little, and want to find again what they wrote, whatever its timestamps.

They have few clients. More connections than the process may open are a warning, which a user's tests should not show.
"""


class Cluster:
    """Brokers 1 to `brokers` of one cluster; `nodes` has those that run.

    `settings` apply to each of them; broker i stands in `racks[i - 1]`, if there are as many. A `link_delay_ms` or
    `link_jitter_ms` below 0 or above 10 s is a ValueError.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        directory: Path | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        racks: Sequence[str] = (),
        link_delay_ms: Ways = 0.0,
        link_jitter_ms: float = 0.0,
    ) -> None:
        self._delays = {i + 1: _delay_of(i + 1, link_delay_ms, link_jitter_ms) for i in range(brokers)}
        self.nodes: dict[int, Node] = {}
        self._own_directory = directory is None
        self._directory = directory if directory is not None else Path(tempfile.mkdtemp(prefix="barnabas-"))
        self._held = contextlib.ExitStack()
        ports = [_hold_free_port(self._held) for _ in range(2 * brokers)]
        try:
            self.configs = self._configs(ports, dict(settings or {}), racks)
        except BaseException:
            self._held.close()
            if self._own_directory:
                shutil.rmtree(self._directory)
            raise

    def _configs(
        self, ports: Sequence[int], settings: dict[str, str | int | bool], racks: Sequence[str]
    ) -> dict[int, BrokerConfig]:
        brokers = len(ports) // 2
        addresses = {f"cluster.nodes.{i + 1}": f"127.0.0.1:{ports[brokers + i]}" for i in range(brokers)}
        return {
            i + 1: BrokerConfig.from_settings(
                SMALL
                | addresses
                | {
                    "node.id": i + 1,
                    "cluster.id": f"test-{ports[0]}",
                    "log.dir": str(self._directory / f"broker-{i + 1}"),
                    "listeners": f"127.0.0.1:{ports[i]}",
                    "broker.rack": racks[i] if i < len(racks) else "",
                }
                | settings
            )
            for i in range(brokers)
        }

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients."""
        return self.bootstrap_of()

    def bootstrap_of(self, listener: str = "") -> str:
        """Return the bootstrap servers for clients of the listener of that name; of the first if it is empty.

        A broker that listens on any free port counts while it runs.
        """
        return ",".join(
            str(one.bind._replace(port=port))
            for node_id, config in self.configs.items()
            for number, one in enumerate(config.named_listeners)
            if one.name == listener.upper() or (not listener and number == 0)
            if (port := one.bind.port or self._port_of(node_id, one.name))
        )

    def _port_of(self, node_id: int, listener: str) -> int:
        return self.nodes[node_id].listener.ports[listener] if node_id in self.nodes else 0

    async def start(self, node_id: int) -> Node:
        """Start one broker; it is ready some time later."""
        node = Node(self.configs[node_id], NodeEnvironment(link_delay=self._delays[node_id]))
        await node.start()
        self.nodes[node_id] = node
        return node

    async def stop(self, node_id: int) -> None:
        """Stop one broker in good order."""
        await self.nodes.pop(node_id).stop()

    async def wait_ready(self) -> None:
        """Return when every running broker knows all brokers and all leaders; raise what broke one meanwhile."""
        for node in list(self.nodes.values()):
            ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(node.wait_ready()), node.failure]
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if node.failure.done():
                ends[0].cancel()
                node.failure.result()

    async def leaders_changed(self, timeout_s: float | None = None) -> None:
        """Return when any running broker hears anything, from the call on, about leaders, or when the time is up."""
        changes = [node.partitions.known_leaders.leaders_changed() for node in self.nodes.values()]
        await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED, timeout=timeout_s)
        for change in changes:
            change.cancel()

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(self.start(node_id) for node_id in self.configs))
        await self.wait_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(self.stop(node_id) for node_id in list(self.nodes)))
        self._held.close()
        if self._own_directory:
            await asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, self._directory)


class RunningCluster:
    """A `Cluster` on a loop in a thread of its own; `run` does something there and returns the result."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, str | int | bool] | None = None,
        racks: Sequence[str] = (),
        link_delay_ms: Ways = 0.0,
        link_jitter_ms: float = 0.0,
    ) -> None:
        self.cluster = Cluster(
            brokers, settings=settings, racks=racks, link_delay_ms=link_delay_ms, link_jitter_ms=link_jitter_ms
        )
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._main, name="brokers", daemon=True)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def run(self, act: Callable[[Cluster], Awaitable[T]], timeout_s: float = START_TIMEOUT_S) -> T:
        """Run a coroutine on the brokers' loop and return what it returns.

        Raises:
            TimeoutError: it has not ended in time, and is cancelled; the text says where it waited, and what the
                brokers have been doing.
        """
        task: Future[asyncio.Task[Any] | None] = Future()

        async def on_loop() -> T:
            task.set_result(asyncio.current_task())
            return await act(self.cluster)

        running = asyncio.run_coroutine_threadsafe(on_loop(), self._loop)
        try:
            return running.result(timeout_s)
        except TimeoutError:
            if running.done():
                raise  # One of its own.
            text = asyncio.run_coroutine_threadsafe(self._report(task.result()), self._loop).result(START_TIMEOUT_S)
            running.cancel()
            raise TimeoutError(f"not done in {timeout_s:g} s\n{text}") from None

    async def _report(self, task: "asyncio.Task[Any] | None") -> str:
        """Say on the loop, where nothing moves meanwhile, what keeps a task."""
        lines = []
        coroutine: Any = None if task is None else task.get_coro()
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            lines.append(f"waits at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}")
            coroutine = coroutine.cr_await
        for node_id, node in self.cluster.nodes.items():
            status = node.status()
            lines.append(f"broker {node_id}: {status['state']}, ready: {status['ready']}, moves: {status['moves']}")
            lines += [f"    {event}" for event in status["events"][-REPORTED_EVENTS:]]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop = self._started.result(START_TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_S)

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._started.done():
                logging.getLogger(__name__).exception("a test cluster broke")
            else:
                self._started.set_exception(error)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with self.cluster:
            self._started.set_result(asyncio.get_running_loop())
            await self._stop.wait()


def _delay_of(node_id: int, delay_ms: Ways, jitter_ms: float) -> LinkDelay | None:
    if isinstance(delay_ms, Mapping):
        delay = LinkDelay(0.0, jitter_ms, {to: ms for (sender, to), ms in delay_ms.items() if sender == node_id})
    else:
        delay = LinkDelay(delay_ms, jitter_ms)
    delay.check()
    return None if delay.is_none else delay


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    with contextlib.suppress(ImportError):
        from uvloop import Loop  # noqa: PLC0415 - there is none for every platform

        return Loop
    return None


def _hold_free_port(held: contextlib.ExitStack) -> int:
    """Return a port that nobody uses, and nobody else is given until `held` closes.

    It stays bound, with SO_REUSEADDR, and listens to nothing: a broker may listen there, and while it does not,
    connections are refused at once. If it were let go, it could be anybody's by the time its broker starts again.
    """
    sock = held.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return int(sock.getsockname()[1])
