"""A produce request of a client whose encoder has slipped: behind one partition a byte is missing.

A client may have to leave a partition without a batch at the last moment, and in the flexible versions its own empty
list of tagged fields still follows. Without that byte everything behind it means something else.
"""

import logging
import struct
from typing import Any

import pytest

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_clients.protocol.registry import decode_response
from broker.wire_client import Wire, batch

PRODUCE, VERSION = 0, 9
NO_TAGS = b"\0"
NULL = b"\0"


def compact(length: int) -> bytes:
    """Return a length as flexible versions have it: one more, seven bits a byte."""
    length += 1
    return bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])


def partition(index: int, records: bytes | None) -> bytes:
    body = NULL if records is None else compact(len(records)) + records
    return struct.pack(">i", index) + body


def frame(topic: str, partitions: list[bytes], acks: int = -1) -> bytes:
    """Return a request that produces to one topic; the tagged fields of the partitions are in `partitions`."""
    name = compact(len(topic)) + topic.encode()
    header = struct.pack(">hhih", PRODUCE, VERSION, 1, -1) + NO_TAGS
    body = NULL + struct.pack(">hi", acks, 10_000) + compact(1) + name + compact(len(partitions))
    body += b"".join(partitions) + NO_TAGS + NO_TAGS
    return struct.pack(">i", len(header + body)) + header + body


def slipped(count: int) -> list[bytes]:
    """Return partitions 0 to `count` - 1, of which all but 1 have a batch, and 1 has lost its tagged fields."""
    whole = [partition(index, batch()) + NO_TAGS for index in range(count)]
    whole[1] = partition(1, None)
    return whole


def record_counts(wire: Wire, topic: str, count: int) -> list[int]:
    """Return how many records each partition has."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    return [row.offset for row in wire.ask(request, 5).topics[0].partitions]


@pytest.mark.parametrize("acks", [-1, 0])
def test_w8_what_cannot_be_read_closes_the_connection_with_a_reason_and_none_of_it_is_stored(
    wire: Wire, topic: str, caplog: pytest.LogCaptureFixture, acks: int
) -> None:
    name = f"{topic}-five"
    wire.create(name, 5)
    other = Wire(*wire.socket.getpeername())
    with caplog.at_level(logging.WARNING):
        other.socket.sendall(frame(name, slipped(5), acks))
        assert other.is_closed_by_peer()
    other.close()
    assert "malformed request" in caplog.text
    assert record_counts(wire, name, 5) == [0] * 5
    assert wire.produce(name, batch()).error_code == ErrorCode.NONE, "others go on"


def test_w8_what_can_be_read_by_chance_stores_whole_batches_where_they_belong_and_nothing_else(
    wire: Wire, topic: str
) -> None:
    """Zeros look like partitions without a batch. They are refused; what came before the slip is as it was meant."""
    name = f"{topic}-four"
    wire.create(name, 4)
    wire.socket.sendall(frame(name, slipped(4)))
    answer: Any = decode_response(ProduceRequest, wire.receive_frame(), VERSION)
    rows = [(row.index, row.error_code) for row in answer.responses[0].partition_responses]
    assert rows[:2] == [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_RECORD)]
    assert ErrorCode.NONE not in [code for _, code in rows[1:]]
    assert record_counts(wire, name, 4) == [1, 0, 0, 0]
