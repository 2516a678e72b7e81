"""Declares the calls of a session to the consumer that is a member. Pure."""

from typing import Protocol

from barnabas_clients.topic_partition import TopicPartition

__all__ = ["GroupHandler", "PatternHandler"]


class GroupHandler(Protocol):
    """The consumer of a session's partitions. The session awaits its calls one at a time, from one task.

    An exception that they let out ends the session. They may call `commit` and `committed` of the session, not `close`.
    """

    def subscription(self) -> frozenset[str]:
        """Return the topics wanted now; if there are none, there is no membership."""
        ...

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions held now."""
        ...

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        """Give partitions up. Returns when nothing of them is handed out any more and their positions are stored.

        The group waits for it, `rebalance_timeout_s` at most. Cancelled when the session's close runs out of time.
        """
        ...

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        """Note that other members may own these partitions already. Storing their positions is impossible."""
        ...

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        """Take over `added`, which may be empty. From now on `whole` is owned."""
        ...


class PatternHandler(GroupHandler, Protocol):
    """The consumer of a session whose coordinator may be given a pattern (KIP-848)."""

    def server_pattern(self) -> str | None:
        """Return the pattern that the coordinator matches with the names of topics; None: topics are named."""
        ...
