"""Chooses what becomes of the bytes of values: nothing, text, or columns of their JSON."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from .json_blocks import JsonDecoder

__all__ = ["RAW", "ValueDecoder", "decoder_for"]


class ValueDecoder(NamedTuple):
    """Turns an Arrow array of binary into one of `kind`, of the same length."""

    kind: Any
    decode: Callable[[Any], Any]


RAW = ValueDecoder(pa.binary(), lambda values: values)
# As in Spark's own cast, nobody looks whether the bytes are UTF-8.
TEXT = ValueDecoder(pa.string(), lambda values: values.view(pa.string()))


def decoder_for(kind: Any) -> ValueDecoder:
    """Return the decoder for the Arrow type of the column `value`: binary, string, or a struct for JSON."""
    if pa.types.is_struct(kind):
        return ValueDecoder(kind, JsonDecoder(kind).decode)
    return TEXT if pa.types.is_string(kind) else RAW
