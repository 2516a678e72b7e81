"""Makes and frees the lists of a large request in small pieces. Pure.

A hundred thousand names in one dictionary take twenty milliseconds, however little is done about each of them. To free
as many rows of an answer takes ten. `turns` and `slices` pause between the pieces.
"""

import sys
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from barnabas_raftlog.wire.schema import Struct

__all__ = ["PIECE", "abandoned", "cleared", "distinct", "emptied", "let_go", "one_by_one", "sorted_names", "times_of"]

PIECE = 8  # items between two yields: to hash or to free a name of 32 KiB takes 20 us
RUN = 1_000  # names that are sorted at once: 0.2 ms
FEW = 50  # rows that are freed with the one that they belong to
OURS_ALONE = 2  # references: a variable's, and the one of the call that counts them

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


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
    kept: list[T] = []
    values = iter(found.values())
    while piece := list(islice(values, PIECE)):
        kept += piece
        yield
    # The keys, if nothing else holds them.
    yield from cleared(found)
    yield
    return kept


def times_of(keys: Iterable[K]) -> Generator[None, None, dict[K, int]]:
    """Return how often each key is among these."""
    times: dict[K, int] = {}
    for number, key in enumerate(keys, 1):
        times[key] = times.get(key, 0) + 1
        if not number % PIECE:
            yield
    return times


def sorted_names(names: Iterable[str]) -> Generator[None, None, Iterator[str]]:
    """Return the names of now in order; the next one is found when it is asked for, in microseconds.

    To sort a hundred thousand at once takes 30 to 50 ms.
    """
    left = list(names)
    runs = []
    for start in range(0, len(left), RUN):
        runs.append(sorted(left[start : start + RUN]))
        yield
    return merge(*runs)


def let_go(message: Any) -> Generator[None, None, None]:
    """Empty the arrays of a message that is needed no more, and those in them, from their ends."""
    for name in _lists_of(type(message)):
        rows = getattr(message, name)
        if type(rows) is tuple and len(rows) > FEW and not message.__struct_config__.frozen:
            setattr(message, name, ())
            rows = list(rows)
        if type(rows) is list:
            yield from emptied(rows)


def abandoned(steps: Generator[None, None, Any]) -> Generator[None, None, None]:
    """Close a generator that has not come to its end; free in pieces all that it, or one it yields from, holds."""
    messages: list[Any] = []
    arrays: dict[int, Any] = {}  # by identity: several of them may hold the same one
    inner: Any = steps
    while (frame := getattr(inner, "gi_frame", None)) is not None:
        for value in frame.f_locals.values():
            if isinstance(value, Struct):
                messages.append(value)
            elif type(value) in {list, tuple, set, dict} and len(value) > FEW and id(value) not in arrays:
                # A tuple cannot be emptied; if it were held here, all in it would go at its end.
                arrays[id(value)] = list(value) if type(value) is tuple else value
        inner = inner.gi_yieldfrom
    value = frame = inner = None
    steps.close()
    yield
    for message in messages:
        yield from let_go(message)
    while arrays:
        _, rows = arrays.popitem()
        if sys.getrefcount(rows) <= OURS_ALONE:  # Else it is needed elsewhere, with all that is in it.
            yield from cleared(rows)


def cleared(rows: Any) -> Generator[None, None, None]:
    """Empty a list, set or dict that is needed no more, and the arrays of messages in it.

    Not a copy of it: the collector would look at all that is in something so young.
    """
    if type(rows) is list:
        yield from emptied(rows)
    is_dict = type(rows) is dict
    while rows:
        taken = [rows.popitem() if is_dict else (rows.pop(),) for _ in range(min(len(rows), PIECE))]
        yield from emptied([part for parts in taken for part in parts])


def emptied(rows: list[Any]) -> Generator[None, None, None]:
    """Empty a list that is needed no more, and the arrays of messages in it, from its end."""
    number = 0
    while rows:
        row = rows.pop()
        if _holds_many(row):
            yield from let_go(row)
            yield
        number += 1
        if not number % PIECE:
            yield


def _holds_many(row: Any) -> bool:
    """Tell whether there are many rows in the arrays of a row, or in those in them."""
    for name in _lists_of(type(row)):
        inner = getattr(row, name) or ()
        # The rows of an array are all of one kind.
        if len(inner) > FEW or (inner and _lists_of(type(inner[0])) and any(map(_holds_many, inner))):
            return True
    return False


def one_by_one(items: Iterable[T]) -> Iterator[T]:
    """Yield the items of now, and keep none that was yielded: those needed nowhere else go one by one."""
    left = deque(items)
    del items  # The values of a dict keep it whole.
    while left:
        yield left.popleft()


def _lists_of(kind: type[Any]) -> tuple[str, ...]:
    names = _LISTS.get(kind)
    if names is None:
        declared: dict[str, Any] = getattr(kind, "__annotations__", {})
        names = _LISTS[kind] = tuple(name for name, of in declared.items() if _is_array(str(of)))
    return names


def _is_array(declared: str) -> bool:
    return "list[" in declared or "Sequence[" in declared


_LISTS: dict[type[Any], tuple[str, ...]] = {}  # of each declared struct
