"""Remembers since when other brokers are silent, live again, or fenced. Pure.

Two clocks run when a broker dies: the links notice in a fraction of a second, the controller fences after a session.
Clients are told of a dead broker according to how long ago each of the two happened.

Limit: one entry per broker of the cluster.
"""

from collections.abc import Callable

from barnabas_metadata_quorum.image.image import Image

__all__ = ["LEAVING_MS", "Absences"]

LEAVING_MS = 10_000


class Absences:
    """Notes of one node about the others. `session_ms`: silence after which the controller fences a broker."""

    def __init__(self, clock: Callable[[], int], session_ms: int) -> None:
        self._clock = clock
        self._session_ms = session_ms
        self._silent_since_ms: dict[int, int] = {}
        self._live_since_ms: dict[int, int] = {}
        self._fenced_since_ms: dict[int, int] = {}
        self._unavailable: set[int] = set()

    def on_peer(self, peer: int, live: bool) -> None:
        now, then = (
            (self._live_since_ms, self._silent_since_ms) if live else (self._silent_since_ms, self._live_since_ms)
        )
        now[peer] = self._clock()
        then.pop(peer, None)

    def on_brokers(self, old: Image, new: Image) -> None:
        """Note the brokers that were fenced or unfenced between two images."""
        self._unavailable = {node_id for node_id, broker in new.brokers.items() if not broker.is_available}
        for node_id, broker in new.brokers.items():
            before = old.brokers.get(node_id)
            if not broker.fenced:
                self._fenced_since_ms.pop(node_id, None)
            elif before is not None and not before.fenced:
                self._fenced_since_ms[node_id] = self._clock()

    def silent_since_ms(self, node_id: int) -> int | None:
        """Return since when nothing was heard of `node_id`; None while it is live, or was never heard."""
        return self._silent_since_ms.get(node_id)

    def fenced_since_ms(self, node_id: int) -> int | None:
        """Return since when `node_id` is fenced; None while it is not, or if it was so before this node looked."""
        return self._fenced_since_ms.get(node_id)

    def live_since_ms(self, node_id: int) -> int | None:
        """Return since when `node_id` is heard; None while it is not."""
        return self._live_since_ms.get(node_id)

    def available_since_ms(self, node_id: int) -> int | None:
        """Return since when a leadership could be handed to `node_id`; None: not now."""
        return None if node_id in self._unavailable else self._live_since_ms.get(node_id)

    def is_doubtful(self, node_id: int) -> bool:
        """Tell whether `node_id` fell silent so recently that the controller would not have fenced it yet.

        After that time the controller's word counts again: a node that only we cannot hear is no dead node.
        """
        since_ms = self._silent_since_ms.get(node_id)
        return since_ms is not None and self._clock() - since_ms < 2 * self._session_ms

    def has_just_left(self, node_id: int) -> bool:
        """Tell whether `node_id` was fenced a moment ago.

        Clients should still hear of it: librdkafka throws away the partitions of a broker that vanishes while they
        are on their way to another one, and looks for them a second later.
        """
        since_ms = self._fenced_since_ms.get(node_id)
        return since_ms is not None and self._clock() - since_ms < LEAVING_MS
