"""Pipes beside an event loop: lines and writes stay whole; signals end the command."""

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.cli.streams import pipes as cli_pipes
from barnabas_broker.cli.streams.lines import LineError
from barnabas_broker.cli.streams.pipes import (
    BlockingThread,
    EndSignals,
    Progress,
    blocks_of_lines,
    typed_bytes,
    write_all,
)


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=30), max_size=30), st.integers(1, 40))
def test_lines_come_whole_whatever_the_reads_were(lines: Sequence[bytes], read_bytes: int) -> None:
    content = b"\n".join(lines)
    with tempfile.TemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_pipes, "READ_BYTES", read_bytes)
        file.write(content)
        file.flush()
        file.seek(0)
        found = [line for block in blocks_of_lines(file.fileno(), 1 << 20) for line in block]
    expected = content.split(b"\n")
    # The rest behind the last newline is a line only if it is not empty.
    assert found == (expected if expected[-1] else expected[:-1])


@pytest.mark.parametrize("content", [b"ok\n" + b"x" * 101, b"ok\n" + b"x" * 101 + b"\n"])
def test_a_line_that_is_too_long_is_named(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_pipes, "READ_BYTES", 10)
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    with pytest.raises(LineError, match="line 2 is longer than 100 bytes"):
        list(blocks_of_lines(reader, 100))
    os.close(reader)


def test_everything_is_written_although_the_pipe_is_full_and_does_not_block() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    data = bytes(range(256)) * 4096
    received = bytearray()

    def read() -> None:
        while block := os.read(reader, 65_536):
            received.extend(block)

    thread = threading.Thread(target=read)
    thread.start()
    write_all(writer, data)
    os.close(writer)
    thread.join()
    os.close(reader)
    assert received == data


async def test_what_blocks_does_not_block_the_loop() -> None:
    reader, writer = os.pipe()
    aside = BlockingThread()
    waiting = asyncio.ensure_future(aside.run(lambda: os.read(reader, 1)))
    # The loop runs on while the other thread waits; this would hang otherwise.
    await asyncio.sleep(0)
    os.write(writer, b"a")
    assert await waiting == b"a"
    os.close(writer)
    os.close(reader)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await aside.run(lambda: os.read(reader, 1))


async def test_the_first_signal_is_a_wish_and_the_second_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(os, "_exit", ended.set_result)
    with EndSignals() as wishes:
        assert await wishes.unless(asyncio.sleep(0, "done")) == "done"
        signal.raise_signal(signal.SIGINT)
        assert await wishes.unless(asyncio.Event().wait()) is None
        assert wishes.signal == signal.SIGINT
        assert not ended.done()
        signal.raise_signal(signal.SIGINT)
        assert await ended == 130


async def test_a_reader_that_leaves_is_noticed_without_a_write() -> None:
    reader, writer = os.pipe()
    with EndSignals(writer) as wishes:
        os.close(reader)
        assert await wishes.unless(asyncio.Event().wait()) is None
        assert wishes.signal is None
    os.close(writer)


async def test_a_wish_takes_what_is_under_way_down_with_it() -> None:
    begun = asyncio.Event()
    ended = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with EndSignals() as wishes:
        both = asyncio.ensure_future(wishes.unless(work()))
        await begun.wait()
        wishes.end.set()
        await both
    assert ended.is_set()


async def test_a_failure_comes_through() -> None:
    async def fail() -> None:
        raise LineError("no")

    with EndSignals() as wishes, pytest.raises(LineError, match="no"):
        await wishes.unless(fail())


def test_progress_counts_and_is_silent_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress("read", shown=False)
    progress.add(1_234_567, 5 << 30)
    progress.close()
    assert str(progress).startswith("read 1,234,567 records, 5.0 GiB, ")
    assert capfd.readouterr() == ("", "")
    assert not Progress.wanted(None)
    assert Progress.wanted(True)


def test_what_is_typed_is_taken_byte_for_byte() -> None:
    assert typed_bytes(r"a\tb") == b"a\tb"
    assert typed_bytes(os.fsdecode(b"\xff")) == b"\xff"
