"""Adds to OpenTelemetry's `MetricsData`, as a client has sent it, whose it is. Pure.

The message is a list of `ResourceMetrics`, each of which has a `Resource` with attributes. Protobuf merges a message
that stands twice in another one, so the client's properties are appended as a second `Resource`, without reading what
is in the first. Only the fields of two levels are gone through, and must be in order to the last byte.

Source: opentelemetry/proto/metrics/v1/metrics.proto, and Protobuf's description of its encoding ("Last One Wins").
"""

from collections.abc import Iterator

from barnabas_raftlog.errors import BarnabasError

from .subscriptions import Client

__all__ = ["MetricsDataError", "with_attributes"]

RESOURCE_METRICS = 1  # in MetricsData
RESOURCE = 1  # in ResourceMetrics
ATTRIBUTES = 1  # in Resource
KEY, VALUE, STRING_VALUE = 1, 2, 1  # in KeyValue and AnyValue
VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
ROWS_MAX = 10_000
_SIZES = {FIXED_64: 8, FIXED_32: 4}


class MetricsDataError(BarnabasError):
    """The bytes are no metrics."""


def with_attributes(data: memoryview, client: Client) -> bytes:
    """Return the metrics with what is known of the client, in up to `ROWS_MAX` rows.

    Raises:
        MetricsDataError: the bytes are something else.
    """
    extra = _field(RESOURCE, _resource(client))
    parts: list[bytes | memoryview] = []
    for count, (number, kind, content) in enumerate(_fields(data), 1):
        if number != RESOURCE_METRICS or kind != BYTES:
            raise MetricsDataError(f"field {number} of kind {kind} among rows of metrics")
        for _ in _fields(content):
            pass  # It only has to be in order.
        if count > ROWS_MAX:
            raise MetricsDataError(f"more than {ROWS_MAX} rows of metrics")
        parts += (_head(RESOURCE_METRICS, len(content) + len(extra)), content, extra)
    return b"".join(parts)


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (number, kind, content) of each field; the content of a number is empty."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            size, (_, position) = 0, _varint(data, position)
        elif kind == BYTES:
            size, position = _varint(data, position)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise MetricsDataError(f"a field of kind {kind}")
        if number == 0 or position + size > len(data):
            raise MetricsDataError("a field that is cut off, or has no number")
        yield number, kind, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MetricsDataError("a number that does not end")


def _resource(client: Client) -> bytes:
    """Return a `Resource` with the client's properties."""
    return b"".join(
        _field(ATTRIBUTES, _field(KEY, name.encode()) + _field(VALUE, _field(STRING_VALUE, value.encode())))
        for name, value in zip(client._fields, client, strict=True)
    )


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, size: int) -> bytes:
    encoded = bytearray([number << 3 | BYTES])
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)
