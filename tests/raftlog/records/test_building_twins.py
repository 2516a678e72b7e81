"""Both twins append the same bytes to a batch as the plain builder, and hash keys to the same number."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_raftlog.records.walker import twins
from barnabas_raftlog.records.walker.pure import building as pure

from .strategies import new_records

# Where nothing is compiled, the twin is compared with the plain builder alone.
compiled: Any = pure
if twins.IS_COMPILED:
    from barnabas_raftlog.records.walker.compiled import building as compiled

MODULES = pytest.mark.parametrize("module", [compiled, pure], ids=["compiled", "pure"])


def body_of(module: Any, records: Sequence[NewRecord], first_number: int = 0) -> bytearray:
    buffer = bytearray()
    for number, (key, value, timestamp, headers) in enumerate(records, first_number):
        assert module.append_record(buffer, 1 << 30, timestamp - records[0].timestamp, number, key, value, headers)
    return buffer


@settings(max_examples=100, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=6))
def test_both_twins_append_what_the_plain_builder_builds(records: list[NewRecord]) -> None:
    plain = build_batch(records)[HEADER_BYTES:]
    assert body_of(compiled, records) == body_of(pure, records) == plain


@settings(max_examples=100, deadline=None)
@given(
    record=new_records(),
    delta=st.integers(-(2**62), 2**62) | st.sampled_from([63, 64, -64, -65, 8191, 8192, 2**63 - 1, -(2**63)]),
    number=st.integers(0, 2**31 - 1) | st.sampled_from([63, 64, 4095, 4096, 8191, 8192]),
    short_of=st.sampled_from([0, 1, 50]),
)
def test_both_twins_stop_at_the_same_byte(record: NewRecord, delta: int, number: int, short_of: int) -> None:
    def appended(module: Any, limit_bytes: int) -> tuple[bool, bytearray]:
        buffer = bytearray(b"before")
        key, value, _, headers = record
        return module.append_record(buffer, limit_bytes, delta, number, key, value, headers), buffer

    is_taken, whole = appended(pure, 1 << 20)
    assert is_taken
    limit_bytes = len(whole) - short_of
    found = appended(compiled, limit_bytes)
    assert found == appended(pure, limit_bytes)
    assert found == ((True, whole) if not short_of else (False, b"before"))


@MODULES
def test_keys_values_and_what_headers_say_may_be_any_buffer(module: Any) -> None:
    plain = body_of(module, [NewRecord(b"key", b"", 5, [("a", b"bytes"), ("", None)])])
    for kind in (bytearray, memoryview):
        headers: Any = [("a", kind(b"bytes")), ("", None)]
        record = NewRecord(kind(b"key"), kind(b""), 5, headers)
        assert body_of(module, [record]) == plain
    assert body_of(module, [NewRecord(memoryview(b"-key-")[1:4], b"", 5, (("a", b"bytes"), ("", None)))]) == plain


@MODULES
@pytest.mark.parametrize(
    "record",
    [NewRecord(5, b"v", 1), NewRecord(b"k", b"v", 1, [("a", 5)]), NewRecord(b"k", b"v", 1, [(b"a", b"x")])],  # type: ignore[list-item,arg-type]
)
def test_a_record_that_cannot_be_appended_leaves_nothing_behind(module: Any, record: NewRecord) -> None:
    buffer = bytearray(b"before")
    with pytest.raises((TypeError, AttributeError)):
        module.append_record(buffer, 1 << 20, 0, 0, record.key, record.value, record.headers)
    assert buffer == b"before"


@MODULES
def test_a_buffer_that_somebody_looks_at_does_not_grow(module: Any) -> None:
    buffer = bytearray(b"before")
    with memoryview(buffer), pytest.raises(BufferError):
        module.append_record(buffer, 1 << 20, 0, 0, b"k", b"v", ())
    assert buffer == b"before"


@MODULES
def test_nothing_of_a_record_is_held_afterwards(module: Any) -> None:
    record = (b"k" * 40, b"v" * 300, (("name", b"x" * 9),))
    before = [sys.getrefcount(each) for each in (*record, *record[2][0])]
    body_of(module, [NewRecord(record[0], record[1], 5, record[2])] * 500)
    module.append_record(bytearray(), 10, 0, 0, *record)
    module.murmur2(record[0])
    assert [sys.getrefcount(each) for each in (*record, *record[2][0])] == before


@settings(max_examples=200, deadline=None)
@given(key=st.binary(max_size=70))
@example(key=b"\xff" * 7)
def test_both_twins_hash_a_key_to_the_same_number(key: bytes) -> None:
    assert (
        compiled.murmur2(key) == pure.murmur2(key) == compiled.murmur2(memoryview(key)) == pure.murmur2(bytearray(key))
    )
