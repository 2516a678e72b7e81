"""What batches in tests are made of."""

from hypothesis import strategies as st

from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression

# Sizes on both sides of every varint boundary that a test can afford.
CONTENT = st.none() | st.binary(max_size=80) | st.integers(8_180, 8_200).map(lambda size: b"x" * size)
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=4)
TIMESTAMPS = st.integers(0, 2**42) | st.integers(1_700_000_000_000, 1_700_000_100_000)


def new_records() -> st.SearchStrategy[NewRecord]:
    return st.builds(NewRecord, CONTENT, CONTENT, TIMESTAMPS, HEADERS)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a batch with a few bytes of its body, its counts or its attributes changed, or cut off."""
    records = draw(st.lists(new_records(), min_size=1, max_size=4))
    batch = build_batch(records, compression=draw(st.sampled_from(Compression)))
    for _ in range(draw(st.integers(1, 3))):
        # Everything but the base offset, whose value is not checked, and mostly what lies behind the header.
        position = draw(st.integers(8, len(batch) - 1) | st.integers(57, len(batch) - 1))
        batch[position] = draw(st.integers(0, 255))
    return bytes(batch)
