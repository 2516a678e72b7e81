"""Steps of tests of moves: write without pause, wait for metadata, read all back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from barnabas_broker.node import Node
from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster
from barnabas_clients import Admin, Consumer, Producer, TopicPartition
from barnabas_metadata_quorum.image.image import Image, Topic
from barnabas_metadata_quorum.image.image import PartitionPlacement as Placement

WAIT_S = 25.0
WINDOW = 20


async def create(cluster: Cluster, name: str, *replicas: int, configs: dict[str, str] | None = None) -> None:
    """Create a topic of one partition on exactly these brokers, and wait for its leader."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(name, 1, len(replicas), configs)
        if set((await partition_of(cluster, name)).replicas) != set(replicas):
            await admin.alter_partition_reassignments({TopicPartition(name, 0): replicas})
            await arrived(cluster, name)


async def move(cluster: Cluster, name: str, replicas: Iterable[int] | None) -> None:
    """Ask for a move of partition 0, or with None call it off; does not wait for its end."""
    async with Admin(cluster.bootstrap) as admin:
        target = None if replicas is None else tuple(replicas)
        await admin.alter_partition_reassignments({TopicPartition(name, 0): target})


def any_node(cluster: Cluster) -> Node:
    return next(iter(cluster.nodes.values()))


def topic_of(image: Image, name: str) -> Topic:
    topic = image.topic_named(name)
    assert topic is not None
    return topic


async def partition_of(cluster: Cluster, name: str) -> Placement:
    """Return partition 0 as every running broker knows it by now."""
    await until(cluster, lambda image: image.topic_named(name) is not None)
    return topic_of(any_node(cluster).metadata.image, name).partitions[0]


async def until(cluster: Cluster, claim: Callable[[Image], bool]) -> None:
    """Wait until every running broker knows what any of them knows now, and its image makes `claim` true.

    A broker hears of what is decided up to a heartbeat later than the one that answered: what was true before the last
    request would else be taken for its outcome.
    """
    newest = max(node.metadata.image.version for node in cluster.nodes.values())
    for node in list(cluster.nodes.values()):
        await node.metadata.wait_until(lambda image: image.version >= newest and claim(image), WAIT_S)


async def arrived(cluster: Cluster, name: str) -> None:
    """Wait until the partition is not on its way any more, as every broker sees it."""
    await until(cluster, lambda image: topic_of(image, name).partitions[0].move is None)


@contextlib.asynccontextmanager
async def telling(cluster: Cluster, name: str) -> AsyncIterator[None]:
    """Limit a wait, and say where the partition stood on each broker when the time was up."""
    try:
        async with asyncio.timeout(WAIT_S):
            yield
    except TimeoutError:
        lines = []
        for node_id, node in cluster.nodes.items():
            hosted = node.partitions.topics.get(name)
            seen = None if hosted is None else node.broker.leader_of(hosted, 0)
            partition = None if hosted is None else hosted.partitions.get(0)
            group = None if partition is None else (partition.group.leader_id, partition.group.configuration)
            lines.append(f"{node_id}: {seen}, led by and among {group}, reconciled {node.partitions.is_reconciled}")
        known = topic_of(any_node(cluster).metadata.image, name).partitions[0]
        raise AssertionError("\n".join([str(known), *lines])) from None


async def leader(cluster: Cluster, name: str, among: Iterable[int] = range(1, 10)) -> int:
    """Wait until a broker of `among` leads the partition as every running broker sees it, and return it."""
    able = set(among)
    async with telling(cluster, name):
        while True:
            seen = {node.broker.leader_of(node.partitions.topics[name], 0).leader_id for node in cluster.nodes.values()}
            if len(seen) == 1 and seen <= able & cluster.nodes.keys():
                return seen.pop()
            await cluster.leaders_changed()


async def all_know_it_left(cluster: Cluster, node_id: int) -> None:
    """Return when every running broker knows that one has stopped: only the controller does when its stop ends."""
    for node in cluster.nodes.values():
        await node.metadata.wait_until(lambda image: image.brokers[node_id].fenced, WAIT_S)


async def in_sync(cluster: Cluster, name: str, replicas: Iterable[int], others: int = 0) -> None:
    """Wait until these replicas are in sync, and so many others, as every running broker has heard."""
    wanted = set(replicas)
    async with telling(cluster, name):
        for node in list(cluster.nodes.values()):
            while True:
                isr = set(node.broker.leader_of(node.partitions.topics[name], 0).isr)
                if wanted <= isr and len(isr) == len(wanted) + others:
                    break
                await node.partitions.known_leaders.leaders_changed()


def partition_at(cluster: Cluster, node_id: int, name: str) -> Partition:
    return cluster.nodes[node_id].partitions.topics[name].partitions[0]


def hosts(cluster: Cluster, name: str) -> set[int]:
    """Return the running brokers that have the partition open."""
    return {node_id for node_id, node in cluster.nodes.items() if 0 in node.partitions.topics[name].partitions}


async def files_are_at(cluster: Cluster, name: str, replicas: Iterable[int]) -> None:
    """Wait until these brokers, and no others that run, have files of the partition."""
    wanted = set(replicas)
    topic_id = topic_of(any_node(cluster).metadata.image, name).topic_id
    async with asyncio.timeout(WAIT_S):
        for node_id, node in list(cluster.nodes.items()):
            while not node.partitions.is_reconciled:
                await node.partitions.known_leaders.leaders_changed()
            # Deleted directories get another name at once, and go when there is time.
            path = Path(cluster.configs[node_id].log_dir) / "replicas" / f"{name}-0-{topic_id.hex()[:8]}"
            found = path.exists()
            assert found == (node_id in wanted), node_id


class Load:
    """Values that a producer has written, in order, each acknowledged by then; `failures` are those it gave up on."""

    def __init__(self) -> None:
        self.acknowledged: list[bytes] = []


@contextlib.asynccontextmanager
async def under_load(cluster: Cluster, name: str) -> AsyncIterator[Load]:
    """Write numbers with acks=all and idempotence for as long as the block runs, several in flight."""
    load = Load()
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        async with Producer(cluster.bootstrap, client_id="load") as producer:
            while not (stop.is_set() and load.acknowledged):
                deliveries = []
                for _ in range(WINDOW):
                    value = b"%d" % number
                    deliveries.append((value, await producer.send(name, value, partition=0)))
                    number += 1
                for value, delivery in deliveries:
                    await delivery
                    load.acknowledged.append(value)

    writing = asyncio.ensure_future(write())
    try:
        yield load
    except BaseException:
        # The error of the block is to be seen, not the failing writes that follow from it.
        writing.cancel()
        await asyncio.wait([writing], timeout=1)
        raise
    stop.set()
    await asyncio.wait_for(writing, WAIT_S)


async def everything(cluster: Cluster, name: str, **settings: str) -> list[bytes]:
    """Return all values of the topic in the order of their offsets."""
    values: list[bytes] = []
    async with (
        Admin(cluster.bootstrap) as admin,
        Consumer(cluster.bootstrap, auto_offset_reset="earliest", **settings) as consumer,  # type: ignore[arg-type]
    ):
        key = TopicPartition(name, 0)
        end = (await admin.list_offsets({key: -1}))[key].offset
        await consumer.assign([key])
        while len(values) < end:
            for records in (await consumer.get_many(5_000, WAIT_S)).values():
                for record in records:
                    assert record.offset == len(values)
                    assert record.value is not None
                    values.append(record.value)
    return values
