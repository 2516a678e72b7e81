"""What batches in tests are made of."""

from hypothesis import strategies as st

from barnabas_raftlog.records.builder import NewRecord

# Sizes on both sides of every varint boundary that a test can afford.
CONTENT = st.none() | st.binary(max_size=80) | st.integers(8_180, 8_200).map(lambda size: b"x" * size)
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=4)
TIMESTAMPS = st.integers(0, 2**42) | st.integers(1_700_000_000_000, 1_700_000_100_000)


def new_records() -> st.SearchStrategy[NewRecord]:
    return st.builds(NewRecord, CONTENT, CONTENT, TIMESTAMPS, HEADERS)
