"""Loads a broker with batches that were made before: the cost is the broker's, and the size of a batch is exact.

One connection to the leader of all partitions, `in_flight` requests under way, a batch in each, in turn to the
partitions. No producer id, so the batches can be sent again and again. Each answer is looked at.
"""

import os
import socket
import sys
import time
from typing import NamedTuple

import msgspec

from barnabas_clients.protocol.frames import decode_response, encode_request
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression

from .kafka_load import NotDeliveredError, topic_for
from .load import Load, phase

VERSION = 9
VARIETY = 8
"""So many different batches for each partition."""
ANSWER_LIMIT_S = 60.0


class Requests(NamedTuple):
    """Requests in the order in which they are sent, over and over."""

    frames: list[bytes]
    batch_bytes: int


def main() -> int:
    load = msgspec.json.decode(sys.argv[1], type=Load)
    with topic_for(load) as topic, connection_to(load) as connection:
        requests = requests_for(topic, load)
        count = -(-load.records // load.batch_records)
        send(connection, requests, min(count, 4 * len(requests.frames)), load.in_flight)  # files, caches
        with phase("produce") as metrics:
            began = time.perf_counter()
            send(connection, requests, count, load.in_flight)
            seconds = time.perf_counter() - began
            payload = count * load.batch_records * load.record_bytes
            metrics |= {"mb_s": payload / seconds / 1e6, "bytes": payload, "batches_s": count / seconds}
            metrics["batch_bytes"] = requests.batch_bytes
    return 0


def connection_to(load: Load) -> socket.socket:
    host, _, port = load.address.split(",")[load.led_by - 1].rpartition(":")
    connection = socket.create_connection((host, int(port)), ANSWER_LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def requests_for(topic: str, load: Load) -> Requests:
    """Return one request for each of the batches: records with keys, half of each value cannot be compressed."""
    codec = Compression[load.compression.upper()]
    half = load.record_bytes // 2
    frames = []
    size = 0
    for number in range(VARIETY * load.partitions):
        now = int(time.time() * 1000)
        records = [
            NewRecord(b"key-%06d" % place, os.urandom(half) + bytes(load.record_bytes - half), now + place % 50)
            for place in range(load.batch_records)
        ]
        batch = build_batch(records, compression=codec)
        size = len(batch)
        request = ProduceRequest(
            acks=-1 if load.acks == "all" else 1,
            timeout_ms=int(ANSWER_LIMIT_S * 1000),
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[PartitionProduceData(index=number % load.partitions, records=bytes(batch))],
                )
            ],
        )
        frames.append(b"".join(encode_request(request, VERSION, number, "bench")))
    return Requests(frames, size)


def send(connection: socket.socket, requests: Requests, count: int, in_flight: int) -> None:
    """Send `count` requests, and wait for all of their answers.

    Raises:
        NotDeliveredError: a batch was refused.
    """
    frames = requests.frames
    received = bytearray()
    sent = answered = 0
    while answered < count:
        while sent < count and sent - answered < in_flight:
            connection.sendall(frames[sent % len(frames)])
            sent += 1
        data = connection.recv(1 << 16)
        if not data:
            raise NotDeliveredError("the broker has closed the connection")
        received += data
        while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
            check(bytes(received[4:end]))
            del received[:end]
            answered += 1


def check(answer: bytes) -> None:
    response = decode_response(ProduceRequest, answer, VERSION)
    assert isinstance(response, ProduceResponse)
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise NotDeliveredError(f"error {result.error_code}: {result.error_message}")


if __name__ == "__main__":
    sys.exit(main())
