"""Which batches were aborted: their headers against all transactions, one by one."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.records.aborted import AbortedBatches
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import BatchHeader, parse_header
from barnabas_raftlog.records.markers import EndMarker, marker_batch

PRODUCERS = st.integers(0, 2)


def header_at(offset: int, producer_id: int, *, is_transactional: bool = True) -> BatchHeader:
    batch = build_batch([NewRecord(b"k", b"v", 1)], producer_id=producer_id, is_transactional=is_transactional)
    return parse_header(batch)._replace(base_offset=offset)


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
