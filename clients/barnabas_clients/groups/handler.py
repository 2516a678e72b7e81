"""The side of a group membership that consumes: what a session asks of it, and tells it. Pure."""

from typing import Protocol

from barnabas_clients.topic_partition import TopicPartition

__all__ = ["GroupHandler"]


class GroupHandler(Protocol):
    """Whoever consumes what the session is given. Its calls are awaited one at a time, from the session's one task.

    An exception that they let out ends the session. They may call `commit` and `committed` of the session, not `close`.
    """

    def subscription(self) -> frozenset[str]:
        """Return the topics wanted now; empty: be no member."""
        ...

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions held now."""
        ...

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Give partitions up; returns when nothing of them is handed out any more and their positions are stored.

        The group waits for it, `rebalance_timeout_s` at most. Cancelled when the session's close runs out of time.
        """
        ...

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        """Take note that partitions may be someone else's already; storing their positions is impossible."""
        ...

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        """Take over `added`, which may be empty; `whole` is everything owned from now on."""
        ...
