"""The layout of a declared message in one version: kinds of value, fields in order. Pure.

A message is declared once, as a class whose annotations say how each field travels:

    class FetchPartition(Struct):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, wire(since=9)] = -1
        replica_directory_id: Annotated[Uuid, wire(since=17, tag=0)] = NO_UUID

`Int32` is `Annotated[int, Fixed("i")]`, so a type checker sees an `int` with a default and this module sees the
kind. `layout_of` turns the declaration and a version into the list of fields that the version carries; the two
code generators (`encoder.py`, `decoder.py`) work from that list alone.

The primitive types are those of https://kafka.apache.org/protocol.html, "Protocol Primitive Types"; their compact
forms, used by *flexible* versions, and tagged fields come from KIP-482. Varint integers inside records are not
here: a message never contains one.
"""

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

__all__ = [
    "NO_UUID",
    "Array",
    "Blob",
    "Bool",
    "Buffer",
    "Bytes",
    "Field",
    "Fixed",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Kind",
    "Nested",
    "RecordSet",
    "Records",
    "String",
    "Text",
    "UInt16",
    "Uuid",
    "holds_records",
    "layout_of",
    "least_bytes",
    "wire",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

NO_UUID: Final = bytes(16)
_EVER: Final = 32767  # the largest version an int16 can ask for
_SIZES: Final = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8, "16s": 16}


class Fixed(msgspec.Struct, frozen=True):
    """A value of fixed size; `code` is its `struct` format character."""

    code: str

    @property
    def size_bytes(self) -> int:
        return _SIZES[self.code]

    @property
    def is_number(self) -> bool:
        """True when an array of it can be packed by one `struct` call."""
        return self.code not in {"16s", "?"}


class Text(msgspec.Struct, frozen=True):
    """A UTF-8 string."""


class Blob(msgspec.Struct, frozen=True):
    """Opaque bytes, copied on decoding: small, and the reader may keep them."""


class RecordSet(msgspec.Struct, frozen=True):
    """Record batches: a view of the input on decoding, buffers passed through on encoding. Never copied."""


class Array(msgspec.Struct, frozen=True):
    """A counted sequence of one kind."""

    element: "Kind"


class Nested(msgspec.Struct, frozen=True):
    """Another declared struct, laid out in the version of the message that it stands in."""

    struct: type[Any]


Kind: TypeAlias = Fixed | Text | Blob | RecordSet | Array | Nested

Bool: TypeAlias = Annotated[bool, Fixed("?")]
Int8: TypeAlias = Annotated[int, Fixed("b")]
Int16: TypeAlias = Annotated[int, Fixed("h")]
UInt16: TypeAlias = Annotated[int, Fixed("H")]
Int32: TypeAlias = Annotated[int, Fixed("i")]
Int64: TypeAlias = Annotated[int, Fixed("q")]
Float64: TypeAlias = Annotated[float, Fixed("d")]
Uuid: TypeAlias = Annotated[bytes, Fixed("16s")]
String: TypeAlias = Annotated[str, Text()]
Bytes: TypeAlias = Annotated[bytes, Blob()]
# Decoding yields a memoryview; encoding takes one buffer, or several that lie one behind the other on the wire.
Records: TypeAlias = Annotated[Buffer | Sequence[Buffer], RecordSet()]


class _Wire(msgspec.Struct, frozen=True):
    since: int
    until: int
    nullable_since: int
    tag: int | None


def wire(*, since: int = 0, until: int = _EVER, nullable_since: int = 0, tag: int | None = None) -> _Wire:
    """Say in which versions, both inclusive, a field is present; elsewhere it reads as its default.

    `nullable_since` applies to a field whose type allows `None`: below it, null is malformed. A field with a `tag`
    is optional in flexible versions and written only when it differs from its default.
    """
    return _Wire(since, until, nullable_since, tag)


class Field(NamedTuple):
    """One field in one version. `default` of a list is an empty tuple, which compares by truth."""

    name: str
    kind: Kind
    nullable: bool
    tag: int | None
    default: Any


# As many entries as there are declared structs times their versions.
_LAYOUTS: dict[tuple[type[Any], int], tuple[Field, ...]] = {}


def layout_of(struct: type[Any], version: int) -> tuple[Field, ...]:
    """Return the fields of `struct` that `version` carries: in wire order, then the tagged ones by tag."""
    known = _LAYOUTS.get((struct, version))
    if known is None:
        known = tuple(_fields_of(struct, version))
        _LAYOUTS[struct, version] = known
    return known


def _fields_of(struct: type[Any], version: int) -> list[Field]:
    hints = get_type_hints(struct, include_extras=True)
    fields = []
    for info in msgspec.structs.fields(struct):
        annotation = hints[info.name]
        spec = next((extra for extra in _extras(annotation) if isinstance(extra, _Wire)), wire())
        if spec.since <= version <= spec.until:
            kind, nullable = _kind_of(annotation)
            default = () if info.default is msgspec.NODEFAULT else info.default
            fields.append(Field(info.name, kind, nullable and version >= spec.nullable_since, spec.tag, default))
    fields.sort(key=lambda field: -1 if field.tag is None else field.tag)
    return fields


def _extras(annotation: Any) -> tuple[Any, ...]:
    return annotation.__metadata__ if get_origin(annotation) is Annotated else ()


def _kind_of(annotation: Any) -> tuple[Kind, bool]:
    """Return the kind that an annotation stands for, and whether it admits `None`."""
    for extra in _extras(annotation):
        if not isinstance(extra, _Wire):
            return extra, False
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(bare) in {Union, UnionType}:
        some = [choice for choice in get_args(bare) if choice is not NoneType]
        assert len(some) == 1, f"{annotation} is not one kind or None"
        return _kind_of(some[0])[0], True
    if get_origin(bare) in {list, Sequence}:
        return Array(_kind_of(get_args(bare)[0])[0]), False
    assert issubclass(bare, msgspec.Struct), f"{annotation} does not say how it travels"
    return Nested(bare), False


def least_bytes(kind: Kind, version: int, *, flexible: bool) -> int:
    """Return the fewest bytes that a value can take, never 0: the bound on the count that an array may claim."""
    match kind:
        case Fixed():
            return kind.size_bytes
        case Nested(struct):
            fields = (field for field in layout_of(struct, version) if field.tag is None)
            return sum(least_bytes(field.kind, version, flexible=flexible) for field in fields) + flexible
        case Text():
            return 1 if flexible else 2
        case _:
            return 1 if flexible else 4


def holds_records(kind: Kind, version: int) -> bool:
    """Return whether a value of this kind can carry record batches in `version`."""
    match kind:
        case RecordSet():
            return True
        case Array(element):
            return holds_records(element, version)
        case Nested(struct):
            return any(holds_records(field.kind, version) for field in layout_of(struct, version))
        case _:
            return False
