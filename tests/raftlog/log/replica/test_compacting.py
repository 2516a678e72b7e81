"""A log with compacted segments: the view of readers, crashes, and files that go."""

import asyncio
from contextlib import suppress
from random import Random

import pytest
from raftlog.log.frames import data_frame
from raftlog.log.memory_files import CrashError
from raftlog.log.node import Node
from raftlog.log.transfer.transfers import frames_of_segments, received

from barnabas_raftlog.log.replica import compacting, write_behind
from barnabas_raftlog.log.replica.compacting import Compacted, CompactionFailedError, CompactionLimits
from barnabas_raftlog.log.replica.compaction import KeyOffsets
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import Record, read_records

from .transactional_logs import NoTransactions

both_modes = pytest.mark.parametrize("mode", ["fsync", "page-cache"])
NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000
LIMITS = CompactionLimits(
    keys_max=1_000, min_dirty_ratio=0.0, min_lag_ms=0, max_lag_ms=1 << 60, delete_retention_ms=HOUR_MS
)


def fill(log: ReplicaLog, first: int, count: int, keys: int = 7, *, tombstones: bool = False) -> None:
    """Append batches of two records: keys in a circle, values that say which record it is."""
    for number in range(first, first + count):
        records = []
        for at in (2 * number, 2 * number + 1):
            value = None if tombstones and at % 5 == 0 else f"{at}".encode().ljust(200, b".")
            records.append(NewRecord(f"k{at % keys}".encode(), value, 1_000 + at))
        log.append_batch(1, bytearray(build_batch(records, producer_id=9, producer_epoch=0, base_sequence=2 * number)))


def filled(node: Node, mode: Mode = "fsync", count: int = 60, keys: int = 7, *, tombstones: bool = False) -> ReplicaLog:
    log = node.log(mode=mode)
    fill(log, 0, count, keys, tombstones=tombstones)
    node.work()
    return log


async def all_records(log: ReplicaLog) -> list[Record]:
    """Read as a consumer does, from the log's start to its end."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        frames = await log.read_cold(offset, log.log_end_offset, 3_000)
        if not frames:
            break
        data = memoryview(b"".join(frames))
        found += read_records(data, offset)
        position = 0
        while position < len(data):
            header = parse_header(data, position)
            offset = header.end_offset
            position += header.size_bytes
    return found


def compact(log: ReplicaLog, now_ms: int = NOW_MS, limits: CompactionLimits = LIMITS) -> Compacted | None:
    async def run() -> Compacted | None:
        async def pause(_: int) -> None: ...

        return await log.compact(limits, log.last_index, now_ms, pause, NoTransactions(log.log_end_offset))

    return asyncio.run(run())


def wanted(before: list[Record], sealed_end: int, *, drop_tombstones_before: int = 0) -> list[Record]:
    """Return the part of `before` that a dictionary over the sealed records would leave."""
    latest = {one.key: one.offset for one in before if one.offset < sealed_end}
    return [
        one
        for one in before
        if one.offset >= sealed_end
        or (latest[one.key] == one.offset and not (one.value is None and one.offset < drop_tombstones_before))
    ]


async def entries_of(log: ReplicaLog) -> list[Entry]:
    return [entry async for entry in log.replay(1)]


def sealed_end(log: ReplicaLog) -> int:
    return log.spans()[-1].base_offset


def files_of(node: Node) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in node.files.names if name.endswith(".log"))


@both_modes
def test_the_latest_of_each_key_is_left_and_indexes_and_offsets_are_what_they_were(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    before = asyncio.run(all_records(log))
    ends = (log.first_index, log.last_index, log.log_end_offset)
    spans = [(span.base_offset, span.end_offset) for span in log.spans()]
    places = [log.offset_after(index) for index in range(log.last_index + 1)]
    done = compact(log)
    assert done is not None
    assert done.records_after == 7
    assert done.bytes_after < done.bytes_before / 2
    assert asyncio.run(all_records(log)) == wanted(before, sealed_end(log))
    assert (log.first_index, log.last_index, log.log_end_offset) == ends
    assert [(span.base_offset, span.end_offset) for span in log.spans()] == spans
    assert [log.offset_after(index) for index in range(log.last_index + 1)] == places
    assert log.size_bytes == sum(span.size_bytes for span in log.spans())
    entries = asyncio.run(_replayed(log))
    assert [index for index, _ in entries] == list(range(1, 61))
    assert [sequence for _, sequence in entries] == list(range(0, 120, 2))
    assert compact(log) is None, "nothing is dirty"


@pytest.mark.parametrize(("limit", "most"), [("PLAIN_RECORDS", 4), ("PLAIN_BYTES", 800)])
def test_no_more_is_worked_on_between_two_pauses_than_is_stated(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    log = filled(Node())
    looked_at = [0]

    def counted(keys: KeyOffsets, frame: memoryview) -> bool:
        looked_at[-1] += 1
        return noted(keys, frame)

    async def run() -> None:
        async def pause(_: int) -> None:
            looked_at.append(0)

        await log.compact(LIMITS, log.last_index, NOW_MS, pause, NoTransactions(log.log_end_offset))

    before = asyncio.run(all_records(log))
    noted = KeyOffsets.note
    monkeypatch.setattr(KeyOffsets, "note", counted)
    monkeypatch.setattr(compacting, limit, most)
    asyncio.run(run())
    assert max(looked_at) == 2, "batches of two records, 440 bytes"
    assert asyncio.run(all_records(log)) == wanted(before, sealed_end(log))


def test_batches_that_are_kept_unread_are_told_of_once() -> None:
    node = Node()
    log = filled(node, count=20)
    log.append_batch(1, data_frame(3, 50))
    log.append_batch(1, data_frame(1, 50))
    fill(log, 20, 40)
    node.work()
    done = compact(log)
    assert done is not None
    assert (done.unread_count, done.unread_offset) == (2, 40)
    frames = b"".join(bytes(entry.frame) for entry in asyncio.run(entries_of(log)))
    assert bytes(data_frame(3, 50))[61:] in frames
    fill(log, 60, 40)
    node.work()
    again = compact(log)
    assert again is not None
    assert again.unread_count == 0


def test_keys_that_do_not_fit_in_memory_end_the_pass_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(Node())
    before = asyncio.run(all_records(log))
    asked = list[int]()

    def refused(keys_max: int, _: bytes) -> KeyOffsets:
        asked.append(keys_max)
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(compacting, "KeyOffsets", refused)
        with pytest.raises(CompactionFailedError, match=r"no memory for 120 keys: .*Cannot allocate memory"):
            compact(log)
    assert asked == [120], "as many as there are records, which is less than the limit"
    assert asyncio.run(all_records(log)) == before
    assert compact(log) is not None


@pytest.mark.parametrize("count", range(60, 70))
def test_a_copy_of_what_was_emptied_is_passed_by_and_nothing_else(count: int) -> None:
    """A follower that is behind gets emptied frames, in one segment with the next ones, and no file of its own."""
    leader = Node()
    follower = Node()
    log = filled(leader, count=count, keys=1)
    assert compact(log) is not None
    copy = follower.log()
    copy.append(asyncio.run(entries_of(log)))
    follower.work()
    expected = [one.offset for one in asyncio.run(all_records(log))]
    assert [one.offset for one in asyncio.run(all_records(copy))] == expected


async def _replayed(log: ReplicaLog) -> list[tuple[int, int]]:
    return [(entry.index, parse_header(entry.frame).base_sequence) async for entry in log.replay(1)]


@both_modes
def test_a_clean_part_is_compacted_again_with_what_came_behind_it(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    compact(log)
    fill(log, 60, 60, keys=3)
    node.work()
    before = asyncio.run(all_records(log))
    compact(log)
    assert asyncio.run(all_records(log)) == wanted(before, sealed_end(log))
    assert {segment.generation for segment in log.segments} >= {0, 1, 2}


def test_timestamps_are_answered_from_what_is_left() -> None:
    node = Node()
    log = filled(node)
    compact(log)
    left = asyncio.run(all_records(log))
    end = log.log_end_offset
    for timestamp_ms in (0, 1_000, 1_037, 1_090, 1_119, 1_120):
        first = next((one for one in left if one.timestamp >= timestamp_ms), None)
        answer = asyncio.run(log.offset_for_timestamp(timestamp_ms, end))
        assert (answer[:2] if answer else None) == ((first.offset, first.timestamp) if first else None)
    latest = asyncio.run(log.max_timestamp(end))
    assert latest is not None
    assert latest[:2] == (119, 1_119)


def test_a_snapshot_takes_what_compaction_has_replaced_with_it() -> None:
    node = Node()
    log = filled(node)
    compact(log)
    log.install_snapshot(100, 1, 500)
    node.work()
    assert files_of(node) == []
    fill(log, 250, 5)
    node.storage.checkpoint()
    node.work()
    node = node.killed()
    assert node.log().log_end_offset == 510


@both_modes
def test_a_received_file_with_the_name_of_a_replaced_one_stays(mode: Mode) -> None:
    """The replaced one waits for a checkpoint; the transfer brings the same segment of a replica that never cleaned."""
    node = Node()
    log = filled(node, mode)
    compact(log)
    replaced = files_of(node)
    log.adopt(received(log, frames_of_segments(0, 100, 2), 0, 2, b"state"))
    node.work()
    assert set(replaced) & set(files_of(node))
    assert len(asyncio.run(_replayed(log))) == 100
    again = node.killed()
    assert [index for index, _ in again.run(_replayed(again.log(mode=mode)))] == list(range(1, 101))


def test_more_keys_than_there_is_room_for_take_several_rounds() -> None:
    node = Node()
    log = filled(node)
    before = asyncio.run(all_records(log))
    compact(log, limits=LIMITS._replace(keys_max=2))
    assert asyncio.run(all_records(log)) == wanted(before, sealed_end(log))
    assert all(segment.cleaned_ms == NOW_MS for segment in log.segments[:-1])
    assert compact(log) is None


def test_tombstones_go_when_they_were_seen_for_long_enough() -> None:
    node = Node()
    log = filled(node, tombstones=True)
    before = asyncio.run(all_records(log))
    compact(log)
    assert asyncio.run(all_records(log)) == wanted(before, sealed_end(log))
    cleaned_end = sealed_end(log)
    fill(log, 60, 40, keys=2)
    node.work()
    node = node.killed()
    log = node.log()
    before = asyncio.run(all_records(log))
    assert any(one.value is None and one.offset < cleaned_end for one in before)
    compact(log, NOW_MS + HOUR_MS)
    after = asyncio.run(all_records(log))
    assert after == wanted(before, sealed_end(log), drop_tombstones_before=cleaned_end)


def test_what_is_young_not_committed_or_not_much_stays() -> None:
    node = Node()
    log = filled(node)

    async def pause(_: int) -> None: ...

    async def at(limits: CompactionLimits, committed_index: int = 60, now_ms: int = NOW_MS) -> Compacted | None:
        return await log.compact(limits, committed_index, now_ms, pause, NoTransactions(log.log_end_offset))

    assert asyncio.run(at(LIMITS, committed_index=5)) is None
    assert asyncio.run(at(LIMITS._replace(min_lag_ms=NOW_MS))) is None
    assert asyncio.run(at(LIMITS._replace(min_dirty_ratio=1.0))) is None
    assert asyncio.run(at(LIMITS._replace(min_dirty_ratio=1.0, max_lag_ms=10))) is not None


def test_a_segment_that_somebody_reads_as_a_whole_is_left_alone() -> None:
    node = Node()
    log = filled(node)
    pinned = log.sealed_segments(60)[:1]
    log.pin(pinned)
    done = compact(log)
    assert done is not None
    assert done.segment_count == 0
    log.unpin(pinned)
    done = compact(log)
    assert done is not None
    assert done.segment_count > 0


@both_modes
def test_old_files_go_when_a_checkpoint_names_the_new_ones(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    old = files_of(node)
    compact(log)
    node.work()
    assert set(old) < set(files_of(node)), "a crash now must find them"
    node.storage.checkpoint()
    node.work()
    assert len(files_of(node)) == len(old)
    assert len([name for name in files_of(node) if name.endswith(".1.log")]) == len(old) - 1
    before = asyncio.run(all_records(log))
    node.close()
    node = Node(node.files)
    log = node.log(mode=mode)
    assert asyncio.run(all_records(log)) == before
    fill(log, 60, 20)
    node.work()
    assert compact(log) is not None


@both_modes
def test_old_files_stay_while_a_checkpoint_is_older_than_their_segments(mode: Mode) -> None:
    """Its row was taken, segments were made and compacted, and only then it was on the disk."""
    node = Node()
    log = filled(node, mode, 20)
    node.storage.checkpoint()
    node.work()
    row = write_behind.row(log)
    fill(log, 20, 40)
    node.work()
    compact(log)
    log.forget_replaced(row)
    node.work()
    again = node.killed()
    assert [index for index, _ in again.run(_replayed(again.log(mode=mode)))] == list(range(1, 61))


def test_no_room_ends_the_pass_and_harms_nothing() -> None:
    node = Node()
    log = filled(node)
    before = asyncio.run(all_records(log))
    files = files_of(node)
    node.files.full_at_bytes = 0
    with pytest.raises(CompactionFailedError):
        compact(log)
    node.files.full_at_bytes = None
    assert log.failed is None
    assert (asyncio.run(all_records(log)), files_of(node)) == (before, files)
    assert compact(log) is not None


@both_modes
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_call_leaves_the_old_or_the_new(mode: Mode, power: bool) -> None:
    """Step by step through a compaction and the checkpoint that names it: every file call."""
    finished = False
    for calls in range(int(power), 400, 3):
        node = Node()
        log = filled(node, mode, 30)
        node.storage.checkpoint()
        node.work()
        before = asyncio.run(all_records(log))
        after = wanted(before, sealed_end(log))
        node.files.crash_in = calls
        with suppress(CrashError):
            compact(log)
            node.storage.checkpoint()
            node.work()
            finished = True
        if power:
            node.files.lose_power(Random(calls))
        else:
            node.files.kill()
        again = Node(node.files)
        log = again.log(mode=mode)
        assert log.failed is None
        found = asyncio.run(all_records(log))
        # Segment by segment, the old or the new; and all that counts is there.
        assert set(after) <= set(found) <= set(before), calls
        assert [one.offset for one in found] == sorted({one.offset for one in found})
        assert [index for index, _ in asyncio.run(_replayed(log))] == list(range(1, 31))
        named = {segment.log.path.rpartition("/")[2] for segment in log.segments}
        assert set(files_of(again)) <= named, "nothing is left behind"
        compact(log)
        assert asyncio.run(all_records(log)) == after
        if finished:
            return
    raise AssertionError("it never came to its end")
