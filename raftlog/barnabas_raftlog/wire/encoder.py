"""Generates, for one message and version, the straight-line function that encodes it. Pure.

The function gathers small `bytes` objects in a list and joins them once. Neighbouring fields of fixed size become
one `struct` call, and that call also takes the one-byte varint (a length or a count) that ends such a run. Around
record sets the list is joined early: the result is a list of buffers in which the caller's record buffers stand as
they came. Measured on a Metadata response of 100 topics with 3 partitions: `docs/protocol.md`.

*In steps.* The other function that is generated of the same declaration is a generator, for messages that may have a
hundred thousand rows: it yields after every `STEP_ELEMENTS` of them, where each `ELEMENT_BYTES` of a text count as one
more, and joins its pieces by then, so that no join is large. Large blobs stand in the result as they are, like
records.

Not here: a check that a field which the version lacks holds its default. Kafka's own classes refuse some of those; here
the field is left out, and the caller, who chose the version, answers for it.
"""

from collections.abc import Callable, Generator
from typing import Any

from .layout import Array, Blob, Buffer, Field, Fixed, Kind, Nested, RecordSet, Text, holds_records, layout_of
from .primitives import ONE_BYTE, NumberArrays, text_length, uvarint
from .source import Source

__all__ = ["STEP_ELEMENTS", "compile_encoder", "compile_step_encoder", "encoder_source"]

Encode = Callable[[Any], list[Buffer]]
EncodeInSteps = Callable[[Any], Generator[None, None, list[Buffer]]]

STEP_ELEMENTS = 256
"""So many elements between two yields take a millisecond or two."""
ELEMENT_BYTES = 4 << 10
"""So many bytes of a text count as one more element."""
_LARGE_BLOB_BYTES = 32 << 10

# One memo for each kind of number and layout, shared by all messages; each is bounded (see NumberArrays).
_ARRAYS = {(code, flexible): NumberArrays(code, flexible=flexible) for code in "bhHiqd" for flexible in (False, True)}


def compile_encoder(message: type[Any], version: int, *, flexible: bool) -> Encode:
    """Return the function that encodes a `message` in `version`. Takes a millisecond or two: keep it."""
    return encoder_source(message, version, flexible=flexible).function("encode", f"{message.__name__} v{version}")


def compile_step_encoder(message: type[Any], version: int, *, flexible: bool) -> EncodeInSteps:
    """Return the generator function of the same."""
    source = encoder_source(message, version, flexible=flexible, in_steps=True)
    return source.function("encode", f"{message.__name__} v{version} in steps")


def encoder_source(message: type[Any], version: int, *, flexible: bool, in_steps: bool = False) -> Source:
    """Return the generated text, for reading and profiling."""
    in_pieces = in_steps or holds_records(Nested(message), version)
    generator = _Encoder(version, flexible=flexible, in_pieces=in_pieces, in_steps=in_steps)
    generator.message(message)
    return generator.source


class _Encoder:
    """State of one generation.

    `_run` holds the fixed-size values not yet packed, `_items` the byte expressions not yet added to the output
    list. Both are flushed before any control flow, because only straight-line code may be merged.
    """

    def __init__(self, version: int, *, flexible: bool, in_pieces: bool, in_steps: bool) -> None:
        self.source = Source({"ONE_BYTE": ONE_BYTE, "text_length": text_length, "uvarint": uvarint})
        self._version = version
        self._flexible = flexible
        self._in_pieces = in_pieces
        self._in_steps = in_steps
        self._out = "out"
        self._run: list[tuple[str, str]] = []
        self._items: list[str] = []

    def message(self, message: type[Any]) -> None:
        self.source.indent("def encode(message):")
        self.source.line("out = []")
        if self._in_pieces:
            self.source.line("buffers = []")
        if self._in_steps:
            self.source.line(f"done, mark = 0, {STEP_ELEMENTS}")
            self.source.line("if done: yield  # never: it makes a generator of what has no array")
        self._struct(message, "message")
        self._flush()
        if self._in_pieces:
            self.source.line("if out: buffers.append(b''.join(out))")
            self.source.line("return buffers")
        else:
            self.source.line("return [b''.join(out)]")
        self.source.dedent()

    def _struct(self, struct: type[Any], owner: str) -> None:
        fields = layout_of(struct, self._version)
        for field in fields:
            if field.tag is None:
                self._value(field.kind, f"{owner}.{field.name}", nullable=field.nullable)
        if self._flexible:
            self._tags([field for field in fields if field.tag is not None], owner)

    def _value(self, kind: Kind, expression: str, *, nullable: bool) -> None:
        match kind:
            case Fixed("16s"):
                name = self._local("uuid", expression)
                self.source.line(f"assert len({name}) == 16, {name}")
                self._run.append(("16s", name))
            case Fixed(code):
                self._run.append((code, expression))
            case Text():
                self._text(expression, nullable=nullable)
            case Blob():
                self._blob(expression, nullable=nullable)
            case RecordSet():
                self._records(expression, nullable=nullable)
            case Array(Fixed(code) as element) if element.is_number:
                self._numbers(code, expression, nullable=nullable)
            case Array(element):
                self._array(element, expression, nullable=nullable)
            case Nested(struct):
                self._nested(struct, expression, nullable=nullable)

    def _text(self, expression: str, *, nullable: bool) -> None:
        source = self.source
        data = self.source.fresh("text")
        length = self.source.fresh("length")
        plus = " + 1" if self._flexible else ""
        if nullable:
            source.line(f"{data} = {expression}")
            null = "0" if self._flexible else "-1"
            source.line(f"if {data} is None: {data}, {length} = b'', {null}")
            source.line(f"else: {data} = {data}.encode(); {length} = len({data}){plus}")
        else:
            source.line(f"{data} = {expression}.encode(); {length} = len({data}){plus}")
        self._length(length, "h", "text_length")
        self._item(data)
        if self._in_steps and self._out == "out":
            source.line(f"done += len({data}) // {ELEMENT_BYTES}")

    def _blob(self, expression: str, *, nullable: bool) -> None:
        data = self._local("blob", expression)
        length = self._length_of(f"len({data})", data, nullable=nullable)
        self._length(length, "i")
        if self._in_steps and self._out == "out":
            self._flush()
            self.source.indent(f"if {data} and len({data}) > {_LARGE_BLOB_BYTES}:")
            self.source.line(f"buffers += (b''.join(out), {data}); out = []")
            self.source.dedent()
            self.source.line(f"else: out.append({data} or b'')")
            return
        self._item(f"{data} or b''" if nullable else data)

    def _records(self, expression: str, *, nullable: bool) -> None:
        source = self.source
        data = self._local("records", expression)
        many = source.fresh("many")
        size = source.fresh("size")
        source.line(f"{many} = isinstance({data}, (list, tuple))")
        counted = f"sum(map(len, {data})) if {many} else len({data})"
        source.line(f"{size} = 0 if {data} is None else {counted}" if nullable else f"{size} = {counted}")
        length = self._length_of(size, data, nullable=nullable)
        self._length(length, "i")
        self._flush()
        source.indent(f"if {size}:")
        source.line("buffers.append(b''.join(out)); out = []")
        source.line(f"buffers += {data} if {many} else ({data},)")
        source.dedent()

    def _numbers(self, code: str, expression: str, *, nullable: bool) -> None:
        arrays = self.source.constant("arrays", _ARRAYS[code, self._flexible])
        if nullable:
            name = self._local("numbers", expression)
            null = "b'\\0'" if self._flexible else "b'\\xff\\xff\\xff\\xff'"
            self._item(f"{null} if {name} is None else {arrays}[(*{name},)]")
        else:
            self._item(f"{arrays}[(*{expression},)]")

    def _array(self, element: Kind, expression: str, *, nullable: bool) -> None:
        values = self._local("values", expression)
        value = self.source.fresh("value")
        self._length(self._length_of(f"len({values})", values, nullable=nullable), "i")
        self._flush()
        self.source.indent(f"for {value} in {values} or ():" if nullable else f"for {value} in {values}:")
        if isinstance(element, Nested):
            self._struct(element.struct, value)
        else:
            self._value(element, value, nullable=False)
        self._flush()
        if self._in_steps and self._out == "out":
            self.source.line("done += 1")
            self.source.indent("if done >= mark:")
            self.source.line(f"mark = done + {STEP_ELEMENTS}")
            self.source.line("if out: buffers.append(b''.join(out)); out = []")
            self.source.line("yield")
            self.source.dedent()
        self.source.dedent()

    def _nested(self, struct: type[Any], expression: str, *, nullable: bool) -> None:
        value = self._local("nested", expression)
        if not nullable:
            self._struct(struct, value)
            return
        # A nullable struct is preceded by a byte: -1 for null, 1 for present.
        self._flush()
        self.source.line(f"if {value} is None: {self._out}.append(b'\\xff')")
        self.source.indent("else:")
        self._run.append(("b", "1"))
        self._struct(struct, value)
        self._flush()
        self.source.dedent()

    def _tags(self, fields: list[Field], owner: str) -> None:
        if not fields:
            self._run.append(("B", "0"))
            return
        self._flush()
        source = self.source
        tags = self.source.fresh("tags")
        outer = self._out
        source.line(f"{tags} = ()")
        for field in fields:
            assert not holds_records(field.kind, self._version), "records are never tagged"
            value = self._local("value", f"{owner}.{field.name}")
            source.indent(f"if {self._differs(value, field)}:")
            self._out = source.fresh("part")
            source.line(f"{self._out} = []")
            self._value(field.kind, value, nullable=field.nullable)
            self._flush()
            source.line(f"{self._out} = b''.join({self._out})")
            tag = uvarint(field.tag or 0)
            source.line(f"{tags} += ({tag!r}, uvarint(len({self._out})), {self._out})")
            source.dedent()
            self._out = outer
        source.line(f"if {tags}: {outer} += (uvarint(len({tags}) // 3), *{tags})")
        source.line(f"else: {outer}.append(b'\\0')")

    def _differs(self, value: str, field: Field) -> str:
        """Return the condition under which a tagged field must be written."""
        if isinstance(field.kind, Array) and field.default is not None:
            return f"{value} is None or len({value})" if field.nullable else f"len({value})"
        if field.default is None or isinstance(field.default, bool):
            return f"{value} is not {field.default}"
        if isinstance(field.default, int | float | str | bytes):
            return f"{value} != {field.default!r}"
        default = self.source.constant("default", field.default)
        return f"{value} is not {default} and {value} != {default}"

    def _local(self, hint: str, expression: str) -> str:
        if "." not in expression:
            return expression
        name = self.source.fresh(hint)
        self.source.line(f"{name} = {expression}")
        return name

    def _length_of(self, size: str, value: str, *, nullable: bool) -> str:
        """Emit the number that announces `size` bytes or elements, and return its name."""
        length = self.source.fresh("length")
        announced = f"{size} + 1" if self._flexible else size
        if nullable:
            announced = f"{0 if self._flexible else -1} if {value} is None else {announced}"
        self.source.line(f"{length} = {announced}")
        return length

    def _length(self, length: str, code: str, compact: str = "uvarint") -> None:
        """Add a length or count: in its fixed form to the run, as a varint as the run's end.

        `compact` is the function that makes a varint of more than a byte.
        """
        if not self._flexible:
            self._run.append((code, length))
            return
        long = f"{compact}({length})"
        if not self._run:
            self._items.append(f"ONE_BYTE[{length}] if {length} < 128 else {long}")
            return
        short = self._packed([*self._run, ("B", length)])
        self._items.append(f"{short} if {length} < 128 else {self._packed(self._run)} + {long}")
        self._run = []

    def _packed(self, run: list[tuple[str, str]]) -> str:
        if run == [("B", "0")]:
            return "b'\\0'"
        packer = self.source.packer("".join(code for code, _ in run))
        return f"{packer}({', '.join(value for _, value in run)})"

    def _item(self, expression: str) -> None:
        self._close_run()
        self._items.append(expression)

    def _close_run(self) -> None:
        if self._run:
            self._items.append(self._packed(self._run))
            self._run = []

    def _flush(self) -> None:
        self._close_run()
        if self._items:
            self.source.line(f"{self._out} += ({', '.join(self._items)},)")
            self._items = []
