"""Which batches were aborted: their headers against all transactions, one by one."""

from functools import cache
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.records.aborted import AbortedBatches, AbortedOnTheWay
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import BatchHeader, parse_header
from barnabas_raftlog.records.markers import EndMarker, marker_batch

PRODUCERS = st.integers(0, 2)


@cache
def data_batch(producer_id: int, *, is_transactional: bool = True) -> bytes:
    return bytes(build_batch([NewRecord(b"k", b"v", 1)], producer_id=producer_id, is_transactional=is_transactional))


def header_at(offset: int, producer_id: int, *, is_transactional: bool = True) -> BatchHeader:
    return parse_header(data_batch(producer_id, is_transactional=is_transactional))._replace(base_offset=offset)


@st.composite
def transactions(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Return aborted transactions as a log may have them: those of one producer follow each other."""
    found: list[tuple[int, int, int]] = []
    for producer_id in range(3):
        ends = sorted(draw(st.lists(st.integers(0, 20), max_size=6, unique=True)))
        found += [(producer_id, first, last) for first, last in zip(ends[::2], ends[1::2], strict=False)]
    return draw(st.permutations(found))


@given(transactions(), PRODUCERS, st.integers(0, 21))
def test_a_batch_is_aborted_if_one_of_the_transactions_has_it(
    aborted: list[tuple[int, int, int]], producer_id: int, offset: int
) -> None:
    wanted = any(owner == producer_id and first <= offset < last for owner, first, last in aborted)
    assert AbortedBatches(aborted).has(header_at(offset, producer_id)) == wanted


def test_markers_and_batches_outside_of_transactions_are_not_aborted() -> None:
    aborted = AbortedBatches([(1, 5, 9)])
    assert aborted.has(header_at(5, 1))
    assert not aborted.has(header_at(5, 1, is_transactional=False))
    marker = marker_batch(EndMarker(1, 0, False, 0), 1)
    assert not aborted.has(parse_header(marker)._replace(base_offset=6))


@given(transactions(), st.randoms(use_true_random=False))
def test_t15_the_list_of_aborted_transactions_may_be_in_any_order(
    aborted: list[tuple[int, int, int]], rng: Random
) -> None:
    """A broker may list what it has in memory before what it had to read, and so a later one of a producer first."""
    listed = [(producer_id, first) for producer_id, first, _ in aborted]
    rng.shuffle(listed)
    reader = AbortedOnTheWay(listed)
    for offset in range(21):
        for producer_id in range(3):
            ends = any(owner == producer_id and last == offset for owner, _, last in aborted)
            marker = marker_batch(EndMarker(producer_id, 0, False, 0), 1)
            frame = memoryview(marker if ends else data_batch(producer_id))
            header = parse_header(frame)._replace(base_offset=offset)
            wanted = any(owner == producer_id and first <= offset < last for owner, first, last in aborted)
            assert reader.has(header, frame) == wanted
