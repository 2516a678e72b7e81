"""What is refused of a batch, and what is put right in it."""

import pytest
from broker.wire_client import batch, framed, garbage
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.topic import topic_settings
from barnabas_broker.partition.record_rules import (
    NAMED_BYTES_MAX,
    NAMED_MAX,
    Checked,
    RecordRules,
    RefusedBatchError,
    check_header,
    check_records,
    rules_of,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import TIMESTAMP_LOG_APPEND, verify
from barnabas_raftlog.records.reader import read_records

NOW_MS = 1_700_000_000_000
RULES = RecordRules(1 << 20)
COMPACTED = RecordRules(64 << 20, is_compacted=True)
STRICT = RecordRules(1 << 20, before_max_ms=1_000, after_max_ms=2_000)
STAMPED = RecordRules(1 << 20, is_stamped=True, before_max_ms=1_000, after_max_ms=2_000)


def judged(frame: bytes, rules: RecordRules = RULES) -> Checked:
    view = memoryview(bytearray(frame))
    return check_records(check_header(view, rules, 9, NOW_MS), view, rules, NOW_MS)


def refusal(frame: bytes, rules: RecordRules = RULES) -> RefusedBatchError:
    with pytest.raises(RefusedBatchError) as raised:
        judged(frame, rules)
    return raised.value


def at(*timestamps: int, compression: Compression = Compression.NONE) -> bytes:
    """Return a batch of records with these timestamps and no keys."""
    return bytes(build_batch([NewRecord(None, b"value", one) for one in timestamps], compression=compression))


def with_max(frame: bytes, max_timestamp: int) -> bytes:
    header = verify(memoryview(frame))
    return framed(frame[61:], *header._replace(max_timestamp=max_timestamp)[5:])


def test_a_sound_batch_is_appended_as_it_came() -> None:
    frame = at(NOW_MS, NOW_MS + 5)
    checked = judged(frame)
    assert checked.header == verify(memoryview(frame))
    assert checked.frame == frame


def test_records_that_cannot_be_read_are_refused_and_the_first_is_named() -> None:
    error = refusal(garbage(3))
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == ((0, error.text),)
    assert error.text.startswith("record 0 has ")
    behind = refusal(framed(batch(2)[61:] + b"\0", *verify(memoryview(batch(2)))[5:]))
    assert (behind.code, behind.record_errors) == (ErrorCode.INVALID_RECORD, ())


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_compressed_records_are_looked_at_too(codec: Compression) -> None:
    frame = at(NOW_MS, NOW_MS, compression=codec)
    assert judged(frame).frame == frame
    fields = verify(memoryview(frame))[5:]
    assert refusal(framed(frame[61:-1], *fields)).code is ErrorCode.INVALID_RECORD
    assert refusal(framed(bytes(40), *fields)).code is ErrorCode.INVALID_RECORD


def test_without_validation_garbage_is_taken_as_it_is() -> None:
    frame = garbage(3)
    assert judged(frame, RULES._replace(is_validated=False)).frame == frame


@pytest.mark.parametrize("lie", [-1, 5, NOW_MS + 10, 2**63 - 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_largest_timestamp_that_no_record_has_is_put_right(lie: int, codec: Compression) -> None:
    frame = at(NOW_MS, NOW_MS - 7, compression=codec)
    checked = judged(with_max(frame, lie), STRICT)
    assert verify(checked.frame) == checked.header == verify(memoryview(frame))
    assert checked.frame == frame


def test_records_without_timestamps_leave_the_batch_without_one() -> None:
    frame = at(-1, -1)
    assert judged(with_max(frame, 77), STRICT).header.max_timestamp == -1


def test_timestamps_out_of_bounds_are_named() -> None:
    error = refusal(at(NOW_MS, NOW_MS + 2_001, NOW_MS - 1_001, NOW_MS + 2_000, NOW_MS - 1_000, -1), STRICT)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    ahead, behind = "a timestamp 2001 ms ahead; 2000 are accepted", "a timestamp 1001 ms behind; 1000 are accepted"
    assert error.record_errors == ((1, ahead), (2, behind))
    assert error.text == f"2 records are refused, the first is record 1: {ahead}"
    assert judged(at(NOW_MS, -1), STRICT).header.max_timestamp == NOW_MS


def test_without_validation_the_header_is_asked_for_its_timestamp() -> None:
    trusting = STRICT._replace(is_validated=False)
    assert refusal(at(NOW_MS + 2_001), trusting).code is ErrorCode.INVALID_TIMESTAMP
    assert refusal(at(NOW_MS - 1_001), trusting).code is ErrorCode.INVALID_TIMESTAMP
    for taken in (at(NOW_MS, NOW_MS - 1_001), at(-1)):
        assert judged(taken, trusting).frame == taken


@pytest.mark.parametrize("is_validated", [True, False])
def test_the_time_of_arrival_takes_the_place_of_all_timestamps(*, is_validated: bool) -> None:
    frame = at(NOW_MS - 1_001, NOW_MS + 2_001, -1)
    checked = judged(frame, STAMPED._replace(is_validated=is_validated))
    assert verify(checked.frame) == checked.header
    assert checked.header.attributes == TIMESTAMP_LOG_APPEND
    assert [record.timestamp for record in read_records(checked.frame)] == [NOW_MS] * 3


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    records = [NewRecord(b"k", None, NOW_MS), NewRecord(None, b"v", NOW_MS), NewRecord(b"", b"v", NOW_MS)]
    error = refusal(bytes(build_batch(records)), COMPACTED)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == ((1, "no key, and the topic is compacted"),)
    assert judged(bytes(build_batch(records)), RULES)
    assert judged(bytes(build_batch(records)), COMPACTED._replace(is_validated=False))
    both = refusal(at(NOW_MS, NOW_MS + 3_000), COMPACTED._replace(after_max_ms=1))
    assert len(both.record_errors) == 2
    stamped = refusal(at(1), COMPACTED._replace(is_stamped=True, before_max_ms=0))
    assert stamped.code is ErrorCode.INVALID_RECORD, "its own timestamp does not matter"


def test_no_more_than_so_many_records_are_named() -> None:
    error = refusal(at(*[NOW_MS] * (NAMED_MAX + 1)), COMPACTED)
    assert [number for number, _ in error.record_errors] == list(range(NAMED_MAX))
    assert error.text.startswith(f"at least {NAMED_MAX} records are refused, the first is record 0: no key")


def test_none_are_named_where_that_takes_too_many_bytes() -> None:
    records = [NewRecord(b"k", bytes(NAMED_BYTES_MAX), NOW_MS), NewRecord(None, None, NOW_MS - 1_001)]
    frame = bytes(build_batch(records, compression=Compression.ZSTD))
    error = refusal(frame, COMPACTED)
    assert (error.code, error.record_errors) == (ErrorCode.INVALID_RECORD, ())
    assert error.text == "1 records have no key, and the topic is compacted"
    assert refusal(frame, STRICT).code is ErrorCode.INVALID_TIMESTAMP


def test_what_no_client_would_do_right_at_the_next_attempt_is_not_called_corrupt() -> None:
    old = bytearray(batch())
    old[16] = 1
    for frame, code in (
        (bytes(old), ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch() + batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch() + b"x", ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        ((5).to_bytes(8, "big") + batch()[8:], ErrorCode.INVALID_RECORD),
    ):
        assert refusal(frame).code is code


@given(st.binary(max_size=60), st.integers(0, 5))
def test_whatever_is_sent_is_taken_or_refused(body: bytes, codec: int) -> None:
    """No other error comes out; what is taken can be read."""
    frame = framed(body, codec, 1, NOW_MS, NOW_MS, -1, -1, -1, 2)
    try:
        checked = judged(frame)
    except RefusedBatchError:
        return
    assert len(list(read_records(checked.frame))) == 2


def test_the_rules_of_a_topic_are_its_settings() -> None:
    required: dict[str, str | int | bool] = {
        "cluster.id": "c",
        "node.id": 1,
        "cluster.nodes": "1@127.0.0.1:1",
        "log.dir": "d",
    }
    config = BrokerConfig.from_settings(required)
    assert rules_of(topic_settings("t", {}, config)) == RecordRules(1_048_588, after_max_ms=3_600_000)
    configs = {
        "record.validation": "none",
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "7",
        "message.timestamp.after.max.ms": "8",
        "max.message.bytes": "9",
    }
    assert rules_of(topic_settings("t", configs, config)) == RecordRules(
        9, is_validated=False, is_compacted=True, is_stamped=True, before_max_ms=7, after_max_ms=8
    )
