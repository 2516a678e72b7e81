"""Checks the arguments of a call before it begins. Pure.

A wrong type is a `TypeError` and an impossible value a `ValueError`. The call that was given the value raises it, never
later code that no longer knows the caller. The message names the argument, its value, and the values that are possible.
It shows at most `SHOWN_CHARACTERS` of a value, and nothing of an object that is not built in, whose `repr` may do
anything.

A `bool` is not a number here, although it is one in Python: `timeout_s=True` is a mistake.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from barnabas_raftlog.records.walker.faults import HEADERS_MAX

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "SECONDS_MAX",
    "Bytes",
    "Headers",
    "callable_of",
    "flag",
    "headers_of",
    "names",
    "one_of",
    "record_bytes",
    "seconds",
    "shown",
    "text",
    "topic_name",
    "whole_number",
]

T = TypeVar("T")

Bytes = bytes | bytearray | memoryview
"""The types that a key, a value and the content of a header may have."""
Headers = Mapping[str, Bytes | None] | Sequence[tuple[str, Bytes | None]]
"""A record's headers as callers give them, in order. A sequence may have a name more than once."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
SECONDS_MAX: Final = INT32_MAX / 1000
"""24 days: on the wire a time is milliseconds in 32 bits."""
SHOWN_CHARACTERS: Final = 80
TEXT_CHARACTERS_MAX: Final = 8_000
"""On the wire a text has at most 32,767 bytes, and a character at most four."""
_SHOWN_TYPES: Final = frozenset({bool, int, float, complex, str, bytes, bytearray})


def shown(value: object) -> str:
    """Describe a value to people: its type, and the value itself if that is short and harmless."""
    kind = type(value).__name__[: SHOWN_CHARACTERS // 2]
    if value is None:
        return "None"
    if isinstance(value, list | tuple | dict | set | frozenset) and type(value).__module__ == "builtins":
        return f"{kind} of {len(value)}"
    if type(value) not in _SHOWN_TYPES:
        return kind
    if isinstance(value, int) and value.bit_length() > 128:
        # Python refuses to write integers of many digits.
        return f"{kind} of {value.bit_length()} bits"
    beginning = value[:SHOWN_CHARACTERS] if isinstance(value, str | bytes | bytearray) else value
    said = f"{kind} {beginning!r}"
    return said if len(said) <= SHOWN_CHARACTERS else f"{said[: SHOWN_CHARACTERS - 3]}..."


def whole_number(name: str, value: object, low: int, high: int = INT64_MAX) -> int:
    """Return a whole number from `low` to `high`, both included. NumPy's integers count.

    Raises:
        TypeError: it is not a whole number. ValueError: it is out of range.
    """
    if type(value) is int and low <= value <= high:
        return value
    try:
        number = int(operator.index(value))  # type: ignore[arg-type]  # whether it has an index is the question
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}; it must be an int")
    if not low <= number <= high:
        raise ValueError(f"{name} is {shown(number)}; it must be from {low} to {high}")
    return number


def seconds(name: str, value: object, *, is_positive: bool = False) -> float:
    """Return a length of time, at most `SECONDS_MAX`; 0 is refused with `is_positive`.

    Raises:
        TypeError: it is not a number. ValueError: it is out of range, or not a number (NaN).
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {shown(value)}; it must be a number of seconds")
    is_right = (value > 0 if is_positive else value >= 0) and value <= SECONDS_MAX
    if not is_right:
        floor = "more than 0" if is_positive else "from 0"
        raise ValueError(f"{name} is {shown(value)}; it must be {floor} to {math.floor(SECONDS_MAX)} seconds")
    return float(value)


def text(name: str, value: object, *, may_be_empty: bool = False, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """Return a text that can be sent.

    Raises:
        TypeError: it is not a `str`. ValueError: it is empty, too long, or has half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)}; it must be a str")
    if not value and not may_be_empty:
        raise ValueError(f"{name} is empty; it must have at least one character")
    if len(value) > characters_max:
        raise ValueError(f"{name} has {len(value)} characters; it must have at most {characters_max}")
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {shown(value)}, which has no encoding in UTF-8") from None
    return value


def topic_name(name: str, value: object) -> str:
    """Return the name of a topic, which can be sent. The brokers decide whether it is legal.

    Raises:
        TypeError, ValueError: as `text`.
    """
    return text(name, value, characters_max=249)


def names(name: str, value: object) -> list[str]:
    """Return the names in a list, a tuple, a set or another iterable. A single `str` is refused.

    Raises:
        TypeError: it is not an iterable of names. ValueError: as `text`.
    """
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {shown(value)}; it must be a list of names")
    return [text(f"a name in {name}", each) for each in value]


def flag(name: str, value: object) -> bool:
    """Return True or False.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}; it must be True or False")
    return value


def one_of(name: str, value: object, choices: Sequence[T]) -> T:
    """Return the one of `choices` that equals `value` and has its type.

    Raises:
        TypeError: no choice has its type. ValueError: it is none of them.
    """
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    said = f"{name} is {shown(value)}; it must be one of {', '.join(map(repr, choices))}"
    raise (ValueError if type(value) in set(map(type, choices)) else TypeError)(said)


def callable_of(name: str, value: T) -> T:
    """Return a value that can be called.

    Raises:
        TypeError: it cannot.
    """
    if not callable(value):
        raise TypeError(f"{name} is {shown(value)}; it must be a function")
    return value


def record_bytes(name: str, value: object) -> Bytes | None:
    """Return bytes whose `len` is their number. A view of other items becomes a view of their bytes.

    Raises:
        TypeError: it is neither bytes, nor a bytearray, nor a memoryview, nor None. ValueError: a view was released.
    """
    if value is None or type(value) is bytes or type(value) is bytearray:
        return value
    if isinstance(value, memoryview):
        return value.cast("B") if value.c_contiguous and value.nbytes else value.tobytes()
    if isinstance(value, bytes | bytearray):
        # A class of the caller's may lie about its length.
        return memoryview(value)
    kind = type(value).__name__[:SHOWN_CHARACTERS]
    advice = _in_bytes(name.rpartition(" ")[2], value)
    raise TypeError(f"{name} is {kind}; it must be bytes, a bytearray, a memoryview or None{advice}")


def _in_bytes(name: str, value: object) -> str:
    """Say how a value of a usual type becomes bytes."""
    if isinstance(value, str):
        return f"; write {name}.encode()"
    if isinstance(value, dict | list | tuple):
        return f"; write json.dumps({name}).encode()"
    if isinstance(value, int | float):
        return f"; write str({name}).encode()"
    return ""


def headers_of(value: object) -> tuple[tuple[str, Bytes | None], ...]:
    """Return the (name, content) pairs of a mapping, or of a sequence of pairs; none for None.

    Raises:
        TypeError: it is neither, or one is no pair, or is not a `str` and bytes. ValueError: as `text`, or there are
            more than brokers take.
    """
    if value is None:
        return ()
    if type(value) is tuple and len(value) <= HEADERS_MAX:
        # Nearly all headers pass here, and need no closer look.
        for pair in value:
            is_pair = type(pair) is tuple and len(pair) == 2
            if not is_pair or type(pair[1]) is not bytes or type(pair[0]) is not str or not pair[0].isascii():
                break
        else:
            return value
    if isinstance(value, Mapping):
        pairs: Iterable[object] = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        pairs = value
    else:
        raise TypeError(
            f"headers is {shown(value)}; it must be a mapping such as {{'trace': b'7'}}, or a list of pairs"
        )
    if len(value) > HEADERS_MAX:
        raise ValueError(f"headers has {len(value):,} pairs; a record may have {HEADERS_MAX:,}")
    found = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"headers has {shown(pair)}; each must be a (name, content) pair, such as ('trace', b'7')")
        name = text("a header's name", pair[0], may_be_empty=True, characters_max=INT32_MAX)
        found.append((name, record_bytes("a header's content", pair[1])))
    return tuple(found)
