"""A transfer that dies at any call leaves the old log or the new one."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.log.memory_files import CrashError
from raftlog.log.node import Node, fill, replayed

from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.transfer.incoming import DamagedTransferError, Incoming, Prepared
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile

from .transfers import files_of, frames_of_segments, manifest_of

START = 30
LAST = 52
CHUNK = 700
FRAMES = frames_of_segments(START, LAST, 2)
FILES = files_of(FRAMES, START)
MANIFEST = manifest_of(FILES, START, LAST, 2, b"as of 52")
SHORT = manifest_of(FILES[:2], START, FILES[1][0].last_index, 2, b"as of it")
EXPECTED = [(index, 2, frame) for index, frame in enumerate(FRAMES, START + 1)]


class Sender:
    """Has all files, and counts the chunks that it gives; flips a bit in chunk number `damaged`."""

    def __init__(self, damaged: int) -> None:
        self.count = 0
        self.damaged = damaged
        self.sent_bytes = 0

    def chunk(self, file: SegmentFile, position: int) -> bytes:
        data = bytearray(next(data for known, data in FILES if known == file)[position : position + CHUNK])
        self.count += 1
        self.sent_bytes += len(data)
        if self.count == self.damaged:
            data[self.count % len(data)] ^= 4
        return bytes(data)


def receive(
    incoming: Incoming, sender: Sender, manifest: Manifest, *, stop_before: SegmentFile | None = None
) -> Prepared | None:
    """Act as the receiving end of catch-up."""
    complete, _ = incoming.begin(manifest)
    for file in manifest.files:
        if file == stop_before:
            return None
        while file not in complete:
            position = incoming.open(file)
            if position is None:
                continue
            try:
                while position < file.size_bytes:
                    data = sender.chunk(file, position)
                    incoming.write(file, position, data)
                    position += len(data)
                incoming.finish(file)
            except DamagedTransferError:
                continue
            break
    return incoming.prepare()


def work(node: Node, *, write_first: bool) -> None:
    for _ in range(4):
        node.storage.flush()
        workers = [node.sync_worker, node.write_worker]
        for worker in reversed(workers) if write_first else workers:
            worker.run()


def run(node: Node, log: ReplicaLog, sender: Sender, *, checkpoint: bool, write_first: bool) -> None:
    if log.last_index < LAST:
        prepared = receive(log.incoming(), sender, MANIFEST)
        assert prepared is not None
        if checkpoint:
            node.storage.checkpoint()
        log.adopt(prepared)
    work(node, write_first=write_first)
    fill(log, 1, 10, term=3)
    work(node, write_first=write_first)


@given(
    mode=st.sampled_from(["fsync", "page-cache"]),
    calls=st.lists(st.integers(0, 230), min_size=1, max_size=3),
    power=st.booleans(),
    checkpoint=st.booleans(),
    write_first=st.booleans(),
    damaged=st.integers(0, 60),
    seed=st.integers(0, 1 << 16),
)
@settings(max_examples=150, deadline=None)
def test_a_crash_leaves_the_old_log_or_the_new_one(
    mode: Mode, calls: list[int], power: bool, checkpoint: bool, write_first: bool, damaged: int, seed: int
) -> None:
    rng = Random(seed)
    node = Node()
    sender = Sender(damaged)
    log = node.log(mode=mode)
    fill(log, 20)
    node.work()
    node.storage.checkpoint()
    node.work()
    old = node.run(replayed(log))
    for crash_in in calls:
        was_new = log.last_index >= LAST and log.durable_index >= LAST
        node.files.crash_in = crash_in
        with suppress(CrashError):
            run(node, log, sender, checkpoint=checkpoint, write_first=write_first)
        was_new |= log.durable_index >= LAST
        if power:
            node.files.lose_power(rng)
        else:
            node.files.kill()
        node = Node(node.files)
        log = node.log(mode=mode)
        assert log.failed is None, log.failed
        found = node.run(replayed(log))
        if log.last_index >= LAST:
            assert found[: len(EXPECTED)] == EXPECTED
            assert log.load_state() == (LAST, b"as of 52")
        else:
            assert found == old
            assert not was_new
    node.files.crash_in = None
    run(node, log, sender, checkpoint=checkpoint, write_first=write_first)
    assert node.run(replayed(log))[: len(EXPECTED)] == EXPECTED
    if not power and not damaged:
        # Each crash may cost the chunk that was on its way, and a batch that was cut off.
        assert sender.sent_bytes <= MANIFEST.size_bytes + len(calls) * 2 * CHUNK
    expect_nothing_left(node)


def expect_nothing_left(node: Node) -> None:
    directories = [name for name, inode in node.files.names.items() if inode is None]
    assert not [name for name in directories if "incoming" in name or "installing" in name]


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", range(3))
def test_a_loss_of_power_at_any_call_around_the_adoption(mode: Mode, seed: int) -> None:
    """From the last file's check to the moment when nothing is left to do, with the two workers in either order."""
    rng = Random(seed)
    calls = 0
    is_over = False
    while not is_over:
        node = Node()
        sender = Sender(0)
        log = node.log(mode=mode)
        fill(log, 3)
        node.work()
        incoming = log.incoming()
        receive(incoming, sender, SHORT, stop_before=SHORT.files[-1])
        node.files.crash_in = calls
        try:
            prepared = receive(incoming, sender, SHORT)
            assert prepared is not None
            log.adopt(prepared)
            work(node, write_first=bool(seed % 2))
            node.storage.checkpoint()
            work(node, write_first=bool(seed % 2))
            is_over = True
        except CrashError:
            pass
        is_durable = log.durable_index == SHORT.snapshot_index
        node.files.lose_power(rng)
        node = Node(node.files)
        log = node.log(mode=mode)
        assert log.failed is None, (calls, log.failed)
        if log.last_index == SHORT.snapshot_index:
            assert [entry[2] for entry in node.run(replayed(log))] == FRAMES[: SHORT.snapshot_index - START], calls
            assert log.load_state() == (SHORT.snapshot_index, b"as of it"), calls
            node.work()
            expect_nothing_left(node)
        else:
            assert not is_durable, calls
            assert log.last_index <= 3
        calls += 1
    assert calls > 30
