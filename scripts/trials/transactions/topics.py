"""Makes the topics of transactions under faults, and says where they stand: replicas, leaders, coordinators."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from barnabas_broker.coordinators.groups.state_machine.location import partition_for
from barnabas_clients.admin.client import Admin
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import TopicPartition
from trials.load import WAIT_LIMIT_S, HangError

__all__ = ["STATE", "STATE_PARTITIONS", "Flow", "coordinating_partition", "create_topics", "whole"]

STATE = "__transaction_state"
STATE_PARTITIONS = 4


class Flow(NamedTuple):
    """What a group of workers reads and writes. Both topics have so many partitions."""

    input: str
    output: str
    group: str
    partitions: int

    @property
    def inputs(self) -> list[TopicPartition]:
        return [TopicPartition(self.input, number) for number in range(self.partitions)]

    @property
    def outputs(self) -> list[TopicPartition]:
        return [TopicPartition(self.output, number) for number in range(self.partitions)]


async def create_topics(bootstrap: str, flow: Flow, replicas: int = 3, **settings: str) -> None:
    """Create both topics; a setting's dots are written as underscores.

    Two replicas need each other while both are there, by the log's own rule.
    """
    config = {"min.insync.replicas": "2"} if replicas > 2 else {}
    config |= {name.replace("_", "."): value for name, value in settings.items()}
    async with Admin(bootstrap, timeout_s=60.0) as admin:
        for topic in (flow.input, flow.output):
            await admin.create_topic(topic, flow.partitions, replicas, config)


async def whole(
    bootstrap: str, topics: Sequence[str], limit_s: float = WAIT_LIMIT_S, replicas: int = 3
) -> dict[str, list[int]]:
    """Wait until every replica is in sync; return the leaders of each topic's partitions.

    Raises:
        HangError: they are not within the limit.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    state = "nobody answered"
    async with Admin(bootstrap, timeout_s=5.0) as admin:
        while True:
            try:
                found = {topic.name: topic for topic in await admin.describe_topics(list(topics))}
            except (ClientError, KafkaError) as error:
                state = str(error)
            else:
                views = {name: [view for _, view in sorted(found[name].partitions.items())] for name in topics}
                every = [view for of_topic in views.values() for view in of_topic]
                if all(view.leader_id > 0 and len(view.in_sync_replicas) == replicas for view in every):
                    return {name: [view.leader_id for view in of_topic] for name, of_topic in views.items()}
                state = str([(view.leader_id, list(view.in_sync_replicas)) for view in every])
            if loop.time() > deadline:
                raise HangError(f"not in sync after {limit_s:.0f} s: {state}")
            await asyncio.sleep(0.05)


def coordinating_partition(transactional_id: str) -> int:
    """Return which partition of `STATE` coordinates this id's transactions."""
    return partition_for(transactional_id, STATE_PARTITIONS)
