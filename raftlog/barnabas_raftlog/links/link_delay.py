"""Holds back the bytes between nodes, as a network does that takes time.

For tests and benchmarks: on one machine a round trip takes 50 µs, and a broker that is right there may be wrong where
it takes 50 ms. `LinkDelay` says how long the way of every byte and datagram is; a node that is given one sends through
a `DelayedNetwork`, a node that is not has nothing of this in its way.

- The delay is the time of one way. Each node holds back its own sends, so a round trip takes the delays of both. Each
  write, and each datagram, has a jitter on top of it, uniform from 0 up to a limit.
- A connection's bytes keep their order: a write that would overtake waits. Datagrams overtake.
- A connection costs a round trip before its first byte. One that closes delivers all that was sent before; one that is
  aborted loses all that is under way, and the other end hears of it one way later.
- A connection has up to `WINDOW_BYTES` under way; further bytes wait at this end and count as `get_write_buffer_size`,
  as in front of a kernel's full socket buffer. `DATAGRAMS_MAX` datagrams are under way, over all peers; others are
  lost.
- One alarm serves everything that a node has under way: no thread, task or timer per frame.

Not imitated: loss, a limit on the rate of a line, and the death of a process, whose bytes die with it at once.
`docs/links.md` ("A network that takes time") says more; `scripts/machines/delayed_network.py` delays packets instead.
"""

import asyncio
import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, NamedTuple

from barnabas_raftlog.alarm import Alarm, open_alarm
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.raft.messages import Rng

from .datagrams import Datagrams
from .framing import Buffer

__all__ = ["DELAY_MS_MAX", "DelayedNetwork", "DelayedTransport", "LinkDelay"]

DELAY_MS_MAX = 10_000
WINDOW_BYTES = 32 << 20
DATAGRAMS_MAX = 1_024
_MS_NS = 1_000_000

Act = Callable[[], None]


class LinkDelay(NamedTuple):
    """The way from this node to each other one, in milliseconds, from 0 to `DELAY_MS_MAX`.

    `delay_ms` holds for all peers but those that `to` names. The jitter is drawn anew for each write.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    to: Mapping[int, float] = {}

    def check(self) -> None:
        """Raise ValueError when one of the times is out of range."""
        for value in (self.delay_ms, self.jitter_ms, *self.to.values()):
            if not 0 <= value <= DELAY_MS_MAX:
                raise ValueError(f"a link delay of {value!r} ms; it must be from 0 to {DELAY_MS_MAX}")

    @property
    def is_none(self) -> bool:
        return not (self.delay_ms or self.jitter_ms or any(self.to.values()))

    def one_way_ms(self, node_id: int) -> float:
        """Return the way to that node without jitter."""
        return self.to.get(node_id, self.delay_ms)


class DelayedNetwork:
    """All that one node has under way, in the order in which it arrives. Made anywhere, used on one loop.

    `act`s are called on the loop, once each; `close` drops those that are left.
    """

    def __init__(
        self,
        delay: LinkDelay,
        rng: Rng | None = None,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        new_alarm: Callable[[asyncio.AbstractEventLoop, Act, Callable[[], int]], Alarm] = open_alarm,
    ) -> None:
        delay.check()
        self._delay = delay
        self._rng = rng if rng is not None else random.Random()
        self.clock_ns = clock_ns
        self._new_alarm = new_alarm
        self._alarm: Alarm | None = None
        self._due: list[tuple[int, int, Act]] = []
        self._numbers = count()
        self.ending: dict[DelayedTransport, None] = {}  # closed or aborted, and the other end has not heard of it

    def arrival_ns(self, node_id: int) -> int:
        """Return when bytes that are sent to that node now will be there; the jitter is drawn by this call."""
        jitter_ns = int(self._delay.jitter_ms * _MS_NS)
        drawn_ns = self._rng.randrange(0, jitter_ns + 1) if jitter_ns else 0
        return self.clock_ns() + int(self._delay.one_way_ms(node_id) * _MS_NS) + drawn_ns

    async def connecting(self, node_id: int) -> None:
        """Wait for as long as TCP's handshake with that node takes: there and back, both ways taken to be equal."""
        await asyncio.sleep(2 * self._delay.one_way_ms(node_id) / 1000)

    def carry(
        self, transport: asyncio.Transport, protocol: asyncio.BaseProtocol, node_id: Callable[[], int | None]
    ) -> asyncio.Transport:
        """Return the transport for `protocol` to send through. `node_id()` says, at each write, which node it goes to.

        None as an answer: it is no node, and nothing for it is held back.
        """
        return DelayedTransport(self, transport, protocol, node_id)

    def datagrams(self, inner: Datagrams, node_at: Callable[[object], int]) -> Datagrams:
        """Return datagrams that leave through `inner`. `node_at` says which node has an address."""
        return DelayedDatagrams(self, inner, node_at)

    def schedule(self, due_ns: int, act: Act) -> None:
        """Call `act` on the loop when it is `due_ns`, in the order of these calls where that is equal."""
        if self._alarm is None:
            self._alarm = self._new_alarm(asyncio.get_running_loop(), self.ring, self.clock_ns)
        entry = (due_ns, next(self._numbers), act)
        heapq.heappush(self._due, entry)
        if self._due[0] is entry:
            self._alarm.set(due_ns)

    def ring(self) -> None:
        """Carry out all acts that are due. For the alarm."""
        now_ns = self.clock_ns()
        due = self._due
        acts = []
        while due and due[0][0] <= now_ns:
            acts.append(heapq.heappop(due)[2])
        if due and self._alarm is not None:
            self._alarm.set(due[0][0])
        call_each(acts, _do)

    def close(self) -> None:
        """End at once every connection of which the other end has not heard yet that it ended, and drop the rest."""
        self._due.clear()
        for transport in list(self.ending):
            transport.end()
        if self._alarm is not None:
            self._alarm.close()


def _do(act: Act) -> None:
    act()


class DelayedTransport(asyncio.Transport):
    """A connection's transport whose every write leaves one way later. `inner` is the loop's own.

    Invariants: the bytes under way arrive in the order of sending, at times that do not decrease; they are fewer than
    `WINDOW_BYTES`, or were before the last write; and nothing waits while they are fewer.
    """

    def __init__(
        self,
        network: DelayedNetwork,
        inner: asyncio.Transport,
        protocol: asyncio.BaseProtocol,
        node_id: Callable[[], int | None],
    ) -> None:
        super().__init__()
        self._network = network
        self._inner = inner
        self._protocol = protocol
        self._node_id = node_id
        self._under_way: deque[tuple[int, list[Buffer], int]] = deque()
        self._waiting: deque[tuple[list[Buffer], int]] = deque()
        self._under_way_bytes = 0
        self._waiting_bytes = 0
        self._last_due_ns = 0
        self._is_scheduled = False
        self._is_closing = False
        self._is_aborted = False

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        buffers = list(list_of_data)
        size = sum([len(buffer) for buffer in buffers])
        if self._is_closing or not size:
            return
        self._waiting.append((buffers, size))
        self._waiting_bytes += size
        self._depart()

    def write(self, data: Any) -> None:
        self.writelines([data])

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + self._inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def is_closing(self) -> bool:
        return self._is_closing or self._inner.is_closing()

    def close(self) -> None:
        """Close once all that was sent has arrived, and one way from now at the earliest."""
        if not self._is_closing:
            self._is_closing = True
            self._network.ending[self] = None
            self._network.schedule(self._next_due_ns(), self._close_when_empty)

    def abort(self) -> None:
        """Lose all that is under way, and tell the protocol; the other end hears of it one way from now."""
        if self._is_aborted:
            return
        self._is_closing = True
        self._is_aborted = True
        self._network.ending[self] = None
        self._drop()
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
        self._network.schedule(self._next_due_ns(), self.end)

    def end(self) -> None:
        """End the connection itself, now."""
        self._drop()
        self._network.ending.pop(self, None)
        self._inner.abort()

    def _drop(self) -> None:
        self._under_way.clear()
        self._waiting.clear()
        self._under_way_bytes = 0
        self._waiting_bytes = 0

    def _next_due_ns(self) -> int:
        node_id = self._node_id()
        arrival_ns = self._network.clock_ns() if node_id is None else self._network.arrival_ns(node_id)
        self._last_due_ns = max(self._last_due_ns, arrival_ns)
        return self._last_due_ns

    def _depart(self) -> None:
        while self._waiting and self._under_way_bytes < WINDOW_BYTES:
            buffers, size = self._waiting.popleft()
            self._waiting_bytes -= size
            self._under_way_bytes += size
            self._under_way.append((self._next_due_ns(), buffers, size))
        if self._under_way and not self._is_scheduled:
            self._is_scheduled = True
            self._network.schedule(self._under_way[0][0], self._arrive)

    def _arrive(self) -> None:
        self._is_scheduled = False
        if self._inner.is_closing():
            self._drop()
            return
        now_ns = self._network.clock_ns()
        arrived = list[Buffer]()
        while self._under_way and self._under_way[0][0] <= now_ns:
            _, buffers, size = self._under_way.popleft()
            self._under_way_bytes -= size
            arrived += buffers
        if arrived:
            self._inner.writelines(arrived)
        self._depart()
        if self._is_closing:
            self._close_when_empty()

    def _close_when_empty(self) -> None:
        if not self._is_aborted and not self._under_way and self._network.clock_ns() >= self._last_due_ns:
            self._network.ending.pop(self, None)
            self._inner.close()


class DelayedDatagrams:
    """Datagrams that leave one way later. Lost beyond `DATAGRAMS_MAX` under way, and counted in `lost`."""

    def __init__(self, network: DelayedNetwork, inner: Datagrams, node_at: Callable[[object], int]) -> None:
        self._network = network
        self._inner = inner
        self._node_at = node_at
        self._arrived: deque[tuple[bytes, tuple[object, ...]]] = deque()
        self._wake = asyncio.Event()
        self._under_way = 0
        self.lost = 0

    @property
    def on_datagram(self) -> Callable[[bytes, object], None]:
        return self._inner.on_datagram

    @on_datagram.setter
    def on_datagram(self, on_datagram: Callable[[bytes, object], None]) -> None:
        self._inner.on_datagram = on_datagram

    async def open(self, family: int, address: tuple[object, ...]) -> None:
        await self._inner.open(family, address)

    async def send(self, data: bytes, address: tuple[object, ...]) -> None:
        if self._under_way >= DATAGRAMS_MAX:
            self.lost += 1
            return
        self._under_way += 1
        self._network.schedule(self._network.arrival_ns(self._node_at(address)), lambda: self._arrive((data, address)))

    def _arrive(self, datagram: tuple[bytes, tuple[object, ...]]) -> None:
        self._arrived.append(datagram)
        self._wake.set()

    async def run(self) -> None:
        """Hear and let go until the socket closes. An exception that ends either of the two is raised."""
        loop = asyncio.get_running_loop()
        both = [loop.create_task(self._inner.run()), loop.create_task(self._send_arrived())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
        for task in both:
            if not task.cancelled():
                task.result()

    async def _send_arrived(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._arrived:
                self._under_way -= 1
                await self._inner.send(*self._arrived.popleft())

    def close(self) -> None:
        self._inner.close()
