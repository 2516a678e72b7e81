"""Sealed segments that go from one replica's directory to another's, and become its log."""

import errno

import msgspec
import pytest
from raftlog.log.node import Node, fill, replayed

from barnabas_raftlog.log.replica.lending import SegmentGoneError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.transfer.incoming import DamagedTransferError, Incoming, Prepared
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile

both_modes = pytest.mark.parametrize("mode", ["fsync", "page-cache"])
CHUNK = 3000


def source(count: int = 70, mode: Mode = "fsync") -> tuple[Node, ReplicaLog]:
    """Return a log of five segments, four of them sealed."""
    node = Node()
    log = node.log(mode=mode)
    fill(log, count)
    node.work()
    return node, log


def manifest_of(node: Node, log: ReplicaLog, state: bytes = b"state", committed_index: int | None = None) -> Manifest:
    async def make() -> Manifest:
        files: list[SegmentFile] = []
        for segment in log.sealed_segments(log.last_index if committed_index is None else committed_index):
            checksum = None
            while checksum is None:
                checksum = await log.checksum_more(segment)
            files.append(log.file_of(segment, checksum))
        return log.manifest(files, state)

    return node.run(make())


def content(node: Node, log: ReplicaLog, file: SegmentFile) -> bytes:
    segment = log.sealed_segment(file.base_offset, file.first_index, log.last_index)
    return bytes(node.run(log.read_file(segment, 0, file.size_bytes)))


def position_of(incoming: Incoming, file: SegmentFile) -> int:
    while (position := incoming.open(file)) is None:
        pass
    return position


def receive(incoming: Incoming, file: SegmentFile, data: bytes) -> None:
    for position in range(position_of(incoming, file), len(data), CHUNK):
        incoming.write(file, position, data[position : position + CHUNK])
    incoming.finish(file)


def transfer(node: Node, log: ReplicaLog, target: ReplicaLog) -> Prepared:
    """Send everything that is sealed."""
    manifest = manifest_of(node, log)
    incoming = target.incoming()
    incoming.begin(manifest)
    for file in manifest.files:
        receive(incoming, file, content(node, log, file))
    return incoming.prepare()


def target_of(mode: Mode = "fsync", count: int = 20) -> tuple[Node, ReplicaLog]:
    """Return a log that has something of its own."""
    node = Node()
    log = node.log(mode=mode)
    fill(log, count)
    node.work()
    return node, log


@both_modes
def test_what_was_received_becomes_the_log(mode: Mode) -> None:
    there, log = source(mode=mode)
    here, other = target_of(mode)
    prepared = transfer(there, log, other)
    index = prepared.manifest.snapshot_index
    other.adopt(prepared)
    assert other.durable_index < index == other.last_index, "nothing is durable before the journal has it"
    here.work()
    assert other.durable_index == index
    assert other.load_state() == (index, b"state")
    assert here.run(replayed(other)) == here.run(replayed(log))[:index]
    other.append(log.entries(index + 1, 1 << 20) or ())
    here.work()
    assert here.run(replayed(other))[-1][0] > index
    here.close()
    again = Node(here.files).log(mode=mode)
    assert here.run(replayed(again)) == here.run(replayed(other))


@both_modes
@pytest.mark.parametrize("checkpoint", [True, False])
def test_it_is_the_log_after_a_crash(mode: Mode, checkpoint: bool) -> None:
    there, log = source(mode=mode)
    here, other = target_of(mode)
    prepared = transfer(there, log, other)
    other.adopt(prepared)
    here.work()
    if checkpoint:
        here.storage.checkpoint()
        here.work()
    fill(other, 3)
    here.work()
    expected = here.run(replayed(other))
    node = here.killed()
    assert node.run(replayed(node.log(mode=mode))) == expected


def test_indexes_and_timestamps_come_along() -> None:
    there, log = source()
    here, other = target_of()
    other.adopt(transfer(there, log, other))
    here.work()
    for offset in (0, 33, 101):
        frames = here.run(other.read_cold(offset, other.log_end_offset, 1 << 16))
        assert frames == there.run(log.read_cold(offset, other.log_end_offset, 1 << 16))
    assert here.run(other.offset_for_timestamp(1030, 200)) == there.run(log.offset_for_timestamp(1030, 200))
    assert other.term_at(5) == 1
    assert other.offset_after(40) == log.offset_after(40)


def test_a_transfer_goes_on_where_it_was_interrupted() -> None:
    there, log = source()
    here, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    first, second, *_ = manifest.files
    assert incoming.begin(manifest) == (frozenset(), 0)
    receive(incoming, first, content(there, log, first))
    data = content(there, log, second)
    assert position_of(incoming, second) == 0
    incoming.write(second, 0, data[:CHUNK])
    # The same process, perhaps another sender: to the byte.
    assert incoming.begin(manifest) == (frozenset({first}), CHUNK)
    assert position_of(incoming, second) == CHUNK
    # Another process: at the last whole batch.
    here = here.killed()
    incoming = here.log().incoming()
    complete, left = incoming.begin(manifest)
    assert (complete, left) == (frozenset({first}), CHUNK)
    position = position_of(incoming, second)
    assert CHUNK - 600 < position <= CHUNK
    for start in range(position, len(data), CHUNK):
        incoming.write(second, start, data[start : start + CHUNK])
    incoming.finish(second)


def test_another_manifest_keeps_the_files_that_it_names() -> None:
    there, log = source()
    _, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    incoming.begin(manifest)
    for file in manifest.files[:2]:
        receive(incoming, file, content(there, log, file))
    fill(log, 40)
    there.work()
    longer = manifest_of(there, log)
    assert len(longer.files) > len(manifest.files)
    assert incoming.begin(longer)[0] == set(manifest.files[:2])
    log.save_state(log.durable_index, b"state")
    log.drop_before(manifest.files[1].base_offset, log.last_index)
    there.work()
    shorter = manifest_of(there, log)
    assert incoming.begin(shorter)[0] == {manifest.files[1]}


def test_a_flipped_bit_is_found_where_it_is() -> None:
    there, log = source()
    _, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    file = manifest.files[0]
    data = content(there, log, file)
    bad = bytearray(data)
    bad[4000] ^= 16
    incoming.begin(manifest)
    position_of(incoming, file)
    incoming.write(file, 0, bad[:CHUNK])
    with pytest.raises(DamagedTransferError, match="no valid batch"):
        incoming.write(file, CHUNK, bad[CHUNK : 2 * CHUNK])
    position = position_of(incoming, file)
    assert 3000 < position <= 4000, "what was right stays"
    receive(incoming, file, data)


def test_a_flipped_bit_in_what_no_batch_checksums_is_found_at_once() -> None:
    """Base offset and epoch are stamped by leaders, outside the batch's checksum."""
    there, log = source()
    _, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    file = manifest.files[0]
    for place in (15, 7, 561 + 15, 561 + 7):
        bad = bytearray(content(there, log, file))
        bad[place] ^= 2
        incoming.begin(manifest)
        with pytest.raises(DamagedTransferError, match="no valid batch"):
            receive(incoming, file, bytes(bad))
    receive(incoming, file, content(there, log, file))


def test_a_file_that_is_wrong_at_the_same_place_twice_is_fetched_from_its_beginning() -> None:
    there, log = source()
    _, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    file = manifest.files[0]
    bad = bytearray(content(there, log, file))
    bad[4000] ^= 16
    incoming.begin(manifest)
    for _ in range(2):
        with pytest.raises(DamagedTransferError):
            receive(incoming, file, bytes(bad))
    assert position_of(incoming, file) == 0


def test_a_file_with_another_checksum_than_was_promised_does_not_count() -> None:
    there, log = source()
    _, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    data = content(there, log, manifest.files[0])
    file = msgspec.structs.replace(manifest.files[0], crc32c=7)
    incoming.begin(msgspec.structs.replace(manifest, files=(file, *manifest.files[1:])))
    with pytest.raises(DamagedTransferError, match="promised"):
        receive(incoming, file, data)
    assert position_of(incoming, file) == 0


def test_a_flipped_bit_on_the_disk_of_an_unfinished_transfer_is_found() -> None:
    there, log = source()
    here, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    file = manifest.files[0]
    data = content(there, log, file)
    incoming.begin(manifest)
    position_of(incoming, file)
    incoming.write(file, 0, data[: 2 * CHUNK])
    here = here.killed()
    inode = next(inode for name, inode in here.files.names.items() if name.endswith(".part") and inode is not None)
    inode.data[3500] ^= 1
    incoming = here.log().incoming()
    incoming.begin(manifest)
    assert 2500 < position_of(incoming, file) <= 3500
    receive(incoming, file, data)


def test_a_pinned_file_stays_though_the_log_starts_later() -> None:
    there, log = source()
    manifest = manifest_of(there, log)
    segments = log.sealed_segments(log.last_index)
    log.pin(segments)
    log.save_state(log.durable_index, b"state")
    log.drop_before(log.log_end_offset, log.last_index)
    there.work()
    assert log.log_start_offset == log.log_end_offset
    assert content(there, log, manifest.files[0])
    log.unpin(segments)
    there.work()
    with pytest.raises(SegmentGoneError):
        content(there, log, manifest.files[0])


def test_what_is_not_written_or_not_committed_is_not_sealed() -> None:
    _, log = source(count=40)
    assert len(log.sealed_segments(log.last_index)) == 2
    assert len(log.sealed_segments(20)) == 1
    fill(log, 20)
    assert len(log.sealed_segments(log.last_index)) == 2, "its file is still to be written"


def test_a_full_disk_interrupts_a_transfer_and_costs_nothing() -> None:
    there, log = source()
    here, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    file = manifest.files[0]
    data = content(there, log, file)
    incoming.begin(manifest)
    position_of(incoming, file)
    incoming.write(file, 0, data[:CHUNK])
    here.files.full_at_bytes = sum(len(inode.data) for inode in here.files.names.values() if inode is not None)
    with pytest.raises(OSError, match="full"):
        incoming.write(file, CHUNK, data[CHUNK : 2 * CHUNK])
    here.files.full_at_bytes = None
    assert position_of(incoming, file) == CHUNK
    receive(incoming, file, data)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ENOMEM])
def test_a_file_that_could_not_be_synced_is_fetched_again(code: int) -> None:
    """Nobody knows how much of it is on the disk, and a second sync would say that all of it is."""
    there, log = source()
    here, other = target_of()
    manifest = manifest_of(there, log)
    incoming = other.incoming()
    file = manifest.files[0]
    incoming.begin(manifest)
    here.files.failing = lambda call, path: code if call == "sync" and path.endswith(".part") else 0
    with pytest.raises(OSError, match="on purpose"):
        receive(incoming, file, content(there, log, file))
    here.files.failing = lambda call, path: 0
    assert position_of(incoming, file) == 0
    receive(incoming, file, content(there, log, file))
