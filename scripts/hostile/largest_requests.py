"""Makes the largest requests that the limits allow, from the messages' declarations alone.

"Largest" has many meanings for an array of an array of names. So each request is made in several *shapes*, and a shape
says how many elements arrays have at each depth, and how long a name is. One of the numbers is left open: as many as
the limit on elements allows. Everything else has values that let a handler go as far as it can: known topics if a shape
names one, unknown ones if it names many, numbers that count, and nothing that would change the cluster
(`validate_only`).
"""

import random
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas_broker.server.dispatch import ELEMENTS_MAX
from barnabas_clients.protocol.registry import Api, Message, encode_request
from barnabas_raftlog.wire.layout import Array, Blob, Field, Fixed, Kind, Nested, RecordSet, Text, layout_of
from barnabas_raftlog.wire.primitives import BLOB_BYTES_MAX, TEXT_BYTES_MAX

from .frames import batch, one_record

__all__ = ["FRAME_BYTES_MAX", "SHAPES", "Shape", "answer_bytes_max", "largest"]

FRAME_BYTES_MAX = 100 << 20  # socket.request.max.bytes
RECORDS_BYTES = 1_000_000  # below max.message.bytes
FETCH_BYTES_MAX = 57_671_680 + 1_048_588  # fetch.max.bytes, and a batch
ELEMENT_BYTES_MAX = 512
"""Of an answer, for each thing that the request named, beside its name: numbers, a code, and an error's text."""
BASE_BYTES_MAX = 1 << 20
"""Of an answer to a request that names nothing: all topics, groups, settings of this cluster."""
OPEN = -1
NUMBERS = {
    "timeout_ms": 1_000,
    "max_wait_ms": 0,
    "min_bytes": 1,
    "max_bytes": FETCH_BYTES_MAX,
    "acks": -1,
    "partition_max_bytes": 1 << 20,
    "resource_type": 2,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1_000,
    "replica_id": -1,
    "session_epoch": -1,
    "num_partitions": 1,
    "replication_factor": 3,
    "count": 5,
    "timestamp": -1,
    "transaction_timeout_ms": 1_000,
    "endpoint_type": 1,
    "generation_id": 1,
    "producer_id": -1,
}
COUNTED = ("partition", "partition_index", "index", "partition_indexes", "partitions", "broker_ids", "replicas")
NEVER = ("allow_auto_topic_creation",)


class Shape(NamedTuple):
    """The number of elements of arrays at each depth (`OPEN`: as many as may be), and whether names are long."""

    name: str
    counts: tuple[int, int, int]
    is_long: bool = False

    def at(self, depth: int) -> int:
        return self.counts[min(depth, len(self.counts) - 1)]


SHAPES = (
    Shape("wide", (OPEN, 1, 1)),
    Shape("deep", (1, 1, OPEN)),
    Shape("middle", (1, OPEN, 1)),
    Shape("tenth", (9_900, 1, 1)),
    Shape("long", (9_900, 1, 1), is_long=True),
    Shape("few", (10, 1, 1), is_long=True),
    Shape("empty", (OPEN, 0, 0)),
)


def answer_bytes_max(request_bytes: int) -> int:
    """Return the largest size of an answer: names come back once, and once more in the text of an error."""
    return 2 * request_bytes + ELEMENTS_MAX * ELEMENT_BYTES_MAX + FETCH_BYTES_MAX + BASE_BYTES_MAX


def depth_of(message: type[Any], version: int) -> int:
    """Return the depth of arrays in arrays; 0 if there is none."""
    return max((_depth(field.kind, version) for field in _fields(message, version)), default=0)


def largest(api: Api, version: int, shape: Shape, topic: str, topic_id: bytes) -> bytes | None:
    """Return the whole request, or None if this shape is the same as another one, or cannot be."""
    depth = depth_of(api.request, version)
    if (depth == 0 and not shape.is_long) or (OPEN in shape.counts[depth:] and depth):
        if not (depth and shape.name == "deep" and depth == 2):
            return None
        shape = Shape(shape.name, (1, OPEN, 1))
    elif shape.name == "middle" and depth < 3:
        return None
    count = _open_count(api.request, version, shape)
    filler = _Filler(version, shape, count, topic, topic_id)
    text_bytes = 0
    if shape.is_long:
        filler.message(api.request)
        # One value in so many may not be longer than this, and all of them together not than a frame.
        text_bytes = (FRAME_BYTES_MAX - 2_000_000 - 64 * filler.elements) // max(1, filler.values)
    filler = _Filler(version, shape, count, topic, topic_id, text_bytes)
    frame = b"".join(encode_request(filler.message(api.request), version, 1, "largest"))
    assert len(frame) <= FRAME_BYTES_MAX + 4
    return frame


def _fields(message: type[Any], version: int) -> Sequence[Field]:
    return [field for field in layout_of(message, version) if field.tag is None]


def _depth(kind: Kind, version: int) -> int:
    match kind:
        case Array(element):
            return 1 + _depth(element, version)
        case Nested(inner):
            return depth_of(inner, version)
        case _:
            return 0


def _open_count(message: type[Message], version: int, shape: Shape) -> int:
    """Return the number of elements of open arrays: so many that all arrays together have `ELEMENTS_MAX`."""
    found = []
    for count in (1, 2):
        filler = _Filler(version, shape, count, "t", bytes(16))
        filler.message(message)
        found.append(filler.elements)
    each = found[1] - found[0]
    return max(1, (ELEMENTS_MAX - found[0]) // each + 1) if each else 1


class _Filler:
    """Makes one message; `elements` counts those of its arrays, `values` those that could be longer."""

    def __init__(
        self,
        version: int,
        shape: Shape,
        open_count: int,
        topic: str,
        topic_id: bytes,
        text_bytes: int = 0,
    ) -> None:
        self._version = version
        self._shape = shape
        self._open_count = open_count
        self._topic = topic
        self._topic_id = topic_id
        self._text_max = min(text_bytes, TEXT_BYTES_MAX)
        self._blob_bytes = min(text_bytes, BLOB_BYTES_MAX)
        self._records_bytes = min(text_bytes, RECORDS_BYTES)
        self._chance = random.Random(version)
        self._fields: dict[type[Any], Sequence[Field]] = {}
        self.elements = 0
        self.values = 0

    def message(self, message: type[Message]) -> Message:
        made: Message = self._struct(message, 0)
        return made

    def _struct(self, of: type[Any], depth: int) -> Any:
        fields = self._fields.get(of)
        if fields is None:
            fields = _fields(of, self._version)
            self._fields[of] = fields
        return of(**{field.name: self._value(field.kind, field.name, depth) for field in fields})

    def _value(self, kind: Kind, name: str, depth: int) -> Any:
        match kind:
            case Fixed("?"):
                return name not in NEVER
            case Fixed("16s"):
                return self._topic_id if self._is_alone(depth) else self._chance.randbytes(16)
            case Fixed("d"):
                return 0.0
            case Fixed(code):
                return self._number(name, code)
            case Text():
                return self._text(name, depth)
            case Blob():
                self.values += 1
                return bytes(self._blob_bytes)
            case RecordSet():
                self.values += 1
                return batch(body=one_record(max(20, self._records_bytes - 120)))
            case Array(element):
                count = self._shape.at(depth)
                count = self._open_count if count == OPEN else count
                self.elements += count
                return [self._value(element, name, depth + 1) for _ in range(count)]
            case Nested(inner):
                return self._struct(inner, depth)

    def _is_alone(self, depth: int) -> bool:
        """Return whether one thing is named at this depth, and so should be one that is there."""
        return self._shape.at(max(0, depth - 1)) == 1

    def _number(self, name: str, code: str) -> int:
        if name in COUNTED:
            return self.elements if code == "i" else self.elements % 127
        value = NUMBERS.get(name, 0)
        return value if struct.calcsize(f">{code}") > 1 else value % 127

    def _text(self, name: str, depth: int) -> str:
        if depth == 0 and depth_of_shape(self._shape):
            # The subject of the whole request (a group, a member) does not make it large.
            return "largest"
        if name in {"name", "topic", "resource_name"} and self._is_alone(depth):
            return self._topic
        self.values += 1
        return f"n{self.elements}-{self.values}".ljust(self._text_max, "x")


def depth_of_shape(shape: Shape) -> bool:
    """Tell whether names at the top stay short: if they are the only ones, they are the long ones."""
    return shape.name != "few"
