"""A network that takes time: when bytes arrive, in which order, and its limits. On a virtual clock."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.conftest import Runner, cluster

from barnabas_raftlog.alarm import KernelAlarm, LoopAlarm, open_alarm
from barnabas_raftlog.links import link_delay
from barnabas_raftlog.links.link_delay import DelayedNetwork, LinkDelay
from barnabas_raftlog.links.raft_frames import encode_messages
from barnabas_raftlog.raft.messages import GroupId, LeadershipEnded

MS = 1_000_000
PEER = 2


class Clock:
    """Stands still but for `advance`, which rings the alarms that were set on the way. Starts at 0."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._due_ns: int | None = None
        self._ring: Callable[[], None] = lambda: None

    def __call__(self) -> int:
        return self.now_ns

    def alarm(self, loop: object, ring: Callable[[], None], clock_ns: object) -> "Clock":
        self._ring = ring
        return self

    def set(self, due_ns: int) -> None:
        self._due_ns = due_ns

    def close(self) -> None:
        self._due_ns = None

    def advance(self, ms: float) -> None:
        until_ns = self.now_ns + int(ms * MS)
        while self._due_ns is not None and self._due_ns <= until_ns:
            self.now_ns = max(self.now_ns, self._due_ns)
            self._due_ns = None
            self._ring()
        self.now_ns = until_ns


class Wire:
    """The kernel's end of a connection, which remembers all that came; also the protocol, and a datagrams' socket."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.arrivals: list[Any] = []  # (milliseconds, bytes)
        self._ended: tuple[float, str] | None = None
        self.unread_bytes = 0
        self.is_protocol_told = False
        self.on_datagram: Callable[[bytes, object], None] = lambda *_: None

    def ended(self) -> tuple[float, str] | None:
        """Return when and how it ended."""
        return self._ended

    @property
    def _now_ms(self) -> float:
        return self._clock.now_ns / MS

    def writelines(self, buffers: list[bytes]) -> None:
        self.arrivals.append((self._now_ms, b"".join(buffers)))

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self._ended is not None

    def close(self) -> None:
        self._ended = self._ended or (self._now_ms, "closed")

    def abort(self) -> None:
        self._ended = self._ended or (self._now_ms, "aborted")

    def connection_lost(self, _: Exception | None) -> None:
        self.is_protocol_told = True

    async def open(self, family: int, address: tuple[object, ...]) -> None: ...

    async def send(self, data: bytes, address: tuple[object, ...]) -> None:
        del address
        self.arrivals.append((self._now_ms, data))

    async def run(self) -> None:
        await asyncio.Future()


def carried(delay: LinkDelay, node_id: int | None = PEER) -> tuple[Clock, Wire, asyncio.Transport, DelayedNetwork]:
    clock = Clock()
    wire = Wire(clock)
    network = DelayedNetwork(delay, random.Random(1), clock_ns=clock, new_alarm=clock.alarm)
    transport = network.carry(cast("asyncio.Transport", wire), cast("asyncio.Protocol", wire), lambda: node_id)
    return clock, wire, transport, network


async def test_what_is_written_arrives_one_way_later() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    transport.writelines([b"a", b"b"])
    clock.advance(20)
    transport.write(b"c")
    clock.advance(29.9)
    assert wire.arrivals == []
    clock.advance(100)
    assert wire.arrivals == [(50, b"ab"), (70, b"c")]


@given(
    sent=st.lists(st.tuples(st.integers(0, 30), st.binary(min_size=1, max_size=8)), max_size=30),
    jitter_ms=st.integers(0, 40),
)
@settings(deadline=None, max_examples=200)
def test_a_stream_keeps_its_order_and_no_byte_is_early_or_late(sent: list[tuple[int, bytes]], jitter_ms: int) -> None:
    async def main() -> None:
        clock, wire, transport, _ = carried(LinkDelay(10, jitter_ms))
        sent_ms = []
        for pause_ms, data in sent:
            clock.advance(pause_ms)
            transport.write(data)
            sent_ms += [clock.now_ns / MS] * len(data)
        clock.advance(1_000)
        assert b"".join(data for _, data in wire.arrivals) == b"".join(data for _, data in sent)
        arrived_ms = [at_ms for at_ms, data in wire.arrivals for _ in data]
        for at_ms, since_ms in zip(arrived_ms, sent_ms, strict=True):
            assert 10 <= at_ms - since_ms <= 10 + jitter_ms

    asyncio.run(main())


async def test_200_mb_in_a_second_are_a_second_and_one_way_under_way() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    chunk = bytes(1_000_000)
    waited = 0
    for _ in range(200):
        transport.write(chunk)
        waited += transport.get_write_buffer_size()
        clock.advance(5)
    clock.advance(45)
    assert (sum(len(data) for _, data in wire.arrivals), wire.arrivals[-1][0], waited) == (200_000_000, 1_045, 0)


async def test_what_is_beyond_the_window_waits_and_counts_as_buffered() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    half = bytes(link_delay.WINDOW_BYTES // 2)
    for _ in range(5):
        transport.write(half)
    wire.unread_bytes = 7  # of the kernel's own
    assert transport.get_write_buffer_size() == 3 * len(half) + 7
    clock.advance(200)
    assert [(at_ms, len(data)) for at_ms, data in wire.arrivals] == [
        (50, 2 * len(half)),
        (100, 2 * len(half)),
        (150, len(half)),
    ]
    assert transport.get_write_buffer_size() == 7


async def test_a_write_larger_than_the_window_is_under_way_alone() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    large = bytes(2 * link_delay.WINDOW_BYTES)
    transport.write(large)
    transport.write(b"x")
    assert transport.get_write_buffer_size() == 1
    clock.advance(200)
    assert [(at_ms, len(data)) for at_ms, data in wire.arrivals] == [(50, len(large)), (100, 1)]


async def test_a_closed_connection_delivers_what_was_sent_before() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    beyond = bytes(link_delay.WINDOW_BYTES)
    transport.write(beyond)
    transport.write(b"last")
    transport.close()
    transport.write(b"too late")
    clock.advance(99)
    assert wire.ended() is None
    clock.advance(1)
    assert wire.arrivals[-1] == (100, b"last")
    assert wire.ended() == (100, "closed")


async def test_the_end_of_an_idle_connection_takes_one_way_too() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    transport.close()
    clock.advance(49)
    assert wire.ended() is None
    clock.advance(1)
    assert wire.ended() == (50, "closed")


async def test_an_aborted_connection_loses_what_is_under_way_and_its_other_end_hears_later() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    transport.write(b"lost")
    clock.advance(10)
    transport.abort()
    await asyncio.sleep(0)
    assert wire.is_protocol_told
    clock.advance(49)
    assert wire.ended() is None
    clock.advance(1)
    assert (wire.arrivals, wire.ended()) == ([], (60, "aborted"))


async def test_a_connection_that_the_other_end_has_closed_is_written_no_more() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50))
    transport.write(b"for nobody")
    wire.close()
    clock.advance(100)
    assert wire.arrivals == []


async def test_a_network_that_is_closed_leaves_no_connection_open() -> None:
    _, wire, transport, network = carried(LinkDelay(50))
    transport.abort()
    network.close()
    assert wire.ended() == (0, "aborted")


async def test_whoever_is_no_node_is_not_held_back() -> None:
    clock, wire, transport, _ = carried(LinkDelay(50), node_id=None)
    transport.write(b"an admin's")
    clock.advance(0)
    assert wire.arrivals == [(0, b"an admin's")]


async def test_one_way_may_be_longer_than_the_others() -> None:
    clock, wire, transport, network = carried(LinkDelay(1, to={PEER: 70}))
    transport.write(b"slow")
    network.carry(cast("asyncio.Transport", wire), cast("asyncio.Protocol", wire), lambda: 3).write(b"quick")
    clock.advance(100)
    assert wire.arrivals == [(1, b"quick"), (70, b"slow")]


async def test_datagrams_are_held_back_and_lost_beyond_their_limit() -> None:
    clock = Clock()
    wire = Wire(clock)
    network = DelayedNetwork(LinkDelay(50), clock_ns=clock, new_alarm=clock.alarm)
    datagrams: Any = network.datagrams(wire, lambda _: PEER)
    running = asyncio.create_task(datagrams.run())
    for number in range(link_delay.DATAGRAMS_MAX + 3):
        await datagrams.send(b"%d" % number, ("peer", 1))
    clock.advance(49)
    await asyncio.sleep(0)
    assert wire.arrivals == []
    clock.advance(1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [data for _, data in wire.arrivals] == [b"%d" % number for number in range(link_delay.DATAGRAMS_MAX)]
    assert datagrams.lost == 3
    await datagrams.send(b"there is room again", ("peer", 1))
    assert datagrams.lost == 3
    running.cancel()
    await asyncio.wait([running])


async def test_a_socket_that_raises_ends_all_that_waits_for_datagrams() -> None:
    clock = Clock()
    wire = Wire(clock)
    network = DelayedNetwork(LinkDelay(50), clock_ns=clock, new_alarm=clock.alarm)
    datagrams: Any = network.datagrams(wire, lambda _: PEER)

    async def broken(data: bytes, address: tuple[object, ...]) -> None:
        raise ValueError(data, address)

    wire.send = broken  # type: ignore[method-assign]
    running = asyncio.create_task(datagrams.run())
    await datagrams.send(b"one", ("peer", 1))
    clock.advance(50)
    with pytest.raises(ValueError, match="one"):
        await running


@pytest.mark.parametrize("times", [(-1, 0), (10_001, 0), (0, -0.1), (float("nan"), 0), (0, 0, {2: 20_000})])
def test_a_delay_out_of_range_is_refused(times: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="it must be from 0 to 10000"):
        DelayedNetwork(LinkDelay(*times))


@pytest.mark.parametrize("kind", [KernelAlarm, LoopAlarm])
def test_an_alarm_rings_once_for_the_time_that_was_set_last(run: Runner, kind: type) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        now_ns = time.monotonic_ns
        alarm: Any = kind(loop, rung.set) if kind is KernelAlarm else kind(loop, rung.set, now_ns)
        alarm.set(now_ns() + 3_600_000 * MS)
        alarm.set(now_ns() + MS)
        await rung.wait()
        rung.clear()
        alarm.set(0)
        await rung.wait()
        alarm.close()
        alarm.close()

    run(main())


def test_an_alarm_is_found_for_every_loop(run: Runner) -> None:
    async def main() -> None:
        open_alarm(asyncio.get_running_loop(), lambda: None, time.monotonic_ns).close()

    run(main())


def test_nodes_find_and_hear_each_other_through_a_delay(run: Runner) -> None:
    async def main() -> None:
        async with cluster(3, delay=LinkDelay(5, 3)) as nodes:
            for node_id, node in nodes.items():
                await node.until_live(*({1, 2, 3} - {node_id}))
            sent = [(GroupId(bytes(20)), LeadershipEnded(term, 1, 2)) for term in range(1, 200)]
            for message in sent:
                assert nodes[1].links.send_frames(2, encode_messages([message])[0])
            await nodes[2].until(lambda: len(nodes[2].messages) == len(sent))
            assert nodes[2].messages == [(1, *message) for message in sent]

    run(main())


def test_without_a_delay_nothing_stands_between_a_connection_and_the_loops_transport(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            links: Any = nodes[1].links
            assert not [c for c in links._connections if isinstance(c._transport, link_delay.DelayedTransport)]

    run(main())
