"""Measures how long the user of a consumer may go without asking for records. Pure."""

__all__ = ["UserTime"]


class UserTime:
    """The time of one user, `limit_s` long, which each poll starts anew. Times are seconds of one clock."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.is_stalled = False
        """True from the end of the time, as `end` has noted it, to the next poll."""
        self._polled_at_s = 0.0

    def polled(self, now_s: float) -> bool:
        """Start the time anew, and return true if the user was stalled."""
        self._polled_at_s = now_s
        was_stalled = self.is_stalled
        self.is_stalled = False
        return was_stalled

    def left_s(self, now_s: float) -> float:
        """Return how much of the time is left, 0 if none is. Without end for who is stalled already."""
        return float("inf") if self.is_stalled else max(0.0, self._polled_at_s + self.limit_s - now_s)

    def end(self) -> str:
        """Note that the time is up, and return why the partitions are lost, for people."""
        self.is_stalled = True
        return f"the application has not asked for records for {self.limit_s:g} s (max_poll_interval_s)"
