"""Shared by commands that administer a cluster: a client, and the names of partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from barnabas_clients import Admin, TopicPartition

from .addresses import endpoints_of
from .errors import UsageError, typed
from .legal_names import check_topic_names
from .limits import numbers_of
from .waiting import told

__all__ = ["parse_topics", "with_admin"]

T = TypeVar("T")


def with_admin(bootstrap: str, timeout_s: float, use: Callable[[Admin], Awaitable[T]]) -> T:
    """Connect, use the client, close it; every call has `timeout_s`. People are told what it waits for.

    Raises:
        BarnabasError: a broker, or the client, refuses.
    """
    endpoints_of(bootstrap)  # It raises.

    async def main() -> T:
        client = Admin(bootstrap, client_id="barnabas-cli", timeout_s=timeout_s)
        async with told(client, timeout_s), client as admin:
            with typed():
                return await use(admin)

    return asyncio.run(main())


def parse_topics(words: Sequence[str]) -> tuple[list[str], list[TopicPartition]]:
    """Split words into topics, and partitions of topics: `orders`, `orders:0,1`.

    Raises:
        UsageError: no topic can have such a name, or a colon is not followed by a list of partition numbers.
    """
    topics: list[str] = []
    partitions: list[TopicPartition] = []
    for word in words:
        topic, colon, numbers = word.partition(":")
        check_topic_names([topic])
        if not colon:
            topics.append(topic)
            continue
        found = numbers_of(numbers)
        if found is None:
            raise UsageError(f"{word!r} is not a valid list of partitions; write TOPIC or TOPIC:0,1,2")
        partitions.extend(TopicPartition(topic, number) for number in found)
    return topics, partitions
