"""Sees who leads each partition, as the brokers say of themselves: no two of them may in one epoch.

Every broker is asked alone, again and again, and only what it says of itself counts: that it leads a partition, and
since which epoch. What it says of others is hearsay, and a guess when it is cut off. A broker that was replaced and
does not know it yet may go on to say so, of its own epoch; so the rule is about an epoch and not about a moment.
"""

import asyncio

from barnabas_broker.history import events as e
from barnabas_clients.admin.client import Admin
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataResponse

from .story import Book

__all__ = ["follow_leaders", "led_by"]

INTERVAL_S = 0.2
ANSWER_S = 1.0


def led_by(node_id: int, response: MetadataResponse) -> list[tuple[str, int]]:
    """Return partitions, as "topic-partition", that the broker which answered says to lead, each with the epoch."""
    return [
        (f"{topic.name}-{partition.partition_index}", partition.leader_epoch)
        for topic in response.topics
        for partition in topic.partitions
        if partition.leader_id == node_id and partition.leader_epoch >= 0
    ]


async def follow_leaders(book: Book, bootstrap: str, over: asyncio.Event, who: str, name: str) -> None:
    """Ask each broker, and tell what is new, until all is over."""
    told: set[tuple[str, int, int]] = set()
    async with Admin(bootstrap, timeout_s=5.0) as admin:
        while not over.is_set():
            for node_id in sorted(admin._cluster.view.brokers):  # no call of Admin asks one broker alone
                try:
                    response = await admin._cluster.ask_broker(node_id, MetadataRequest(topics=None), ANSWER_S)
                except (ClientError, KafkaError):
                    continue
                for place, epoch in led_by(node_id, response):
                    if (place, epoch, node_id) not in told:
                        told.add((place, epoch, node_id))
                        book.recorder.tell(
                            e.OwnerSeen(subject=f"leader of {place}", epoch=epoch, owner=f"broker {node_id}")
                        )
            await asyncio.sleep(INTERVAL_S)
