"""The latest record of each key is the same, whatever was read twice, late, in another order, or deleted."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_spark.latest.choosing import LATEST_SCHEMA, latest_of
from barnabas_spark.latest.writing import SiftedPiece, sift
from barnabas_spark.planning.plan import Split

TOPIC_IDS = ("5d1f0e1c-9f3a-4c57-8a2f-0d8f1f5f6a10", "7c2f0e1c-9f3a-4c57-8a2f-0d8f1f5f6a10")


class Record(NamedTuple):
    topic_id: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def batch_of(records: Sequence[Record]) -> Any:
    rows = [
        {
            "topic": "t",
            "topicId": one.topic_id,
            "partition": one.partition,
            "offset": one.offset,
            "timestamp": one.timestamp,
            "timestampType": 0,
            "key": one.key,
            "value": one.value,
            "headers": None,
            "deleted": one.value is None,
        }
        for one in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema=LATEST_SCHEMA)


def plain(rows: Any) -> dict[tuple[str, int, bytes], tuple[int, bytes | None]]:
    found = {(row["topicId"], row["partition"], row["key"]): (row["offset"], row["value"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "one row a key"
    assert all(row["deleted"] == (row["value"] is None) for row in rows.to_pylist())
    return found


def model(records: Sequence[Record]) -> dict[tuple[str, int, bytes], tuple[int, bytes | None]]:
    """The stupid version: a dict, one record after the other, in the order of offsets."""
    kept: dict[tuple[str, int, bytes], tuple[int, bytes | None]] = {}
    for one in sorted(records, key=lambda one: one.offset):
        if one.key is not None:
            kept[one.topic_id, one.partition, one.key] = (one.offset, one.value)
    return kept


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Some partitions of two topics; keys come again, timestamps go back, and offsets have holes."""
    records = []
    for topic_id in TOPIC_IDS:
        for partition in range(2):
            offset = 0
            for _ in range(draw(st.integers(0, 12))):
                offset += draw(st.integers(1, 3))
                key = draw(st.sampled_from([b"a", b"b", b"", None]))
                value = draw(st.sampled_from([b"1", b"2", None]))
                records.append(Record(topic_id, partition, offset, draw(st.integers(0, 99)), key, value))
    return records


@settings(max_examples=40)
@given(log=logs(), data=st.data())
def test_replays_overlaps_and_any_order_give_the_dict(log: list[Record], data: st.DataObject) -> None:
    keyed = [one for one in log if one.key is not None]
    pieces = data.draw(st.lists(st.lists(st.sampled_from(keyed), max_size=20), max_size=6)) if keyed else []
    kept = LATEST_SCHEMA.empty_table()
    # Each piece is sifted by itself, and merged into what is there; at last all of the log is, once more.
    for piece in [*pieces, data.draw(st.permutations(keyed)), *pieces]:
        sifted = latest_of(pa.Table.from_batches([batch_of(piece)]))
        kept = latest_of(pa.concat_tables([kept, sifted]))
    assert plain(kept) == model(log)
    assert kept.column("offset").to_pylist() == sorted(kept.column("offset").to_pylist())


@settings(max_examples=30)
@given(log=logs(), bytes_max=st.integers(1, 2000), batch_rows=st.integers(1, 5))
def test_a_task_keeps_the_latest_of_its_range_and_counts_null_keys(
    log: list[Record], bytes_max: int, batch_rows: int
) -> None:
    records = [one for one in log if (one.topic_id, one.partition) == (TOPIC_IDS[0], 0)]
    kept, start_offset, end_offset = [], 0, 100
    counted = {"read": 0, "null_keys": 0}
    while start_offset < end_offset:
        left = [one for one in records if one.offset >= start_offset]
        batches = (batch_of(left[at : at + batch_rows]) for at in range(0, len(left), batch_rows))
        piece = SiftedPiece(Split("t", None, 0, 0, start_offset, end_offset), TOPIC_IDS[0], bytes_max)
        done, rows = sift(piece, batches)
        assert done.start_offset == start_offset < done.end_offset <= end_offset
        assert (done.kept, done.deleted) == (rows.num_rows, sum(one is None for one in rows["value"].to_pylist()))
        kept.append(rows)
        counted["read"] += done.read
        counted["null_keys"] += done.null_keys
        start_offset = done.end_offset
    assert counted == {"read": len(records), "null_keys": sum(one.key is None for one in records)}
    assert plain(latest_of(pa.concat_tables(kept))) == model(records)
