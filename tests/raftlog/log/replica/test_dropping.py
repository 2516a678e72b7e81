"""A log that loses its beginning, at the right time, also under its readers."""

import asyncio
from contextlib import suppress
from random import Random

import pytest
from raftlog.log.frames import data_frame
from raftlog.log.memory_files import CrashError, ManualWorker
from raftlog.log.node import Node, fill, replayed

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.replica.ages import first_timestamp
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode

both_modes = pytest.mark.parametrize("mode", ["fsync", "page-cache"])


def filled(node: Node, mode: Mode = "fsync", count: int = 40) -> ReplicaLog:
    """Return a log of `count` batches of two records, fifteen of them a segment."""
    log = node.log(mode=mode)
    fill(log, count)
    node.work()
    return log


def drop(log: ReplicaLog, offset: int) -> None:
    """Let the log start at `offset` as its owner does, all of it being committed."""
    if log.has_segments_before(offset):
        log.save_state(log.durable_index, b"state")
    log.drop_before(offset, log.last_index)


def files_of(node: Node) -> list[str]:
    return [name for name in node.files.names if name.endswith(".log")]


@both_modes
def test_the_start_moves_at_once_and_files_go_when_the_journal_has_it(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    before = files_of(node)
    drop(log, 65)
    assert log.log_start_offset == 65
    assert (log.first_index, files_of(node)) == (1, before), "nothing covers yet what would go"
    node.work()
    assert log.base_offset == 56 == log.offset_after(log.first_index - 1)
    assert len(files_of(node)) == len(before) - 2
    assert log.term_at(log.first_index - 1) == 1


@both_modes
def test_a_start_inside_the_newest_segment_deletes_nothing_but_is_kept(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode, count=5)
    drop(log, 7)
    node.work()
    assert (log.log_start_offset, log.base_offset, log.first_index) == (7, 0, 1)
    frames = asyncio.run(log.read_cold(7, 10, 1 << 20))
    assert len(b"".join(frames)) == 2 * len(log.entries(1, 1)[0].frame)  # type: ignore[index]
    assert asyncio.run(log.read_cold(6, 10, 1 << 20)) == []
    assert log.read(6, 10, 1 << 20) == []


def test_a_state_kept_with_an_older_entry_is_asked_for_again_when_the_disk_has_caught_up() -> None:
    """Others made the last entry durable, and so committed, before this disk did: nothing is to keep its segment."""
    node = Node()
    log = filled(node)
    log.on_state_needed = lambda: log.save_state(log.durable_index, b"state")
    fill(log, 1)
    assert log.durable_index < log.last_index
    drop(log, log.log_end_offset)
    node.work()
    assert log.base_offset == log.log_end_offset
    assert files_of(node) == []


@both_modes
def test_a_log_may_lose_everything_it_has(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    drop(log, log.log_end_offset)
    node.work()
    fill(log, 1)
    node.work()
    node = node.killed()
    log = node.log(mode=mode)
    assert (log.last_index, log.log_end_offset) == (41, 82)
    assert asyncio.run(replayed(log))[-1][0] == 41
    assert log.load_state() == (40, b"state")


@both_modes
def test_a_replica_made_again_begins_with_nothing_of_what_the_checkpoint_says_of_the_deleted_one(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    drop(log, 65)
    node.work()
    node.storage.checkpoint()
    node.work()
    node.storage.delete_log(log.group)
    node.work()
    fresh = node.log(mode=mode)
    fill(fresh, 2, term=5)
    node.work()
    for _ in range(2):
        node = node.killed()
        again = node.log(mode=mode)
        assert again.failed is None
        assert (again.first_index, again.last_index, again.last_term, again.log_end_offset) == (1, 2, 5, 4)
        assert [entry[:2] for entry in asyncio.run(replayed(again))] == [(1, 5), (2, 5)]


@both_modes
def test_the_newest_segment_goes_too_when_nothing_in_it_is_needed(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    drop(log, log.log_end_offset)
    node.work()
    assert (files_of(node), log.size_bytes, log.first_index, log.base_offset) == ([], 0, 41, 80)
    node = node.killed()
    log = node.log(mode=mode)
    assert (log.first_index, log.last_index, log.log_end_offset, log.term_at(40)) == (41, 40, 80, 1)
    fill(log, 1)
    node.work()
    assert asyncio.run(replayed(log))[-1][0] == 41


@both_modes
def test_a_segment_that_is_closed_by_hand_is_a_segment_like_others(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode, count=5)
    assert log.roll()
    assert not log.roll(), "a segment without records stays"
    fill(log, 5)
    node.work()
    assert [(span.base_offset, span.end_offset) for span in log.spans()] == [(0, 10), (10, 20)]
    kept = asyncio.run(replayed(log))
    node = node.killed()
    log = node.log(mode=mode)
    assert [(span.base_offset, span.end_offset) for span in log.spans()] == [(0, 10), (10, 20)]
    assert asyncio.run(replayed(log)) == kept
    log.truncate_from(4)
    assert [(span.base_offset, span.end_offset) for span in log.spans()] == [(0, 6)]


@both_modes
def test_the_first_timestamp_is_known_also_after_a_start(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode, count=20)
    found = asyncio.run(first_timestamp(log))
    assert found is not None
    node = node.killed()
    assert asyncio.run(first_timestamp(node.log(mode=mode))) == found
    log = node.log(2, mode)
    assert asyncio.run(first_timestamp(log)) is None


@both_modes
def test_files_are_looked_at_only_where_no_timestamp_tells_an_age(mode: Mode) -> None:
    node = Node()
    now_ms = 5_000
    log = node.log(mode=mode)
    for at_ms, timestamp in ((100, 1_000), (200, -1), (300, 2**63 - 1)):
        node.files.now_ms = at_ms
        log.append_batch(1, data_frame(2, 50, timestamp))
        node.work()
        log.roll()

    def ages(log: ReplicaLog) -> list[int]:
        del node.files.calls[:]
        asyncio.run(log.look_at_files(now_ms))
        return [span.modified_ms for span in log.spans()]

    def looked() -> list[str]:
        return [path for call, path in node.files.calls if call == "written"]

    assert ages(log) == [-1, 200, 300, -1]
    assert len(looked()) == 2
    assert ages(log) == [-1, 200, 300, -1]
    assert not looked(), "it is remembered"
    node = node.killed()
    log = node.log(mode=mode)
    assert ages(log)[:3] == [-1, 200, 300]


def test_the_time_of_a_file_that_does_not_have_it_all_says_nothing() -> None:
    node = Node()
    log = node.log()
    node.files.now_ms = 100
    log.append_batch(1, data_frame(2, 50, -1))
    node.work()
    written = node.files.written

    def look() -> list[int]:
        asyncio.run(log.look_at_files(5_000))
        return [span.modified_ms for span in log.spans()]

    assert look() == [100]
    log.append_batch(1, data_frame(2, 500, -1))
    assert [span.modified_ms for span in log.spans()] == [-1]
    node.files.written = lambda fd: (written(fd)[0] - 1, 100)  # type: ignore[method-assign]
    assert look() == [-1]
    node.files.written = written  # type: ignore[method-assign]
    node.files.now_ms = 200
    log.append_batch(1, data_frame(2, 500, -1))
    node.work()
    assert look() == [200]


@pytest.mark.parametrize("lie", [-1, 2**63 - 1])
def test_a_segment_whose_first_timestamp_lies_was_begun_when_it_was_first_seen(lie: int) -> None:
    node = Node()
    log = node.log()
    assert asyncio.run(log.begun_ms(5_000)) is None
    log.append_batch(1, data_frame(2, 50, lie))
    assert asyncio.run(log.begun_ms(6_000)) == 6_000
    log.append_batch(1, data_frame(2, 50, lie))
    assert asyncio.run(log.begun_ms(7_000)) == 6_000
    assert asyncio.run(log.begun_ms(3_000)) == 3_000, "the clock was set back"
    log.roll()
    assert asyncio.run(log.begun_ms(8_000)) is None
    log.append_batch(1, data_frame(2, 50, 1_000))
    assert asyncio.run(log.begun_ms(9_000)) == 1_000


@both_modes
def test_what_is_not_committed_stays_whatever_its_offset(mode: Mode) -> None:
    node = Node()
    log = filled(node, mode)
    log.save_state(40, b"state")
    log.drop_before(80, 16)
    node.work()
    assert log.first_index - 1 <= 16
    log.drop_before(80, 40)
    assert log.first_index - 1 > 16


@both_modes
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_call_leaves_all_of_the_log_that_counts(mode: Mode, power: bool) -> None:
    """Step by step through the drop: every file call of the work that it makes."""
    for calls in range(100):
        node = Node()
        log = filled(node, mode, count=36)
        if power:
            node.storage.checkpoint()
            node.work()
        kept = asyncio.run(replayed(log))
        drop(log, 65)
        node.files.crash_in = calls
        is_done = False
        with suppress(CrashError):
            node.work()
            is_done = True
        if power:
            node.files.lose_power(Random(calls))
        else:
            node.files.kill()
        again = Node(node.files)
        log = again.log(mode=mode)
        assert log.failed is None
        found = asyncio.run(replayed(log))
        assert found == kept[log.first_index - 1 :]
        assert log.base_offset <= 65
        assert log.first_index == 1 or log.load_state() == (36, b"state")
        if is_done:
            break


def test_readers_in_the_middle_of_what_goes_begin_anew() -> None:
    """The file is gone when the thread gets to it: that is no failure of the replica."""
    node = Node()
    log = filled(node)
    node.files.cold = True

    worker = log.shared.cold._worker
    assert isinstance(worker, ManualWorker)
    worker.inline = False

    async def read() -> None:
        reads = [
            asyncio.ensure_future(log.read_cold(0, 80, 1000)),
            asyncio.ensure_future(log.offset_for_timestamp(1_001, 80)),
            asyncio.ensure_future(log.max_timestamp(80)),
        ]
        await asyncio.sleep(0)  # Now they wait for the thread.
        drop(log, 66)
        node.work()
        while not all(reading.done() for reading in reads):
            worker.run()
            await asyncio.sleep(0)
        below, by_time, latest = await asyncio.gather(*reads)
        assert below == []
        assert by_time == (66, 1_033, 1)
        assert latest == (78, 1_039, 1)

    asyncio.run(read())
    assert log.failed is None


def test_a_missing_first_segment_is_damage_unless_the_journal_says_so() -> None:
    node = Node()
    filled(node)
    node.storage.checkpoint()
    node.work()
    node.files.remove(files_of(node)[0])
    node = node.killed()
    log = node.log()
    with pytest.raises(StorageFailedError):
        node.run(log.read_cold(log.log_start_offset, log.log_end_offset, 1_000))
    assert log.failed is None
    assert list(node.storage.shared.suspects) == [(log, log.segments_to_scrub()[0])]


def test_a_lagging_read_for_a_follower_ends_when_its_entries_go() -> None:
    node = Node()
    log = filled(node)
    loaded: list[object] = []
    log.on_loaded = loaded.append
    node.files.cold = True
    worker = log.shared.cold._worker
    assert isinstance(worker, ManualWorker)
    worker.inline = False
    assert log.entries(1, 1000) is None
    drop(log, 65)
    node.work()
    worker.run()
    assert loaded == [log.group]
    assert log.failed is None
    assert log.first_index > 1
