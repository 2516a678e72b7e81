"""Takes the snapshot for a plan: all partitions, with their starts and ends.

The order matters. All high watermarks (of a read of committed records: last stable offsets) are asked for first and at
once, long before anything is read. The loaded DataFrame shows this moment. The starts, and offsets at timestamps, are
looked up afterwards and may be newer. Planning cuts them back to the moment.
"""

import asyncio
import re
from collections.abc import Sequence

from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.topics import describe_topics, list_topics
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.topic_view import TopicView
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.options.values import TopicPartition
from barnabas_spark.planning.plan import PartitionState, Snapshot, timestamps_needed

__all__ = ["take_snapshot"]


async def take_snapshot(cluster: Cluster, options: ReadOptions) -> Snapshot:
    """Ask the cluster for everything that planning needs, within `options.poll_timeout_ms`.

    Raises:
        OptionError: a partition that was assigned does not exist.
        KafkaError: a topic does not exist.
        DeadlineExceededError: some partition had no leader that could answer.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + options.poll_timeout_ms / 1000

    def left_s() -> float:
        return max(0.0, deadline - loop.time())

    topics = {topic.name: topic for topic in await _topics(cluster, options, left_s())}
    partitions = _partitions(options, topics)
    committed = options.read_committed
    latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
    ends = await list_offsets(cluster, latest, left_s(), read_committed=committed)
    begins = await list_offsets(cluster, dict.fromkeys(partitions, OffsetSpec.EARLIEST), left_s())
    at_timestamps: list[dict[TopicPartition, int | None]] = []
    for position in (options.starting, options.ending):
        wanted = timestamps_needed(position, partitions)
        found = await list_offsets(cluster, wanted, left_s(), read_committed=committed) if wanted else {}
        at_timestamps.append({key: at.offset if at.offset >= 0 else None for key, at in found.items()})
    return Snapshot(
        {
            key: PartitionState(
                topics[key[0]].topic_id,
                topics[key[0]].partitions[key[1]].leader_epoch,
                # Retention may have moved the start past the end that was seen: then nothing of it is left.
                min(begins[key].offset, ends[key].offset),
                ends[key].offset,
                ends[key].leader_epoch,
            )
            for key in partitions
        },
        *at_timestamps,
    )


async def _topics(cluster: Cluster, options: ReadOptions, timeout_s: float) -> Sequence[TopicView]:
    wanted = options.topics
    if wanted.pattern:
        pattern = re.compile(wanted.pattern)
        return [topic for topic in await list_topics(cluster, timeout_s) if pattern.search(topic.name)]
    names = wanted.subscribe or tuple(dict.fromkeys(topic for topic, _ in wanted.assign))
    return await describe_topics(cluster, names, timeout_s)


def _partitions(options: ReadOptions, topics: dict[str, TopicView]) -> list[TopicPartition]:
    there = [(name, partition) for name, topic in topics.items() for partition in topic.partitions]
    missing = sorted(set(options.topics.assign) - set(there))
    if missing:
        raise OptionError("assign", f"topic {missing[0][0]} has no partition {missing[0][1]}")
    return sorted(options.topics.assign or there)
