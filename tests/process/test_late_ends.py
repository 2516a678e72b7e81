"""T1, the anomaly that Jepsen found: an EndTxn that comes late ends the next transaction, with the first protocol.

The clients and the history are those of `scripts/torture --workload txn`. A wire holds the first EndTxn back and breaks
the connection; the client asks again, is told of the commit and begins its next transaction; then the first one comes.
The history's checker must find what that does; with the second protocol the broker refuses it.
"""

import asyncio
import contextlib
import struct
from pathlib import Path
from typing import NamedTuple, Self

import pytest
import servers
from trials.load import Recorder
from trials.transactions.story import Aborting, Book, Telling, consumed_of

from barnabas_broker.history import events as e
from barnabas_broker.history.violations import Rule
from barnabas_broker.testing import Cluster
from barnabas_clients import Admin, Consumer, KafkaError, Producer, TopicPartition
from barnabas_clients.errors import ClientError
from barnabas_clients.producer import conversation
from barnabas_clients.protocol.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import decode_response

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC = "late"
END_TXN = 26


class Held(NamedTuple):
    """A request that its client believes to be lost, and the connection to the broker on which it shall go."""

    frame: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def release(self) -> ErrorCode:
        """Send it, and return the code of the answer."""
        self.writer.write(self.frame)
        version = int.from_bytes(self.frame[6:8], "big")
        while True:
            answer = await frame_of(self.reader)
            if answer[4:8] == self.frame[8:12]:  # others of this connection were answered before
                ended = decode_response(EndTxnRequest, answer[4:], version)
                assert isinstance(ended, EndTxnResponse)
                return ErrorCode(ended.error_code)


class HoldingWire:
    """A wire that holds the next EndTxn back when `holds` is set, and breaks its connection to the client."""

    def __init__(self) -> None:
        self.holds = False
        self.held: list[Held] = []
        self.target_port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await servers.end(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for held in self.held:
            held.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        upstream, sink = await asyncio.open_connection("127.0.0.1", self.target_port)
        answers = asyncio.create_task(forward(upstream, writer))
        frame = None
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                frame = await self._forward_until_held(reader, sink)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            writer.close()
            if frame is None:
                sink.close()
            else:
                self.held.append(Held(frame, upstream, sink))

    async def _forward_until_held(self, reader: asyncio.StreamReader, sink: asyncio.StreamWriter) -> bytes:
        while True:
            frame = await frame_of(reader)
            if self.holds and int.from_bytes(frame[4:6], "big") == END_TXN:
                self.holds = False
                return frame
            sink.write(frame)
            await sink.drain()


async def frame_of(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward whole answers: a connection that is broken in the middle would leave half of one unread."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            writer.write(await frame_of(reader))
            await writer.drain()


async def read_on(consumer: Consumer, recorder: Recorder, until: int) -> None:
    """Read what is committed up to an offset, or up to the first empty answer, and tell it."""
    while await consumer.position(TopicPartition(TOPIC, 0)) < until:
        for records in (await consumer.get_many(timeout_s=5.0)).values():
            for record in records:
                recorder.tell(consumed_of("reader", record))


async def run(wire: HoldingWire, recorder: Recorder) -> ErrorCode:
    """Let an EndTxn come late, and tell the history; return what it was answered."""
    address = f"127.0.0.1:{wire.port}"
    async with Admin(address) as admin:
        await admin.create_topic(TOPIC, 1, 1)
    book = Book(recorder)
    async with (
        Producer(address, transactional_id="id", timeout_s=30.0) as producer,
        Consumer(address, read_committed=True) as consumer,
    ):
        place = TopicPartition(TOPIC, 0)
        recorder.tell(e.DeclaredConsumer(consumer="reader", read_committed=True))
        await consumer.assign([place])
        await consumer.seek(place, 0)
        recorder.tell(e.Positioned(consumer="reader", partition=f"{TOPIC}-0", offset=0))
        telling = Telling(book, producer, "id", "writer")
        async with telling.transaction([]) as (name, _):
            await telling.send(name, TOPIC, 0)
            wire.holds = True
        with contextlib.suppress(Aborting, ClientError, KafkaError):
            async with telling.transaction([]) as (name, _):
                await telling.send(name, TOPIC, 0)
                await producer.flush()
                code = await wire.held[0].release()
                if code == ErrorCode.NONE:
                    await read_on(consumer, recorder, 3)  # a record, its marker, and this one
                raise Aborting
        if code != ErrorCode.NONE:
            async with telling.transaction([]) as (name, _):
                await telling.send(name, TOPIC, 0)
            await read_on(consumer, recorder, 5)  # behind the aborted one and its marker
    return code


@pytest.mark.parametrize("level", [1, 2])
async def test_t1_a_late_end_ends_the_next_transaction_with_v1_and_is_fenced_with_v2(
    level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if level == 1:
        monkeypatch.setattr(conversation, "FEATURE", "none")
    recorder = Recorder(tmp_path / "history")
    async with HoldingWire() as wire:
        settings = {"advertised.listeners": f"127.0.0.1:{wire.port}"}
        async with Cluster(1, settings=settings) as cluster, asyncio.timeout(60):
            wire.target_port = cluster.nodes[1].port
            code = await run(wire, recorder)
    recorder.close()
    assert recorder.contradictions == []
    rules = [violation.rule for violation in recorder.checker.violations]
    if level == 1:
        assert code == ErrorCode.NONE
        assert Rule.OPEN_READ in rules, rules
    else:
        assert code == ErrorCode.PRODUCER_FENCED
        assert rules == []
        assert recorder.checker.summary().consumed == 2
