"""Scenes of readers that do not read, read slowly, stop, or wait by the thousand."""

import time
from typing import Any

from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from hostile.frames import Address, frame_of, send_some, take_some

from .scene import COLD_TOPIC, Attack, counted, scene

MIB = 1 << 20
LARGEST = (1 << 31) - 1


def _fetch(topic: str, partitions: list[int], offset: int = 0, **fields: Any) -> bytes:
    parts = [FetchPartition(partition=k, fetch_offset=offset, partition_max_bytes=50 * MIB) for k in partitions]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 * MIB} | fields
    return frame_of(FetchRequest(topics=[FetchTopic(topic=topic, partitions=parts)], **fields), 11)


def _by_leader(leaders: dict[int, Address]) -> list[tuple[Address, list[int]]]:
    return [(one, [k for k, leader in leaders.items() if leader == one]) for one in sorted(set(leaders.values()))]


@scene("A4")
def readers_that_do_not_read(attack: Attack) -> str:
    """500 connections with a small receive buffer ask three times for 50 MiB each, and read nothing."""
    homes = _by_leader(attack.cold())
    made = attack.open_many(500, [address for address, _ in homes], receive_buffer=4096)
    for number, one in enumerate(made):
        send_some(one, _fetch(COLD_TOPIC, homes[number % len(homes)][1]) * 3)
    attack.wait(attack.seconds * 1.5)
    return f"{len(made)} readers that read nothing, three fetches of 50 MiB each"


@scene("like A4")
def cold_readers_that_stop(attack: Attack) -> str:
    """300 readers of records that are only on the disks, that take 100 KB and stop."""
    homes = _by_leader(attack.cold())
    made = attack.open_many(300, [address for address, _ in homes], receive_buffer=16_384, timeout_s=2.0)
    for number, one in enumerate(made):
        send_some(one, _fetch(COLD_TOPIC, homes[number % len(homes)][1], number % 20))
    taken = 0
    for one in made:
        taken += len(take_some(one, 100_000))
    attack.wait()
    return f"{len(made)} cold readers, {taken >> 10} KiB taken"


@scene("like A4")
def slow_readers(attack: Attack) -> str:
    """200 readers of records on the disks, that take 1 KiB now and then."""
    homes = _by_leader(attack.cold())
    made = attack.open_many(200, [address for address, _ in homes], receive_buffer=4096, timeout_s=0.01)
    for number, one in enumerate(made):
        send_some(one, _fetch(COLD_TOPIC, homes[number % len(homes)][1]) * 2)
    taken = 0
    for _ in attack.turns():
        for one in made:
            taken += len(take_some(one, 1024))
        time.sleep(0.2)
    return f"{len(made)} readers, {taken >> 10} KiB taken"


@scene("A12")
def long_polls(attack: Attack) -> str:
    """4,000 fetches of the well-behaved client's partition that wait for 2 GiB."""
    homes = _by_leader(attack.leaders(attack.topic))
    made = attack.open_many(1_000, [address for address, _ in homes])
    sent = 0
    for number, one in enumerate(made):
        for _ in range(4):
            wait = {"max_wait_ms": 60_000, "min_bytes": LARGEST}
            send_some(one, _fetch(attack.topic, homes[number % len(homes)][1], LARGEST >> 8, **wait))
            send_some(one, _fetch(attack.topic, homes[number % len(homes)][1], 0, **wait))
            sent += 2
    attack.wait(attack.seconds * 1.5)
    return f"{sent} long polls on {len(made)} connections"


@scene("A12")
def long_polls_at_the_end(attack: Attack) -> str:
    """1,000 fetches at the end of the client's partitions that any record wakes, asked again each time."""
    homes = _by_leader(attack.leaders(attack.topic))
    made = attack.open_many(1_000, [address for address, _ in homes], timeout_s=0.01)
    data = [_fetch(attack.topic, indexes, LARGEST >> 8, max_wait_ms=30_000, min_bytes=1) for _, indexes in homes]
    sent = 0
    woken = 0
    for _ in attack.turns():
        for number, one in enumerate(made):
            sent += send_some(one, data[number % len(homes)]) > 0
            if number % 20 == 0:
                woken += len(take_some(one, 1 << 16)) > 0
    return f"{sent} fetches, {woken} of a twentieth woken"


@scene("A8")
def fetch_duplicates(attack: Attack) -> str:
    """One partition 90,000 times in a fetch, and 90,000 that are none."""
    count = attack.many(90_000)
    same = [FetchPartition(partition=0, partition_max_bytes=MIB)] * count
    none = [FetchPartition(partition=k + 10, partition_max_bytes=MIB) for k in range(count)]
    ends = [
        attack.ask_each(FetchRequest(topics=[FetchTopic(topic=attack.topic, partitions=parts)], max_bytes=MIB), 4, 2)
        for parts in (same, none)
    ]
    return "; ".join(counted(one) for one in ends)


@scene("like A8")
def fetch_sessions(attack: Attack) -> str:
    """Fetch sessions by the thousand, with ids that are none, and partitions forgotten that were not there."""
    sent = 0
    made = attack.pool(60)
    for turn in attack.turns():
        forgotten = [ForgottenTopic(topic=attack.name, partitions=tuple(range(200)))]
        parts = [FetchPartition(partition=k, partition_max_bytes=1) for k in range(100)]
        for _ in range(10):
            request = FetchRequest(
                session_id=attack.chance.choice((0, 1, -1, attack.chance.getrandbits(31))),
                session_epoch=attack.chance.choice((0, 1, -1, 7)),
                topics=[FetchTopic(topic=attack.topic, partitions=parts)],
                forgotten_topics_data=forgotten,
            )
            sent += made.say(turn, frame_of(request, 11), 0) > 0
        made.say(turn, b"", 1 << 20)
    return f"{sent} fetches with sessions"


@scene("like A4")
def offsets_that_are_none(attack: Attack) -> str:
    """Fetches below, between and beyond the records, with limits that are none."""
    made = attack.pool(30)
    sent = 0
    for turn in attack.turns():
        offset = attack.chance.choice((-1, -(1 << 63), (1 << 63) - 1, 5, LARGEST))
        limits = {"max_bytes": attack.chance.choice((0, -1, 1, LARGEST)), "min_bytes": attack.chance.choice((0, -1, 1))}
        sent += made.say(turn, _fetch(attack.topic, [0, 1, 2, -1, LARGEST], offset, **limits)) > 0
    return f"{sent} fetches of offsets that are none"


@scene("like A6")
def times_of_cold_data(attack: Attack) -> str:
    """Look-ups by time, and of the largest, in batches that are only on the disks and hold no readable records."""
    attack.cold()
    stamps = (-3, 0, 999, 1_000, (1 << 63) - 1)
    parts = [ListOffsetsPartition(partition_index=k % 3, timestamp=stamps[k % 5]) for k in range(attack.many(300))]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=COLD_TOPIC, partitions=parts)])
    return counted(attack.ask_each(request, 7, 20))
