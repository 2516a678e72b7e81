"""Decides whether a few tasks do for the next micro-batch of a stream. Pure: it is told when batches begin and end.

A task costs some 40 ms, however little it reads, and Spark tells a source neither how many cores there are nor what is
done with the rows. So small batches are done sooner by a few tasks, unless much is computed with each row: then every
core is needed, as with a task for each partition. How long batches take tells which it is. After a batch that was
*brief*, few tasks are tried. The first batch of few tasks that is not brief ends that, for a pause that doubles from
one time to the next.
"""

from collections.abc import Callable

__all__ = ["BRIEF_MS", "PAUSE_MS", "PAUSE_MS_MAX", "Pace"]

# Whoever waits for rows notices less than that, and a cluster with slow checkpoints takes longer anyway.
BRIEF_MS = 1_000
PAUSE_MS = 10_000
PAUSE_MS_MAX = 300_000


class Pace:
    """The pace of one query. `clock` tells milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._began_ms: int | None = None
        self._paused_until_ms = clock()
        self._pause_ms = PAUSE_MS
        self._few_since_ms: int | None = None

    @property
    def takes_few(self) -> bool:
        """True if a few tasks should do for the next batch."""
        return self._few_since_ms is not None

    def begin(self) -> None:
        """Note that a batch is planned now."""
        self._began_ms = self._clock()

    def end(self) -> None:
        """Note that the batch that was planned last is done, if that was not noted before."""
        if self._began_ms is None:
            return
        now_ms = self._clock()
        is_brief = now_ms - self._began_ms <= BRIEF_MS
        self._began_ms = None
        if is_brief and not self.takes_few and now_ms >= self._paused_until_ms:
            self._few_since_ms = now_ms
        elif self._few_since_ms is not None and not is_brief:
            lasted = now_ms - self._few_since_ms > PAUSE_MS_MAX
            self._pause_ms = PAUSE_MS if lasted else self._pause_ms
            self._paused_until_ms = now_ms + self._pause_ms
            self._pause_ms = min(PAUSE_MS_MAX, 2 * self._pause_ms)
            self._few_since_ms = None
