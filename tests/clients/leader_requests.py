"""Asks the leader of a partition until it answers, and follows it when it moves."""

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.registry import Message

__all__ = ["request_leader"]


async def request_leader(
    cluster: Cluster,
    topic: str,
    partition: int,
    message: Message,
    timeout_s: float,
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Ask the leader of a partition, following it when it moves; `check` raises for an answer that is none."""

    async def attempt(deadline: float) -> Any:
        leader = await cluster.find_leader(topic, partition, deadline)
        left_s = deadline - asyncio.get_running_loop().time()
        response = await cluster.ask_broker(leader.node_id, message, left_s)
        if check is not None:
            check(response)
        return response

    return await cluster.retry(type(message).__name__, timeout_s, attempt, (topic,))
