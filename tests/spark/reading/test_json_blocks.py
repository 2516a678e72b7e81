"""Blocks of JSON decode to what their records decode to one by one, whatever some of them hold."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_spark.reading import json_blocks
from barnabas_spark.reading.json_blocks import JsonDecoder
from barnabas_spark.reading.json_records import RecordDecoder
from barnabas_spark.reading.values import decoder_for

INSIDE = pa.struct([("x", pa.int32()), ("e", pa.date32())])
KIND = pa.struct(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("d", pa.float64()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("e", pa.date32()),
        ("f", pa.bool_()),
        ("n", pa.decimal128(10, 2)),
        ("s", INSIDE),
        ("l", pa.list_(pa.int64())),
        ("ls", pa.list_(INSIDE)),
        ("_corrupt_record", pa.string()),
    ]
)
PLAIN = ["1", "-7", "null", '"x"', '"é\\n"', "1.5", "true", '"2024-01-02"', '"2024-01-02T03:04:05Z"', "[1,null]", "[]"]
TIMES = [
    "2024-01-02 03:04",
    "2024-01-02T03:04:05.5",
    "2024-01-02T03:04:05.123456+02:00",
    "2024-01-02T03:04:05.1234567Z",
]
PLAIN += [json.dumps(time) for time in [*TIMES, "20240102", "2024-01-02T03", "2024-01-02T03:04:05-0330", "2024-01-02 "]]
ODD = [
    "1e400",
    "99999999999999999999",
    '"\\ud800"',
    '"1"',
    "NaN",
    '["x"]',
    '{"x":1}',
    '[{"x":1,"e":"2024-01-02"}]',
    "{",
]
WHOLE = [b"null", b"", b" ", b"1", b"[]", b"{}", b'{"a":1}{"a":2}', b'{"a":1} null', b'{"a":', b"1}", b' {"a":1}']
NAMES = st.sampled_from([*[field.name for field in KIND][:-1], "other"])


def written(fields: dict[str, str]) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}").encode()


FINE = st.dictionaries(NAMES, st.sampled_from(PLAIN), max_size=4).map(written)
RECORDS = (
    FINE
    | st.dictionaries(NAMES, st.sampled_from(PLAIN + ODD), max_size=4).map(written)
    | st.sampled_from([*WHOLE, b'{"b":"\xff"}', b'{"a":1\n}', b'{"b":"\t"}', json_blocks.NUMBER.encode()])
    | st.none()
)


@settings(max_examples=150, deadline=None)
@given(records=st.lists(RECORDS, max_size=40), small=st.sampled_from([1, 4, 128]), failed=st.sampled_from([0, 3, 24]))
def test_a_block_decodes_to_what_its_records_do(records: list[bytes | None], small: int, failed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_blocks, "SMALL", small)
        patch.setattr(json_blocks, "FAILED_BLOCKS_MAX", failed)
        found = JsonDecoder(KIND).decode(pa.array(records, pa.binary()))
    found.validate(full=True)
    one_by_one = RecordDecoder(KIND)
    expected = pa.array([one_by_one.decode(record) for record in records], KIND)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is not equal to itself


def decoded(*records: bytes | None) -> list[Any]:
    rows: list[Any] = JsonDecoder(KIND).decode(pa.array(records, pa.binary())).to_pylist()
    return [row if row is None else {name: value for name, value in row.items() if value is not None} for row in rows]


def test_one_bad_record_harms_no_other() -> None:
    records = [json.dumps({"a": number, "b": f"text {number}"}).replace(" ", "", 1).encode() for number in range(2000)]
    records[1234] = b'{"a":"no number","b":"kept"}'
    rows = decoded(*records)
    assert rows[1234] == {"b": "kept", "_corrupt_record": '{"a":"no number","b":"kept"}'}
    assert [row["a"] for row in rows[:1234] + rows[1235:]] == [*range(1234), *range(1235, 2000)]


def test_only_records_near_a_bad_one_are_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = JsonDecoder._one_by_one

    def counted(decoder: JsonDecoder, values: Any) -> Any:
        sizes.append(len(values))
        return real(decoder, values)

    monkeypatch.setattr(JsonDecoder, "_one_by_one", counted)
    records = [b'{"a":1}'] * 4000
    records[5] = b'{"a":[]}'
    decoded(*records)
    assert len(sizes) == 1
    assert sizes[0] <= json_blocks.SMALL


def test_a_record_cannot_move_the_rows_behind_it() -> None:
    split = (b'{"a":', b'{"x":1}}', b'{"a":2}{"a":3}', b'{"a":4} null', b'{"a":5}')
    assert [one.get("a") for one in decoded(*split)] == [None, None, 2, 4, 5]


def test_values_have_the_types_of_the_schema() -> None:
    given = {"e": "2024-01-02", "t": "2024-01-02 03:04:05", "n": "1.5", "ls": [{"e": "2024-01-02"}], "d": 1}
    assert decoded(json.dumps(given, separators=(",", ":")).encode()) == [
        {
            "e": date(2024, 1, 2),
            "t": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
            "n": Decimal("1.50"),
            "ls": [{"x": None, "e": date(2024, 1, 2)}],
            "d": 1.0,
        }
    ]


def test_text_is_taken_as_it_is() -> None:
    text = decoder_for(pa.string()).decode(pa.array([b"a", b"\xff", None], pa.binary()))
    assert text.cast(pa.binary()).to_pylist() == [b"a", b"\xff", None]
