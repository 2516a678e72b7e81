"""Scenes of the APIs that Barnabas alone has: health and ranges without end, challenges never used, wrong proofs.

Without a secret no challenge is drawn, and the scenes of proofs are played as far as that; `--keyed` gives the brokers
one.
"""

import time
from collections import Counter
from functools import partial

from barnabas_clients.protocol.create_snapshot import CreateSnapshotRequest, SnapshotTopicRanges
from barnabas_clients.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_clients.protocol.delete_snapshot import DeleteSnapshotRequest
from barnabas_clients.protocol.describe_events import DescribeEventsRequest
from barnabas_clients.protocol.describe_health import DescribeHealthRequest
from barnabas_clients.protocol.describe_offset_ranges import (
    DescribeOffsetRangesRequest,
    OffsetRange,
    OffsetRangesTopic,
)
from barnabas_clients.protocol.describe_snapshots import DescribeSnapshotsRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.open_challenge import OpenChallengeRequest
from barnabas_clients.protocol.snapshot_rows import SnapshotRange
from hostile.frames import Address, Wire, frame_of, send_some, take_some

from .scene import COLD_BATCHES, COLD_TOPIC, THREADS_MAX, Attack, counted, scene
from .topics import delete

LED_S = 90.0
TOPICS = 10
PARTITIONS = 1_000  # of each
NONCE = bytes(16)
MIB = 1 << 20
LARGE_BYTES = 90 * MIB  # of a frame that may have 100 MiB


@scene("like A8")
def health_without_end(attack: Attack) -> str:
    """240 connections ask for the health of 10,000 partitions, ten requests at a time, as fast as they are answered."""
    names = [f"{attack.name}-{number}" for number in range(TOPICS)]
    try:
        led = _make(attack, names, attack.many(PARTITIONS))
        until = time.monotonic() + attack.seconds
        addresses = [attack.brokers[number % len(attack.brokers)] for number in range(THREADS_MAX)]
        calls = [partial(_ask_health, address, attack.many(10), until) for address in addresses]
        ends = Counter[str]()
        answers = 0
        for end, times in attack.at_once(calls).items():
            if end.isdecimal():
                answers += int(end) * times
            else:
                ends[end] += times
    finally:
        delete(attack, names)
    return f"{led}; {answers} answers{f'; {counted(ends)}' if ends else ''}"


def _ask_health(address: Address, connections: int, until: float) -> int:
    """Keep ten requests on the way on each connection; return the number of answers."""
    data = frame_of(DescribeHealthRequest(topics_max=1_000), 0)
    answers = 0
    wires: list[Wire] = []
    try:
        for _ in range(connections):
            wires.append(Wire(address, 60))
            send_some(wires[-1].socket, data * 9)
        while time.monotonic() < until:
            for wire in wires:
                send_some(wire.socket, data)
            for wire in wires:
                wire.receive()
                answers += 1
    finally:
        for wire in wires:
            wire.socket.close()
    return answers


def _make(attack: Attack, names: list[str], partitions: int) -> str:
    """Create topics and wait until all partitions have leaders; say how that went."""
    with Wire(attack.brokers[0], 120) as wire:
        for name in names:
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
            wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 6)
        until = time.monotonic() + LED_S
        while True:
            health = wire.ask(DescribeHealthRequest(), 0)
            if not health.without_leader or time.monotonic() > until:
                return f"{health.partitions_count} partitions, {health.without_leader} without a leader"
            time.sleep(0.5)


@scene("like A8")
def ranges_cut_into_bytes(attack: Attack) -> str:
    """Ask each broker, 8 times at once, to cut 20,000 ranges of cold files into parts of one byte."""
    partitions = len(attack.cold())
    with Wire(attack.brokers[0]) as wire:
        topic_id = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=COLD_TOPIC)]), 12).topics[0].topic_id
    half = max(1, attack.many(COLD_BATCHES) // partitions // 2)
    ends = (half, 2 * half, (1 << 63) - 1)
    rows = [
        OffsetRange(partition_index=number % partitions, start_offset=number % half, end_offset=end, target_bytes=1)
        for number in range(attack.many(7_000))
        for end in ends
    ]
    request = DescribeOffsetRangesRequest(topics=[OffsetRangesTopic(topic_id=topic_id, partitions=rows)])
    return counted(attack.ask_each(request, 0, times=8))


@scene("like A8")
def snapshots_without_end(attack: Attack) -> str:
    """Make snapshots of many false and true ranges, list and delete them, from all brokers, as fast as they answer."""
    with Wire(attack.brokers[0]) as wire:
        topic_id = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=attack.topic)]), 12).topics[0].topic_id
    calls = [
        partial(_make_snapshots, attack, attack.brokers[number % len(attack.brokers)], number, topic_id)
        for number in range(THREADS_MAX)
    ]
    return counted(attack.at_once(calls))


def _make_snapshots(attack: Attack, address: Address, number: int, topic_id: bytes) -> str:
    """Say how the last of many attempts ended; what was made is deleted, so that the next scene begins as this one."""
    largest = (1 << 63) - 1
    true = [SnapshotRange(partition=k) for k in range(3)]
    false = [
        SnapshotRange(partition=k % 70_000, start_offset=(-k, k, largest)[k % 3], end_offset=(k, -k, largest)[k % 2])
        for k in range(attack.many(90_000))
    ]
    names = (f"{attack.name}-{number}", f"{attack.name}-everybody", "", "x" * 30_000, "\x1b[2J")
    kinds = Counter[str]()
    with Wire(address, 60) as wire:
        for turn in attack.turns():
            name = names[turn % len(names)]
            ranges = (true, false, [], true * attack.many(20_000))[turn // len(names) % 4]
            ours = (number + 1).to_bytes(16)
            topics = [SnapshotTopicRanges(topic_id=(topic_id, bytes(16))[turn % 7 == 6], partitions=ranges)]
            made = wire.ask(CreateSnapshotRequest(name=name, snapshot_id=ours, topics=topics, best_effort=True), 0)
            kinds[f"error {made.error_code}"] += 1
            for asked in (None, name):
                wire.ask(DescribeSnapshotsRequest(name=asked), 0)
            for snapshot_id in (bytes(16), ours, *(one.snapshot_id for one in made.snapshots)):
                wire.ask(DeleteSnapshotRequest(name=name, snapshot_id=snapshot_id), 0)
    return f"answers of {len(kinds)} kinds"


@scene("What held")
def challenges_never_used(attack: Attack) -> str:
    """2,000 connections open challenges, 50 at a time, and use none."""
    data = frame_of(OpenChallengeRequest(), 0)
    made = attack.open_many(2_000, timeout_s=0.05)
    sent = taken = 0
    for turn in attack.turns():
        one = made[turn % len(made)]
        sent += send_some(one, data * 50) // len(data)
        taken += len(take_some(one, 1 << 16))
    return f"{sent} challenges asked for on {len(made)} connections, {taken >> 10} KiB of answers"


@scene("What held")
def wrong_proofs(attack: Attack) -> str:
    """200 connections open a challenge and answer it wrongly, 20 times in each write, without end."""
    opened = frame_of(OpenChallengeRequest(), 0)
    asked = [
        opened + frame_of(DescribeEventsRequest(nonce=NONCE, proof=attack.chance.randbytes(size), topic="x" * long), 0)
        for size in (0, 31, 32, 33)
        for long in (0, 400)
    ]
    pool = attack.pool(200)
    sent = 0
    for turn in attack.turns():
        data = asked[turn % len(asked)] * 20
        sent += 20 * (pool.say(turn, data) == len(data))
    return f"{sent} wrong proofs; {pool.reopened} connections were opened again"


@scene("like A3")
def proofs_of_many_mebibytes(attack: Attack) -> str:
    """Proofs and nonces of 3, 5 and 99 MiB, each to a challenge of its own."""
    opened = OpenChallengeRequest()
    sizes = [attack.many(size * MIB) for size in (3, 5, 99)]
    requests = [DescribeEventsRequest(nonce=NONCE, proof=bytes(size)) for size in sizes]
    requests += [DescribeEventsRequest(nonce=bytes(size)) for size in sizes]
    ends = Counter[str]()
    for turn in attack.turns():
        with Wire(attack.brokers[turn // len(requests) % len(attack.brokers)]) as wire:
            try:
                wire.ask(opened, 0)
                ends[f"error {wire.ask(requests[turn % len(requests)], 0).error_code}"] += 1
            except OSError as error:
                ends[type(error).__name__] += 1
    return counted(ends)


@scene("like A8")
def values_that_take_long_to_copy(attack: Attack) -> str:
    """Send a proof and a subscription of 90 MiB each, which is as much as a frame has room for."""
    large = bytes(attack.many(LARGE_BYTES))
    proof = DescribeEventsRequest(nonce=bytes(16), proof=large)
    requests = [(proof, 0), (JoinGroupRequest(protocols=[JoinGroupRequestProtocol(name="range", metadata=large)]), 9)]
    frames = [frame_of(OpenChallengeRequest(), 0) + frame_of(request, version) for request, version in requests]

    def send(address: Address, data: bytes) -> str:
        with Wire(address, 30) as wire:
            sent = 0
            while sent < len(data) and (count := send_some(wire.socket, data[sent : sent + (4 << 20)])):
                sent += count
            wire.receive()
            return f"an answer of {len(wire.receive())} bytes"

    return counted(attack.at_once([partial(send, address, data) for data in frames for address in attack.brokers]))
