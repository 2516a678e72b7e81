"""A table of very many entries whose versions share equal parts. Pure.

A dictionary of 100,000 topics takes 10 to 30 ms to copy, and as long to compare with another, because every key and
every value has to be touched. A `Table` has `BUCKETS` small ones. The next version copies the list of them and the few
buckets that are written to; a comparison of two versions looks only at the buckets that they do not share.

Iteration goes bucket by bucket, in each of them in the order of insertion. So equal tables that were written in the
same order list their entries equally, provided that a key's bucket follows from the key alone (`by_last_bytes`). If
nobody iterates, `hash` may choose it, which nobody can foresee: otherwise a client that chooses the keys could fill one
bucket.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["BUCKETS", "Table", "TableDraft", "by_last_bytes", "differing"]

BUCKETS = 1024  # a power of two

Key = TypeVar("Key")
Value = TypeVar("Value")


def by_last_bytes(key: bytes) -> int:
    """Choose the bucket of a key whose last two bytes are drawn by chance, as those of topic ids are."""
    return int.from_bytes(key[-2:], "big")


class Table(Mapping[Key, Value]):
    """See the module. Immutable: `TableDraft` makes the next one."""

    __slots__ = ("_buckets", "_count", "_number_of")

    def __init__(self, number_of: Callable[[Any], int], entries: Mapping[Key, Value] | None = None) -> None:
        """`number_of` gives any number for a key; its last bits are the bucket."""
        self._number_of = number_of
        self._count = 0
        self._buckets: list[dict[Key, Value]] = [_NOTHING] * BUCKETS
        if entries:
            draft = TableDraft(self)
            for key, value in entries.items():
                draft.put(key, value)
            self._buckets = draft.now._buckets
            self._count = draft.now._count

    def __getitem__(self, key: Key) -> Value:
        return self._buckets[self._number_of(key) % BUCKETS][key]

    def get(self, key: Key, default: Any = None) -> Any:  # Mapping's raises and catches
        return self._buckets[self._number_of(key) % BUCKETS].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[self._number_of(key) % BUCKETS]

    def __iter__(self) -> Iterator[Key]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table) and other._number_of is self._number_of:
            return self._count == other._count and self._buckets == other._buckets
        return Mapping.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]  # as that of a dictionary

    def __repr__(self) -> str:
        return f"Table({dict(self)!r})"


class TableDraft(Generic[Key, Value]):
    """The next version of a table while it is being written: `now` is readable in between.

    `now` is the table itself until the first write, and another one from then on. It must not be kept while this is
    written to.
    """

    __slots__ = ("_owned", "now")

    def __init__(self, table: Table[Key, Value]) -> None:
        self.now = table
        self._owned = set[int]()

    def put(self, key: Key, value: Value) -> None:
        bucket = self._own(key)
        if key not in bucket:
            self.now._count += 1
        bucket[key] = value

    def pop(self, key: Key) -> Value:
        """Take an entry out that there is."""
        value = self._own(key).pop(key)
        self.now._count -= 1
        return value

    def _own(self, key: Key) -> dict[Key, Value]:
        if not self._owned:
            before = self.now
            self.now = Table(before._number_of)
            self.now._buckets = before._buckets.copy()
            self.now._count = before._count
        buckets = self.now._buckets
        number = self.now._number_of(key) % BUCKETS
        if number not in self._owned:
            self._owned.add(number)
            buckets[number] = buckets[number].copy()
        return buckets[number]


def differing(
    old: Mapping[Key, Value], new: Mapping[Key, Value]
) -> Iterator[tuple[Mapping[Key, Value], Mapping[Key, Value]]]:
    """Yield pairs of parts of both, in order; together the pairs hold every entry that the two do not share."""
    if isinstance(old, Table) and isinstance(new, Table) and old._number_of is new._number_of:
        yield from ((mine, other) for mine, other in zip(old._buckets, new._buckets, strict=True) if mine is not other)
    else:
        yield old, new


_NOTHING: dict[Any, Any] = {}
"""The bucket without entries, for all buckets at first; never written to."""
