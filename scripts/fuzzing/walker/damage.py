"""Damages batches by a seed: lengths and varints that lie, bytes that change, cuts, splices, headers that lie.

A batch here is a plain body and what its header says. What is damaged is a batch of records of all shapes, or one that
was damaged before and has led the walker somewhere new: `Corpus` keeps those, few and small.
"""

import random
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from barnabas_raftlog.records.builder import varint
from barnabas_raftlog.records.header import HEADER_BYTES, SIZE_PREFIX_BYTES, BatchHeader
from fuzzing.mutations import mutated

__all__ = ["Corpus", "Damaged", "damaged", "sound", "varints"]

BODY_BYTES_MAX = 4_096
KEPT_MAX = 300
INT32 = 2**31
INT64 = 2**63
EDGES = (0, 1, -1, 2, 63, 64, -65, 8_191, 8_192, INT32 - 1, -INT32, INT32, 2**32 - 1, 2**34, INT64 - 1, -INT64)
CONTENTS = (None, None, b"", b"k", b"value", b"x" * 63, b"y" * 64, b"z" * 300)
NAMES = ("", "h", "name", "n" * 70)
TIMESTAMPS = (-1, 0, 1_000, 1_700_000_000_000, INT64 - 1, -INT64)


class Damaged(NamedTuple):
    """The plain body of a batch, and what its header says of it. Either may be wrong."""

    body: bytes
    records: int
    base_timestamp: int
    last_delta: int
    is_dense: bool
    base_offset: int = 0

    @property
    def header(self) -> BatchHeader:
        """A header that says so, of a batch without compression. Its checksum and sizes are not right."""
        plain = BatchHeader(0, len(self.body) + HEADER_BYTES - SIZE_PREFIX_BYTES, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
        return plain._replace(
            base_offset=self.base_offset,
            last_offset_delta=self.last_delta,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.base_timestamp,
            record_count=self.records,
        )

    def line(self) -> str:
        """Return it as a line of text, which `of_line` reads."""
        return " ".join(map(str, (*self[1:4], int(self.is_dense), self.base_offset, self.body.hex() or "-")))

    @classmethod
    def of_line(cls, line: str) -> "Damaged":
        """Return what `line` has written."""
        *numbers, body = line.split()
        records, base_timestamp, last_delta, is_dense, base_offset = map(int, numbers)
        plain = b"" if body == "-" else bytes.fromhex(body)
        return cls(plain, records, base_timestamp, last_delta, bool(is_dense), base_offset)


class Varint(NamedTuple):
    """A varint of a body: [start, end). `record`: where the varint of its record's length is in the list, or itself."""

    start: int
    end: int
    value: int
    record: int


class Corpus:
    """Batches to damage: sound ones, and those that led somewhere new, at most `KEPT_MAX` of these."""

    def __init__(self, batches: list[Damaged]) -> None:
        self._batches = [(batch, varints(batch.body)) for batch in batches]
        self._known: set[Hashable] = set()

    @property
    def found(self) -> int:
        """How many places are known."""
        return len(self._known)

    def choose(self, chance: random.Random) -> tuple[Damaged, list[Varint]]:
        return self._batches[int(chance.random() * len(self._batches))]

    def note(self, batch: Damaged, place: Hashable) -> bool:
        """Keep a batch that has led to a place that was not known; tell whether it has."""
        if place in self._known or len(self._known) >= KEPT_MAX:
            return False
        self._known.add(place)
        self._batches.append((batch, varints(batch.body)))
        return True


def sound(chance: random.Random, count: int) -> list[Damaged]:
    """Return batches whose records are as they must be: with and without keys, values, headers and gaps."""
    return [_sound(chance) for _ in range(count)]


def _sound(chance: random.Random) -> Damaged:
    is_dense = chance.random() < 0.7
    base_timestamp = chance.choice(TIMESTAMPS)
    delta = 0 if is_dense else chance.choice((0, 1, 70))
    body = bytearray()
    count = chance.choice((0, 1, 1, 2, 3, 5, 9))
    last = -1
    for _ in range(count):
        last = delta
        headers = [(chance.choice(NAMES).encode(), chance.choice(CONTENTS)) for _ in range(chance.choice((0, 0, 1, 3)))]
        later = chance.choice((0, 0, 1, 5_000, -3 if base_timestamp > -INT64 + 3 else 0))
        record = b"\0" + varint(later if base_timestamp < INT64 - 5_000 else -abs(later)) + varint(delta)
        record += _content(chance.choice(CONTENTS)) + _content(chance.choice(CONTENTS)) + varint(len(headers))
        record += b"".join(_content(name) + _content(value) for name, value in headers)
        body += varint(len(record)) + record
        delta += 1 if is_dense else chance.choice((1, 1, 2, 100))
    last += 0 if is_dense else chance.choice((0, 0, 5))
    return Damaged(bytes(body), count, base_timestamp, last, is_dense, chance.choice((0, 0, 5, 2**40)))


def _content(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def varints(body: bytes) -> list[Varint]:
    """Return where the varints of a body are, as far as it makes sense."""
    found: list[Varint] = []
    position = 0

    def read(record: int | None = None) -> int:
        nonlocal position
        start, value, shift = position, 0, 0
        while True:
            byte = body[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        value = (value >> 1) ^ -(value & 1)
        found.append(Varint(start, position, value, len(found) if record is None else record))
        return value

    def pass_over(record: int) -> None:
        nonlocal position
        size = max(read(record), 0)
        position += size

    try:
        while position < len(body):
            record = len(found)
            length = read()
            end = position + length
            position += 1
            read(record)
            read(record)
            pass_over(record)
            pass_over(record)
            for _ in range(2 * min(max(read(record), 0), len(body))):
                pass_over(record)
            if position != end:
                break
    except IndexError:
        pass
    return found


def damaged(chance: random.Random, corpus: Corpus) -> Iterator[Damaged]:
    """Yield batches without an end. They depend on the seed, and on what the corpus keeps meanwhile."""
    while True:
        batch, places = corpus.choose(chance)
        for _ in range(1 + (chance.random() < 0.3)):
            other, others = corpus.choose(chance)
            damage = KINDS[int(chance.random() * len(KINDS))]
            batch = damage(chance, batch, places, other, others)
            if len(batch.body) > BODY_BYTES_MAX:
                batch = batch._replace(body=batch.body[:BODY_BYTES_MAX])
            places = []  # They are not where they were.
        yield batch


Damage = Callable[[random.Random, Damaged, list[Varint], Damaged, list[Varint]], Damaged]


def _lie(chance: random.Random, batch: Damaged, places: list[Varint], other: Damaged, others: list[Varint]) -> Damaged:
    """Replace a varint. In most cases the length of its record is made to fit, so that more than this is looked at."""
    if not places:
        return _bytes(chance, batch, places, other, others)
    start, end, value, record = places[int(chance.random() * len(places))]
    new = _edge(chance, value, len(batch.body))
    body = batch.body
    size = places[record]
    if size.start != start and chance.random() < 0.8:
        length = varint(size.value + len(new) - (end - start))
        return batch._replace(body=b"".join((body[: size.start], length, body[size.end : start], new, body[end:])))
    return batch._replace(body=body[:start] + new + body[end:])


def _edge(chance: random.Random, value: int, size: int) -> bytes:
    """Return a varint: of another value, longer than it need be, or none at all."""
    kind = chance.random()
    if kind < 0.5:
        return varint(max(-INT64, min(INT64 - 1, value + chance.choice((1, -1, 2, -2, size, -value, -2 * value - 1)))))
    if kind < 0.8:
        return varint(chance.choice(EDGES))
    plain = bytearray(varint(value))
    padding = chance.choice((1, 2, 3, 4, 5, 9, 11))
    plain[-1] |= 0x80
    return bytes(plain) + b"\x80" * (padding - 1) + chance.choice((b"\0", b"\0", b"\x01", b"\x0f", b"\x10", b"\x80"))


def _bytes(
    chance: random.Random, batch: Damaged, places: list[Varint], other: Damaged, others: list[Varint]
) -> Damaged:
    """Change, add or take away bytes anywhere."""
    del places, others
    return batch._replace(body=mutated(batch.body, other.body, chance))


def _cut(chance: random.Random, batch: Damaged, places: list[Varint], other: Damaged, others: list[Varint]) -> Damaged:
    """Cut the body off, at a varint or anywhere, or let something follow it."""
    del other, others
    kind = chance.random()
    if kind < 0.2:
        return batch._replace(body=batch.body + chance.choice((b"\0", b"\x80", b"\x0e", batch.body)))
    if places and kind < 0.6:
        return batch._replace(body=batch.body[: places[int(chance.random() * len(places))].end])
    return batch._replace(body=batch.body[: int(chance.random() * (len(batch.body) + 1))])


def _splice(
    chance: random.Random, batch: Damaged, places: list[Varint], other: Damaged, others: list[Varint]
) -> Damaged:
    """Begin with one body and go on with another, both cut at a varint."""
    if not places or not others:
        return _bytes(chance, batch, places, other, others)
    first = places[int(chance.random() * len(places))].start
    second = others[int(chance.random() * len(others))].start
    return batch._replace(body=batch.body[:first] + other.body[second:])


def _header(
    chance: random.Random, batch: Damaged, places: list[Varint], other: Damaged, others: list[Varint]
) -> Damaged:
    """Let the header lie about the records, or say what another one says."""
    del places, others
    kind = int(chance.random() * 5)
    if kind == 0:
        count = chance.choice((0, 1, batch.records + 1, batch.records - 1, batch.records * 2, INT32 - 1))
        return batch._replace(records=max(count, 0))
    if kind == 1:
        delta = chance.choice((-1, 0, batch.last_delta + 1, batch.last_delta - 1, INT32 - 1, -INT32))
        return batch._replace(last_delta=max(delta, -INT32))
    if kind == 2:
        return batch._replace(base_timestamp=chance.choice(TIMESTAMPS))
    if kind == 3:
        return batch._replace(is_dense=not batch.is_dense)
    return batch._replace(records=other.records, last_delta=other.last_delta)


KINDS: tuple[Damage, ...] = (_lie, _lie, _lie, _bytes, _bytes, _cut, _splice, _header)
