"""A job that reads, transforms and writes in transactions, by raw requests, while brokers are killed under it.

Each record of the source is in the output exactly once, in its order: whichever broker is killed, the leader of the
output, the group's coordinator or the transaction's, and whatever the job was doing: it has written its records, has
staged its position, or has asked for the end and does not hear how that went (T13: then it begins anew, and goes on
from the position that counts).
"""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from machines import cluster_handle

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import CONTROL, parse_header
from barnabas_raftlog.records.reader import read_batch
from broker.coordinators.groups.group_client import GroupClient
from broker.live.test_three_brokers import leader_of
from broker.wire_client import Wire

from .consuming import stable_position, stage
from .producing import Transactional, fetched, read, transactional_request

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOURCE, OUTPUT = "source", "output"
STEP = 3  # records that are read, transformed and written in one transaction
DEADLINE_S = 60.0
MOMENTS = ("written", "staged", "ended")
VICTIMS = ("the output's leader", "the group's coordinator", "the transaction's coordinator")


class BrokenOffError(Exception):
    """The transaction cannot be brought to its end: it is to be begun anew."""


class ProcessWires:
    """A connection to each broker process that runs, made anew after it broke."""

    def __init__(self, cluster: cluster_handle.ClusterHandle) -> None:
        self._port = cluster.port
        self._open: dict[int, Wire] = {}
        self.cluster = SimpleNamespace(nodes=set(range(1, cluster.brokers + 1)))

    def __getitem__(self, node_id: int) -> Wire:
        if node_id not in self._open:
            self._open[node_id] = Wire("127.0.0.1", self._port + node_id - 1)
        return self._open[node_id]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class Job:
    """Goes on where the group's position says; `position` is that of the source which is transformed next."""

    def __init__(self, cluster: cluster_handle.ClusterHandle, wires: Any) -> None:
        self.wires = wires
        self.group = GroupClient(cluster.bootstrap, "job")
        self.begun_count = 0
        self.begin()

    def begin(self) -> None:
        """Take over from any instance before, whose transaction ends; go on from where that leaves the group."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            self.group.lose()
            self.wires.close()
            try:
                self.producer = Transactional(self.wires, "job")
                self.position = max(0, stable_position(self.group, SOURCE, 0))
            except (OSError, AssertionError):
                assert time.monotonic() < until_s, "it cannot begin"
            else:
                self.begun_count += 1
                return

    def step(self, now: Callable[[str], None]) -> None:
        """Transform the next records. `now` is told what has been done."""
        begun = self.position
        try:
            self._write(begun)
            now("written")
            if stage(self.group, self.producer, SOURCE, {0: begun + STEP}) != [ErrorCode.NONE]:
                raise BrokenOffError
            now("staged")
            if self.producer.end(is_commit=True):
                raise BrokenOffError
            self.position = begun + STEP
            now("ended")
        except (OSError, BrokenOffError, AssertionError):
            self.begin()
            assert self.position in {begun, begun + STEP}, "neither before the transaction nor behind it"

    def _write(self, begun: int) -> None:
        producer = self.producer
        sequence = producer.sequences.get(OUTPUT, 0)
        frame = build_batch(
            [NewRecord(b"k", b"%d" % number, 1_000) for number in range(begun, begun + STEP)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = transactional_request(producer.name, OUTPUT, bytes(frame))
        if producer._produce(OUTPUT, request).error_code:
            raise BrokenOffError
        producer.sequences[OUTPUT] = sequence + STEP

    def victim(self, what: str) -> int:
        """Return the broker that has this part now."""
        if what == VICTIMS[0]:
            return leader_of(self.wires[min(self.wires.cluster.nodes)], OUTPUT)
        if what == VICTIMS[1]:
            self.group.find()
            return self.group.coordinator_id
        node_id: int = self.producer.coordinator_id
        return node_id


@pytest.fixture
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    settings = {
        "raft.election.timeout.ms": "400",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
    }
    with cluster_handle.cluster(3, settings) as cluster:
        yield cluster


def output_of(wires: Any) -> list[int]:
    """Return the values of the committed records of the output, in their order."""
    wire = wires[leader_of(wires[min(wires.cluster.nodes)], OUTPUT)]
    end_offset = fetched(wire, OUTPUT).high_watermark
    visible = set(read(wire, OUTPUT, end_offset, is_committed=True))
    found: list[int] = []
    offset = 0
    while offset < end_offset:
        data = memoryview(bytes(fetched(wire, OUTPUT, offset, is_committed=False).records))
        while data:
            header = parse_header(data)
            if not header.attributes & CONTROL:
                records = read_batch(header, data[: header.size_bytes])
                found += [int(bytes(one.value or b"")) for one in records if one.offset in visible]
            offset = header.end_offset
            data = data[header.size_bytes :]
    return found


def test_each_record_is_transformed_exactly_once_whichever_broker_is_killed(
    brokers: cluster_handle.ClusterHandle,
) -> None:
    wires = ProcessWires(brokers)
    for topic in (SOURCE, OUTPUT):
        wires[1].create(topic, factor=3)
    job = Job(brokers, wires)
    job.step(lambda _: None)
    struck: list[tuple[str, str]] = []
    for moment in MOMENTS:
        for what in VICTIMS:

            def strike(now: str, moment: str = moment, what: str = what) -> None:
                if now == moment:
                    victim = job.victim(what)
                    brokers.kill(victim)
                    wires.cluster.nodes.discard(victim)
                    struck.append((moment, what))

            while (moment, what) not in struck:
                job.step(strike)
            job.step(lambda _: None)
            brokers.start()
            wires.cluster.nodes |= {1, 2, 3}
    for _ in range(3):
        job.step(lambda _: None)
    assert len(struck) == len(MOMENTS) * len(VICTIMS)
    assert job.begun_count > 1, "nothing was ever broken off"
    assert output_of(wires) == list(range(job.position))
    job.group.lose()
    wires.close()
