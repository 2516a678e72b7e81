"""Decodes one JSON record into a row of a schema, as Spark's `from_json` does. For the few that need care.

A field whose value does not fit its type is null, and the record counts as bad; the other fields stay. An array with
an element that does not fit is null as a whole, but a struct in it keeps the fields that do. What is no JSON object at
all gives a row of nulls, and a value that is null or blank is null itself. A bad record's text goes into the field
`_corrupt_record`, if the schema has it.

What differs from `from_json`: text in single quotes is bad; a time without a zone is in UTC, because a task does not
know the session's zone; a date is not a number of days; of a field that is there twice, the last one counts, and
nothing is said about the others.
"""

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

__all__ = ["CORRUPT", "RecordDecoder"]

Convert = Callable[[Any], Any]

CORRUPT = "_corrupt_record"

_SPACE = " \t\r\n"
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ].*)?")
_CONSTANTS = {name: float(name) for name in ("NaN", "Infinity", "-Infinity", "+Infinity", "INF", "+INF", "-INF")}
_SECONDS_MAX = 253_402_300_799  # the end of the year 9999, where Python's times end


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _MismatchError(Exception):
    """A value does not fit its type."""


_PARSER = json.JSONDecoder(parse_int=_Number, parse_float=_Number)


class RecordDecoder:
    """Decodes records into rows for `pyarrow.array` with the struct type `kind`."""

    def __init__(self, kind: Any) -> None:
        self._nothing = dict.fromkeys(field.name for field in kind)
        self._row = self._struct(kind)
        self._is_bad = False

    def decode(self, data: bytes | None) -> dict[str, Any] | None:
        """Return the row of one value."""
        if data is None:
            return None
        text = data.decode("utf-8", "replace")
        stripped = text.strip(_SPACE)
        if not stripped:
            return None
        self._is_bad = False
        try:
            # As in Spark, what follows the first value is not looked at.
            row: dict[str, Any] = self._row(_PARSER.raw_decode(stripped)[0])
        except (ValueError, RecursionError, _MismatchError):
            self._is_bad = True
            row = dict(self._nothing)
        if CORRUPT in row:
            row[CORRUPT] = text if self._is_bad else None
        return row

    def _converter(self, kind: Any) -> Convert:
        if pa.types.is_struct(kind):
            return self._struct(kind)
        if pa.types.is_list(kind):
            return self._list(kind)
        convert = next(convert for fits, convert in _CONVERSIONS if fits(kind))
        return lambda found: convert(found, kind)

    def _struct(self, kind: Any) -> Convert:
        fields = [(field.name, self._converter(field.type)) for field in kind]

        def convert(found: Any) -> dict[str, Any]:
            if not isinstance(found, dict):
                raise _MismatchError
            row = {}
            for name, inner in fields:
                value = found.get(name)
                if value is not None:
                    try:
                        value = inner(value)
                    except _MismatchError:
                        self._is_bad = True
                        value = None
                row[name] = value
            return row

        return convert

    def _list(self, kind: Any) -> Convert:
        inner = self._converter(kind.value_type)

        def convert(found: Any) -> list[Any]:
            if not isinstance(found, list):
                raise _MismatchError
            return [None if one is None else inner(one) for one in found]

        return convert


def _string(found: Any, _kind: Any) -> str:
    if isinstance(found, str) and not isinstance(found, _Number):
        return found.encode("utf-8", "replace").decode()  # half of a surrogate pair becomes a question mark
    return _json(found)


def _json(found: Any) -> str:
    """Write a value again as Spark's parser does: numbers with a fraction as Java writes them, without spaces."""
    if isinstance(found, _Number):
        if found.lstrip("-").isdecimal():
            return "0" if found == "-0" else found
        return _java_double(float(found))
    if isinstance(found, float):
        return _java_double(found)
    if isinstance(found, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(value)}" for name, value in found.items()) + "}"
    if isinstance(found, list):
        return "[" + ",".join(map(_json, found)) + "]"
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace").decode()


def _java_double(value: float) -> str:
    if not math.isfinite(value):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'  # noqa: PLR0124 - is it NaN
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    assert isinstance(exponent, int)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent + len(digits) - 1}"


def _boolean(found: Any, _kind: Any) -> bool:
    if not isinstance(found, bool):
        raise _MismatchError
    return found


def _integer(found: Any, kind: Any) -> int:
    if not isinstance(found, _Number) or len(found) > 20 or not found.lstrip("-").isdecimal():
        raise _MismatchError
    value = int(found)
    bound = 1 << (kind.bit_width - 1)
    if not -bound <= value < bound:
        raise _MismatchError
    return value


def _floating(found: Any, kind: Any) -> float:
    if isinstance(found, _Number):
        value = float(found)
        return value if kind.bit_width == 64 or abs(value) <= 3.4028235677973366e38 else math.copysign(math.inf, value)
    if isinstance(found, float):
        return found
    if isinstance(found, str) and found in _CONSTANTS:
        return _CONSTANTS[found]
    raise _MismatchError


def _decimal(found: Any, kind: Any) -> Decimal:
    if not isinstance(found, str):
        raise _MismatchError
    try:
        value = Decimal(found).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    except InvalidOperation:
        raise _MismatchError from None
    if not value.is_finite() or len(value.as_tuple().digits) > kind.precision:
        raise _MismatchError
    return value


def _timestamp(found: Any, kind: Any) -> datetime:
    if isinstance(found, _Number):
        if not found.lstrip("-").isdecimal() or len(found) > 12 or abs(int(found)) > _SECONDS_MAX or kind.tz is None:
            raise _MismatchError
        try:
            return datetime.fromtimestamp(int(found), UTC)
        except (ValueError, OverflowError, OSError):
            raise _MismatchError from None
    if not isinstance(found, str):
        raise _MismatchError
    try:
        value = datetime.fromisoformat(found)
    except ValueError:
        raise _MismatchError from None
    if kind.tz is None:
        return value.replace(tzinfo=None)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _date(found: Any, _kind: Any) -> date:
    parts = _DATE.fullmatch(found) if isinstance(found, str) and not isinstance(found, _Number) else None
    if parts is None:
        raise _MismatchError
    try:
        return date(int(parts[1]), int(parts[2]), int(parts[3]))
    except ValueError:
        raise _MismatchError from None


_CONVERSIONS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], Any]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
)
