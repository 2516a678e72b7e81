"""DescribeLogDirs: say which partitions this broker holds, how large their logs are, and their volume (KIP-827).

A broker has one directory. Partitions that are asked for and are not here are left out, as in Kafka; so are those of
which this broker is only the witness, because tools count the rows as replicas.
"""

import os
from collections.abc import Generator, Sequence

from barnabas_broker.partition.partition import Partition
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import sorted_names
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas_clients.protocol.error_codes import ErrorCode

__all__ = ["described", "directory_of", "handle", "refuse"]

PIECE = 500  # partitions between two yields


async def handle(broker: BrokerContext, _: Exchange, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Answer when the operating system has told of the volume, or has kept that back for too long."""
    volume = await broker.volume.bytes()
    result = await taken(described(broker, request))
    result.total_bytes, result.usable_bytes = volume
    return DescribeLogDirsResponse(results=[result])


def directory_of(broker: BrokerContext) -> str:
    """Return the absolute path of the broker's directory, by which clients know it."""
    return os.path.abspath(broker.config.log_dir)  # noqa: PTH100 - a path is neither read nor resolved here


def described(broker: BrokerContext, request: DescribeLogDirsRequest) -> Generator[None, None, DescribeLogDirsResult]:
    """Return the directory with what is in it, without its volume."""
    asked = None if request.topics is None else (yield from _asked(broker, request.topics))
    result = DescribeLogDirsResult(log_dir=directory_of(broker))
    for name in (yield from sorted_names(broker.partitions.topics)):
        yield
        hosted = broker.partitions.topics.get(name)
        if hosted is None or (asked is not None and name not in asked):
            continue  # It may have been deleted meanwhile.
        rows = []
        for number, (index, partition) in enumerate(sorted(hosted.partitions.items()), 1):
            if (asked is None or index in asked[name]) and not partition.is_witness:
                rows.append(_row(index, partition))
            if not number % PIECE:
                yield
        if rows:
            result.topics.append(DescribeLogDirsTopic(name=name, partitions=rows))
    return result


def _row(index: int, partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=partition.log.size_bytes,
        offset_lag=max(0, partition.log.log_end_offset - partition.high_watermark),
    )


def _asked(
    broker: BrokerContext, topics: Sequence[DescribableLogDirTopic]
) -> Generator[None, None, dict[str, set[int]]]:
    """Return the partitions that are asked for, by topic, of topics that exist."""
    asked: dict[str, set[int]] = {}
    for topic in topics:
        yield
        if topic.topic not in broker.partitions.topics:
            continue
        indexes = asked.setdefault(topic.topic, set())
        for first in range(0, len(topic.partitions), PIECE):
            indexes.update(topic.partitions[first : first + PIECE])
            yield
    return asked


def refuse(_: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Say it for the one directory, where every version has a place for it, and for the whole."""
    return DescribeLogDirsResponse(error_code=code, results=[DescribeLogDirsResult(error_code=code)])
