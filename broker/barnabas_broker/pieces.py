"""Lists of what a request names, made and let go in small pieces: `turns` and `time_slices` pause in between. Pure.

A hundred thousand names in one dictionary take twenty milliseconds, however little is done about each of them. To free
as many rows of an answer takes ten.
"""

from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Any, TypeVar

__all__ = ["PIECE", "distinct", "let_go"]

PIECE = 500  # items between two yields, 0.1 ms
FEW = 50  # rows that are freed with the one that they belong to

T = TypeVar("T")


def distinct(items: Iterable[T], key: Callable[[T], Hashable]) -> Generator[None, None, list[T]]:
    """Return one item for each key, the last that has it, in the order in which the keys come first.

    Keys that are no containers are better: the collector looks at every tuple that is alive.
    """
    found: dict[Hashable, T] = {}
    for number, item in enumerate(items, 1):
        found[key(item)] = item
        if not number % PIECE:
            yield
    yield
    kept = list(found.values())
    yield
    found.clear()
    yield
    return kept


def let_go(message: Any) -> Generator[None, None, None]:
    """Empty the lists of a message that nobody needs any more, and those in them, from their ends."""
    for name in _lists_of(type(message)):
        rows = getattr(message, name)
        number = 0
        while type(rows) is list and rows:
            row = rows.pop()
            if any(len(getattr(row, inner) or ()) > FEW for inner in _lists_of(type(row))):
                yield from let_go(row)
                yield
            number += 1
            if not number % PIECE:
                yield


def _lists_of(kind: type[Any]) -> tuple[str, ...]:
    names = _LISTS.get(kind)
    if names is None:
        declared: dict[str, Any] = getattr(kind, "__annotations__", {})
        names = _LISTS[kind] = tuple(name for name, of in declared.items() if "list[" in str(of))
    return names


_LISTS: dict[type[Any], tuple[str, ...]] = {}  # of each declared struct
