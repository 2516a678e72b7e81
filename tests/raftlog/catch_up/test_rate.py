"""A token bucket against a sum, and the bodies of the calls that it slows down."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.catch_up.messages import (
    ManifestReply,
    ManifestRequest,
    ReadRequest,
    decode,
    encode,
    open_chunk,
    seal_chunk,
)
from barnabas_raftlog.catch_up.rate import TokenBucket
from barnabas_raftlog.errors import MalformedMessageError


def test_a_full_bucket_lets_its_burst_go_at_once() -> None:
    bucket = TokenBucket(1000, 500, now_ms=0)
    assert bucket.take(500, 0) == 0
    assert bucket.take(1, 0) == 1
    assert bucket.take(499, 0) == 500
    assert bucket.take(500, 2_000) == 0, "what was not used is not saved beyond the burst"
    assert bucket.take(500, 2_000) == 500


@given(
    rate=st.integers(1, 10_000),
    burst=st.integers(1, 5_000),
    takes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 4_000)), max_size=30),
)
@settings(max_examples=100)
def test_never_more_than_the_burst_and_the_rate_and_never_later_than_that(
    rate: int, burst: int, takes: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(rate, burst, now_ms=0)
    now_ms = 0
    sent: list[tuple[int, int]] = []  # when it may go, how much
    for passed_ms, size in takes:
        now_ms += passed_ms
        at_ms = now_ms + bucket.take(size, now_ms)
        sent.append((at_ms, size))
        # Over every stretch that ends here; the first one in it may have been the one that was waited for.
        for first in range(len(sent)):
            stretch_ms = at_ms - sent[first][0]
            total = sum(amount for _, amount in sent[first + 1 :])
            assert total * 1000 <= burst * 1000 + rate * (stretch_ms + 1)
        # The naive reading: all that was ever taken, at the full rate, is the latest it can be.
        assert (at_ms - now_ms) * rate <= sum(amount for _, amount in sent) * 1000 + rate


def test_requests_are_read_as_they_were_written() -> None:
    for message in (
        ManifestRequest(b"g" * 20, 4, 1 << 40),
        ManifestReply(manifest_id=4, total_bytes=10, ready_count=2, file_count=3, data=b"abc"),
        ReadRequest(group=b"g" * 20, manifest_id=0, base_offset=5, first_index=6, position=7, size_bytes=8),
    ):
        assert decode(encode(message), type(message)) == message
    with pytest.raises(MalformedMessageError):
        decode(b"\x93\x01", ManifestRequest)


@given(data=st.binary(min_size=1, max_size=50), place=st.integers(0, 60), bit=st.integers(0, 7))
def test_a_chunk_that_was_changed_on_the_way_is_noticed(data: bytes, place: int, bit: int) -> None:
    body = bytearray(seal_chunk(data))
    assert open_chunk(bytes(body)) == data
    body[place % len(body)] ^= 1 << bit
    with pytest.raises(MalformedMessageError):
        open_chunk(bytes(body))
