"""The kernel's own writes and syncs: a real file, a real loop."""

import asyncio
import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from pathlib import Path

import pytest
from cancellation import open_files

from barnabas_raftlog.log.journal.format import SECTOR_BYTES
from barnabas_raftlog.log.journal.kernel_sync import ROOM_BYTES, KernelSync, open_kernel_sync
from barnabas_raftlog.log.machine import files
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.raft.messages import Buffer

WAIT_S = 20.0


def test_a_file_is_synced_again_and_again_and_the_loop_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        syncer = KernelSync(loop)
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        async with asyncio.timeout(WAIT_S):
            for number in range(50):
                os.pwrite(fd, b"record", number * 6)
                answer: asyncio.Future[OSError | None] = loop.create_future()
                assert syncer.begin(fd, answer.set_result)
                assert not answer.done()
                assert await answer is None
        os.close(fd)
        syncer.close()

    asyncio.run(main())


@pytest.mark.parametrize("is_direct", [True, False])
def test_what_is_written_and_synced_in_one_go_is_in_the_file(tmp_path: Path, is_direct: bool) -> None:
    """The test goes past the page cache if this file system can."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        syncer = KernelSync(loop)
        path = tmp_path / "file"
        path.write_bytes(b"x" * 4 * SECTOR_BYTES)
        fd = OsFiles().open_direct(str(path), SECTOR_BYTES) if is_direct else None
        if fd is None:
            fd = os.open(path, os.O_WRONLY)
        async with asyncio.timeout(WAIT_S):
            batches: list[list[Buffer]] = [[b"first", memoryview(b"a longer second one")], [bytearray(b"third")]]
            for buffers in batches:
                answer: asyncio.Future[OSError | None] = loop.create_future()
                assert syncer.begin_write(fd, buffers, SECTOR_BYTES, answer.set_result)
                assert not answer.done()
                assert await answer is None
                sector = b"".join(buffers).ljust(SECTOR_BYTES, b"\0")
                assert path.read_bytes() == b"x" * SECTOR_BYTES + sector + b"x" * 2 * SECTOR_BYTES
            whole = b"y" * 2 * SECTOR_BYTES
            answer = loop.create_future()
            assert syncer.begin_write(fd, [whole], 0, answer.set_result)
            assert await answer is None
            assert path.read_bytes()[: 2 * SECTOR_BYTES] == whole
        os.close(fd)
        syncer.close()

    asyncio.run(main())


def test_what_cannot_be_written_or_not_as_a_whole_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        syncer = KernelSync(loop)
        path = tmp_path / "file"
        fd = os.open(path, os.O_RDONLY | os.O_CREAT)
        told: list[OSError | None] = []
        assert not syncer.begin_write(fd, [b"to a file that is only to be read"], 0, told.append)
        os.close(fd)
        fd = os.open(path, os.O_WRONLY)
        assert not syncer.begin_write(fd, [bytes(ROOM_BYTES), b"more"], 0, told.append), "more than it has room for"
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        told_why = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SECTOR_BYTES, limits[1]))
        try:
            async with asyncio.timeout(WAIT_S):
                for position, code in ((0, errno.EIO), (SECTOR_BYTES, errno.EFBIG)):
                    answer: asyncio.Future[OSError | None] = loop.create_future()
                    assert syncer.begin_write(fd, [bytes(2 * SECTOR_BYTES)], position, answer.set_result)
                    error = await answer
                    assert error is not None
                    assert error.errno == code
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, told_why)
        assert told == []
        os.close(fd)
        syncer.close()

    asyncio.run(main())


@pytest.mark.parametrize(("memory", "offset", "is_opened"), [(4, 512, True), (512, 4096, False), (1 << 20, 512, False)])
def test_only_a_file_that_takes_single_sectors_is_opened_past_the_page_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory: int, offset: int, is_opened: bool
) -> None:
    path = tmp_path / "file"
    path.touch()

    def statx(_fd: int, _path: bytes, _flags: int, mask: int, answer: "ctypes.Array[ctypes.c_char]") -> int:
        struct.pack_into("=I", answer, 0, mask)
        struct.pack_into("=II", answer, 0x98, memory, offset)
        return 0

    monkeypatch.setattr(files, "_statx", statx)
    monkeypatch.setattr(files, "_direct", os.O_CLOEXEC)  # whatever this file system knows
    fd = OsFiles().open_direct(str(path), SECTOR_BYTES)
    assert (fd is not None) == is_opened
    # Of this file only: others are closed whenever the collector finds who left them open.
    assert open_files().count(str(path)) == is_opened
    if fd is not None:
        os.close(fd)


def test_what_cannot_be_synced_is_refused_and_the_next_one_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        syncer = KernelSync(loop)
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        told: list[OSError | None] = []
        assert not syncer.begin(1_000_000, told.append), "no such descriptor"
        reader, writer = os.pipe()
        assert not syncer.begin(writer, told.append), "nothing that is on a disk"
        answer: asyncio.Future[OSError | None] = loop.create_future()
        assert syncer.begin(fd, answer.set_result)
        async with asyncio.timeout(WAIT_S):
            assert await answer is None
        assert told == []
        for each in (fd, reader, writer):
            os.close(each)
        syncer.close()

    asyncio.run(main())


def test_a_request_whose_outcome_cannot_be_learned_has_failed(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        syncer = KernelSync(loop)
        syncer._getevents = ctypes.c_long(-1)  # a call that no kernel has
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        answer: asyncio.Future[OSError | None] = loop.create_future()
        assert syncer.begin(fd, answer.set_result)
        async with asyncio.timeout(WAIT_S):
            error = await answer
        assert error is not None
        assert error.errno == errno.EIO
        os.close(fd)
        syncer.close()

    asyncio.run(main())


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[int]()
    closed = list[int]()
    open_event = os.eventfd
    close = os.close

    def opens(*args: int) -> int:
        opened.append(open_event(*args))
        return opened[-1]

    def closes(fd: int) -> None:
        closed.append(fd)
        close(fd)

    async def main() -> None:
        syncers = [open_kernel_sync(asyncio.get_running_loop()) for _ in range(3)]
        for syncer in syncers:
            assert syncer is not None
            syncer.close()

    monkeypatch.setattr(os, "eventfd", opens)
    monkeypatch.setattr(os, "close", closes)
    asyncio.run(main())
    assert len(opened) == 3
    assert [fd for fd in closed if fd in opened] == opened


def test_where_the_kernel_has_no_such_calls_a_thread_must_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(platform, "machine", lambda: "pdp11")
        assert open_kernel_sync(asyncio.get_running_loop()) is None

    asyncio.run(main())
