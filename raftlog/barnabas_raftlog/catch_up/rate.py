"""A token bucket: says how long a sender of so many bytes must wait. Pure.

The bucket holds at most `burst_bytes` and fills at `rate_bytes` a second. A caller that takes more than is in it goes
into debt and waits until the debt would be paid; the next one waits behind that. So the long-run rate holds however
large the pieces are, nobody is starved, and the order is that of asking.

Amounts are kept in thousandths of a byte: at any rate a millisecond then fills a whole number of them.
"""

__all__ = ["TokenBucket"]


class TokenBucket:
    """Invariant: the level is at most the burst; over any stretch no more than burst + rate x time leaves."""

    __slots__ = ("_burst", "_filled_at_ms", "_level", "_rate")

    def __init__(self, rate_bytes: int, burst_bytes: int, now_ms: int) -> None:
        assert rate_bytes > 0
        self._rate = rate_bytes
        self._burst = burst_bytes * 1000
        self._level = self._burst
        self._filled_at_ms = now_ms

    def take(self, size_bytes: int, now_ms: int) -> int:
        """Take so many bytes out, and return how many milliseconds to wait before they are used."""
        passed_ms = max(0, now_ms - self._filled_at_ms)
        self._filled_at_ms = max(now_ms, self._filled_at_ms)
        self._level = min(self._burst, self._level + passed_ms * self._rate) - size_bytes * 1000
        return max(0, -(self._level // self._rate))
