"""Tells in the log what happens to a membership in a group: one line for a change, however many attempts it took.

A loss of partitions is a warning, because other members may work on the same records. Everything else is information.
"""

import logging
from collections.abc import Collection

from barnabas_clients.topic_partition import TopicPartition
from barnabas_clients.wording import listed_partitions, shown_name, shown_reason, shown_seconds

__all__ = ["GroupLog"]

logger = logging.getLogger("barnabas_clients.groups")

SESSION_TIMEOUT_S = 45.0
"""Kafka's default (group.consumer.session.timeout.ms)."""


class GroupLog:
    """What was told of one membership."""

    def __init__(self, group_id: str) -> None:
        self._group = f"group {shown_name(group_id)}"
        self._coordinator_id: int | None = None
        self._is_hindered = False
        self._is_late = False

    def coordinator(self, node_id: int) -> None:
        """Tell which broker coordinates the group, if it is another one than before."""
        if node_id != self._coordinator_id:
            was = "" if self._coordinator_id is None else f" (was {self._coordinator_id})"
            logger.info("%s: the coordinator is broker %d%s", self._group, node_id, was)
            self._coordinator_id = node_id

    def rejoining(self, reason: str) -> None:
        logger.info("%s: joining again: %s", self._group, shown_reason(reason))

    def hindered(self, error: Exception) -> None:
        """Tell why a join has failed, unless that was told since the last one that succeeded."""
        if not self._is_hindered:
            self._is_hindered = True
            logger.info("%s: cannot join (%s); trying again", self._group, shown_reason(error))

    def joined(self, generation_id: int, member_id: str, members: int) -> None:
        """Tell of a generation. Only its leader knows the number of members, which is 0 for others."""
        self._is_hindered = self._is_late = False
        role = f", the leader of {members}" if members else ""
        logger.info("%s: joined generation %d as %s%s", self._group, generation_id, shown_name(member_id), role)

    def entered(self, epoch: int, member_id: str) -> None:
        """Tell of a membership in a group whose coordinator assigns."""
        self._is_hindered = self._is_late = False
        logger.info("%s: joined in epoch %d as %s", self._group, epoch, shown_name(member_id))

    def assigned(self, added: Collection[TopicPartition], whole: Collection[TopicPartition]) -> None:
        if len(added) == len(whole):
            logger.info("%s: assigned %s", self._group, listed_partitions(added))
        else:
            told = listed_partitions(added) if added else "nothing new"
            logger.info("%s: assigned %s, and keeps %d", self._group, told, len(whole) - len(added))

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        logger.info("%s: revoked %s", self._group, listed_partitions(partitions))

    def lost(self, partitions: Collection[TopicPartition], reason: str) -> None:
        logger.warning("%s: lost %s: %s", self._group, listed_partitions(partitions), shown_reason(reason))

    def left(self, reason: str, static_id: str | None, session_timeout_s: float | None) -> None:
        """Tell of an end. The partitions of a static member wait for it; how long, it may not know (None)."""
        if static_id is None:
            logger.info("%s: left, because %s", self._group, reason)
        else:
            logger.info(
                "%s: static member %s is away, because %s; its partitions wait for it %s",
                self._group,
                shown_name(static_id),
                reason,
                "until its session ends" if session_timeout_s is None else f"for {session_timeout_s:g} s",
            )

    def heartbeat_failed(self, since_s: float, session_timeout_s: float | None, error: Exception) -> None:
        """Tell that heartbeats are late, once, when a third of the session's time is gone. `since_s`: without one.

        A member that does not know its session's time (None) takes it for Kafka's default.
        """
        if not self._is_late and since_s >= (session_timeout_s or SESSION_TIMEOUT_S) / 3:
            self._is_late = True
            logger.info(
                "%s: heartbeats are late: none was answered for %s, and %s the partitions go to others (%s)",
                self._group,
                shown_seconds(since_s),
                "when the session ends" if session_timeout_s is None else f"at {session_timeout_s:g} s",
                shown_reason(error),
            )

    def heartbeat_answered(self, since_s: float) -> None:
        """Tell that heartbeats are answered again, if they were late."""
        if self._is_late:
            self._is_late = False
            logger.info("%s: heartbeats are answered again after %s", self._group, shown_seconds(since_s))
