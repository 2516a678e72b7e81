"""Format strings write what kcat's and rpk's do, and read back what they have written."""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cli.streams.dates import date_form
from barnabas_broker.cli.streams.formats import Field, FormatReader, parse_format, percent_form
from barnabas_broker.cli.streams.lines import LineError, LineRecord
from barnabas_clients.consumer.record import ConsumerRecord

RECORD = ConsumerRecord(
    topic="orders",
    partition=2,
    offset=258,
    timestamp_ms=1_700_000_000_120,
    key=b"k\x1b",
    value=b"caf\xff",
    headers=(("a", b"1"), ("b", None)),
    leader_epoch=7,
)
NO_KEY = RECORD._replace(key=None, value=b"")
DATA = st.none() | st.binary(max_size=12) | st.text(max_size=8).map(str.encode)
LIMIT_BYTES = 1000


def written(text: str, record: ConsumerRecord = RECORD, null: bytes = b"", *, escape: bool = False) -> bytes:
    return percent_form(text, null, date_form, escape=escape)(record)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def reader(text: str, null: bytes | None = None, *, tombstone: bool = False) -> FormatReader:
    return FormatReader(text, null, tombstone=tombstone, limit_bytes=LIMIT_BYTES)


def read(text: str, data: bytes, null: bytes | None = None, *, tombstone: bool = False) -> list[LineRecord]:
    found = reader(text, null, tombstone=tombstone)
    records = [*found.feed(data), *found.finish()]
    if found.failure is not None:
        raise found.failure
    return records


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%t %p %o %e", b"orders 2 258 7"),
        ("%k=%v", b"k\x1b=caf\xff"),
        ("%s", b"caf\xff"),
        ("%K %V %S", b"2 4 4"),
        ("%R", b"\0\0\0\x04"),
        ("%T %d", b"1700000000120 1700000000120"),
        (r"\t\n\r\\\x41\xff", b"\t\n\r\\A\xff"),
        ("100%% %{%}", b"100% {}"),
        ("%v{hex} %v{base64} %v{base64raw}", b"636166ff Y2Fm/w== Y2Fm/w"),
        ("%t{hex}", b"6f7264657273"),
        ("%o{hex64} %o{hex8} %o{hex4}", b"0000000000000102 02 2"),
        ("%o{big16}%o{little32}%o{byte}", b"\x01\x02\x02\x01\0\0\x02"),
        ("%p{bool} %p{ascii}", b"true 2"),
        ("%h", b"a=1,b="),
        ("%h{%k:%v{hex} }%H", b"a:31 b: 2"),
        ("%d{strftime[%Y-%m-%d]}", b"2023-11-14"),
        ("%d{go[2006-01-02T15:04:05.000Z07:00]}", b"2023-11-14T22:13:20.120Z"),
        ("%d{go[Mon Jan _2 3:4:5.999 PM 2006 MST]}", b"Tue Nov 14 10:13:20.12 PM 2023 UTC"),
        ('{"v":"%k"}', b'{"v":"k\x1b"}'),
    ],
)
def test_fields_are_written_as_they_are_elsewhere(text: str, line: bytes) -> None:
    assert written(text) == line


def test_a_null_has_the_size_minus_one_and_the_text_that_was_asked_for() -> None:
    assert written("%k|%v|%K %V", NO_KEY) == b"||-1 0"
    assert written("%k|%v{hex}", NO_KEY._replace(value=None), b"NULL") == b"NULL|NULL"
    assert written("%h", RECORD, b"NULL") == b"a=1,b=NULL"


def test_records_are_counted_from_one() -> None:
    form = percent_form("%i ", b"", date_form)
    assert form(RECORD) + form(RECORD) == b"1 2 "


def test_escapes_are_for_texts_and_sizes_stay_those_of_the_record() -> None:
    assert written(r"%k\x1b[%v] %K %v{hex}", escape=True) == b"k\\x1b\x1b[caf\\xff] 2 636166ff"


def test_times_before_and_behind_the_calendar_are_numbers() -> None:
    assert written("%d{go[2006]}", RECORD._replace(timestamp_ms=-1)) == b"-1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%q", "%q is not a field; there are %t %k"),
        ("50%", "a percent sign ends the format; write %%"),
        (r"\q", r"'\q' is not an escape; there are \n"),
        (r"\x4", "is not an escape"),
        ("%v{hex", "the brace behind %v is not closed"),
        ("%v{hx}", "%v{hx}: unknown modifier (did you mean 'hex'?); there are hex, base64"),
        ("%v{unpack[>I]}", "unknown modifier"),
        ("%p{hex}", "unknown modifier (did you mean 'hex8'?); there are big64"),
        ("%d{date}", "go[...] or strftime[...]"),
        ("%V{4}", "a size that is given is for reading"),
        ("%h{%p}", "%p is not a part of a header"),
        ("%x", "%x is not available: consumers are not told producer ids"),
    ],
)
def test_a_format_that_makes_no_sense_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LineError) as caught:
        written(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%k%v\\n", "nothing tells where %k ends and %v begins"),
        ("%k %v", r"nothing tells where %v ends; write '%k %v\n'"),
        ("%V %k%v", "nothing tells where %k ends and %v begins"),
        ("%o\\n", "has neither %k nor %v"),
        ("%k\\n", "has no %v; with --tombstone"),
        ("%v %s\\n", "has %v twice"),
        ("%h %v\\n", "%h cannot be read; --format json reads headers"),
        ("%K %v\\n", "%K is the size of a %k that must follow it"),
        ("%v %V\\n", "%V is the size of a %v that must follow it"),
        ("%d{strftime[%F]} %v\\n", "cannot be read; write a number, as %d"),
    ],
)
def test_a_format_that_leaves_an_end_open_cannot_be_read(text: str, reason: str) -> None:
    with pytest.raises(LineError) as caught:
        reader(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "data", "reason"),
    [
        ("%k=%v\\n", b"a=b\nc", "record 2: the input ends in the middle of it"),
        ("<%v>", b"<a>b>", "record 2: '<' must stand where there is 'b'"),
        ("%V %v", b"x a", "record 1: %V must be a number, not 'x'"),
        ("%V %v", b"-2 a", "a size is at least 0"),
        ("%V %v", b"2000 a", "record 1: it is longer than 1000 bytes"),
        ("%v\\n", b"x" * 1001, "record 1: it is longer than 1000 bytes"),
        ("%V{hex8}%v", b"0ga", "%V{hex8} must be 2 hexadecimal digits, not '0g'"),
        ("%v{hex}\\n", b"abc\n", "'abc' is not hex"),
        ("%v{base64}\\n", b"a?=\n", "is not base64"),
        ("%d %v\\n", b"9999999999999999999 a\n", "must be a number"),
    ],
)
def test_input_that_does_not_match_is_refused(text: str, data: bytes, reason: str) -> None:
    with pytest.raises(LineError) as caught:
        read(text, data)
    assert reason in str(caught.value)


def test_records_before_one_that_cannot_be_read_are_handed_out() -> None:
    found = reader("%d %v\\n")
    assert found.feed(b"1 a\n2 b\nx c\n4 d\n") == [
        LineRecord(None, b"a", timestamp_ms=1),
        LineRecord(None, b"b", timestamp_ms=2),
    ]
    assert str(found.failure) == "record 3: %d must be a number, not 'x'"
    assert found.feed(b"5 e\n") == []


def test_what_a_record_is_made_of() -> None:
    spoken = [LineRecord(b"a", b"b c"), LineRecord(b"", b"x"), LineRecord(b"y", b"")]
    assert read("%k %v\\n", b"a b c\n x\ny ") == spoken
    assert read("%p %o %e %t %d %v;\\n", b"3 9 1 topic -1 a;\n") == [LineRecord(None, b"a", partition=3)]
    assert read("%K{4}%V{2}%k%v", b"keyAv1keyBv2") == [LineRecord(b"keyA", b"v1"), LineRecord(b"keyB", b"v2")]
    assert read("%K{big16} foo %k%v\\n", b"\0\x01 foo kv\n") == [LineRecord(b"k", b"v")]
    assert read("%k:%v\\n", b"-:-\n:\n", b"-") == [LineRecord(None, None), LineRecord(b"", b"")]
    assert read("%k:%v\\n", b"k:\n", tombstone=True) == [LineRecord(b"k", None)]
    assert read("%k\\n", b"k\n", tombstone=True) == [LineRecord(b"k", None)]


LOSSLESS = [
    "%K %V %k%v",
    "%V,%K;%v%k",
    "%K{big32}%V{little64}%k%v",
    "%K{hex32}%k{hex}%V{big64}%v{base64}",
    "%o %t %K %k\\n%V %v{base64raw}\\n",
    "%R%s%K{hex64}%k",
]


@given(st.lists(st.tuples(DATA, DATA), max_size=4), st.sampled_from(LOSSLESS), st.integers(1, 9))
def test_a_format_with_sizes_brings_every_record_back(
    pairs: list[tuple[bytes | None, bytes | None]], text: str, piece: int
) -> None:
    form = percent_form(text, b"", date_form)
    data = b"".join(form(RECORD._replace(key=key, value=value)) for key, value in pairs)
    found = reader(text)
    records = [record for part in pieces(data, piece) for record in found.feed(part)]
    assert [*records, *found.finish()] == [LineRecord(key, value) for key, value in pairs]
    assert found.failure is None


DELIMITED = [("%k %v\\n", b" ", b"\n"), ("<%k|||%v>", b"|||", b">"), ("%k::%v;;", b"::", b";;")]


@given(
    st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=4),
    st.sampled_from(DELIMITED),
    st.integers(1, 9),
)
def test_a_format_with_delimiters_brings_back_records_without_them(
    pairs: list[tuple[bytes, bytes]], form: tuple[str, bytes, bytes], piece: int
) -> None:
    text, behind_key, behind_value = form

    def ends(data: bytes, delimiter: bytes) -> bool:
        return (data + delimiter).index(delimiter) == len(data)

    pairs = [(key, value) for key, value in pairs if ends(key, behind_key) and ends(value, behind_value)]
    write = percent_form(text, b"", date_form)
    data = b"".join(write(RECORD._replace(key=key, value=value)) for key, value in pairs)
    found = reader(text)
    records = [record for part in pieces(data, piece) for record in found.feed(part)]
    assert [*records, *found.finish()] == [LineRecord(key, value) for key, value in pairs]


@given(st.text("%{}\\knvVhT[]x0 a", max_size=12))
def test_any_text_is_a_format_or_is_refused_with_words(text: str) -> None:
    with contextlib.suppress(LineError):
        written(text)
    with contextlib.suppress(LineError):
        found = reader(text)
        # Fewer records than bytes: none is made of nothing.
        assert len([*found.feed(b"\0 1 a\n" * 5), *found.finish()]) <= 30


def test_a_format_is_texts_and_fields() -> None:
    assert parse_format("a%k{hex} b%%c%v") == [b"a", Field("k", "hex"), b" b%c", Field("v")]
