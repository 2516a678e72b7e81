"""Tells in the log what happens to the cluster of a client: one line for a change, however many attempts it took.

A broker is lost when a connection breaks with requests under way, or cannot be opened. It is lost once, whatever is
tried meanwhile, until a connection to it succeeds. When all brokers that can be asked for metadata fail, there is an
outage, which has a line at its beginning and one at its end. Only an outage that interrupts a client is a warning: a
client that has never been connected raises an error to its caller soon.

Leaders that move within `MOVES_PAUSE_S` share a line if they are many. Nothing is compared if nobody wants to know.

Limits: `LOST_MAX` lost brokers are remembered, and `MOVES_MAX` leaders until they are told.
"""

import asyncio
import logging

from barnabas_clients.topic_partition import TopicPartition
from barnabas_clients.wording import NAMED_MAX, listed, shown_name, shown_reason, shown_seconds

from .changes import LeaderMove, leader_in, leader_moves
from .topic_view import BrokerAddress
from .view import NO_LEADER, ClusterView
from .walker_log import tell_lack_once

__all__ = ["ClusterLog"]

logger = logging.getLogger("barnabas_clients.cluster")

LOST_MAX = 1_000
MOVES_MAX = 100_000
MOVES_PAUSE_S = 0.1
"""A broker that dies takes all its leaderships along. The answers that tell of it come within this time."""


class ClusterLog:
    """What was told of one client's cluster. Times are those of the event loop."""

    def __init__(self, client_id: str) -> None:
        self._client = shown_name(client_id) or "client"
        self._is_connected = False
        self._outage_since_s: float | None = None
        self._lost: dict[int, float] = {}
        self._moves: dict[TopicPartition, int] = {}
        self._view = ClusterView()
        self._timer: asyncio.TimerHandle | None = None

    # Brokers.

    def lost(self, broker: BrokerAddress | None, reason: object) -> None:
        """Tell that a broker cannot be reached, unless that was told. None stands for an address of no known broker."""
        if broker is None:
            logger.debug("%s: %s", self._client, reason)
        elif broker.node_id not in self._lost:
            if len(self._lost) >= LOST_MAX:
                del self._lost[next(iter(self._lost))]
            self._lost[broker.node_id] = _now()
            logger.info("%s: lost %s: %s", self._client, _named(broker), shown_reason(reason))

    def reached(self, broker: BrokerAddress | None) -> None:
        """Tell that a broker that was lost is connected again."""
        if broker is not None and (since_s := self._lost.pop(broker.node_id, None)) is not None:
            logger.info(
                "%s: connected to %s again after %s", self._client, _named(broker), shown_seconds(_now() - since_s)
            )

    def no_answer(self, reason: object, since_s: float) -> None:
        """Tell that no broker answers, unless that was told."""
        if self._outage_since_s is None:
            self._outage_since_s = since_s
            level = logging.WARNING if self._is_connected else logging.INFO
            logger.log(level, "%s: no broker answers (%s); trying again", self._client, shown_reason(reason))

    # Metadata.

    def learned(self, before: ClusterView, after: ClusterView) -> None:
        """Tell what metadata that came from a broker changes."""
        if self._outage_since_s is not None:
            logger.info(
                "%s: a broker answers again after %s", self._client, shown_seconds(_now() - self._outage_since_s)
            )
            self._outage_since_s = None
        if not self._is_connected:
            self._is_connected = True
            brokers = [after.brokers[node_id] for node_id in sorted(after.brokers)[:NAMED_MAX]]
            logger.info(
                "%s: connected to cluster %s: %s",
                self._client,
                shown_name(after.cluster_id or "without an id"),
                listed(map(_named, brokers), len(after.brokers)) or "no brokers are listed",
            )
            tell_lack_once()
        for node_id in sorted(before.brokers.keys() - after.brokers.keys()):
            self.lost(before.brokers[node_id], "the cluster does not list it any more")
        self.moved(before, after)

    def moved(self, before: ClusterView, after: ClusterView) -> None:
        """Note which leaders have moved. They are told a moment later, together."""
        if not logger.isEnabledFor(logging.INFO):
            return
        self._view = after
        for move in leader_moves(before, after):
            if len(self._moves) < MOVES_MAX:
                self._moves.setdefault(move.partition, move.before)
        if self._moves and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MOVES_PAUSE_S, self._tell_moves)

    def close(self) -> None:
        """Tell what is left to tell."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell_moves()

    def _tell_moves(self) -> None:
        self._timer = None
        noted, self._moves = self._moves, {}
        moves = [
            LeaderMove(partition, before, after)
            for partition, before in sorted(noted.items())
            if (after := leader_in(self._view, partition)) != before
        ]
        if len(moves) > NAMED_MAX:
            texts = (f"{move.partition} from {_leader(move.before)} to {_leader(move.after)}" for move in moves)
            told = listed(texts, len(moves))
            logger.info("%s: the leaders of %d partitions have moved: %s", self._client, len(moves), told)
            return
        for move in moves:
            partition = shown_name(str(move.partition))
            if move.after == NO_LEADER:
                logger.info("%s: %s has no leader (it was %d)", self._client, partition, move.before)
            else:
                before = _leader(move.before)
                logger.info("%s: the leader of %s is %d (was %s)", self._client, partition, move.after, before)


def _named(broker: BrokerAddress) -> str:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    return f"broker {broker.node_id} at {shown_name(f'{host}:{broker.port}')}"


def _leader(node_id: int) -> str:
    return "none" if node_id == NO_LEADER else str(node_id)


def _now() -> float:
    return asyncio.get_running_loop().time()
