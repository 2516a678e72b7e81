"""Generates, for one message and version, the straight-line function that decodes it. Pure.

The function walks the input with one position. Neighbouring fields of fixed size are read by one `struct` call,
which also takes the first byte of the varint, or the whole fixed-size length, that ends such a run. A message that
carries records is decoded from a memoryview, and its records are slices of it; any other is decoded from `bytes`
(slicing bytes and decoding text from them is a third faster, and copying a small request once costs nothing).

Bytes from outside are never trusted: every length is compared with the bytes that are left before anything is sliced,
every count with the fewest bytes that so many elements can take, so that memory stays in proportion to the input.
Exceptions that the caller translates: `struct.error` and `IndexError` (the input ended), `UnicodeDecodeError`. There is
no recursion: nesting is that of the declaration.

*In steps.* A message that somebody sends may name a million things, and takes a second then. The other function that is
generated of the same declaration is a generator: it yields after every `STEP_BYTES`, returns the message at its end,
and refuses more elements than its caller allows, all arrays together, before it makes any of them. It reads from a
memoryview and copies nothing that it does not keep, and nothing of more than `BLOB_BYTES_MAX`, which would be one step.
"""

from collections.abc import Callable, Generator
from struct import unpack_from
from typing import Any

from barnabas_raftlog.errors import MalformedMessageError

from .layout import (
    Array,
    Blob,
    Buffer,
    Field,
    Fixed,
    Kind,
    Nested,
    RecordSet,
    Text,
    holds_records,
    layout_of,
    least_bytes,
)
from .primitives import (
    BLOB_BYTES_MAX,
    TAGS_MAX,
    TEXT_BYTES_MAX,
    number_readers,
    read_uvarint,
    read_uvarint_tail,
    refuse,
    refuse_many,
    skip_tags,
)
from .source import Source

__all__ = ["STEP_BYTES", "compile_decoder", "compile_step_decoder", "decoder_source"]

Decode = Callable[[Buffer, int, bool], Any]
DecodeInSteps = Callable[[Buffer, int, bool, int], Generator[None, None, Any]]

STEP_BYTES = 8 << 10
"""So many bytes between two yields take 2 ms at most: four thousand tagged fields, or as many empty strings."""


def compile_decoder(message: type[Any], version: int, *, flexible: bool) -> Decode:
    """Return the function of a buffer, a position and whether the message must end where the buffer does."""
    return decoder_source(message, version, flexible=flexible).function("decode", f"{message.__name__} v{version}")


def compile_step_decoder(message: type[Any], version: int, *, flexible: bool) -> DecodeInSteps:
    """Return the generator function of the same, and of how many elements there may be in all arrays together."""
    source = decoder_source(message, version, flexible=flexible, in_steps=True)
    return source.function("decode", f"{message.__name__} v{version} in steps")


def decoder_source(message: type[Any], version: int, *, flexible: bool, in_steps: bool = False) -> Source:
    """Return the generated text, for reading and profiling."""
    is_view = in_steps or holds_records(Nested(message), version)
    generator = _Decoder(version, flexible=flexible, is_view=is_view, in_steps=in_steps)
    generator.message(message)
    return generator.source


class _Decoder:
    """State of one generation: `_run` holds the fixed-size fields whose reading is still to be emitted."""

    def __init__(self, version: int, *, flexible: bool, is_view: bool, in_steps: bool) -> None:
        self.source = Source(
            {
                "Malformed": MalformedMessageError,
                "read_uvarint": read_uvarint,
                "read_uvarint_tail": read_uvarint_tail,
                "refuse": refuse,
                "refuse_many": refuse_many,
                "skip_tags": skip_tags,
                "unpack_from": unpack_from,
            }
        )
        self._version = version
        self._flexible = flexible
        self._is_view = is_view
        self._in_steps = in_steps
        self._run: list[tuple[str, str]] = []

    def message(self, message: type[Any]) -> None:
        source = self.source
        source.indent(f"def decode(data, p, exact{', left' if self._in_steps else ''}):")
        if self._is_view:
            source.line("if type(data) is not memoryview: data = memoryview(data)")
        else:
            source.line("data = bytes(data)")
        source.line("size = len(data)")
        if self._in_steps:
            source.line(f"mark = p + {STEP_BYTES}")
            source.line("if p > size: yield  # never: it makes a generator of what has no array")
        made = self._struct(message, message.__name__)
        self._flush()
        source.line("if exact and p != size: raise Malformed(f'{size - p} bytes left over at {p}')")
        source.line(f"return {made}")
        source.dedent()

    def _struct(self, struct: type[Any], path: str) -> str:
        """Emit the reading of a struct's fields; return the expression that makes it, valid after a flush."""
        fields = layout_of(struct, self._version)
        places = {field.name: self.source.fresh(field.name) for field in fields}
        for field in fields:
            if field.tag is None:
                self._value(field.kind, places[field.name], f"{path}.{field.name}", nullable=field.nullable)
        if self._flexible:
            self._tags([field for field in fields if field.tag is not None], places, path)
        made = ", ".join(f"{name}={place}" for name, place in places.items())
        return f"{self.source.constant(struct.__name__, struct)}({made})"

    def _value(self, kind: Kind, place: str, path: str, *, nullable: bool) -> None:
        match kind:
            case Fixed(code):
                self._run.append((code, place))
            case Text() | Blob() | RecordSet():
                self._bytes(kind, place, path, nullable=nullable)
            case Array(element):
                self._array(element, place, path, nullable=nullable)
            case Nested(struct):
                self._nested(struct, place, path, nullable=nullable)

    def _bytes(self, kind: Text | Blob | RecordSet, place: str, path: str, *, nullable: bool) -> None:
        source = self.source
        length, one_more = self._length("h", TEXT_BYTES_MAX, path) if isinstance(kind, Text) else self._length("i")
        self._begin_unless_null(length, place, nullable=nullable)
        end = source.fresh("end")
        source.line(f"{end} = p + {length}{one_more}")
        source.line(f"if not p <= {end} <= size: refuse({path!r}, {end} - p, p, size)")
        piece = f"data[p:{end}]"
        if isinstance(kind, Text):
            piece = f"str({piece}, 'utf-8')" if self._is_view else f"{piece}.decode()"
        elif isinstance(kind, Blob) and self._is_view:
            piece = f"bytes({piece})"
            if self._in_steps:
                source.line(f"if {end} - p > {BLOB_BYTES_MAX}: refuse({path!r}, {end} - p, p, size)")
        source.line(f"{place} = {piece}; p = {end}")
        if isinstance(kind, Blob) and self._in_steps:
            source.line(f"if p >= mark: mark = p + {STEP_BYTES}; yield")
        if nullable:
            source.dedent()

    def _array(self, element: Kind, place: str, path: str, *, nullable: bool) -> None:
        if isinstance(element, Fixed) and element.is_number:
            self._numbers(element, place, path, nullable=nullable)
            return
        source = self.source
        length, one_more = self._length("i")
        self._begin_unless_null(length, place, nullable=nullable)
        count = source.fresh("count")
        least = least_bytes(element, self._version, flexible=self._flexible)
        source.line(f"{count} = {length}{one_more}")
        source.line(f"if not 0 <= {count} <= (size - p) // {least}: refuse({path!r}, {count}, p, size)")
        self._count(count, path)
        source.line(f"{place} = []")
        source.indent(f"for _ in range({count}):")
        if isinstance(element, Nested):
            value = self._struct(element.struct, path)
        else:
            value = source.fresh("element")
            self._value(element, value, path, nullable=False)
        self._flush()
        source.line(f"{place}.append({value})")
        if self._in_steps:
            source.line(f"if p >= mark: mark = p + {STEP_BYTES}; yield")
        source.dedent()
        if not isinstance(element, Nested):
            source.line(f"{place} = tuple({place})")
        if nullable:
            source.dedent()

    def _numbers(self, element: Fixed, place: str, path: str, *, nullable: bool) -> None:
        """Emit the reading of an array of numbers: short ones by a ready `unpack_from`, which checks the bounds."""
        source = self.source
        readers = number_readers(element.code)
        length, one_more = self._length("i")
        width = element.size_bytes
        first = 1 if self._flexible else 0
        source.indent(f"if {first} <= {length} < {len(readers) + first}:")
        name = source.constant("readers", readers)
        self._count(f"{length}{one_more}", path)
        source.line(f"{place} = {name}[{length}{one_more}](data, p); p += ({length}{one_more}) * {width}")
        source.dedent()
        if nullable:
            source.line(f"elif {length} == {first - 1}: {place} = None")
        source.indent("else:")
        count = source.fresh("count")
        source.line(f"{count} = {length}{one_more}")
        source.line(f"if not 0 <= {count} <= (size - p) // {width}: refuse({path!r}, {count}, p, size)")
        self._count(count, path)
        source.line(f"{place} = unpack_from(f'>{{{count}}}{element.code}', data, p); p += {count} * {width}")
        source.dedent()

    def _count(self, count: str, path: str) -> None:
        """Emit the refusal of more elements than are allowed."""
        if self._in_steps:
            self.source.line(f"left -= {count}")
            self.source.line(f"if left < 0: refuse_many({path!r}, {count})")

    def _nested(self, struct: type[Any], place: str, path: str, *, nullable: bool) -> None:
        if nullable:
            present = self.source.fresh("present")
            self._run.append(("b", present))
            self._flush()
            self.source.line(f"if {present} < 0: {place} = None")
            self.source.indent("else:")
        made = self._struct(struct, path)
        self._flush()
        self.source.line(f"{place} = {made}")
        if nullable:
            self.source.dedent()

    def _tags(self, fields: list[Field], places: dict[str, str], path: str) -> None:
        source = self.source
        count = self.source.fresh("tags")
        self._run.append(("B", count))
        self._flush()
        if not fields:
            source.line(f"if {count}: p = skip_tags(data, p, {count}, size)")
            return
        for field in fields:
            source.line(f"{places[field.name]} = {self._default(field)}")
        source.indent(f"if {count}:")
        source.indent(f"if {count} > 127:")
        source.line(f"{count}, p = read_uvarint_tail(data, p, {count})")
        source.line(f"if {count} > {TAGS_MAX}: refuse({path!r} + ' tagged fields', {count}, p, size)")
        source.dedent()
        tag = source.fresh("tag")
        length = source.fresh("length")
        end = source.fresh("end")
        source.indent(f"for _ in range({count}):")
        source.line(f"{tag}, p = read_uvarint(data, p)")
        source.line(f"{length}, p = read_uvarint(data, p)")
        source.line(f"{end} = p + {length}")
        source.line(f"if {end} > size: refuse({path!r} + ' tagged', {length}, p, size)")
        for word, field in zip(["if", *["elif"] * len(fields)], fields, strict=False):
            source.indent(f"{word} {tag} == {field.tag}:")
            self._value(field.kind, places[field.name], f"{path}.{field.name}", nullable=field.nullable)
            self._flush()
            source.dedent()
        source.line(f"else: p = {end}")
        source.line(f"if p != {end}: refuse({path!r} + ' tagged', {length}, p, size)")
        source.dedent()
        source.dedent()

    def _default(self, field: Field) -> str:
        if isinstance(field.kind, Array):
            return "None" if field.default is None else "[]" if isinstance(field.kind.element, Nested) else "()"
        if field.default is None or isinstance(field.default, int | str | bytes):
            return repr(field.default)
        return self.source.constant("default", field.default)

    def _length(self, code: str, compact_max: int | None = None, path: str = "") -> tuple[str, str]:
        """Emit the reading of a length or count; return the name of the number read, and the text to add to it.

        A compact length is one more than the real one, so that 0 can mean null. Only those that take more than a byte
        are compared with `compact_max`, so that the many that take one cost nothing.
        """
        length = self.source.fresh("length")
        self._run.append(("B" if self._flexible else code, length))
        self._flush()
        if not self._flexible:
            return length, ""
        self.source.indent(f"if {length} > 127:")
        self.source.line(f"{length}, p = read_uvarint_tail(data, p, {length})")
        if compact_max is not None:
            self.source.line(f"if {length} > {compact_max + 1}: refuse({path!r}, {length} - 1, p, size)")
        self.source.dedent()
        return length, " - 1"

    def _begin_unless_null(self, length: str, place: str, *, nullable: bool) -> None:
        """For a nullable value, emit the case of null and open the block of the other case."""
        if nullable:
            self.source.line(f"if {length} == {0 if self._flexible else -1}: {place} = None")
            self.source.indent("else:")

    def _flush(self) -> None:
        if not self._run:
            return
        codes, places = zip(*self._run, strict=True)
        self._run = []
        if codes == ("B",):
            self.source.line(f"{places[0]} = data[p]; p += 1")
            return
        size = sum(Fixed(code).size_bytes if code != "B" else 1 for code in codes)
        self.source.line(f"{', '.join(places)}, = {self.source.unpacker(''.join(codes))}(data, p); p += {size}")
