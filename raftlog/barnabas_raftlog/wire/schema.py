"""Declares a Kafka message once, for all versions; compiles its codec once per version. Pure.

    @message(api_key=12, versions=range(5), flexible_since=4)
    class HeartbeatRequest(Message):
        group_id: String = ""
        generation_id: Int32 = 0
        member_id: String = ""
        group_instance_id: Annotated[String | None, wire(since=3)] = None

The order of the fields is their order on the wire. Every field has a default, which is its value in a
version that lacks it. Instances are `msgspec` structs: built in C by keyword, compared by value, no dictionary.

Conventions: an array of structs is a `list`, an array of anything else a `Sequence` that decodes to a tuple, since
such arrays often come from immutable state and need no copy. A struct that serves as a default value derives from
`FrozenStruct`.

Encoding yields a list of buffers for `writelines`; record buffers are in it as they were given. Decoding raises
`MalformedMessageError` and nothing else, for any bytes. A memoryview among the decoded values keeps the
input buffer alive, and a bytearray behind it from being resized, until it is dropped.
"""

import struct
from collections.abc import Callable, Generator
from typing import ClassVar, Self, TypeVar, dataclass_transform

import msgspec
from msgspec import field

from barnabas_raftlog.errors import MalformedMessageError

from .decoder import Decode, DecodeInSteps, compile_decoder, compile_step_decoder
from .encoder import Encode, EncodeInSteps, compile_encoder, compile_step_encoder
from .layout import (
    NO_UUID,
    Bool,
    Buffer,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    Uuid,
    wire,
)

__all__ = [
    "NO_UUID",
    "Bool",
    "Buffer",
    "Bytes",
    "Float64",
    "FrozenStruct",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "String",
    "Struct",
    "UInt16",
    "Uuid",
    "field",
    "message",
    "wire",
]

_Declared = TypeVar("_Declared", bound="Message")
_Codec = TypeVar("_Codec")


# No metaclass of our own: calling a class whose metaclass is a Python class costs four times as much (measured: 240
# against 55 ns for two fields). `kw_only_default` makes type checkers insist on keywords; at run time nobody does.
@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(msgspec.Struct, gc=False):
    """Base of a declared struct that stands inside messages.

    Messages are trees: they are in no reference cycle, and the garbage collector need not look at them.
    """


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class FrozenStruct(msgspec.Struct, gc=False, frozen=True):
    """Base of a declared struct that is some field's default, so that all messages may share the one instance."""


class Message(Struct):
    """Base of every declared request and response; adds the codec. No message has a field of these names."""

    api_key: ClassVar[int]
    versions: ClassVar[range]
    flexible_since: ClassVar[int]
    _encoders: ClassVar[dict[int, Encode]]
    _decoders: ClassVar[dict[int, Decode]]
    _step_encoders: ClassVar[dict[int, EncodeInSteps]]
    _step_decoders: ClassVar[dict[int, DecodeInSteps]]

    def encode(self, version: int) -> list[Buffer]:
        """Return the body in `version`'s layout, as buffers that lie one behind the other.

        Raises:
            ValueError: a value does not fit its field: a number out of range, a string over 32,767 bytes.
            MalformedMessageError: `version` is not one of the declared versions.
        """
        encode = self._encoders.get(version) or _compiled(self._encoders, compile_encoder, type(self), version)
        try:
            return encode(self)
        except (struct.error, ValueError) as error:
            raise ValueError(f"{type(self).__name__} v{version} cannot carry a value: {error}") from error

    def encode_in_steps(self, version: int) -> Generator[None, None, list[Buffer]]:
        """Do what `encode` does, in pieces of a millisecond or two: the generator yields in between, and returns."""
        encode = self._step_encoders.get(version) or _compiled(
            self._step_encoders, compile_step_encoder, type(self), version
        )
        try:
            return (yield from encode(self))
        except (struct.error, ValueError) as error:
            raise ValueError(f"{type(self).__name__} v{version} cannot carry a value: {error}") from error

    def to_bytes(self, version: int) -> bytes:
        """Return the body in `version`'s layout in one piece, records copied: for tests and small messages."""
        return b"".join(self.encode(version))

    @classmethod
    def decode(cls, data: Buffer, version: int, position: int = 0, *, exact: bool = True) -> Self:
        """Parse the body that fills `data` from `position` to its end; not `exact`, more bytes may follow it.

        Raises:
            MalformedMessageError: the bytes are not one such body, or `version` is not declared.
        """
        decode = cls._decoders.get(version) or _compiled(cls._decoders, compile_decoder, cls, version)
        try:
            message: Self = decode(data, position, exact)
        except _MALFORMED as error:
            raise _malformed(cls, version, error) from error
        return message

    @classmethod
    def decode_in_steps(
        cls, data: Buffer, version: int, position: int = 0, *, exact: bool = True, elements_max: int
    ) -> Generator[None, None, Self]:
        """Do what `decode` does, in pieces of a millisecond or two: the generator yields in between, and returns.

        Raises:
            TooManyElementsError: the arrays have more than `elements_max` elements together.
            MalformedMessageError: as `decode`.
        """
        decode = cls._step_decoders.get(version) or _compiled(cls._step_decoders, compile_step_decoder, cls, version)
        try:
            message: Self = yield from decode(data, position, exact, elements_max)
        except _MALFORMED as error:
            raise _malformed(cls, version, error) from error
        return message


_MALFORMED = (MalformedMessageError, struct.error, IndexError, UnicodeDecodeError)


def _malformed(message: type[Message], version: int, error: Exception) -> MalformedMessageError:
    kind = type(error) if isinstance(error, MalformedMessageError) else MalformedMessageError
    return kind(f"{message.__name__} v{version}: {error}")


def message(*, api_key: int, versions: range, flexible_since: int) -> Callable[[type[_Declared]], type[_Declared]]:
    """Say which API a message belongs to, and in which versions it is declared."""

    def declare(declared: type[_Declared]) -> type[_Declared]:
        declared.api_key = api_key
        declared.versions = versions
        declared.flexible_since = flexible_since
        declared._encoders = {}
        declared._decoders = {}
        declared._step_encoders = {}
        declared._step_decoders = {}
        return declared

    return declare


def _compiled(
    known: dict[int, _Codec], compile_codec: Callable[..., _Codec], message: type[Message], version: int
) -> _Codec:
    """Compile a codec that is not `known` for this version yet, and keep it there."""
    codec = compile_codec(message, version, flexible=_is_flexible(message, version))
    known[version] = codec
    return codec


def _is_flexible(message: type[Message], version: int) -> bool:
    if version not in message.versions:
        raise MalformedMessageError(f"{message.__name__} v{version} is not one of {message.versions}")
    return version >= message.flexible_since
