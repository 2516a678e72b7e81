"""Scenes of producers: batches whose headers lie, bombs, ids without end, and records for nobody."""

import time
from collections import Counter
from functools import partial

from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from hostile.frames import Address, Wire, batch, bomb, frame_of

from .scene import Attack, counted, produce, scene

GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1


def _lies(attack: Attack) -> dict[str, bytes]:
    chance = attack.chance
    whole = batch(3)
    return {
        "random body": batch(body=chance.randbytes(300)),
        "no body": batch(body=b""),
        "record of length -1": batch(body=b"\x01" + bytes(20)),
        "record of 2^31": batch(body=b"\xff\xff\xff\xff\x0f" + bytes(20)),
        "count 5": batch(5, body=bytes(20)),
        "count 2^31-1": batch(INT32_MAX, body=bytes(20)),
        "count 0": batch(0),
        "count -1": batch(-1, body=bytes(20)),
        "delta 2^31-1": batch(last_offset_delta=INT32_MAX),
        "delta -1": batch(last_offset_delta=-1),
        "LogAppendTime": batch(attributes=8),
        "undefined bits": batch(attributes=-32_768),
        "control": batch(attributes=32),
        "transactional": batch(attributes=16),
        "codec 5": batch(attributes=5),
        "codec 7": batch(attributes=7),
        "producer id -2": batch(producer_id=-2),
        "producer id 2^63-1": batch(producer_id=INT64_MAX, epoch=0, sequence=0),
        "epoch -1": batch(producer_id=5, epoch=-1, sequence=0),
        "sequence -1": batch(producer_id=5, epoch=0, sequence=-1),
        "sequence 2^31-1": batch(producer_id=5, epoch=0, sequence=INT32_MAX),
        "wrong checksum": batch(crc=1),
        "magic 0": batch(magic=0),
        "magic 1": batch(magic=1),
        "magic 3": batch(magic=3),
        "length 0": batch(length=0),
        "length -1": batch(length=-1),
        "length 2^31-1": batch(length=INT32_MAX),
        "cut": whole[:-5],
        "header alone": whole[:61],
        "two batches": whole + whole,
        "nothing": b"",
        "one byte": b"\0",
        "too large": batch(body=bytes(1_100_000)),
        **{
            f"codec {codec} on other bytes": batch(attributes=codec, body=chance.randbytes(200))
            for codec in range(1, 5)
        },
        "zstd of nothing": batch(attributes=ZSTD, body=b""),
        "gzip of a zstd frame": batch(attributes=GZIP, body=bomb(1 << 20)),
    }


@scene("A6")
def headers_that_lie(attack: Attack) -> str:
    """Some forty batches that cannot be true, to a topic that looks into them and to one that does not.

    Then everything that reads the second one.
    """
    checked = f"{attack.name}-checked"
    leaders = {
        checked: attack.create(checked, 1)[0],
        attack.name: attack.create(attack.name, 1, record_validation="none")[0],
    }
    ends: Counter[str] = Counter()
    for topic, leader in leaders.items():
        for data in _lies(attack).values():
            try:
                with Wire(leader, 5) as wire:
                    code = wire.ask(produce(topic, data), 9).responses[0].partition_responses[0].error_code
                    ends[f"error {code}" if code else "stored"] += 1
            except OSError as error:
                ends[type(error).__name__] += 1
    parts = [ListOffsetsPartition(partition_index=0, timestamp=stamp) for stamp in (-3, 0, 999, INT64_MAX)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=attack.name, partitions=parts)])
    return f"{counted(ends)}; looked up: {counted(attack.ask_each(request, 7, 3))}"


@scene("A10")
def timestamps_that_lie(attack: Attack) -> str:
    """Batches from the year -292,275,055, from 292,278,994, and whose maximum is below their base."""
    leaders = attack.create(attack.name, 1, retention_ms="1000", segment_bytes="1048576", record_validation="none")
    ends: Counter[str] = Counter()
    now = int(time.time() * 1000)
    stamps = ((-1, INT64_MAX), (-(1 << 63), -1), (now, now + 3_000_000), (now, now + 3_700_000), (INT64_MAX, 0), (0, 0))
    with Wire(leaders[0]) as wire:
        for turn, (base, last) in zip(attack.turns(), stamps * 200, strict=False):
            data = batch(base_timestamp=base, max_timestamp=last, body=bytes(100_000 if turn % 3 else 900_000))
            code = wire.ask(produce(attack.name, data), 9).responses[0].partition_responses[0].error_code
            ends[f"error {code}" if code else "stored"] += 1
    return counted(ends)


@scene("A12")
def compressed_bombs(attack: Attack) -> str:
    """Zstd frames of 10 GiB and of 100 MiB, first to a topic that looks into them, then to a compacted one.

    The second does not, and is looked up by time and left to the cleaner.
    """
    checked = f"{attack.name}-checked"
    checking = attack.create(checked, 1)
    leaders = attack.create(attack.name, 1, cleanup_policy="compact", segment_bytes="1048576", record_validation="none")
    ends: Counter[str] = Counter()
    with Wire(checking[0]) as wire:
        for size in (100 << 20, 10 << 30):
            data = batch(attributes=ZSTD, body=bomb(size))
            code = wire.ask(produce(checked, data), 9).responses[0].partition_responses[0].error_code
            ends[f"error {code}" if code else "stored"] += 1
    with Wire(leaders[0]) as wire:
        for size in (100 << 20, 10 << 30, 1 << 30, 10 << 30):
            for count in (1, 1_000_000):
                data = batch(count, attributes=ZSTD, body=bomb(size))
                code = wire.ask(produce(attack.name, data), 9).responses[0].partition_responses[0].error_code
                ends[f"error {code}" if code else "stored"] += 1
        for _ in range(3):  # so that the stored batches are in a sealed segment
            wire.ask(produce(attack.name, batch(body=bytes(900_000))), 9)
    parts = [ListOffsetsPartition(partition_index=0, timestamp=stamp) for stamp in (-3, 0, 999)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=attack.name, partitions=parts)])
    looked = counted(attack.ask_each(request, 7, 8))
    attack.wait(16)  # log.cleaner.backoff.ms
    return f"{counted(ends)}; looked up: {looked}"


@scene("What held")
def producer_ids_without_end(attack: Attack) -> str:
    """InitProducerId, thousands in a write, and transactional ids of 30,000 characters."""
    plain = frame_of(InitProducerIdRequest(transaction_timeout_ms=1_000), 2) * 500
    made = attack.pool(12, timeout_s=0.3)
    sent = 0
    for turn in attack.turns():
        name = attack.chance.choice(("t" * 30_000, "", "a\nb\x1b[2J", attack.name))
        odd = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=-1, producer_id=5, producer_epoch=3)
        sent += made.say(turn, plain + frame_of(odd, 3), 1 << 20)
    return f"{sent >> 10} KiB of InitProducerId"


def _idempotent(attack: Attack, topic: str, address: Address, first: int, stored: list[int]) -> str:
    with Wire(address) as wire:
        for turn in attack.turns():
            ids = [first + turn * 50 + k for k in range(50)]
            requests = [produce(topic, batch(producer_id=one, epoch=0, sequence=0), 0) for one in ids]
            wire.ask_all(requests, 9)
            stored.append(len(ids))
    return "stored"


@scene("A12")
def idempotent_producers_without_end(attack: Attack) -> str:
    """Tiny batches, each of a producer of its own, to one partition."""
    leaders = attack.create(attack.name, 1)
    stored: list[int] = []
    calls = [partial(_idempotent, attack, attack.name, leaders[0], 1_000_000 * (k + 1), stored) for k in range(6)]
    ends = attack.at_once(calls)
    return f"{sum(stored)} batches of as many producers: {counted(ends)}"


@scene("like A3")
def largest_produce_requests(attack: Attack) -> str:
    """Produce requests of 60 MB to partitions that are none, and to those that are led elsewhere."""
    attack.create(attack.name)
    data = batch(body=bytes(1_000_000))
    parts = [PartitionProduceData(index=k, records=data) for k in range(attack.many(60))]
    topic = TopicProduceData(name=attack.name, partition_data=parts)
    request = ProduceRequest(acks=-1, timeout_ms=2_000, topic_data=[topic])
    return counted(attack.ask_each(request, 9, 3))


@scene("like A3")
def small_parts_of_large_requests(attack: Attack) -> str:
    """Produce requests of 30 MB, of which a few bytes are stored; the rest is for partitions that are none."""
    attack.create(attack.name, 6)
    data = batch(body=bytes(1_000_000))
    parts = [PartitionProduceData(index=k, records=batch()) for k in range(6)]
    parts += [PartitionProduceData(index=1_000 + k, records=data) for k in range(attack.many(30))]
    topic = TopicProduceData(name=attack.name, partition_data=parts)
    request = ProduceRequest(acks=-1, timeout_ms=2_000, topic_data=[topic])
    return counted(attack.ask_each(request, 9, 12))


@scene("like A6")
def acks_that_are_none(attack: Attack) -> str:
    """Produce without end with acks 0 and 7, to nobody, with null records, and with a transactional id."""
    made = attack.pool(12, timeout_s=0.3)
    sent = 0
    for turn in attack.turns():
        request = produce(
            attack.chance.choice((attack.topic, attack.name, "", "a\nb")),
            attack.chance.choice((None, b"", batch(crc=1), batch())) if turn % 2 else batch(crc=7),
            attack.chance.choice((0, -1, INT32_MAX)),
            attack.chance.choice((0, 0, 7, -2)),
        )
        request.transactional_id = attack.chance.choice((None, "t"))
        request.topic_data[0].name = attack.name if request.acks >= 0 else request.topic_data[0].name
        sent += made.say(turn, frame_of(request, 9) * 20)
    return f"{sent >> 10} KiB of produce requests for nobody"
