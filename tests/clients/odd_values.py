"""Makes values of every kind for public calls: right, wrong, and right by accident.

`ODD` has one of each kind by name, for tests that try all of them; `odd_values` adds those that Hypothesis finds. Both
give `Odd`s, which make a fresh value whenever they are asked. For the first look uses a generator up, and a report of a
failure must not look at an object whose `repr` or `==` is broken. The tests have the sensible values of a parameter.

`refused` says what a call may do with an odd value.
"""

import array
import contextlib
import enum
import fractions
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

__all__ = ["ODD", "Odd", "odd_values", "refused"]

MESSAGE_CHARACTERS_MAX = 400
"""A refusal names the argument and what it must be, and shows at most 80 characters of the value."""


class Odd(NamedTuple):
    """A value that is made when it is wanted."""

    name: str
    make: Callable[[], Any]

    def __repr__(self) -> str:
        return self.name


class LyingBytes(bytes):
    def __len__(self) -> int:
        return 1


class LyingText(str):
    __slots__ = ()

    def __len__(self) -> int:
        return 1


class LyingInt(int):
    def __repr__(self) -> str:
        raise RuntimeError("an odd repr")


class NoEquality:
    """Neither equal nor unequal to anything, in no set, and not to be shown."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("an odd ==")

    def __repr__(self) -> str:
        raise RuntimeError("an odd repr")


class OddLength:
    """Says that it is long, and has nothing."""

    def __init__(self, length: Any) -> None:
        self.length = length

    def __len__(self) -> Any:
        return self.length


class OddTruth:
    def __bool__(self) -> bool:
        raise RuntimeError("an odd truth")


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


def _released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


def _generated() -> Iterator[int]:
    yield from (1, 2, 3)


def _ints(code: str) -> Callable[[], Any]:
    return lambda: array.array(code, [1, 2, 3])


def _views(code: str) -> Callable[[], Any]:
    return lambda: memoryview(array.array(code, [1, 2, 3]))


def _numpy(*arguments: Any, **options: Any) -> Callable[[], Any]:
    zeros: Any = np.zeros
    return lambda: memoryview(zeros(*arguments, **options))


def _list_of_itself() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def _same(value: Any) -> Callable[[], Any]:
    return lambda: value


_SINGLETONS = (None, True, False, Ellipsis, NotImplemented)
_SMALL_INTS = (0, 1, -1, 2, 127, 255, 4096, 65_536)
_LARGE_INTS = (-(2**31), 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), 10**40)
_FLOATS = (0.0, -0.0, 0.5, 1.0, -1.5, 1e-9, 1e300, math.inf, -math.inf, math.nan, 1_795_553_570_392.4, 1j)
_TEXTS = ("", "t", "text", "1", "1.5", "True", "all", "none", "localhost:9092", "a b", "ünï", "\0", "\ud800", "x" * 300)
_BYTES = (b"", b"t", b"bytes", b"\0\xff" * 40, b"localhost:9092")
_TUPLES: tuple[Any, ...] = ((), (1,), ("a",), ("a", b"b"), (("a", b"b"),))
_LISTS: tuple[Any, ...] = ([], [1], ["a"], [["a", b"b"]], [("a", "b")], [("a", b"b", b"c")], [None], [[]], [()])
_MAPPINGS: tuple[Any, ...] = ({}, {"a": b"b"}, {"a": "b"}, {1: b"b"}, {"a": None})
_SETS: tuple[Any, ...] = (frozenset(), frozenset({"a"}))
_OBJECTS = (range(3), int, len, math, Colour.RED, Number.ONE, Decimal("1.5"), fractions.Fraction(1, 2))
_TIMES = (timedelta(seconds=1), datetime(2026, 11, 24, tzinfo=UTC), date(2026, 11, 24))
_PLAIN: tuple[Any, ...] = (
    *_SINGLETONS,
    *_SMALL_INTS,
    *_LARGE_INTS,
    *_FLOATS,
    *_TEXTS,
    *_BYTES,
    *_TUPLES,
    *_LISTS,
    *_MAPPINGS,
    *_SETS,
    *_OBJECTS,
    *_TIMES,
)
_MADE: dict[str, Callable[[], Any]] = {
    "an int of 5,000 digits": lambda: 10**5_000,
    "a str of a megabyte": lambda: "x" * 1_000_000,
    "bytearray": lambda: bytearray(b"array"),
    "an empty bytearray": bytearray,
    "bytes that lie about their length": lambda: LyingBytes(b"several"),
    "a str that lies about its length": lambda: LyingText("several"),
    "an int with an odd repr": lambda: LyingInt(5),
    **{f"array of {code!r}": _ints(code) for code in "bBhHiIlLqQfd"},
    **{f"memoryview of {code!r}": _views(code) for code in "bBhiqfd"},
    "memoryview of every other byte": lambda: memoryview(b"abcdef")[::2],
    "memoryview of every other int": lambda: memoryview(array.array("i", range(6)))[::2],
    "memoryview of two dimensions": lambda: memoryview(b"abcdef").cast("B", (2, 3)),
    "memoryview of characters": lambda: memoryview(b"abc").cast("c"),
    "memoryview of records": _numpy(2, dtype=[("a", "i4"), ("b", "f8")]),
    "memoryview without dimensions": _numpy(()),
    "memoryview of nothing": lambda: memoryview(b""),
    "memoryview of nothing in two dimensions": _numpy((0, 3)),
    "a released memoryview": _released,
    "numpy array": lambda: np.arange(3),
    "numpy bytes": lambda: np.frombuffer(b"abc", dtype=np.uint8),
    "numpy int64": lambda: np.int64(5),
    "numpy float64": lambda: np.float64(0.5),
    "numpy bool": lambda: np.bool_(True),
    "set": lambda: {"a"},
    "a generator": _generated,
    "an iterator": lambda: iter(["a"]),
    "object": object,
    "no equality": NoEquality,
    "a negative length": lambda: OddLength(-1),
    "a length that is none": lambda: OddLength("3"),
    "a length without items": lambda: OddLength(10**9),
    "no truth": OddTruth,
    "a list of itself": _list_of_itself,
    "a list of lists": lambda: [[["a"]]],
    "a function": lambda: lambda *_: 0,
    "a failing function": lambda: lambda *_: 1 / 0,
}

ODD: tuple[Odd, ...] = (
    *(Odd(ascii(value)[:60], _same(value)) for value in _PLAIN),
    *(Odd(name, make) for name, make in _MADE.items()),
)


def odd_values() -> st.SearchStrategy[Odd]:
    """Return a strategy for values of every kind."""
    found: st.SearchStrategy[Any] = st.one_of(
        st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=20), st.characters()
    )
    wrapped = found.map(lambda value: Odd(ascii(value), lambda: value))
    listed = st.lists(found, max_size=3).map(lambda value: Odd(ascii(value), lambda: list(value)))
    return st.one_of(st.sampled_from(ODD), wrapped, listed)


@contextlib.contextmanager
def refused(*also: type[BaseException]) -> Iterator[list[BaseException]]:
    """Let a call refuse what it was given: with a TypeError or ValueError that says something, or with one of `also`.

    The list that it yields has the refusal afterwards; it is empty if the call has worked.
    """
    refusals: list[BaseException] = []
    kinds: tuple[type[BaseException], ...] = (TypeError, ValueError, *also)
    try:
        yield refusals
    except kinds as error:
        refusals.append(error)
    for refusal in refusals:
        assert 0 < len(str(refusal)) <= MESSAGE_CHARACTERS_MAX, f"{type(refusal).__name__}: {str(refusal)[:400]!r}"
