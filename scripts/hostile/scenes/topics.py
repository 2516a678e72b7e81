"""Scenes of topics: without end, impossible ones, and ones made and deleted again."""

import time
from collections import Counter

from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas_clients.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from hostile.frames import Wire

from .scene import Attack, counted, scene

INT32_MAX = (1 << 31) - 1
NAMES = ("..", ".", "", "a/b", "a b", "a\nb", "\x1b[2J", "n\0l", "x" * 250, "\u202ex", "-rf", "$(id)", "é")


def delete(attack: Attack, names: list[str]) -> None:
    """Delete the topics of a scene, so that the next one begins as this one did."""
    with Wire(attack.brokers[0], 60) as wire:
        for first in range(0, len(names), 500):
            some = tuple(names[first : first + 500])
            wire.ask(DeleteTopicsRequest(topic_names=some, timeout_ms=30_000), 5)


@scene("Not done")
def topics_by_auto_creation(attack: Attack) -> str:
    """Metadata of topics that are not there, a hundred at a time, for as long as the scene lasts."""
    names: list[str] = []
    refused: Counter[str] = Counter()
    try:
        with Wire(attack.brokers[0], 30) as wire:
            for turn in attack.turns():
                some = [f"{attack.name}-{turn}-{k}" for k in range(100)]
                names += some
                answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in some]), 8)
                refused.update(f"error {one.error_code}" for one in answer.topics)
    finally:
        delete(attack, names)
    return f"{len(names)} topics asked for: {counted(refused)}"


@scene("What held")
def topics_that_cannot_be(attack: Attack) -> str:
    """CreateTopics with partitions, replicas, assignments, settings and names that no topic can have."""
    wanted = [
        *[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES[:-4]],
        *[
            CreatableTopic(name=f"{attack.name}-{n}", num_partitions=n, replication_factor=1)
            for n in (0, -2, 1_000_000, INT32_MAX)
        ],
        *[
            CreatableTopic(name=f"{attack.name}-f{n}", num_partitions=1, replication_factor=n)
            for n in (0, 4, 32_767, -2)
        ],
        CreatableTopic(
            name=f"{attack.name}-a",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=k * 7, broker_ids=(k % 4, k % 4)) for k in range(9_000)
            ],
        ),
        CreatableTopic(
            name=f"{attack.name}-c",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="cleanup.policy", value="x" * 30_000)] * 500,
        ),
    ]
    ends: Counter[str] = Counter()
    with Wire(attack.brokers[0]) as wire:
        for turn in attack.turns():
            request = CreateTopicsRequest(topics=[wanted[turn % len(wanted)]], timeout_ms=1_000)
            answer = wire.ask(request, 6)
            ends.update(f"error {one.error_code}" for one in answer.topics)
    return counted(ends)


@scene("like A8")
def topics_made_and_deleted(attack: Attack) -> str:
    """Topics of 30 partitions, made and deleted again and again."""
    counts: Counter[str] = Counter()
    with Wire(attack.brokers[0], 30) as wire:
        for turn in attack.turns():
            topic = CreatableTopic(name=f"{attack.name}-{turn}", num_partitions=30, replication_factor=3)
            made = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 6)
            gone = wire.ask(DeleteTopicsRequest(topic_names=(topic.name,), timeout_ms=10_000), 5)
            counts[f"made {made.topics[0].error_code}, deleted {gone.responses[0].error_code}"] += 1
    return counted(counts)


@scene("like A8")
def one_wide_topic(attack: Attack) -> str:
    """A topic of 1,000 partitions, then 2,000, then no topic any more; its metadata is asked for all the while."""
    count = attack.many(1_000)
    ends: Counter[str] = Counter()
    ask = MetadataRequest(topics=[MetadataRequestTopic(name=attack.name)], allow_auto_topic_creation=False)
    with Wire(attack.brokers[0], 60) as wire:
        topic = CreatableTopic(name=attack.name, num_partitions=count, replication_factor=3)
        made = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 6)
        ends[f"made {made.topics[0].error_code}"] += 1
        ends.update(attack.ask_each(ask, 12, 10))
        more = CreatePartitionsTopic(name=attack.name, count=2 * count)
        grown = wire.ask(CreatePartitionsRequest(topics=[more], timeout_ms=30_000), 3)
        ends[f"grown {grown.results[0].error_code}"] += 1
        ends.update(attack.ask_each(ask, 12, 10))
    delete(attack, [attack.name])
    return counted(ends)


@scene("What held")
def partitions_that_cannot_be(attack: Attack) -> str:
    """CreatePartitions to 2^31-1, 0, -1, 10,001, and with assignments to nobody."""
    ends: Counter[str] = Counter()
    with Wire(attack.brokers[0]) as wire:
        for turn in attack.turns():
            count = (INT32_MAX, 0, -1, 10_004, 2, -(1 << 31))[turn % 6]
            homes = [CreatePartitionsAssignment(broker_ids=(9, 9, -1))] * (turn % 3 * 1_000)
            topic = CreatePartitionsTopic(name=attack.topic, count=count, assignments=homes or None)
            answer = wire.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=500), 3)
            ends[f"error {answer.results[0].error_code}"] += 1
    return counted(ends)


@scene("like A8")
def ten_thousand_in_a_request(attack: Attack) -> str:
    """10,000 topics in one request, and one topic that grows from 3 partitions to 10,000; then all of them go again."""
    count = attack.many(10_000)
    wide = f"{attack.name}-wide"
    names = [f"{attack.name}-{k}" for k in range(count)]
    ends: Counter[str] = Counter()
    try:
        with Wire(attack.brokers[0], 120) as wire:
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in names]
            began = time.monotonic()
            made = wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 6)
            took_s = time.monotonic() - began
            ends.update(f"made {one.error_code}" for one in made.topics)
            attack.create(wide)
            more = CreatePartitionsTopic(name=wide, count=count)
            grown = wire.ask(CreatePartitionsRequest(topics=[more], timeout_ms=60_000), 3)
            ends[f"grown {grown.results[0].error_code}"] += 1
    finally:
        delete(attack, [*names, wide])
    return f"{counted(ends)}; {count} topics in {took_s:.1f} s"
