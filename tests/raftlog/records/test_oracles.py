"""Batches against two decoders and encoders that nobody here wrote, in both directions, with every codec."""

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import verify
from barnabas_raftlog.records.reader import Record, read_records

from .strategies import new_records

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch

CODECS = st.sampled_from(Compression)


def expected(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + delta, one.timestamp, one.key, one.value, tuple(one.headers))  # type: ignore[arg-type]
        for delta, one in enumerate(records)
    ]


def as_record(theirs: Any) -> Record:
    return Record(theirs.offset, theirs.timestamp, theirs.key, theirs.value, tuple(theirs.headers))


@settings(max_examples=60, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=8), codec=CODECS, base_offset=st.integers(0, 2**40))
def test_aiokafka_reads_what_we_build(records: list[NewRecord], codec: Compression, base_offset: int) -> None:
    batch = build_batch(records, compression=codec, base_offset=base_offset, producer_id=7, producer_epoch=1)
    verify(memoryview(batch))
    theirs = _DefaultRecordBatchPy(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 1, -1)
    assert [as_record(one) for one in theirs] == expected(records, base_offset)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=8), codec=CODECS)
def test_we_read_what_aiokafka_builds(records: list[NewRecord], codec: Compression) -> None:
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset, one in enumerate(records):
        builder.append(offset, one.timestamp, one.key, one.value, list(one.headers))
    assert list(read_records(builder.build())) == expected(records)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_kafka_python_reads_what_we_build(codec: Compression) -> None:
    records = [
        NewRecord(b"k", b"v" * 300, 1_700_000_000_000, [("a", b"1"), ("b", None)]),
        NewRecord(None, None, 1_699_999_999_000),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs = DefaultRecordBatch(bytes(build_batch(records, compression=codec, base_offset=5)))
        assert theirs.validate_crc()
        assert [as_record(one) for one in theirs] == expected(records, 5)
