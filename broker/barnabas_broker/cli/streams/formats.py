r"""Writes and reads records by format strings such as kcat's and rpk's: `%k %v\n`. Pure.

A format is text with escapes (`\n`, `\t`, `\r`, `\\`, `\xNN`) and fields: a percent sign, a letter, and perhaps a
modifier in braces. `docs/cli.md` has the table of fields, and says what was decided where kcat and rpk differ. Nothing
is added to what a format says, no newline either.

Reading is the reverse. A field ends where the text behind it begins, or it has the size that a field before it told
(`%K`, `%V`). So a format whose sizes come first carries every record, and one with delimiters carries records in which
they do not occur. A format that leaves open where a field ends is refused before anything is read.

A reader keeps what it has of one record, at most `limit_bytes`, and looks at each byte once.

Not here: headers are written and not read (`--format json` reads them); rpk's `unpack`, `re` and `json` modifiers.
"""

import base64
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas_broker.cli.near_names import did_you_mean

from .lines import LineError, LineRecord, Record, seen

__all__ = ["DateForm", "Field", "FormatReader", "parse_format", "percent_form"]

DateForm = Callable[[str, str], Callable[[int], str]]
"""From a language ("go", "strftime") and a layout to what writes a time in ms since 1970."""

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}
TEXTS = "tkvs"
SIZES = {"K": "k", "V": "v", "S": "v", "R": "v"}  # field: that whose size it is
NUMBERS = "poediTH"
ABSENT = {
    "x": "producer ids",
    "y": "producer epochs",
    "a": "attributes of batches",
    "[": "log starts",
    "|": "last stable offsets",
    "]": "high watermarks",
}
KNOWN = "%t %k %K %v %s %V %S %R %p %o %e %T %d %h %H %i %%"
TEXT_MODIFIERS = ("hex", "base64", "base64raw")
# Name of a modifier of numbers: its width in bits, and how it is written.
WIDTHS = {f"{kind}{bits}": (bits, kind) for kind in ("big", "little", "hex") for bits in (64, 32, 16, 8)} | {
    "hex4": (4, "hex"),
    "byte": (8, "big"),
}
# A number of fewer bits has no sign: a value of 200 bytes is commoner than a null.
SIGNED_BITS_MIN = 32
DIGITS_MAX = 20


class Field(NamedTuple):
    """A field of a format: its letter, and what stands in its braces."""

    letter: str
    modifier: str | None = None

    def __str__(self) -> str:
        return f"%{self.letter}" + ("" if self.modifier is None else f"{{{self.modifier}}}")


def parse_format(text: str) -> list[bytes | Field]:
    """Return the literal texts and the fields of a format, in order; no two texts stand side by side.

    Raises:
        LineError: the format has an unknown field or escape, or a brace that is not closed.
    """
    parts: list[bytes | Field] = []
    literal = bytearray()
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            data, at = _escape(text, at)
            literal += data
        elif character != "%":
            literal += character.encode("utf-8", "surrogateescape")
            at += 1
        elif (letter := text[at + 1 : at + 2]) in {"%", "{", "}"}:
            literal += letter.encode()
            at += 2
        else:
            if literal:
                parts.append(bytes(literal))
                literal.clear()
            modifier, at = _modifier(text, at + 2, letter)
            parts.append(_checked(Field(letter, modifier)))
    return [*parts, bytes(literal)] if literal else parts


def _escape(text: str, at: int) -> tuple[bytes, int]:
    letter = text[at + 1 : at + 2]
    if letter in ESCAPES:
        return ESCAPES[letter], at + 2
    if letter == "x" and re.fullmatch("[0-9a-fA-F]{2}", digits := text[at + 2 : at + 4]):
        return bytes.fromhex(digits), at + 4
    raise LineError(rf"'\{letter}' is not an escape; there are \n, \t, \r, \\ and \xNN")


def _modifier(text: str, at: int, letter: str) -> tuple[str | None, int]:
    """Return what stands in braces from `at` on, without them, and where the text goes on."""
    if text[at : at + 1] != "{":
        return None, at
    depth = 0
    for end in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[at + 1 : end], end + 1
    raise LineError(f"the brace behind %{letter} is not closed; a brace that is meant to be text is written %{{")


def _checked(field: Field) -> Field:
    letter, modifier = field
    if not letter:
        raise LineError("a percent sign ends the format; write %% for one")
    if letter in ABSENT:
        raise LineError(f"%{letter} is not available: consumers are not told {ABSENT[letter]}")
    if letter not in f"h{TEXTS}{NUMBERS}" and letter not in SIZES:
        raise LineError(f"%{letter} is not a field; there are {KNOWN}")
    if modifier is None or letter == "h" or (letter == "d" and _date(modifier) is not None):
        return field
    known = TEXT_MODIFIERS if letter in TEXTS else (*WIDTHS, "ascii", "bool")
    if modifier not in known and not (letter in SIZES and re.fullmatch("[1-9][0-9]{0,8}", modifier)):
        more = ", go[...] or strftime[...]" if letter == "d" else ""
        near = did_you_mean(modifier, known)
        raise LineError(f"{field}: unknown modifier{near}; there are {', '.join(known)}{more}")
    return field


def _date(modifier: str) -> tuple[str, str] | None:
    found = re.fullmatch(r"(go|strftime)\[(.*)\]", modifier, re.DOTALL)
    return None if found is None else (found[1], found[2])


# Writing.


def percent_form(text: str, null: bytes, date_form: DateForm, *, escape: bool = False) -> Callable[[Record], bytes]:
    """Return what writes a record as a format says, and adds nothing.

    Args:
        text: the format.
        null: stands for a null key, value or header value. Its size is -1.
        date_form: makes what writes `%d{go[...]}` and `%d{strftime[...]}`.
        escape: show control characters of texts as escapes. Sizes stay those of the record.

    Raises:
        LineError: the format makes no sense.
    """
    parts = [
        part if isinstance(part, bytes) else _writer(part, null, date_form, escape=escape)
        for part in parse_format(text)
    ]

    def form(record: Record) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])

    return form


def _writer(field: Field, null: bytes, date_form: DateForm, *, escape: bool) -> Callable[[Record], bytes]:
    letter, modifier = field
    if letter == "h":
        return _headers_writer(modifier, null, date_form, escape=escape)
    if letter in TEXTS:
        return _text_writer(field, null, escape=escape)
    if letter == "d" and modifier is not None and (date := _date(modifier)) is not None:
        write_date = date_form(*date)
        return lambda record: write_date(record.timestamp_ms).encode("utf-8", "surrogateescape")
    if modifier is not None and modifier.isdecimal():
        raise LineError(f"{field}: a size that is given is for reading")
    number = _number_of(letter)
    if letter == "R":
        modifier = modifier or "big32"
    if modifier is None or modifier == "ascii":
        return lambda record: b"%d" % number(record)
    if modifier == "bool":
        return lambda record: b"true" if number(record) else b"false"
    bits, kind = WIDTHS[modifier]
    mask = (1 << bits) - 1
    if kind == "hex":
        digits = bits // 4
        return lambda record: f"{number(record) & mask:0{digits}x}".encode()
    if kind == "little":
        return lambda record: (number(record) & mask).to_bytes(bits // 8, "little")
    return lambda record: (number(record) & mask).to_bytes(bits // 8, "big")


def _text_writer(field: Field, null: bytes, *, escape: bool) -> Callable[[Record], bytes]:
    letter, modifier = field
    encode = _encoder(modifier, escape=escape)
    if letter == "t":
        return lambda record: encode(record.topic.encode())
    if letter == "k":
        return lambda record: null if record.key is None else encode(record.key)
    return lambda record: null if record.value is None else encode(record.value)


def _encoder(modifier: str | None, *, escape: bool) -> Callable[[bytes], bytes]:
    if modifier == "hex":
        return lambda data: data.hex().encode()
    if modifier == "base64":
        return base64.b64encode
    if modifier == "base64raw":
        return lambda data: base64.b64encode(data).rstrip(b"=")
    return seen if escape else bytes


def _number_of(letter: str) -> Callable[[Record], int]:
    if letter == "i":
        count = itertools.count(1)
        return lambda _: next(count)
    numbers: dict[str, Callable[[Record], int]] = {
        "K": lambda record: -1 if record.key is None else len(record.key),
        "V": lambda record: -1 if record.value is None else len(record.value),
        "p": lambda record: record.partition,
        "o": lambda record: record.offset,
        "e": lambda record: record.leader_epoch,
        "d": lambda record: record.timestamp_ms,
        "H": lambda record: len(record.headers),
    }
    return numbers[{"S": "V", "R": "V", "T": "d"}.get(letter, letter)]


class _HeaderAsRecord(NamedTuple):
    """One header, whose name is `%k` and whose content is `%v` within the braces of `%h`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[()]
    leader_epoch: int


def _headers_writer(
    modifier: str | None, null: bytes, date_form: DateForm, *, escape: bool
) -> Callable[[Record], bytes]:
    # Without braces as kcat writes them, and so with its separators.
    inner = "%k=%v" if modifier is None else modifier
    for part in parse_format(inner):
        if isinstance(part, Field) and part.letter not in {"k", "v", "s", "K", "V", "S"}:
            raise LineError(f"%h{{...}}: {part} is not a part of a header; there are %k, %v, %K and %V")
    separator = b"," if modifier is None else b""
    write = percent_form(inner, null, date_form, escape=escape)

    def form(record: Record) -> bytes:
        place = record.topic, record.partition, record.offset, record.timestamp_ms
        return separator.join(
            write(_HeaderAsRecord(*place, name.encode(), value, (), record.leader_epoch))
            for name, value in record.headers
        )

    return form


# Reading.


class _Step(NamedTuple):
    """What comes next in the input: a text that is known (`until`, if there is no field), or a field.

    A field ends at `until`, or it has a size: its own width in bytes, or that which has been read for its letter.
    """

    field: Field | None
    until: bytes | None = None
    width_bytes: int | None = None


class FormatReader:
    """Makes records of bytes that come piece by piece. `failure` says why it has ended; then it takes no more.

    Args:
        text: the format.
        null: a key or value that reads so, before it is decoded, is null; None: none is.
        tombstone: an empty value is null, and a format may leave the value out.
        limit_bytes: the most that one record may take in the input.

    Raises:
        LineError: the format leaves open where something ends, or cannot be read for another reason.
    """

    def __init__(self, text: str, null: bytes | None, *, tombstone: bool, limit_bytes: int) -> None:
        self.failure: LineError | None = None
        self._steps, self._sizes_given = _steps(text, tombstone=tombstone)
        self._null = null
        self._tombstone = tombstone
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._number = 0
        self._at = 0
        self._searched = 0
        self._begin()

    def _begin(self) -> None:
        self._start = self._at
        self._step = 0
        self._sizes = dict(self._sizes_given)
        self._found: dict[str, bytes | int | None] = {}

    def feed(self, data: bytes) -> list[LineRecord]:
        """Return the records that `data` completes. Look at `failure` behind them."""
        self._buffer += data
        return list(self._records())

    def finish(self) -> list[LineRecord]:
        """Return the last record, if only the text behind it is missing, as after a file without a last newline."""
        last = self._steps[-1].until
        if self.failure is None and len(self._buffer) > self._start and last is not None:
            tail = bytes(self._buffer[self._at :])
            here = next((n for n in range(len(last) - 1, 0, -1) if tail.endswith(last[:n])), 0)
            if self._step == len(self._steps) - 1:
                self._buffer += last[here:]
        records = list(self._records())
        if self.failure is None and (len(self._buffer) > self._start or self._step):
            self.failure = LineError(f"record {self._number + 1}: the input ends in the middle of it")
        return records

    def _records(self) -> Iterator[LineRecord]:
        try:
            while self.failure is None and (self._step or self._at < len(self._buffer)):
                if (record := self._next()) is None:
                    break
                yield record
        except LineError as error:
            self.failure = LineError(f"record {self._number + 1}: {error}")
        del self._buffer[: self._start]
        self._at -= self._start
        self._searched = max(0, self._searched - self._start)
        self._start = 0

    def _next(self) -> LineRecord | None:
        """Go on with the record that is under way; None if it is not complete."""
        while self._step < len(self._steps):
            if not self._take(self._steps[self._step]):
                if len(self._buffer) - self._start > self._limit_bytes:
                    raise LineError(f"it is longer than {self._limit_bytes} bytes")
                return None
            self._step += 1
        record = self._record()
        self._number += 1
        self._begin()
        return record

    def _take(self, step: _Step) -> bool:
        """Take one step, if everything that it needs is there."""
        buffer, at = self._buffer, self._at
        field, until, width_bytes = step
        if field is None:
            assert until is not None
            there = bytes(buffer[at : at + len(until)])
            if not until.startswith(there):
                raise LineError(f"{_quoted(until)} must stand where there is {_quoted(there)}")
            self._at += len(there) if there == until else 0
            return there == until
        if until is not None:
            end = buffer.find(until, max(at, self._searched))
            if end < 0:
                self._searched = max(at, len(buffer) - len(until) + 1)
                return False
            self._at = end + len(until)
        else:
            end = at + (self._encoded_bytes(field) if width_bytes is None else width_bytes)
            if end - self._start > self._limit_bytes:
                raise LineError(f"it is longer than {self._limit_bytes} bytes")
            if end > len(buffer):
                return False
            self._at = end
        self._keep(field, bytes(buffer[at:end]))
        return True

    def _encoded_bytes(self, field: Field) -> int:
        """Return how many bytes of input a text of a known size takes."""
        size = max(0, self._sizes[field.letter])
        if field.modifier == "hex":
            return 2 * size
        if field.modifier == "base64":
            return 4 * -(-size // 3)
        return -(-4 * size // 3) if field.modifier == "base64raw" else size

    def _keep(self, field: Field, data: bytes) -> None:
        if field.letter in TEXTS:
            is_null = data == self._null or self._sizes.get(field.letter) == -1
            self._found[field.letter] = None if is_null else _decoded(field, data)
        elif field.letter in SIZES:
            size = _read_number(field, data)
            if size < -1:
                raise LineError(f"{field} is {size}; a size is at least 0, or -1 for null")
            self._sizes[SIZES[field.letter]] = size
        else:
            self._found[field.letter] = _read_number(field, data)

    def _record(self) -> LineRecord:
        found = self._found
        key, value, partition, timestamp_ms = (found.get(letter) for letter in "kvpd")
        assert not isinstance(key, int)
        assert not isinstance(value, int)
        if value == b"" and self._tombstone:
            value = None
        return LineRecord(
            key,
            value,
            partition=partition if isinstance(partition, int) else None,
            timestamp_ms=timestamp_ms if isinstance(timestamp_ms, int) and timestamp_ms >= 0 else None,
        )


def _steps(text: str, *, tombstone: bool) -> tuple[list[_Step], dict[str, int]]:
    """Return the steps that read a record, and the sizes that the format itself gives."""
    parts = [_canonical(part) for part in parse_format(text)]
    _check_readable(text, [part for part in parts if isinstance(part, Field)], tombstone=tombstone)
    steps: list[_Step] = []
    given: dict[str, int] = {}
    sized: set[str] = set()
    rest: list[bytes | Field] = list(reversed(parts))
    while rest:
        part = rest.pop()
        if isinstance(part, bytes):
            steps.append(_Step(None, part))
            continue
        width_bytes = _width_bytes(part)
        if part.letter in SIZES:
            sized.add(SIZES[part.letter])
            if part.modifier is not None and part.modifier.isdecimal():
                given[SIZES[part.letter]] = int(part.modifier)
                continue
        if width_bytes is not None or part.letter in sized:
            steps.append(_Step(part, None, width_bytes))
            continue
        if not rest:
            raise LineError(f"'{text}': nothing tells where {part} ends; write '{text}\\n' if a newline does")
        follower = rest.pop()
        if isinstance(follower, Field):
            raise LineError(
                f"'{text}': nothing tells where {part} ends and {follower} begins; put a text between them, as in "
                f"'%k %v\\n', or sizes before them"
            )
        steps.append(_Step(part, follower))
    return steps, given


def _canonical(part: bytes | Field) -> bytes | Field:
    """Give fields with two letters one of them."""
    if isinstance(part, bytes):
        return part
    if part.letter == "R":
        return Field("V", part.modifier or "big32")
    return part._replace(letter={"s": "v", "S": "V", "T": "d"}.get(part.letter, part.letter))


def _check_readable(text: str, fields: Sequence[Field], *, tombstone: bool) -> None:
    letters = [field.letter for field in fields]
    if not {"k", "v"} & set(letters):
        raise LineError(f"'{text}' has neither %k nor %v")
    if "v" not in letters and not tombstone:
        raise LineError(f"'{text}' has no %v; with --tombstone it makes records without a value")
    for field in fields:
        if field.letter in "hH":
            raise LineError(f"{field} cannot be read; --format json reads headers")
        if letters.count(field.letter) > 1:
            raise LineError(f"'{text}' has %{field.letter} twice")
        if field.modifier is not None and (field.modifier == "bool" or _date(field.modifier) is not None):
            raise LineError(f"{field} cannot be read; write a number, as %{field.letter}")
        sized = SIZES.get(field.letter)
        if sized is not None and sized not in letters[letters.index(field.letter) :]:
            raise LineError(f"'{text}': %{field.letter} is the size of a %{sized} that must follow it")


def _width_bytes(field: Field) -> int | None:
    """Return how many bytes of input a number takes, None if that is open, or if the field is a text."""
    if field.letter in TEXTS or field.modifier not in WIDTHS:
        return None
    bits, kind = WIDTHS[field.modifier]
    return bits // 4 if kind == "hex" else bits // 8


def _read_number(field: Field, data: bytes) -> int:
    if field.modifier not in WIDTHS:
        if not re.fullmatch(rb"-?[0-9]{1,%d}" % DIGITS_MAX, data) or not -(2**63) <= int(data) < 2**63:
            raise LineError(f"{field} must be a number, not {_quoted(data)}")
        return int(data)
    bits, kind = WIDTHS[field.modifier]
    if kind == "hex":
        if not re.fullmatch(rb"[0-9a-fA-F]+", data):
            raise LineError(f"{field} must be {bits // 4} hexadecimal digits, not {_quoted(data)}")
        number = int(data, 16)
    else:
        number = int.from_bytes(data, "little" if kind == "little" else "big")
    return number - (1 << bits) if bits >= SIGNED_BITS_MIN and number >> (bits - 1) else number


def _decoded(field: Field, data: bytes) -> bytes:
    try:
        if field.modifier == "hex":
            return bytes.fromhex(data.decode("ascii"))
        if field.modifier == "base64":
            return base64.b64decode(data, validate=True)
        if field.modifier == "base64raw":
            return base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
    except ValueError as error:
        raise LineError(f"{field}: {_quoted(data)} is not {field.modifier}") from error
    return data


def _quoted(data: bytes) -> str:
    """Return bytes for a message: not all of a large value."""
    return repr(data[:20].decode(errors="backslashreplace")) + ("..." if len(data) > 20 else "")
