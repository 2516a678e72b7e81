"""Connections over real loopback sockets: order, limits, and what closes them."""

import asyncio
import contextlib
import gc
import logging
import struct
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, Self

import pytest
import uvloop

from barnabas_broker.server import connections
from barnabas_broker.server.connections import Connection, Exchange, Limits, Listener
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.raft.messages import Buffer

Run = Callable[[Coroutine[Any, Any, None]], None]


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body) + 8) + bytes(8) + body


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def within_10_s(main: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(10):
            await main

    def runner(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(within_10_s(main))

    return runner


class Served:
    """A listener whose exchanges are handed to the test."""

    def __init__(self, **limits: int) -> None:
        self.arrived: asyncio.Queue[Exchange] = asyncio.Queue()
        self.listener = Listener(Limits(**limits), self.arrived.put_nowait)

    async def __aenter__(self) -> Self:
        await self.listener.bind("127.0.0.1", 0)
        await self.listener.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.close()
        assert self.listener.bytes_in_use == 0
        assert len(self.listener) == 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)

    async def body(self) -> tuple[Exchange, bytes]:
        exchange = await self.arrived.get()
        assert exchange.frame is not None
        return exchange, bytes(exchange.frame[8:])


async def loop_turns(count: int = 20) -> None:
    """Let whatever is ready happen; for claims that something does not."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until it is so."""
    while not is_so():
        await loop_turns(1)


def test_answers_leave_in_the_order_of_the_requests(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            writer.write(frame(b"a") + frame(b"b") + frame(b"c"))
            first, second, third = [(await served.body())[0] for _ in range(3)]
            third.answer([b"3"])
            second.answer([])  # acks=0: no answer at all
            first.answer([b"1"])
            assert await reader.readexactly(2) == b"13"
            writer.close()

    run(main())


@pytest.mark.parametrize("step", [1, 3, 70_000, 1 << 20])
def test_requests_arrive_whole_however_they_are_cut(run: Run, step: int) -> None:
    bodies = [b"x", b"y" * (200 if step < 10 else 100_000), b"", b"z" * (70_000 if step > 10 else 9)]

    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            data = b"".join(map(frame, bodies))
            for start in range(0, len(data), step):
                writer.write(data[start : start + step])
                await asyncio.sleep(0)
            for body in bodies:
                exchange, received = await served.body()
                assert received == body
                exchange.answer([])
            writer.close()

    run(main())


def test_a_request_owns_writable_memory(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(b"a" * 10) + frame(b"b" * 200_000))
            for _ in range(2):
                exchange, _ = await served.body()
                assert isinstance(exchange.frame, bytearray)
                exchange.answer([])
            writer.close()

    run(main())


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1001, 0, 7])
def test_impossible_size_closes_the_connection_with_a_reason(
    run: Run, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Served(frame_bytes_max=1000) as served:
            bystander_reader, bystander = await served.connect()
            reader, writer = await served.connect()
            with caplog.at_level(logging.WARNING):
                writer.write(struct.pack(">i", size) + b"rest")
                assert await reader.read() == b""
            assert f"a request of {size} bytes" in caplog.text
            bystander.write(frame(b"still served"))
            exchange, _ = await served.body()
            exchange.answer([b"!"])
            assert await bystander_reader.readexactly(1) == b"!"
            writer.close()
            bystander.close()

    run(main())


@pytest.mark.parametrize(
    ("start", "protocol"),
    [
        (bytes.fromhex("1603010200010001fc0303"), "TLS"),
        (bytes.fromhex("1603030200010001fc0303"), "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /x HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP"),
        (bytes.fromhex("1604030200010001fc0303"), None),
        (b"HELO localhost\r\n", None),
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_another_protocol_is_named_instead_of_a_size(
    run: Run, start: bytes, protocol: str | None, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            with caplog.at_level(logging.WARNING):
                writer.write(start[:cut])
                await loop_turns()
                writer.write(start[cut:])
                # It may be reset, if it is closed before all has been read.
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()

    run(main())
    (line,) = [record.getMessage() for record in caplog.records if "closing the connection" in record.getMessage()]
    size = int.from_bytes(start[:4], "big")
    assert (f": it speaks {protocol}, and this port does not" if protocol else f": a request of {size} bytes") in line


def test_unanswered_requests_of_one_connection_are_bounded(run: Run) -> None:
    async def main() -> None:
        async with Served(exchanges_max=2) as served:
            _, writer = await served.connect()
            writer.write(b"".join(frame(bytes([i])) for i in range(5)))
            exchanges = [(await served.body())[0] for _ in range(2)]
            await loop_turns()
            assert served.arrived.empty()
            order = [b"\x00", b"\x01"]
            for _ in range(3):
                exchanges.pop(0).answer([])
                exchange, body = await served.body()
                exchanges.append(exchange)
                order.append(body)
            assert order == [bytes([i]) for i in range(5)]
            for exchange in exchanges:
                exchange.answer([])
            writer.close()

    run(main())


def test_a_held_connection_serves_nothing_more_until_the_answer(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(b"fetch"))
            fetch, _ = await served.body()
            fetch.hold()
            writer.write(frame(b"next"))
            await loop_turns()
            assert served.arrived.empty()
            fetch.answer([b"data"])
            exchange, body = await served.body()
            assert body == b"next"
            exchange.answer([])
            writer.close()

    run(main())


def test_request_bytes_are_bounded_over_the_node_and_everybody_gets_a_turn(run: Run) -> None:
    async def main() -> None:
        async with Served(bytes_max=1000) as served:
            writers = []
            for i in range(4):
                _, writer = await served.connect()
                writer.write(frame(bytes([i]) * 1200))
                writers.append(writer)
            seen = set()
            for _ in range(4):
                exchange, body = await served.body()
                await loop_turns()
                # One was there before there was no room, and one of those that wait goes on all the same.
                assert served.arrived.qsize() <= 1
                seen.add(body[0])
                exchange.answer([])
            assert seen == {0, 1, 2, 3}
            for writer in writers:
                writer.close()

    run(main())


def test_a_client_that_does_not_read_is_not_read_from(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            answer = bytes(8 << 20)
            writer.write(frame(b"1") + frame(b"2"))
            exchange, _ = await served.body()
            second, _ = await served.body()
            exchange.answer([answer])  # more than socket buffers hold: writing pauses
            second.answer([b"2"])
            writer.write(frame(b"3"))
            await loop_turns()
            assert served.arrived.empty()
            assert len(await reader.readexactly(len(answer) + 1)) == len(answer) + 1
            exchange, body = await served.body()
            assert body == b"3"
            exchange.answer([])
            writer.close()

    run(main())


def test_one_connection_too_many_is_closed_with_a_reason(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Served(connections_max=1) as served:
            _, writer = await served.connect()
            writer.write(frame(b"served"))
            exchange, _ = await served.body()
            reader, refused = await served.connect()
            assert await reader.read() == b""
            assert "1 connections are open already" in caplog.text
            exchange.answer([])
            writer.close()
            refused.close()

    run(main())


def test_a_lost_connection_abandons_what_comes_behind_what_cannot_be(run: Run) -> None:
    async def main() -> None:
        failed = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda *_: failed.set())
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(b"a") + frame(b"b"))
            first, second = [(await served.body())[0] for _ in range(2)]
            abandoned = asyncio.Event()

            def fail() -> None:
                raise ValueError("no")

            first.abandon = fail
            second.abandon = abandoned.set
            writer.close()
            await failed.wait()
            assert abandoned.is_set()
            assert len(served.listener) == served.listener.bytes_in_use == 0

    run(main())


def test_a_lost_connection_abandons_its_exchanges_once(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(b"1"))
            exchange, _ = await served.body()
            abandoned = asyncio.Event()
            exchange.abandon = abandoned.set
            writer.close()
            await abandoned.wait()
            assert served.listener.bytes_in_use == 0
            exchange.answer([b"too late"])

    run(main())


def test_who_parked_what_a_lost_connection_abandons_goes_without_a_garbage_collection(run: Run) -> None:
    class Parked:
        def __init__(self, exchange: Exchange, is_over: asyncio.Event) -> None:
            self.exchange = exchange
            self.is_over = is_over
            exchange.abandon = self.abandon

        def abandon(self) -> None:
            self.is_over.set()

    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(b"1"))
            is_over = asyncio.Event()
            parked = weakref.ref(Parked((await served.body())[0], is_over))
            gc.disable()
            try:
                assert parked() is not None
                writer.close()
                await is_over.wait()
                assert parked() is None
            finally:
                gc.enable()

    run(main())


def test_silent_connections_are_closed_and_busy_ones_are_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_MS", 1)

    async def main() -> None:
        async with Served(idle_ms=100) as served:
            idle_reader, idle = await served.connect()
            reader, busy = await served.connect()
            busy.write(frame(b"1"))
            exchange, _ = await served.body()
            half_reader, half = await served.connect()
            half.write(frame(b"x" * 100)[:50])
            assert await idle_reader.read() == b""
            assert await half_reader.read() == b""
            exchange.answer([b"answer"])
            assert await reader.readexactly(6) == b"answer"
            for writer in (idle, busy, half):
                writer.close()

    run(main())


def test_half_open_connections_cost_only_a_small_object(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            connection = Connection(served.listener)
            assert not hasattr(connection, "__dict__")

    run(main())


async def connection_lost(connection: Connection) -> None:
    """Wait until the connection has ended."""
    is_over = asyncio.Event()
    lost = Connection.connection_lost

    def note(one: Connection, error: Exception | None) -> None:
        lost(one, error)
        if one is connection:
            is_over.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "connection_lost", note)
        await is_over.wait()


def large(count: int) -> bytes:
    """Return the beginning of a request of a megabyte, `count` bytes of it."""
    return frame(bytes(1 << 20))[:count]


def test_half_sent_requests_count_by_what_has_arrived_and_stop_nobody_else(run: Run) -> None:
    """Nine of them that announced 100 MiB each stopped every client of a broker once."""

    async def main() -> None:
        async with Served(bytes_max=10 << 20, frame_bytes_max=100 << 20) as served:
            greedy = [await served.connect() for _ in range(9)]
            for _, writer in greedy:
                writer.write(struct.pack(">i", 100 << 20) + bytes(70_000))
            await loop_turns(500)
            assert served.listener.bytes_in_use == 9 * 70_000
            reader, writer = await served.connect()
            writer.write(frame(b"small"))
            exchange, body = await served.body()
            assert body == b"small"
            exchange.answer([b"answer"])
            assert await reader.readexactly(6) == b"answer"
            for _, one in [*greedy, (reader, writer)]:
                one.close()

    run(main())


def test_when_there_is_no_room_those_that_hold_much_wait_and_the_others_do_not(run: Run) -> None:
    async def main() -> None:
        async with Served(bytes_max=8 << 20) as served:
            greedy = [await served.connect() for _ in range(16)]
            for _, writer in greedy:
                writer.write(large(600_000))
            await loop_turns(2_000)
            assert served.listener.bytes_in_use <= (8 << 20) + 2 * connections.SCRATCH_BYTES
            reader, writer = await served.connect()
            for _ in range(3):
                writer.write(frame(b"small"))
                exchange, _ = await served.body()
                exchange.answer([b"answer"])
                assert await reader.readexactly(6) == b"answer"
            for _, one in greedy:
                one.write(frame(bytes(1 << 20))[600_000:])
            for _ in greedy:
                exchange, body = await served.body()
                assert len(body) == 1 << 20
                exchange.answer([])
            for _, one in [*greedy, (reader, writer)]:
                one.close()

    run(main())


def test_what_a_client_does_not_take_counts_until_it_does(run: Run) -> None:
    async def main() -> None:
        async with Served(bytes_max=64 << 20) as served:
            reader, writer = await served.connect()
            writer.write(frame(b"ask"))
            exchange, _ = await served.body()
            exchange.answer([bytes(30 << 20)])
            await loop_turns()
            assert 10 << 20 < served.listener.bytes_in_use <= 30 << 20
            assert len(await reader.readexactly(30 << 20)) == 30 << 20
            writer.write(frame(b"again"))
            exchange, _ = await served.body()
            exchange.answer([b"soon"])
            assert await reader.readexactly(4) == b"soon"
            assert served.listener.bytes_in_use == 0
            writer.close()

    run(main())


@pytest.mark.parametrize("is_answer", [False, True], ids=["a request", "an answer"])
def test_who_makes_no_progress_is_ended_and_who_makes_some_is_not(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_answer: bool
) -> None:
    monkeypatch.setattr(connections, "SWEEP_MS", 1)
    monkeypatch.setattr(connections, "RATE_BYTES_MIN", 1_000)

    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            if is_answer:
                writer.write(frame(b"ask"))
                exchange, _ = await served.body()
                exchange.answer([bytes(50 << 20)])
            else:
                writer.write(large(100_000))
            (connection,) = served.listener._connections
            await connection_lost(connection)
            assert "less than 1000 bytes a second of a request or an answer got through" in caplog.text
            writer.close()

    run(main())


class Counted(LoopMeter):
    """Notes how much of something was done in each callback of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0
        self.most: dict[str, int] = {}

    def run(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        before = self.done
        try:
            return super().run(name, call, *args)
        finally:
            self.most[name] = max(self.most.get(name, 0), self.done - before)


class Echo(Served):
    """Answers each request at once with what it says, and counts them by callback."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.meter = Counted()
        self.listener = Listener(Limits(**limits), self.serve, self.meter)

    def serve(self, exchange: Exchange) -> None:
        assert exchange.frame is not None
        self.meter.done += 1
        exchange.answer([bytes(exchange.frame[8:])])


def numbered(count: int) -> list[bytes]:
    return [number.to_bytes(4, "big") for number in range(count)]


def test_thousands_of_pipelined_requests_are_served_in_turns_and_in_order(run: Run) -> None:
    async def main() -> None:
        async with Echo() as served:
            reader, writer = await served.connect()
            bodies = numbered(10_000)
            writer.write(b"".join(map(frame, bodies)))
            assert await reader.readexactly(4 * len(bodies)) == b"".join(bodies)
            assert set(served.meter.most.values()) <= set(range(connections.SERVED_AT_ONCE + 1))
            assert served.meter.most["held requests"] > 0
            writer.close()

    run(main())


def test_requests_that_take_long_leave_the_loop_after_a_slice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLICE_S", 0.0)

    async def main() -> None:
        async with Echo() as served:
            clients = [await served.connect() for _ in range(5)]
            bodies = numbered(50)
            for _, writer in clients:
                writer.write(b"".join(map(frame, bodies)))
            for reader, _ in clients:
                assert await reader.readexactly(4 * len(bodies)) == b"".join(bodies)
            assert set(served.meter.most.values()) == {0, 1}
            for _, writer in clients:
                writer.close()

    run(main())


def test_slices_are_counted_by_client_and_forgotten_in_sweeps(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLICE_S", 0.0)
    monkeypatch.setattr(connections, "SWEEP_MS", 1_000_000)

    async def main() -> None:
        async with Echo() as served:
            crowd = served.listener.crowd
            bodies = numbered(50)
            heavy = await served.connect()
            light = await served.connect()
            heavy[1].write(b"".join(map(frame, bodies)))
            assert await heavy[0].readexactly(4 * len(bodies)) == b"".join(bodies)
            light[1].write(frame(b"ask!"))
            assert await light[0].readexactly(4) == b"ask!"
            assert [one.slices for one in served.listener._connections] == [49, 0]
            before = crowd.reads
            for reader, writer in (heavy, light):
                writer.write(frame(b"ask!"))
                assert await reader.readexactly(4) == b"ask!"
            assert crowd.reads == before + 1, "one of the two asks for little"
            served.listener._sweep_some(deque(served.listener._connections), 0)
            assert [one.slices for one in served.listener._connections] == [24, 0]
            for _, writer in (heavy, light):
                writer.close()

    run(main())


def test_of_those_that_have_more_the_one_with_the_fewest_slices_goes_on_first(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SLICE_S", 0.0)

    async def main() -> None:
        async with Echo() as served:
            clients = [await served.connect() for _ in range(3)]
            went_on = list[int]()
            go_on = Connection._go_on
            numbers = {one: number for number, one in enumerate(served.listener._connections)}

            def noted(connection: Connection) -> None:
                went_on.append(numbers[connection])
                go_on(connection)

            monkeypatch.setattr(Connection, "_go_on", noted)
            for one, slices in zip(numbers, (8, 0, 4), strict=True):
                one.slices = slices
            bodies = numbered(4)
            for _, writer in clients:
                writer.write(b"".join(map(frame, bodies)))
            for reader, _ in clients:
                assert await reader.readexactly(4 * len(bodies)) == b"".join(bodies)
            assert went_on == [1, 1, 1, 2, 2, 2, 0, 0, 0]
            for _, writer in clients:
                writer.close()

    run(main())


def test_those_who_waited_for_room_are_served_one_after_the_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLICE_S", 0.0)

    async def main() -> None:
        async with Echo(bytes_max=10_000) as served:
            account = served.listener.account
            holder = Connection(served.listener)
            account.add(holder, 20_000)
            account.privileged = Connection(served.listener)
            clients = [await served.connect() for _ in range(8)]
            bodies = numbered(3)
            for _, writer in clients:
                writer.write(b"".join(map(frame, bodies)))
            await until(lambda: len(served.listener._starved) == len(clients))
            assert served.meter.done == 0
            account.forget(holder)
            served.listener._freed()
            for reader, _ in clients:
                assert await reader.readexactly(4 * len(bodies)) == b"".join(bodies)
            assert served.meter.most["held requests"] == 1
            assert served.meter.most["those without room"] == 0
            for _, writer in clients:
                writer.close()

    run(main())


def counts_sends(monkeypatch: pytest.MonkeyPatch, meter: Counted) -> None:
    send = Connection._send

    def counted(connection: Connection) -> None:
        meter.done += 1
        send(connection)

    monkeypatch.setattr(Connection, "_send", counted)


def test_answers_for_many_connections_leave_some_at_once_and_the_others_in_slices(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SENDING_S", 0.0)
    monkeypatch.setattr(connections, "PROMPT_S", 1_000.0)
    monkeypatch.setattr(connections, "PROMPT_AT_ONCE", 3)

    async def main() -> None:
        async with Served() as served:
            meter = served.listener.meter = Counted()
            counts_sends(monkeypatch, meter)
            clients = [await served.connect() for _ in range(8)]
            for _, writer in clients:
                writer.write(frame(b"ask"))
            exchanges = [(await served.body())[0] for _ in clients]
            meter.done = 0
            for exchange in exchanges:
                exchange.answer([b"answer"])
            assert meter.done == 3
            for reader, _ in clients:
                assert await reader.readexactly(6) == b"answer"
            assert meter.most["answers"] == 1
            for _, writer in clients:
                writer.close()

    run(main())


@pytest.mark.parametrize(
    ("bodies", "size_bytes", "sent_at_once"), [([b"a"], 16 << 10, 1), ([b"a"], 16_385, 0), ([b"a", b"b"], 6, 0)]
)
def test_an_answer_leaves_at_once_if_it_is_short_and_the_last_of_its_connection(
    run: Run, monkeypatch: pytest.MonkeyPatch, bodies: list[bytes], size_bytes: int, sent_at_once: int
) -> None:
    async def main() -> None:
        async with Served() as served:
            meter = served.listener.meter = Counted()
            counts_sends(monkeypatch, meter)
            reader, writer = await served.connect()
            writer.write(b"".join(map(frame, bodies)))
            exchanges = [(await served.body())[0] for _ in bodies]
            meter.done = 0
            sent = list[int]()
            for exchange in exchanges:
                exchange.answer([bytes(size_bytes)])
                sent.append(meter.done)
            assert sent == [sent_at_once] * len(bodies)  # Behind one that waits for its turn everything waits.
            assert await reader.readexactly(size_bytes * len(bodies)) == bytes(size_bytes * len(bodies))
            assert meter.done == 1
            writer.close()

    run(main())


@pytest.fixture
def freed_alone_bytes(monkeypatch: pytest.MonkeyPatch) -> int:
    """Larger requests are freed in pieces."""
    monkeypatch.setattr(connections, "FREED_ALONE_BYTES", 1_000)
    return connections.FREED_ALONE_BYTES


@pytest.mark.usefixtures("freed_alone_bytes")
def test_large_requests_are_freed_in_pieces_one_in_a_turn(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            for size in (1_990, 100, 7_990, 3_990):
                writer.write(frame(bytes(size)))
            exchanges = [(await served.body())[0] for _ in range(4)]
            leaving = served.listener._leaving
            seen = memoryview(bytes(exchanges[3].frame or b""))
            needed = memoryview(exchanges[3].frame or b"")
            for exchange in exchanges:
                exchange.answer([b"answer"])
            sizes = []
            while leaving:
                sizes.append([len(request) for request in leaving])
                await asyncio.sleep(0)
            assert sizes == [[1_998, 7_998, 3_998], [7_998, 3_998], [3_998, 3_998], [1_998, 3_998], [3_998]]
            assert needed == seen, "what somebody has a view of is not touched"
            writer.close()

    run(main())


@pytest.mark.usefixtures("freed_alone_bytes")
def test_a_request_of_which_there_are_views_is_freed_when_there_are_none(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(bytes(5_000)))
            exchange, _ = await served.body()
            exchange.answer([b"answer"], keeps_frame=True)
            assert not served.listener._leaving
            exchange.forget_frame()
            exchange.forget_frame()
            assert len(served.listener._leaving) == 1
            writer.close()

    run(main())


def test_a_request_that_was_parked_is_freed_in_pieces_when_its_client_goes(run: Run, freed_alone_bytes: int) -> None:
    """Not what a work may have views of, which forgets it at its end."""

    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(bytes(5_000)) + frame(bytes(6_000)))
            parked, held = [(await served.body())[0] for _ in range(2)]
            received = [parked.frame or b"", held.frame or b""]
            is_over = asyncio.Event()
            parked.abandon = lambda: None
            held.abandon = is_over.set
            held.hold()
            writer.close()
            await is_over.wait()
            assert [parked.frame, held.frame] == [None, received[1]]
            await until(lambda: not served.listener._leaving)
            assert len(received[0]) <= freed_alone_bytes
            assert len(received[1]) == 6_008

    run(main())


def test_a_request_that_is_half_received_is_freed_in_pieces_when_its_client_goes(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            _, writer = await served.connect()
            writer.write(frame(bytes(50 << 20))[: 1 << 20])
            await writer.drain()
            listener = served.listener
            await until(lambda: any(connection._frame for connection in listener._connections))
            (received,) = [connection._frame for connection in listener._connections]
            writer.transport.abort()
            await until(lambda: not listener._connections and not listener._leaving)
            assert received is not None
            assert len(received) <= connections.FREED_ALONE_BYTES

    run(main())


def test_a_long_answer_leaves_in_pieces_before_what_is_behind_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SENT_AT_ONCE_BYTES", 1_000)

    async def main() -> None:
        async with Served() as served:
            meter = served.listener.meter = Counted()
            begin_of = Connection._begin_of

            def counted(connection: Connection, *output: Any) -> list[Buffer]:
                begin = begin_of(connection, *output)
                assert sum(map(len, begin)) == 1_000
                meter.done += 1
                return begin

            monkeypatch.setattr(Connection, "_begin_of", counted)
            reader, writer = await served.connect()
            writer.write(frame(b"much") + frame(b"more"))
            (first, _) = await served.body()
            (second, _) = await served.body()
            buffers = [bytes([k]) * 400 for k in range(20)]
            first.answer(buffers)
            second.answer([b"answer"])
            assert await reader.readexactly(8_006) == b"".join([*buffers, b"answer"])
            assert (meter.done, meter.most["answers"]) == (8, 1)
            assert served.listener.account.total_bytes == 0
            for number in range(2):
                writer.write(frame(b"last"))
                (exchange, _) = await served.body()
                exchange.answer(buffers)
                if number:
                    exchange.connection.close("all of it leaves all the same")
                assert await reader.readexactly(8_000) == b"".join(buffers)
            writer.close()

    run(main())


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_a_client_that_does_not_read_leaves_little_to_the_transport(run: Run, *, is_closed: bool) -> None:
    async def main() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            writer.write(frame(b"much"))
            exchange, _ = await served.body()
            buffers = [bytes([k]) * (1 << 20) for k in range(40)]
            exchange.answer(list(buffers))
            connection = exchange.connection
            await until(lambda: connection._is_writing_paused)
            if is_closed:
                connection.close("it gets the rest all the same")
            await loop_turns()
            assert connection._transport is not None
            held_bytes = connection._transport.get_write_buffer_size()
            assert held_bytes <= connections.WRITE_HIGH_BYTES + connections.SENT_AT_ONCE_BYTES
            assert connection._output
            assert await reader.readexactly(40 << 20) == b"".join(buffers)
            if is_closed:
                assert await reader.read() == b""
            writer.close()

    run(main())


def test_a_fetch_without_room_is_told_when_there_is_some(run: Run) -> None:
    async def main() -> None:
        async with Served(bytes_max=1000) as served:
            _, writer = await served.connect()
            writer.write(frame(b"x" * 2000) + frame(b"ask"))
            large, _ = await served.body()
            told = list[str]()
            large.await_room(lambda: told.append("large"))
            asking, _ = await served.body()  # privileged
            asking.await_room(lambda: told.append("asking"))
            large.forget_room()
            await loop_turns()
            assert told == []
            large.answer([])
            await loop_turns()
            assert told == ["asking"]
            asking.await_room(lambda: told.append("there is room"))
            assert not served.listener._roomless
            asking.answer([])
            writer.close()

    run(main())


async def connect_from(served: Served, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", served.listener.port, local_addr=(host, 0))


def test_connections_from_one_address_are_bounded_and_others_are_let_in(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Served(per_host_max=2) as served:
            greedy = [await connect_from(served, "127.0.0.2") for _ in range(2)]
            reader, refused = await connect_from(served, "127.0.0.2")
            assert await reader.read() == b""
            refused.close()
            assert "2 connections are open from this address already (max.connections.per.ip)" in caplog.text
            other = await connect_from(served, "127.0.0.3")
            other[1].write(frame(b"other"))
            exchange, _ = await served.body()
            exchange.answer([])
            greedy[0][1].close()
            await until(lambda: served.listener._by_host["127.0.0.2"] == 1)
            greedy.append(await connect_from(served, "127.0.0.2"))
            greedy[-1][1].write(frame(b"again"))
            exchange, body = await served.body()
            assert body == b"again"
            exchange.answer([])
            for _, writer in [*greedy, other]:
                writer.close()

    run(main())


def test_an_address_that_holds_more_than_its_part_waits_and_another_does_not(run: Run) -> None:
    async def main() -> None:
        async with Served(bytes_max=1 << 20) as served:

            async def ask(host: str, body: bytes) -> asyncio.StreamWriter:
                _, writer = await connect_from(served, host)
                writer.write(frame(body))
                return writer

            writers = [await ask("127.0.0.2", bytes(63_000)) for _ in range(17)]
            held = [(await served.body())[0] for _ in writers]
            assert served.listener.account.is_scarce
            writers.append(await ask("127.0.0.2", b"of a sole address"))
            writers.append(await ask("127.0.0.3", b"of another"))
            held += [(await served.body())[0] for _ in range(2)]
            # One of those that wait goes on all the same, until it is answered.
            writers += [await ask("127.0.0.2", b"too much") for _ in range(3)]
            exchange, body = await served.body()
            held.append(exchange)
            assert body == b"too much"
            writers.append(await ask("127.0.0.3", b"of another"))
            exchange, body = await served.body()
            held.append(exchange)
            assert body == b"of another"
            await loop_turns()
            assert served.arrived.empty()
            for exchange in held:
                exchange.answer([])
            for _ in range(2):
                exchange, body = await served.body()
                assert body == b"too much"
                exchange.answer([])
            for writer in writers:
                writer.close()

    run(main())


@pytest.mark.parametrize(("idle_ms", "sweeps"), [(600_000, 6), (50_000, 6), (10_000, 30)])
def test_how_long_a_client_may_be_slow_does_not_depend_on_how_often_that_is_asked(
    run: Run, idle_ms: int, sweeps: int
) -> None:
    async def main() -> None:
        async with Served(idle_ms=idle_ms) as served:
            connection = Connection(served.listener)
            connection._held = b"half a request"
            assert [connection.is_stuck() for _ in range(sweeps)] == [*[False] * (sweeps - 1), True]
            due_bytes = connections.RATE_BYTES_MIN * 30 // sweeps
            for more_bytes, stuck in ((due_bytes, False), (due_bytes - 1, True)):
                connection._strikes = 0
                answers = list[bool]()
                for _ in range(sweeps):
                    connection.received_bytes += more_bytes
                    answers.append(connection.is_stuck())
                assert answers[-1] is stuck

    run(main())


def test_whether_a_client_is_slow_is_asked_of_its_transport_once(run: Run) -> None:
    async def main() -> None:
        async with Served() as served:
            connection = Connection(served.listener)
            asked = [0]

            def held() -> int:
                asked[0] += 1
                return 1_000

            transport: Any = SimpleNamespace(get_write_buffer_size=held)
            connection._transport = transport
            assert [connection.is_stuck() for _ in range(connections.SWEEPS_STALLED)][-1]
            assert asked == [connections.SWEEPS_STALLED]
            served.listener.account.forget(connection)

    run(main())


def test_answers_that_the_client_cannot_take_yet_are_not_held_against_it(run: Run) -> None:
    """Behind a long fetch others wait; and of a broker that is busy, each look at a client may find one on its way."""

    async def main() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            writer.write(frame(b"a long fetch") + frame(b"metadata"))
            (fetch, _) = await served.body()
            (metadata, _) = await served.body()
            (connection,) = served.listener._connections
            metadata.answer([b"known"])
            assert not any(connection.is_stuck() for _ in range(2 * connections.SWEEPS_STALLED))
            fetch.answer([b"found "])
            assert not any(connection.is_stuck() for _ in range(2 * connections.SWEEPS_STALLED)), (
                "it leaves in this turn"
            )
            assert await reader.readexactly(11) == b"found known"
            writer.close()

    run(main())
