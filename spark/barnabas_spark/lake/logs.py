"""Asks the cluster about the logs of one topic: where they start and end, in which epochs, and where epochs ended.

A topic is asked for anew each time, because it may have been deleted and created again under its name.
"""

import asyncio
from collections.abc import Mapping

from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.topics import known_topics
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.errors import error_for
from barnabas_clients.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_spark.clusters import cluster_for, run
from barnabas_spark.options.reads import ReadOptions

from .rounds import Log, TopicLogs

__all__ = ["ask_epoch_ends", "ask_logs"]


def ask_logs(options: ReadOptions, topic: str) -> TopicLogs:
    """Return the logs of a topic; blocks for at most `poll_timeout_ms`. Of committed records they end where those do.

    Raises:
        KafkaError: the topic does not exist, or may not be read.
        DeadlineExceededError: a partition has no leader that answers.
    """
    timeout_s = options.poll_timeout_ms / 1000

    async def ask() -> TopicLogs:
        cluster = await cluster_for(options, is_driver=True)
        (view,) = await known_topics(cluster, [topic], timeout_s)
        partitions = [(topic, partition) for partition in sorted(view.partitions)]
        latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
        ends = await list_offsets(cluster, latest, timeout_s, read_committed=options.read_committed)
        wholes = await list_offsets(cluster, latest, timeout_s) if options.read_committed else ends
        starts = await list_offsets(cluster, dict.fromkeys(partitions, OffsetSpec.EARLIEST), timeout_s)
        logs = {
            key[1]: Log(
                min(starts[key].offset, ends[key].offset),
                ends[key].offset,
                max(ends[key].leader_epoch, view.partitions[key[1]].leader_epoch),
                wholes[key].offset,
            )
            for key in partitions
        }
        return TopicLogs(cluster.view.cluster_id or "", topic, view.topic_id, logs, options.isolation_level)

    return run(ask(), timeout_s)


def ask_epoch_ends(options: ReadOptions, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
    """Return, for each partition, where the newest epoch not above the given one ended; -1 if the log knows none.

    Raises:
        KafkaError, DeadlineExceededError: as `ask_logs`.
    """
    timeout_s = options.poll_timeout_ms / 1000

    async def ask() -> dict[int, int]:
        cluster = await cluster_for(options, is_driver=True)
        found: dict[int, int] = {}

        async def attempt(deadline: float) -> None:
            wanted = [partition for partition in sorted(epochs) if partition not in found]
            answers = [_epoch_end(cluster, topic, partition, epochs[partition], deadline) for partition in wanted]
            for partition, answer in zip(wanted, await asyncio.gather(*answers, return_exceptions=True), strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                found[partition] = answer

        await cluster.retry(f"looking up epochs of {topic}", timeout_s, attempt, (topic,))
        return found

    return run(ask(), timeout_s) if epochs else {}


async def _epoch_end(cluster: Cluster, topic: str, partition: int, leader_epoch: int, deadline: float) -> int:
    leader = await cluster.find_leader(topic, partition, deadline)
    known_epoch = cluster.view.topics[topic].partitions[partition].leader_epoch
    row = OffsetForLeaderPartition(partition=partition, current_leader_epoch=known_epoch, leader_epoch=leader_epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[row])])
    response = await cluster.ask_broker(leader.node_id, request, deadline - asyncio.get_running_loop().time())
    answer = response.topics[0].partitions[0]
    if answer.error_code:
        raise error_for(answer.error_code, f"{topic}-{partition}")
    return int(answer.end_offset)
