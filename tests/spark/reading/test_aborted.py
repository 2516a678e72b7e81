"""What aborted transactions wrote is left out as the consumer leaves it out."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_clients.consumer.decoder import FetchedRecords
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.header import TRANSACTIONAL
from barnabas_raftlog.records.markers import EndMarker, marker_batch
from barnabas_raftlog.records.reader import read_records
from barnabas_spark.reading.aborted import without_aborted

PLAIN, FIRST, SECOND = -1, 7, 8


def stamped(frame: bytearray, base_offset: int) -> bytearray:
    frame[:8] = base_offset.to_bytes(8, "big")  # not covered by the checksum
    return frame


def batch(producer_id: int, base_offset: int, count: int = 2) -> bytearray:
    frame = build_batch([NewRecord(None, f"{producer_id}".encode(), 1)] * count)
    if producer_id >= 0:
        write_header(
            frame,
            attributes=TRANSACTIONAL,
            record_count=count,
            base_timestamp=1,
            max_timestamp=1,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
    return stamped(frame, base_offset)


def marker(producer_id: int, base_offset: int, *, is_commit: bool) -> bytearray:
    return stamped(marker_batch(EndMarker(producer_id, 0, is_commit, 0), 1), base_offset)


def log_of(steps: Sequence[tuple[int, str]]) -> tuple[list[bytearray], list[tuple[int, int]], list[int]]:
    """Return batches, the aborted transactions, and the offsets of a log that steps of producers have written."""
    frames: list[bytearray] = []
    aborted: list[tuple[int, int]] = []
    began: dict[int, int] = {}
    offset = 0
    starts = []
    for producer_id, what in [*steps, (FIRST, "abort"), (SECOND, "commit")]:
        starts.append(offset)
        if what == "write":
            frames.append(batch(producer_id, offset))
            if producer_id >= 0:
                began.setdefault(producer_id, offset)
            offset += 2
        elif producer_id in began:
            first_offset = began.pop(producer_id)
            if what == "abort":
                aborted.append((producer_id, first_offset))
            frames.append(marker(producer_id, offset, is_commit=what == "commit"))
            offset += 1
        else:
            starts.pop()
    return frames, aborted, starts


STEP = st.tuples(st.sampled_from([PLAIN, FIRST, SECOND]), st.sampled_from(["write", "write", "commit", "abort"]))


@given(st.lists(STEP, max_size=30), st.randoms(use_true_random=False), st.integers(0, 29))
def test_it_leaves_out_what_the_consumer_leaves_out(steps: list[tuple[int, str]], rng: object, skipped: int) -> None:
    """A fetch may begin in the middle of an aborted transaction (T15: and its list may be in any order)."""
    frames, aborted, starts = log_of(steps)
    at = min(skipped, len(frames))
    start_offset = starts[at] if at < len(starts) else 0
    data = memoryview(b"".join(frames[at:]))
    rng.shuffle(aborted)  # type: ignore[attr-defined]
    expected = FetchedRecords(TopicPartition("t", 0), data, start_offset, aborted).take(1_000)
    left = without_aborted(data, aborted)
    found = [(record.offset, record.value) for record in read_records(left, start_offset)]
    assert found == [(record.offset, record.value) for record in expected]


def test_another_transaction_of_the_same_producer_counts_again() -> None:
    frames, aborted, _ = log_of([(FIRST, "write"), (FIRST, "abort"), (FIRST, "write"), (FIRST, "commit")])
    left = without_aborted(memoryview(b"".join(frames)), aborted)
    assert [record.offset for record in read_records(left)] == [3, 4]


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    frames = [batch(FIRST, 0), batch(PLAIN, 2)[:-1]]
    assert not without_aborted(memoryview(b"".join(frames)), [(FIRST, 0)])


def test_a_marker_that_says_nothing_is_damage() -> None:
    frame = marker(FIRST, 0, is_commit=True)
    frame[61:] = bytes(len(frame) - 61)
    with pytest.raises(CorruptBatchError):
        without_aborted(memoryview(frame), [(FIRST, 0)])
