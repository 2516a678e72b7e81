"""Reads where `consume --offset` shall begin and end: `5`, `-10`, `+5`, `5:10`, `@15m`, `@2026-11-21:1h`.

The forms are rpk's, and half-open as there: `5:10` are the offsets 5 to 9. A place in a range is an offset, `-N` (N
records before the end), `+N` (N after the start), `start` (or `beginning`) or `end`. Behind an at sign stand times, as
`times.py` reads them. A duration is that long ago; as the end of a range, and without a minus, it counts from the
range's start. Times contain colons, too: what can be read as one time is one.
"""

import re
from enum import Enum
from typing import NamedTuple

from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.limits import OFFSET_MAX
from barnabas_broker.cli.near_names import did_you_mean
from barnabas_broker.cli.times import duration_ms, timestamp_ms

__all__ = ["Anchor", "OffsetRange", "Place", "parse_range"]

FORMS = "5, -10, +5, start, end, 5:10, :end, @15m, @2026-11-21T10:00 or @TIME:TIME"
WORDS = {"start": "START", "beginning": "START", "end": "END"}


class Anchor(Enum):
    """What the number of a place counts from."""

    OFFSET = "offset"
    START = "start"
    END = "end"
    TIME = "time"
    """The number is a time in ms since 1970."""


class Place(NamedTuple):
    """A place in every partition: `number` offsets from the anchor on, or the first record at or after a time."""

    anchor: Anchor
    number: int = 0


class OffsetRange(NamedTuple):
    """Where reading begins, and where it ends, exclusive; `end` None: never."""

    start: Place
    end: Place | None = None


def parse_range(text: str, now_ms: int) -> OffsetRange:
    """Return the range that somebody typed, given that it is `now_ms`.

    Raises:
        UsageError: it is none, or it ends before it begins.
    """
    word = text.strip()
    if not word.strip("@:"):
        raise UsageError(f"--offset {text or repr(text)} is not a place to start; write {FORMS}")
    found = _of_times(word[1:], text, now_ms) if word.startswith("@") else _of_offsets(word, text)
    start, end = found
    if end is not None and start.anchor is end.anchor and start.number > end.number:
        raise UsageError(f"--offset {text} ends before it begins")
    return found


def _of_offsets(word: str, text: str) -> OffsetRange:
    first, colon, last = word.partition(":")
    start = _place(first) if first or not colon else Place(Anchor.START)
    end = _place(last) if last else None
    if start is None or (last and end is None):
        near = did_you_mean(first if start is None else last, WORDS)
        raise UsageError(f"--offset {text or repr(text)} is not a place to start{near}; write {FORMS}")
    return OffsetRange(start, end)


def _place(word: str) -> Place | None:
    if word in WORDS:
        return Place(Anchor[WORDS[word]])
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", word):
        return None
    anchor = Anchor.START if word[0] == "+" else Anchor.END if word[0] == "-" else Anchor.OFFSET
    number = int(word)
    return Place(anchor, number) if abs(number) <= OFFSET_MAX else None


def _of_times(word: str, text: str, now_ms: int) -> OffsetRange:
    reasons: list[CommandError] = []
    for first, last in _splits(word):
        try:
            start = _time(first, now_ms, None)
            return OffsetRange(start or Place(Anchor.START), _time(last, now_ms, start))
        except CommandError as error:
            reasons.append(error)
    raise UsageError(f"--offset {text}: {reasons[0]}")


def _splits(word: str) -> list[tuple[str, str]]:
    """Return the ways in which a text may be two times, best first; an end that is empty is open."""
    if ":@" in word:
        first, _, last = word.partition(":@")
        return [(first, last)]
    colons = [found.start() for found in re.finditer(":", word)]
    return [(word, ""), *((word[:at], word[at + 1 :]) for at in colons)]


def _time(word: str, now_ms: int, start: Place | None) -> Place | None:
    """Return the place of a time, None if nothing stands there. With a `start`, a duration counts from there."""
    if not word:
        return None
    if word in WORDS:
        return Place(Anchor[WORDS[word]])
    if word[0] == "-":
        return Place(Anchor.TIME, max(0, now_ms - duration_ms(word[1:])))
    if start is not None and start.anchor is Anchor.TIME:
        try:
            return Place(Anchor.TIME, start.number + duration_ms(word))
        except CommandError:
            pass  # It is a time of its own.
    return Place(Anchor.TIME, timestamp_ms(word, now_ms))
