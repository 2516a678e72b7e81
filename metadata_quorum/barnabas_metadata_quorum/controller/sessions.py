"""The last heartbeat of each broker: the controller's state that is not replicated. Pure.

It lives only while a node is the active controller. A new controller knows nothing of earlier heartbeats, so every
broker's session starts when the controller first looks; nobody is fenced for a silence that was another controller's.
The same holds for a controller that did not run for a while (a stopped process, a sleeping laptop): it could not hear,
so that time counts against nobody.

A lost link does not fence. Partitions elect new leaders within a fraction of a second by themselves, so a fence only
hides the broker from clients and from placement, and both can wait for the session: a short blip of links then
changes nothing that anybody sees.
"""

__all__ = ["Sessions"]


class Sessions:
    """Last heartbeats by node id. Changed only by `controller.decide`; holds one entry per registered broker."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._heard_at_ms: dict[int, int] = {}
        self._checked_at_ms: int | None = None

    def touch(self, node_id: int, now_ms: int) -> None:
        self._heard_at_ms[node_id] = now_ms

    def end(self, node_id: int) -> None:
        self._heard_at_ms.pop(node_id, None)

    def silent_for_ms(self, node_id: int, now_ms: int) -> int | None:
        """Return for how long the broker has said nothing if that is longer than its session, else None.

        A broker that was never heard of starts its session now.
        """
        silence_ms = now_ms - self._heard_at_ms.setdefault(node_id, now_ms)
        return silence_ms if silence_ms > self._timeout_ms else None

    def check_begins(self, now_ms: int) -> None:
        """Note that the controller looks at all sessions; grant the time that it was not looking."""
        if self._checked_at_ms is not None:
            gap_ms = now_ms - self._checked_at_ms
            # The driver looks several times per session: a longer gap means that this process stood still.
            if gap_ms > self._timeout_ms // 2:
                for node_id, heard_at_ms in self._heard_at_ms.items():
                    self._heard_at_ms[node_id] = min(now_ms, heard_at_ms + gap_ms)
        self._checked_at_ms = now_ms
