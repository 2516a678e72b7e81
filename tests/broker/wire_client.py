"""A client that says exactly what a test wants, and batches for it."""

import socket
import struct
from functools import cache
from typing import Any, TypeVar

from barnabas_clients.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_clients.protocol.registry import Message, decode_response, encode_request
from barnabas_raftlog.records import header as batch_header
from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.wire.crc32c import crc32c

M = TypeVar("M", bound=Message)


def batch(
    count: int = 1,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    timestamp: int = 1_000,
    body_bytes: int | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """Return a batch of records without keys, the last of which fills what the others leave of `body_bytes`.

    The records are zeros if so many do not fit, as those of `garbage` are.
    """
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    fields = (attributes, delta, timestamp, timestamp, producer_id, epoch, sequence, count)
    body = _body(count, body_bytes)
    codec = attributes & batch_header.COMPRESSION_MASK
    return framed(bytes(compress(Compression(codec), body)) if 0 < codec <= Compression.ZSTD else body, *fields)


def garbage(count: int = 1, *, attributes: int = 0, timestamp: int = 1_000, body_bytes: int | None = None) -> bytes:
    """Return a batch whose header is right and whose records are zeros."""
    body_bytes = max(20, 7 * count) if body_bytes is None else body_bytes
    return framed(bytes(body_bytes), attributes, count - 1, timestamp, timestamp, -1, -1, -1, count)


def framed(body: bytes, *fields: int) -> bytes:
    """Return a batch with that body and the fields of the header from the attributes on."""
    tail = struct.pack(">hiqqqhii", *fields) + body
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


@cache
def _body(count: int, body_bytes: int | None) -> bytes:
    if count < 1 or count > (1 << 20):
        return bytes(body_bytes or 20)
    records = b"".join(_record(number, None, None) for number in range(count - 1))
    least_bytes = len(records) + len(_record(count - 1, None, None))
    body_bytes = max(20, least_bytes) if body_bytes is None else body_bytes
    if body_bytes == least_bytes:
        return records + _record(count - 1, None, None)
    room_bytes = body_bytes - least_bytes
    # One size of two bytes more or less: with a key of a byte every size can be met.
    for value_bytes in range(room_bytes, max(room_bytes - 12, -1), -1):
        for key in (None, b"k"):
            last = _record(count - 1, key, bytes(value_bytes))
            if len(records) + len(last) == body_bytes:
                return records + last
    return bytes(body_bytes)


def _record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    inside = b"\0\0" + varint(offset_delta)
    for part in (key, value):
        inside += varint(-1) if part is None else varint(len(part)) + part
    inside += varint(0)
    return varint(len(inside)) + inside


def varint(value: int) -> bytes:
    """Return a number as records have it: zigzag, seven bits a byte."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    parts = bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(parts) + bytes([rest])


class Wire:
    """One blocking connection. Every call sends one request and returns the decoded response."""

    def __init__(self, host: str, port: int, *, receive_bytes: int = 0) -> None:
        """`receive_bytes`: how much the kernel may keep for it; 0: as much as is usual."""
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(10)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self._correlation_id = 0

    def send(self, request: Message, version: int, client_id: str | None = "test") -> None:
        self._correlation_id += 1
        self.socket.sendall(b"".join(encode_request(request, version, self._correlation_id, client_id)))

    def receive(self, request: Message, version: int) -> Any:
        return decode_response(type(request), self.receive_frame(), version)

    def receive_frame(self) -> bytes:
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive(request, version)

    def is_closed_by_peer(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    # The request of most tests.

    def create(self, name: str, partitions: int = 1, factor: int = 1, **configs: str) -> bytes:
        """Create a topic and return its id."""
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)
        result = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0]
        assert result.error_code == ErrorCode.NONE, result
        topic_id: bytes = result.topic_id
        return topic_id

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        timeout_ms: int = 10_000,
    ) -> Any:
        """Produce one batch and return the partition's response."""
        request = produce_request(topic, records, partition=partition, acks=acks, timeout_ms=timeout_ms)
        return self.ask(request, version).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, version: int = 12, **fields: Any) -> Any:
        """Fetch from partition 0 and return the partition's response."""
        request = fetch_request(topic, offset, **fields)
        return self.ask(request, version).responses[0].partitions[0]

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)


def produce_request(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 10_000,
    topic_id: bytes = bytes(16),
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def fetch_request(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    topic_id: bytes = bytes(16),
    partition_max_bytes: int = 1 << 20,
    **partition_fields: Any,
) -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **partition_fields
    )
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=topics)


def offsets_of(records: bytes | memoryview) -> list[int]:
    """Return the base offset of each batch in fetched records."""
    offsets = []
    position = 0
    while position < len(records):
        header = batch_header.verify(
            memoryview(records)[position:][: batch_header.parse_header(records, position).size_bytes]
        )
        offsets.append(header.base_offset)
        position += header.size_bytes
    return offsets
