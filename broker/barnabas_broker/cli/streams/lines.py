"""Turns records into lines of text and back, for `barnabas produce` and `barnabas consume`. Pure.

Three forms. *JSON* carries everything and comes back as it went: bytes that are UTF-8 stand as a string, any others as
`{"base64": "..."}`, null as null; headers are a list of [name, value] pairs, because their order counts and names
repeat. *Raw* is the value and a newline, with the key before it when a separator is given; a value that contains a
newline comes back as two. A *template* is for people: `{partition}@{offset} {value}`.

The writer of a record may have put into it what a terminal obeys. `escaped` makes of a form one that is only to be
looked at: the lines of a template or of raw values cannot be read back any more, those of JSON mean the same.

JSON is read strictly. A field that is not known is a mistake in writing, and a missing value would be a deletion on a
compacted topic: both are refused. The origin of a record (topic, partition, offset) is allowed and ignored, so that
lines of `consume` can be produced again.

Sizes are the caller's concern: one line is one record, held whole.
"""

import string
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, cast

import msgspec

from barnabas_broker.cli.near_names import did_you_mean
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.printable import printable, printable_json
from barnabas_raftlog.unpacking import UNREADABLE

__all__ = [
    "TEMPLATE_FIELDS",
    "LineError",
    "LineRecord",
    "Record",
    "escaped",
    "json_form",
    "parse_json",
    "raw_form",
    "raw_parser",
    "seen",
    "template_form",
]

Header = tuple[str, bytes | None]


class LineError(BarnabasError):
    """A line, or a form for lines, that makes no sense."""


class Record(Protocol):
    """A record as a consumer hands it out."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...
    @property
    def leader_epoch(self) -> int: ...


class LineRecord(NamedTuple):
    """A record to produce. `partition` and `timestamp_ms` are None where the line does not say."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class _Binary(msgspec.Struct, forbid_unknown_fields=True):
    base64: bytes


_Data = str | _Binary | None


class _Line(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: Annotated[int, msgspec.Meta(le=2**63 - 1)] | None = None
    key: _Data = None
    value: _Data
    headers: list[tuple[str, _Data]] = []


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


# Reading.


def parse_json(line: bytes) -> LineRecord:
    """Return the record that one JSON object describes.

    Raises:
        LineError: it is no JSON, has unknown fields, or lacks a value; the message says where.
    """
    try:
        found = _decode(line)
    except msgspec.ValidationError as error:
        raise LineError(_advice(str(error))) from error
    except UNREADABLE as error:
        raise LineError(f"no JSON object in UTF-8: {error}") from error
    return LineRecord(
        key=_bytes(found.key),
        value=_bytes(found.value),
        headers=[(name, _bytes(value)) for name, value in found.headers],
        partition=found.partition,
        # -1 is how a record says that it has none; the new one gets its own.
        timestamp_ms=None if found.timestamp_ms is None or found.timestamp_ms < 0 else found.timestamp_ms,
    )


def raw_parser(key_separator: bytes | None, null: bytes | None) -> Callable[[bytes], LineRecord]:
    """Return what makes a record of a line without its newline.

    Args:
        key_separator: stands between key and value, at its first place in the line; None: lines are values.
        null: a key or value that reads so is null; None: none is.
    """

    def parse(line: bytes) -> LineRecord:
        key: bytes | None = None
        value: bytes | None = line
        if key_separator is not None:
            key, separator, value = line.partition(key_separator)
            if not separator:
                raise LineError(f"no key separator {key_separator.decode(errors='replace')!r} in it")
        return LineRecord(None if key == null else key, None if value == null else value)

    return parse


def _bytes(data: _Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else None if data is None else data.base64


def _advice(text: str) -> str:
    """Say what should stand there; msgspec only says what does."""
    if "str | object | null" in text or ("unknown field" in text and " - at " in text):
        return f'{text}; keys and values are strings, null or {{"base64": "..."}}'
    if "missing required field `value`" in text:
        return f"{text}; a record without one is written with null"
    return text


# Writing.


def json_form(record: Record) -> bytes:
    """Return a record as one line of JSON."""
    return (
        _encode(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": _data(record.key),
                "value": _data(record.value),
                "headers": [(name, _data(value)) for name, value in record.headers],
            }
        )
        + b"\n"
    )


def raw_form(key_separator: bytes | None, null: bytes, *, headers: bool) -> Callable[[Record], bytes]:
    """Return what writes a record as its value, after its key if there is a separator, after its headers if asked for.

    Headers are written as `name:value,name:value` and a tab.
    """
    if key_separator is None and not headers:
        return lambda record: (null if record.value is None else record.value) + b"\n"

    def form(record: Record) -> bytes:
        parts = []
        if headers:
            parts += [_headers(record.headers, null), b"\t"]
        if key_separator is not None:
            parts += [null if record.key is None else record.key, key_separator]
        return b"".join([*parts, null if record.value is None else record.value, b"\n"])

    return form


TEMPLATE_FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", "key", "value", "headers")


def template_form(template: str, null: bytes, readable: Callable[[int], str]) -> Callable[[Record], bytes]:
    r"""Return what writes a record as a template says: `{field}` for each of `TEMPLATE_FIELDS`, `\n` and `\t`.

    `readable` turns ms since 1970 into what stands for `{timestamp}`.

    Raises:
        LineError: the template names something else, or its braces do not match.
    """
    fields: dict[str, Callable[[Record], bytes]] = {
        "topic": lambda record: record.topic.encode(),
        "partition": lambda record: b"%d" % record.partition,
        "offset": lambda record: b"%d" % record.offset,
        "timestamp": lambda record: readable(record.timestamp_ms).encode(),
        "timestamp_ms": lambda record: b"%d" % record.timestamp_ms,
        "key": lambda record: null if record.key is None else record.key,
        "value": lambda record: null if record.value is None else record.value,
        "headers": lambda record: _headers(record.headers, null),
    }
    assert tuple(fields) == TEMPLATE_FIELDS
    parts: list[bytes | Callable[[Record], bytes]] = []
    try:
        # Cast, because the parser's stubs do not say that the last three are None together.
        for text, name, spec, conversion in cast("Any", string.Formatter().parse(template)):
            parts.append(text.replace("\\n", "\n").replace("\\t", "\t").encode())
            if name is None:
                continue
            if name not in fields or spec or conversion:
                asked = "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
                near = did_you_mean(name, TEMPLATE_FIELDS)
                raise LineError(f"{asked} is not a field of a record{near}; there are {', '.join(TEMPLATE_FIELDS)}")
            parts.append(fields[name])
    except ValueError as error:
        raise LineError(f"{template!r}: {error}; write {{{{ and }}}} for braces") from error

    def form(record: Record) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts) + b"\n"

    return form


class _Shown(NamedTuple):
    """A record for the eyes: its texts are UTF-8 without control characters."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    leader_epoch: int


def escaped(form: Callable[[Record], bytes]) -> Callable[[Record], bytes]:
    """Return what writes records as `form` does, with escapes for what is in them and is not for a terminal.

    These are control characters, those that change the direction of text, and bytes that are not UTF-8. Text typed for
    the form itself (a separator, a template, the text for null) stays as it is.
    """
    if form is json_form:
        return lambda record: printable_json(json_form(record)[:-1].decode()).encode() + b"\n"

    def shown(record: Record) -> bytes:
        headers = [(printable(name, None), _seen(value)) for name, value in record.headers]
        place = printable(record.topic, None), record.partition, record.offset, record.timestamp_ms
        return form(_Shown(*place, _seen(record.key), _seen(record.value), headers, record.leader_epoch))

    return shown


def seen(data: bytes) -> bytes:
    """Return text for the eyes: UTF-8, with escapes for what is not for a terminal."""
    return printable(str(data, errors="backslashreplace"), None).encode()


def _seen(data: bytes | None) -> bytes | None:
    return None if data is None else seen(data)


def _data(data: bytes | None) -> _Data:
    if data is None:
        return None
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return _Binary(bytes(data))


def _headers(headers: Sequence[Header], null: bytes) -> bytes:
    return b",".join(name.encode() + b":" + (null if value is None else value) for name, value in headers)
