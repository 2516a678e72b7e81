"""Large batches of the journal go past the page cache, in whole sectors."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from raftlog.log.memory_files import MemoryFiles
from raftlog.log.node import ROOMY, Node, fill, replayed

from barnabas_raftlog.log.journal import journal
from barnabas_raftlog.log.journal.format import SECTOR_BYTES
from barnabas_raftlog.log.journal.journal import LARGE_BYTES
from barnabas_raftlog.log.journal.sector_room import SectorRoom
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.segments.write_queue import NOTHING_STORED
from barnabas_raftlog.raft.messages import Buffer

CONFIG = replace(ROOMY, stored_bytes_min=NOTHING_STORED)  # all of them go to the journal

BODY_BYTES = 1000
MANY = LARGE_BYTES // BODY_BYTES + 1


class Counting(MemoryFiles):
    """Counts writes past the page cache; that they are of whole sectors is asserted by `MemoryFiles`."""

    def __init__(self) -> None:
        super().__init__()
        self.direct_sizes: list[int] = []

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        if fd in self._direct:
            self.direct_sizes.append(sum(map(len, buffers)))
        super().write(fd, buffers, position)


def started(files: Counting) -> tuple[Node, ReplicaLog]:
    node = Node(files, CONFIG)
    log = node.log()
    fill(log, 1)
    node.work()
    assert (log.durable_index, files.direct_sizes) == (1, [])
    return node, log


def after_power_loss(files: Counting, seed: int) -> list[tuple[int, int, bytes]]:
    files.lose_power(Random(seed))
    again = Node(files, CONFIG)
    return again.run(replayed(again.log()))


@pytest.mark.parametrize("piece_bytes", [SECTOR_BYTES, 16 * SECTOR_BYTES, 1 << 20])
def test_a_large_batch_is_what_it_was_after_a_loss_of_power(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(journal, "PIECE_BYTES", piece_bytes)
    files = Counting()
    node, log = started(files)
    for count in (MANY, 1, 2 * MANY, 3):
        fill(log, count, body_bytes=BODY_BYTES)
        node.work()
        assert log.durable_index == log.last_index
    assert sum(files.direct_sizes) > 3 * LARGE_BYTES
    assert max(files.direct_sizes) <= piece_bytes
    before = node.run(replayed(log))
    assert after_power_loss(files, 1) == before


def test_a_loss_of_power_in_the_middle_of_one_takes_nothing_that_was_durable() -> None:
    for seed in range(30):
        files = Counting()
        node, log = started(files)
        fill(log, MANY, body_bytes=BODY_BYTES)
        node.work()
        durable = log.durable_index
        before = node.run(replayed(log))
        files.failing = lambda what, path: what == "sync" and path.endswith(".journal")
        fill(log, MANY, body_bytes=BODY_BYTES)
        node.storage.flush()
        node.sync_worker.run_one()
        assert log.durable_index == durable
        after = after_power_loss(files, seed)
        assert after[:durable] == before
        assert durable <= len(after) <= durable + MANY


def test_where_there_is_nothing_but_the_page_cache_it_takes_that() -> None:
    files = Counting()
    files.has_direct = False
    node, log = started(files)
    fill(log, MANY, body_bytes=BODY_BYTES)
    node.work()
    before = node.run(replayed(log))
    assert (after_power_loss(files, 2), files.direct_sizes) == (before, [])


def test_what_failed_past_the_page_cache_goes_through_it_from_then_on() -> None:
    files = Counting()
    node, log = started(files)
    bad = next(name for name in files.names if name.endswith(".journal"))
    files.failing = lambda what, path: what == "write" and path == bad
    for _ in range(2):
        fill(log, MANY, body_bytes=BODY_BYTES)
        node.work()
        assert log.durable_index == log.last_index
        assert len(files.direct_sizes) == 1
    assert node.storage.stats.journal_reopened == 1
    before = node.run(replayed(log))
    assert after_power_loss(files, 3) == before


def test_a_file_is_made_for_whole_sectors_where_a_record_is_larger_than_a_file() -> None:
    files = Counting()
    node = Node(files, replace(CONFIG, journal_file_bytes=64 << 10, journal_step_bytes=16 << 10))
    log = node.log()
    fill(log, 1, body_bytes=200_001)
    node.work()
    assert log.durable_index == 1
    assert files.direct_sizes
    assert all(
        len(inode.data) % SECTOR_BYTES == 0 for name, inode in files.names.items() if inode and "journal/" in name
    )
    assert len(after_power_loss(files, 4)) == 1


@pytest.mark.parametrize("room_bytes", [SECTOR_BYTES, 3 * SECTOR_BYTES])
def test_pieces_are_all_the_bytes_and_zeros_up_to_a_sector(room_bytes: int) -> None:
    sizes = (0, 1, SECTOR_BYTES - 1, SECTOR_BYTES, SECTOR_BYTES + 1, 3 * SECTOR_BYTES, 5 * SECTOR_BYTES + 7)
    room = SectorRoom(room_bytes)
    rng = Random(5)
    for chosen in itertools.product(sizes, repeat=2):
        buffers = [rng.randbytes(size) for size in chosen]
        whole = b"".join(buffers)
        pieces = [bytes(piece) for piece in room.pieces(buffers)]
        assert all(len(piece) == room_bytes for piece in pieces[:-1])
        assert all(len(piece) % SECTOR_BYTES == 0 < len(piece) for piece in pieces)
        assert b"".join(pieces) == whole + bytes(-len(whole) % SECTOR_BYTES)


def test_a_device_takes_the_pieces_as_they_are(tmp_path: Path) -> None:
    """The test goes past the page cache if this file system can."""
    files = OsFiles()
    path = f"{tmp_path}/file"
    data = Random(6).randbytes(3_000_000)
    fd = files.open(path, create=True)
    files.preallocate(fd, 0, 4 << 20)
    direct_fd = files.open_direct(path, SECTOR_BYTES)
    position = SECTOR_BYTES
    for piece in SectorRoom(1 << 20).pieces([data[:1_234_567], data[1_234_567:]]):
        files.write(fd if direct_fd is None else direct_fd, [piece], position)
        position += len(piece)
    files.sync(fd)
    assert files.read(fd, SECTOR_BYTES, len(data)) == data
    for opened in (fd, direct_fd):
        if opened is not None:
            files.close(opened)
