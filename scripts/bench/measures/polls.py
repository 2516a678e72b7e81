"""Measures what an idle consumer costs a broker: the processor time of one poll over many partitions.

The polls are raw fetches that find nothing and wait for a millisecond: some name all partitions, as clients without
fetch sessions do, the others go on with a session. The two take turns.
"""

import argparse
import socket
import statistics
import sys
import time

from machines.cluster_handle import cluster, run
from rich.console import Console
from rich.table import Table

from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_clients.protocol.registry import Message, decode_response, encode_request

from .idle import cpu_s

VERSION = 18
ROUNDS = 5


class Client:
    """One blocking connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._file = self._socket.makefile("rb")

    def ask(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self._file.read(int.from_bytes(self._file.read(4), "big"))


def frame_of(request: Message, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "polls"))


def fetch(topic_id: bytes, numbers: list[int], session_id: int, epoch: int) -> bytes:
    asked = [FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in numbers]
    topics = [FetchTopic(topic_id=topic_id, partitions=asked)] if asked else []
    request = FetchRequest(max_wait_ms=1, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics)
    return frame_of(request, VERSION)


def answer(client: Client, frame: bytes) -> FetchResponse:
    response = decode_response(FetchRequest, client.ask(frame), VERSION)
    assert isinstance(response, FetchResponse)
    assert response.error_code == 0
    return response


class Place:
    """One broker and the partitions of the topic that it leads."""

    def __init__(self, bootstrap: str, pid: int, topic: str, node_id: int) -> None:
        self.client = Client(bootstrap)
        self.pid = pid
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        metadata = decode_response(MetadataRequest, self.client.ask(frame_of(request, 12)), 12)
        assert isinstance(metadata, MetadataResponse)
        found = metadata.topics[0]
        self.topic_id = found.topic_id
        self.numbers = [row.partition_index for row in found.partitions if row.leader_id == node_id]

    def poll_s(self, count: int, *, with_session: bool) -> float:
        """Return the processor time of the broker for one of so many polls, in seconds."""
        session_id = 0
        full = fetch(self.topic_id, self.numbers, 0, -1)
        if with_session:
            opened = answer(self.client, fetch(self.topic_id, self.numbers, 0, 0))
            assert opened.session_id
            assert not any(row.error_code for topic in opened.responses for row in topic.partitions)
            session_id = opened.session_id
        before_s = cpu_s(self.pid)
        for epoch in range(1, count + 1):
            frame = fetch(self.topic_id, [], session_id, epoch) if with_session else full
            self.client.ask(frame)
        took_s = (cpu_s(self.pid) - before_s) / count
        if with_session:
            self.client.ask(fetch(self.topic_id, [], session_id, -1))
        return took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000, help="that the broker leads")
    parser.add_argument("--polls", type=int, default=500, help="in each of five rounds")
    options = parser.parse_args()
    figures: dict[bool, list[float]] = {False: [], True: []}
    with cluster(1) as brokers:
        words = ("--partitions", options.partitions, "--replication-factor", 1)
        run("topic", "create", "idle", *words, "--bootstrap-server", brokers.bootstrap)
        ((node_id, pid),) = brokers.pids().items()
        place = Place(brokers.bootstrap, pid, "idle", node_id)
        assert len(place.numbers) == options.partitions
        time.sleep(1)
        for number in range(ROUNDS):
            for with_session in (False, True) if number % 2 else (True, False):
                figures[with_session].append(place.poll_s(options.polls, with_session=with_session))
    table = Table(title=f"one idle poll over {options.partitions} partitions, medians of {ROUNDS} rounds")
    table.add_column("")
    table.add_column("processor time of the broker", justify="right")
    medians = {kind: statistics.median(values) for kind, values in figures.items()}
    for kind, name in ((False, "all partitions named"), (True, "in a session")):
        table.add_row(name, f"{medians[kind] * 1e6:.0f} us")
    table.add_row("ratio", f"{medians[False] / medians[True]:.1f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
