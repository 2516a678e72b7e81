"""Records as lines come back as they went; nonsense is refused with a reason."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cli.streams.lines import (
    LineError,
    LineRecord,
    escaped,
    json_form,
    parse_json,
    raw_form,
    raw_parser,
    template_form,
)
from barnabas_clients.consumer.record import ConsumerRecord

DATA = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3).map(tuple)
RECORDS = st.builds(
    ConsumerRecord,
    topic=st.text("abc.-_", min_size=1, max_size=5),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**53),
    key=DATA,
    value=DATA,
    headers=HEADERS,
    leader_epoch=st.just(-1),
)
RECORD = ConsumerRecord(
    topic="t",
    partition=1,
    offset=7,
    timestamp_ms=5,
    key=b"k",
    value=b"v",
    headers=(("h", b"x"), ("h", None)),
    leader_epoch=-1,
)


@given(RECORDS)
def test_json_brings_every_record_back(record: ConsumerRecord) -> None:
    line = json_form(record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    found = parse_json(line)
    # A record without a time (-1) is produced without one.
    timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
    assert found == LineRecord(
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        partition=record.partition,
        timestamp_ms=timestamp_ms,
    )
    # Other programs read it, too.
    fields = json.loads(line)
    assert (fields["topic"], fields["offset"]) == (record.topic, record.offset)


def test_json_is_text_where_it_can_be_and_base64_where_it_cannot() -> None:
    line = json_form(RECORD._replace(key="ключ".encode(), value=b"\xff\x00"))
    assert line.decode() == (
        '{"topic":"t","partition":1,"offset":7,"timestamp_ms":5,"key":"ключ","value":{"base64":"/wA="},'
        '"headers":[["h","x"],["h",null]]}\n'
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "no JSON object"),
        ("[]", "Expected `object`"),
        ('{"value": "a"} {}', "trailing characters"),
        ("{}", "missing required field `value`; a record without one is written with null"),
        ('{"value": "a", "vlaue": "b"}', "unknown field `vlaue`"),
        ('{"value": 1}', 'strings, null or {"base64": "..."}'),
        ('{"value": {"a": 1}}', 'strings, null or {"base64": "..."}'),
        ('{"value": {"base64": "!"}}', "base64"),
        ('{"value": null, "headers": {"a": "b"}}', "at `$.headers`"),
        ('{"value": null, "headers": [["a"]]}', "at `$.headers[0]`"),
        ('{"value": null, "timestamp_ms": 10000000000000000000}', "at `$.timestamp_ms`"),
        ('{"value": null, "partition": "1"}', "at `$.partition`"),
    ],
)
def test_json_that_makes_no_sense_is_refused(line: str, reason: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_json(line.encode())
    assert reason in str(caught.value)


@pytest.mark.parametrize("line", [b"\xff", b'{"value": "\xff"}', b'{"value": "\\ud800"}'])
def test_what_is_not_utf_8_is_refused(line: bytes) -> None:
    with pytest.raises(LineError, match="no JSON object in UTF-8"):
        parse_json(line)


@given(st.binary(), st.binary(min_size=1, max_size=2), st.binary())
def test_raw_lines_with_keys_come_back(key: bytes, separator: bytes, value: bytes) -> None:
    record = RECORD._replace(key=key, value=value)
    line = raw_form(separator, b"", headers=False)(record)
    # The first separator counts, so a key must not hold or complete one.
    if (key + separator).index(separator) == len(key):
        assert raw_parser(separator, None)(line[:-1]) == LineRecord(key, value)


def test_raw_lines() -> None:
    assert raw_parser(None, None)(b"a:b\r") == LineRecord(None, b"a:b\r")
    assert raw_parser(b":", b"NULL")(b"NULL:NULL") == LineRecord(None, None)
    assert raw_parser(b":", None)(b"a:b:c") == LineRecord(b"a", b"b:c")
    with pytest.raises(LineError, match="no key separator ':'"):
        raw_parser(b":", None)(b"abc")
    assert raw_form(None, b"-", headers=False)(RECORD._replace(value=None)) == b"-\n"
    assert raw_form(b"=", b"-", headers=True)(RECORD) == b"h:x,h:-\tk=v\n"


def test_templates() -> None:
    form = template_form(
        r"{topic}/{partition}@{offset} {timestamp} {timestamp_ms} {{{key}}}\t{value} {headers}", b"", str
    )
    assert form(RECORD) == b"t/1@7 5 5 {k}\tv h:x,h:\n"
    assert template_form("{value}", b"NULL", str)(RECORD._replace(value=None)) == b"NULL\n"


HOSTILE = "a\n\t\x1b]0;x\x07\x7f\x9b31m\u2028\u202e\U000e0041\\"
SEEN = r"a\n\t\x1b]0;x\x07\x7f\u009b31m\u2028\u202e\U000e0041" + "\\"


def test_what_a_terminal_would_obey_is_escaped_in_keys_values_and_headers() -> None:
    data = HOSTILE.encode() + b"\xff"
    record = RECORD._replace(key=data, value=data, headers=((HOSTILE, data), ("h", None)))
    seen = SEEN + r"\xff"
    form = escaped(raw_form(b"\t", b"-\x1b", headers=True))
    assert form(record).decode() == f"{SEEN}:{seen},h:-\x1b\t{seen}\t{seen}\n", "what was typed stays"
    template = escaped(template_form(r"{topic}\t{key}\n{value}", b"NULL", str))
    assert template(record._replace(value=None)).decode() == f"t\t{seen}\nNULL\n"
    harmless = RECORD._replace(key="ключ ✓ 注文".encode(), value=b"")
    assert escaped(raw_form(b"=", b"", headers=False))(harmless) == "ключ ✓ 注文=\n".encode()


@given(RECORDS)
def test_escaped_lines_have_no_control_character_but_their_newline(record: ConsumerRecord) -> None:
    forms = raw_form(b"|", b"", headers=False), template_form("{topic} {key} {value} {headers}", b"", str), json_form
    for form in forms:
        line = escaped(form)(record).decode()
        assert line[-1] == "\n"
        assert not {unicodedata.category(character) for character in line[:-1]} & {"Cc", "Cs", "Zl", "Zp"}


@given(RECORDS, st.sampled_from(["", HOSTILE]))
def test_escaped_json_means_the_same(record: ConsumerRecord, more: str) -> None:
    record = record._replace(value=(record.value or b"") + more.encode(), headers=(*record.headers, (more, None)))
    assert parse_json(escaped(json_form)(record)) == parse_json(json_form(record))


@pytest.mark.parametrize("template", ["{vlaue}", "{}", "{0}", "{value!r}", "{offset:5}", "{value", "}"])
def test_a_template_that_makes_no_sense_is_refused(template: str) -> None:
    with pytest.raises(LineError):
        template_form(template, b"", str)
