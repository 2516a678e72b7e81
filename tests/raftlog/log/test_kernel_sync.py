"""The kernel's own syncs: a real file, a real loop."""

import asyncio
import os
import platform
from pathlib import Path

import pytest

from barnabas_raftlog.log.kernel_sync import KernelSync, open_kernel_sync

WAIT_S = 20.0


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


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


def test_nothing_is_left_behind() -> None:
    async def main() -> None:
        before = descriptors()
        syncers = [open_kernel_sync(asyncio.get_running_loop()) for _ in range(3)]
        assert descriptors() == before + 3
        for syncer in syncers:
            assert syncer is not None
            syncer.close()
        assert descriptors() == before

    asyncio.run(main())


def test_where_the_kernel_has_no_such_calls_a_thread_must_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(platform, "machine", lambda: "pdp11")
        assert open_kernel_sync(asyncio.get_running_loop()) is None

    asyncio.run(main())
