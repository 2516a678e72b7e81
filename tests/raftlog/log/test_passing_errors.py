"""Errors that will pass meet every file operation: nothing is marked, nothing is lost."""

import errno
from contextlib import suppress
from random import Random

import msgspec
import pytest

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.checkpoint import decode
from barnabas_raftlog.log.machine.disk_errors import is_disk_full, is_passing, will_pass
from barnabas_raftlog.log.machine.open_files import FileHandle, OpenFiles
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.scrub import Scrub

from .memory_files import MemoryFiles
from .node import SMALL, Node, fill, replayed

CALLS = [
    "open",
    "open_direct",
    "size",
    "read",
    "write",
    "sync",
    "preallocate",
    "truncate",
    "rename",
    "remove",
    "remove_tree",
    "exists",
    "make_directory",
    "list_directory",
    "sync_directory",
    "sync_file_system",
]
ERRORS = [
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EINTR,
    errno.EAGAIN,
    errno.ENOLCK,
    errno.ENOBUFS,
    errno.ENOSPC,
    errno.EDQUOT,
]
MODES: list[Mode] = ["fsync", "page-cache"]


class Life:
    """Two logs that are written to, cut, read and synced; `expected` is what each must hold."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.node = Node()
        self.logs = [self.node.log(number, mode) for number in (1, 2)]
        for log in self.logs:
            log.on_loaded = lambda _: None
            fill(log, 20)
        self.node.work()

    def live(self) -> None:
        """Do a bit of everything; a call that is refused did nothing."""
        node = self.node
        for log in self.logs:
            for _ in range(20):
                with suppress(StorageFailedError):
                    fill(log, 1, term=log.last_term)
            node.work(1)
            with suppress(StorageFailedError):
                log.truncate_from(log.last_index - 1)
                fill(log, 3, term=log.last_term + 1)
            log.entries(log.first_index, 1_000)
            with suppress(StorageFailedError):
                node.run(log.read_cold(0, 10, 1_000))
            with suppress(StorageFailedError):
                log.load_state()
            log.save_state(log.durable_index, b"a state")
        node.storage.checkpoint()
        node.work()
        for _ in range(2):
            node.wait()

    def check(self) -> None:
        """End the errors: all must be as if they had never been."""
        node = self.node
        for _ in range(4):
            node.wait()
        assert (node.storage.failed, node.storage.refusal, node.storage.hampered.reason) == (None, "", "")
        count = node.storage.stats.checkpoints
        node.storage.checkpoint()
        node.work(8)
        assert node.storage.stats.checkpoints > count
        for log in self.logs:
            assert log.failed is None
            assert (log.durable_index, log.written.reached) == (log.last_index, log.last_index)
            assert node.run(log.read_cold(0, 2, 1_000))
            assert log.entries(log.first_index, 1_000), "followers are given what they lack"
        assert node.storage.shared.suspects == {}
        held = [node.run(replayed(log)) for log in self.logs]
        checkpoint = node.files.names["data/checkpoint"]
        assert checkpoint is not None
        assert not any(row.failed for row in decode(checkpoint.data).rows.values())
        node.files.lose_power(Random(1))
        again = Node(node.files)
        assert [again.run(replayed(again.log(number, self.mode))) for number in (1, 2)] == held
        assert [log.failed for log in again.storage.logs] == [None, None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", CALLS)
def test_an_operation_that_always_fails_for_a_while_costs_nothing_but_time(call: str, code: int, mode: Mode) -> None:
    life = Life(mode)
    life.node.files.failing = lambda what, path: code if what == call else 0
    life.live()
    life.node.files.failing = lambda what, path: 0
    life.check()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("remainder", range(10))
def test_any_single_call_may_fail(remainder: int, mode: Mode) -> None:
    for number in range(remainder, 1_000, 10):
        life = Life(mode)
        left = number

        def fails(call: str, path: str, code: int = ERRORS[number % len(ERRORS)]) -> int:
            nonlocal left
            left -= 1
            return code if left == -1 else 0

        life.node.files.failing = fails
        life.live()
        life.node.files.failing = lambda what, path: 0
        life.check()
        if left >= 0:
            break
    else:
        pytest.fail("there are more calls than were tried")


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", CALLS)
def test_a_start_that_meets_one_is_refused_and_concludes_nothing(call: str, code: int) -> None:
    node = Node()
    logs: list[ReplicaLog] = [node.log(1), node.log(2, "page-cache")]
    for log in logs:
        fill(log, 30)
    node.work()
    log = logs[0]
    log.truncate_from(25)
    fill(log, 5, term=2)
    node.work()
    held = [node.run(replayed(log)) for log in logs]
    node.files.kill()
    node.files.failing = lambda what, path: code if what == call and path != "data/lock" else 0
    with suppress(StorageFailedError, OSError):
        Node(node.files)
    node.files.kill()
    again = Node(node.files)
    assert [again.run(replayed(again.log(1))), again.run(replayed(again.log(2, "page-cache")))] == held


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_what_cannot_be_synced_now_is_copied_and_survives_a_loss_of_power(code: int) -> None:
    """A sync that failed may have lost writes, and another one of the same file would not say so."""
    node = Node()
    log = node.log()
    fill(log, 10)
    node.work()
    path = log.active.log.path
    inode = node.files.names[path]
    node.files.failing = lambda what, where: code if (what, where) == ("sync", path) else 0
    node.storage.checkpoint()
    node.work()
    node.files.failing = lambda what, where: errno.EIO if what == "sync" and node.files.names[where] is inode else 0
    for _ in range(3):
        node.wait()
    fill(log, 3)
    node.work()
    node.storage.checkpoint()
    node.work(8)
    assert (log.failed, node.files.names[path] is inode) == (None, False)
    held = node.run(replayed(log))
    node.files.lose_power(Random(3))
    again = Node(node.files)
    assert again.run(replayed(again.log())) == held


def test_who_borrows_a_file_while_another_takes_its_place_keeps_it_and_the_next_gets_the_new_one() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    opened = OpenFiles(files, 4)
    handle = FileHandle("data/a")
    old = opened.acquire(handle, create=True)
    files.write(old, [b"old"], 0)
    new = files.open("data/b", create=True)
    files.write(new, [b"new"], 0)
    files.rename("data/b", "data/a")
    opened.renew(handle)
    with opened.borrow(handle) as fd:
        assert files.read(fd, 0, 3) == b"new"
        assert files.read(old, 0, 3) == b"old"
    opened.release(handle, old)
    opened.close_all()
    assert list(files._open) == [new]


def test_idle_files_are_closed_when_the_process_has_no_descriptor_left() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    opened = OpenFiles(files, 100)
    handles = [FileHandle(f"data/{number}") for number in range(20)]
    for handle in handles:
        with opened.borrow(handle, create=True):
            pass
    files.failing = lambda call, path: errno.EMFILE if call == "open" and len(files._open) >= 20 else 0
    with opened.borrow(FileHandle("data/more"), create=True):
        assert len(files._open) < 20


def test_a_checkpoint_that_could_not_be_written_is_tried_again_though_nothing_else_happens() -> None:
    """The journal may be waiting for it, with everybody who appends."""
    node = Node()
    log = node.log()
    node.files.failing = lambda what, path: what == "rename" and path.endswith("checkpoint.new")
    for _ in range(60):
        with suppress(StorageFailedError):
            fill(log, 3)
        node.work(1)
    assert log.durable_index < log.last_index, "no journal file is free"
    node.files.failing = lambda what, path: 0
    for _ in range(4):
        node.wait()
    assert log.durable_index == log.last_index


def test_the_scrub_waits_where_a_file_cannot_be_opened_for_the_moment() -> None:
    node = Node(config=msgspec.structs.replace(SMALL, retry_s=0.0))
    log = node.log()
    fill(log, 40)
    node.work()
    left = 3

    def fails(call: str, path: str) -> int:
        nonlocal left
        left -= call == "open" and path.endswith(".log")
        return errno.EMFILE if left >= 0 and call == "open" and path.endswith(".log") else 0

    node.storage.shared.opened.close_all()
    node.files.failing = fails

    async def check() -> Scrub:
        scrub = Scrub(node.storage, lambda: 0, lambda *_: None, rate_bytes=1 << 40, period_ms=1_000)
        await scrub._check(log, log.segments_to_scrub()[0], is_paced=False)
        return scrub

    scrub = node.run(check())
    assert (scrub.damaged, node.storage.shared.suspects, left < 0) == ({}, {}, True)


def test_kinds_of_errors_are_told_apart() -> None:
    kinds = {
        errno.EMFILE: (False, True, True),
        errno.ENOSPC: (True, False, True),
        errno.EIO: (False, False, False),
        errno.EROFS: (False, False, False),
    }
    for code, expected in kinds.items():
        error = OSError(code, "")
        assert (is_disk_full(error), is_passing(error), will_pass(error)) == expected
    assert not will_pass(OSError("the file ends too early"))
    assert not will_pass(ValueError())
