"""Fetches all of a topic and throws it away: a process that does so at each line of its standard input.

It asks brokers for the same bytes as the data source does, and looks at nothing but the last offsets of answers. So it
takes little from what runs beside it: blocking sockets, memory that is used again, and a connection to each leader for
each of `THREADS` threads, which share the partitions. It answers each line with one of JSON.
"""

import json
import socket
import sys
import threading
import time
from typing import NamedTuple, cast

from confluent_kafka.admin import AdminClient

from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_clients.protocol.frames import decode_response, encode_request
from barnabas_raftlog.records.reader import batches
from barnabas_spark.options.reads import FETCH_BYTES

THREADS = 2
VERSION = 12  # the last one that names topics
LIMIT_S = 60.0


class Place(NamedTuple):
    """One partition: the address of its leader, and its end."""

    partition: int
    address: tuple[str, int]
    end_offset: int


class Fetching:
    """The connections and the memory of one thread."""

    def __init__(self, topic: str, places: list[Place]) -> None:
        self._topic = topic
        self._places = places
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._memory = memoryview(bytearray(2 * FETCH_BYTES))
        self.bytes = 0

    def run(self) -> None:
        """Fetch all partitions, one after the other."""
        self.bytes = 0
        for place in self._places:
            position = 0
            while position < place.end_offset:
                records = self._fetch(place, position)
                for header, _ in batches(records, check_crc=False):
                    position = header.end_offset
                self.bytes += len(records)

    def _fetch(self, place: Place, position: int) -> memoryview:
        row = FetchPartition(partition=place.partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES)
        topic = FetchTopic(topic=self._topic, partitions=[row])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=[topic])
        link = self._sockets.get(place.address)
        if link is None:
            link = self._sockets[place.address] = socket.create_connection(place.address, LIMIT_S)
        link.sendall(b"".join(encode_request(request, VERSION, 1, "bench-discarding")))
        size = int.from_bytes(self._received(link, 4), "big")
        answer = cast("FetchResponse", decode_response(FetchRequest, self._received(link, size), VERSION))
        (found,) = answer.responses[0].partitions
        if found.error_code or not found.records:
            raise RuntimeError(f"partition {place.partition} at {position}: error {found.error_code}, or nothing")
        return cast("memoryview", found.records)  # what is decoded is one view of the answer

    def _received(self, link: socket.socket, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = memoryview(bytearray(size))
        taken = 0
        while taken < size:
            count = link.recv_into(self._memory[taken:size])
            if not count:
                raise RuntimeError("a broker has closed the connection")
            taken += count
        return self._memory[:size]


def places_of(bootstrap: str, topic: str, end_offsets: list[int]) -> list[Place]:
    """Return where the partitions of a topic are led."""
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=LIMIT_S)
    leaders = {number: found.brokers[one.leader] for number, one in found.topics[topic].partitions.items()}
    return [Place(at, (leaders[at].host, leaders[at].port), end) for at, end in enumerate(end_offsets)]


def run_all(threads: list[Fetching]) -> int:
    """Fetch everything once; return the bytes."""
    failed = list[BaseException]()

    def run(one: Fetching) -> None:
        try:
            one.run()
        except (OSError, RuntimeError, ValueError) as error:
            failed.append(error)

    running = [threading.Thread(target=run, args=(one,)) for one in threads]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failed:
        raise failed[0]
    return sum(one.bytes for one in threads)


def main() -> None:
    bootstrap, topic, ends = sys.argv[1:]
    places = places_of(bootstrap, topic, json.loads(ends))
    threads = [Fetching(topic, places[number::THREADS]) for number in range(THREADS)]
    for _ in sys.stdin:
        began = time.perf_counter()
        count = run_all(threads)
        print(json.dumps({"seconds": time.perf_counter() - began, "bytes": count}), flush=True)


if __name__ == "__main__":
    main()
