"""Arrow batches hold the plain reader's records, in exactly the schema of PySpark."""

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, StructField, StructType

from barnabas_raftlog.records.arrow import read_arrow
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.reader import read_records
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import parse_read_options
from barnabas_spark.reading.arrow import ARROW_TYPES, to_record_batch, wanted_of
from barnabas_spark.schemas import declared, projection
from barnabas_spark.source import BarnabasDataSource

NAMES = tuple(ARROW_TYPES)
EVERYTHING = wanted_of(NAMES)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONTENT = st.none() | st.binary(max_size=6)
RECORDS = st.lists(
    st.builds(
        NewRecord,
        CONTENT,
        CONTENT,
        st.integers(-1, 2**40),
        st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(st.tuples(RECORDS, st.sampled_from(Compression)), max_size=3))
def test_batches_hold_what_the_reader_yields(parts: list[tuple[list[NewRecord], Compression]]) -> None:
    sizes = itertools.accumulate((len(records) for records, _ in parts), initial=7)
    data = b"".join(
        build_batch(records, compression=codec, base_offset=offset)
        for (records, codec), offset in zip(parts, sizes, strict=False)
    )
    batch = to_record_batch(read_arrow(data, wanted=EVERYTHING).columns, "tøpic", 3, NAMES)
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "key": record.key,
            "value": record.value,
            "topic": "tøpic",
            "partition": 3,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in read_records(data)
    ]


def test_a_header_name_that_is_not_utf8_keeps_its_record() -> None:
    data = build_batch([NewRecord(None, b"v", 1, [("ab", b"x")])])
    data[data.index(b"ab")] = 0xFF
    batch = to_record_batch(read_arrow(data, wanted=EVERYTHING, check_crc=False).columns, "t", 0, ("headers",))
    assert batch.to_pylist() == [{"headers": [{"key": "\ufffdb", "value": b"x"}]}]


def test_impossible_timestamps_are_cut_to_what_microseconds_can_say() -> None:
    columns = read_arrow(build_batch([NewRecord(None, None, 2**62)])).columns
    batch = to_record_batch(columns, "t", 0, ("timestamp",))
    assert batch.column(0).cast("int64").to_pylist() == [(2**63 - 1) // 1000 * 1000]


GIVEN = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "includeHeaders": "true"}


def test_the_schema_is_what_pyspark_expects_of_arrow() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    options = parse_read_options(GIVEN)
    whole = declared(options)
    assert isinstance(whole, StructType)
    batch = to_record_batch(read_arrow(b"", wanted=EVERYTHING).columns, "t", 0, NAMES)
    assert to_arrow_schema(whole, timezone="UTC").equals(batch.schema)


def test_the_schema_is_that_of_the_kafka_source() -> None:
    found: Any = BarnabasDataSource({name.lower(): value for name, value in GIVEN.items()}).schema()
    assert found.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


def test_a_schema_of_the_users_chooses_columns() -> None:
    options = parse_read_options(GIVEN)
    whole = declared(options)
    assert isinstance(whole, StructType)
    chosen = StructType([whole["offset"], whole["value"]])
    assert projection(chosen, options).names == ("offset", "value")
    without = parse_read_options(GIVEN | {"includeHeaders": "false"})
    with pytest.raises(OptionError, match="set includeHeaders"):
        projection(whole, without)


def test_the_option_columns_chooses_them_in_its_order() -> None:
    options = parse_read_options(GIVEN | {"columns": "offset, headers,value", "valueFormat": "string"})
    whole = declared(options)
    assert isinstance(whole, StructType)
    assert projection(whole, options).names == ("offset", "headers", "value")
    assert whole["value"].dataType.simpleString() == "string"
    with pytest.raises(OptionError, match="column key is not among those of the option columns"):
        projection(StructType([StructField("key", BinaryType())]), options)


def test_the_schema_of_json_is_handed_on_as_text() -> None:
    options = parse_read_options(GIVEN | {"columns": "value,headers", "valueFormat": "json", "valueSchema": "id long"})
    assert declared(options) == "value STRUCT<id long>, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


JSON = {"valueFormat": "json"}


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"columns": "key,nothing"}, None, "unknown column nothing; the columns are key, value"),
        ({"columns": "headers", "includeHeaders": "false"}, None, "set includeHeaders"),
        (JSON, None, "json needs a schema; set valueSchema"),
        (JSON, BinaryType(), "value is a struct of the fields to decode"),
        (JSON, StructType([]), "value is a struct of the fields to decode"),
        (JSON, StructType([StructField("m", BinaryType())]), "value.m: binary is not decoded from JSON"),
        (JSON, StructType([StructField("a", LongType(), False)]), "value.a must be nullable"),
        (JSON, StructType([StructField("a", ArrayType(LongType(), False))]), "an element of value.a must be nullable"),
        (JSON, StructType([StructField("a", LongType()), StructField("a", LongType())]), "value has a field twice"),
        ({}, StructType([StructField("a", LongType())]), "set valueFormat to json to decode it"),
        ({"valueFormat": "string"}, BinaryType(), "column value is string and nullable"),
    ],
)
def test_what_cannot_be_read_as_is_said(given: dict[str, str], kind: DataType | None, words: str) -> None:
    options = parse_read_options(GIVEN | given)
    with pytest.raises(OptionError, match=re.escape(words)):
        declared(options) if kind is None else projection(StructType([StructField("value", kind)]), options)
