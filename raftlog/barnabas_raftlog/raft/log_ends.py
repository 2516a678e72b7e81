"""Remembers where a leader's log ended, and when: by that followers are in sync. Pure.

Under load an entry is always on its way to a follower, so what it has says little beside what the leader has *now*: the
acknowledgement that arrives now tells of the log as it was a round trip and a sync ago. So the question is always about
a moment: *which is the newest moment t, so that the follower has everything that this log had at t?* For a follower
that has the log up to an index, t is when the entry behind that index was appended; with nothing behind it, t is now.

To keep the time of each append would be too much, so there are samples. One is taken before an append, if the last one
is at least `spacing_ms` old: up to that moment the log ended there. A sample stays true for ever, as a leader's log
only grows. Samples thin out as they age: two neighbours are at most a third of their age apart, or nothing was appended
between them for which another was due. So the moment that is reported is never too late; if the true one is `a`
milliseconds ago, it is too early by `spacing_ms + a / 3` at most.

The samples belong to the leader and not to its followers: one list serves them all, and an acknowledgement costs
nothing here. (Kafka keeps one sample for each follower, renewed by each fetch: right, because no fetch is sent before
the last one was answered, and wrong with several appends under way.)

Limit: `SAMPLES_MAX` samples of 16 bytes. With `spacing_ms` = 100 the samples that are kept reach back ten minutes in
the worst pattern of appends; of older moments nothing is known.
"""

from array import array
from bisect import bisect_right

__all__ = ["NEVER_MS", "LogEnds"]

NEVER_MS = -1 << 62  # before any clock began
SAMPLES_MAX = 64
SAMPLES_KEPT = 54
GAPS_PER_AGE = 3


class LogEnds:
    """The samples of one leadership. Owned by the core; made when the term begins, gone when it ends.

    `last_index`: where the log ended at the last `note`. Invariant: both ends and moments grow from sample to sample.
    """

    __slots__ = ("_ends", "_moments_ms", "_spacing_ms", "last_index")

    def __init__(self, last_index: int, spacing_ms: int) -> None:
        self.last_index = last_index
        self._spacing_ms = spacing_ms
        self._ends = array("q")
        self._moments_ms = array("q")

    def __len__(self) -> int:
        return len(self._ends)

    def note(self, last_index: int, now_ms: int) -> None:
        """The log ends at `last_index` since `now_ms`, and ended where the last call says until then."""
        if last_index > self.last_index:
            moments_ms = self._moments_ms
            if not moments_ms or now_ms - moments_ms[-1] >= self._spacing_ms:
                self._ends.append(self.last_index)
                moments_ms.append(now_ms)
                if len(moments_ms) >= SAMPLES_MAX:
                    self._thin_out(now_ms)
            self.last_index = last_index

    def reached_ms(self, index: int, now_ms: int) -> int:
        """Return the newest known moment at which the log held nothing behind `index`; `NEVER_MS` if none is known."""
        if index >= self.last_index:
            return now_ms
        count = bisect_right(self._ends, index)
        return self._moments_ms[count - 1] if count else NEVER_MS

    def _thin_out(self, now_ms: int) -> None:
        """From the newest to the oldest, leave out samples between two that are near enough for their age."""
        ends = self._ends
        moments_ms = self._moments_ms
        kept = [len(ends) - 1]
        for position in range(len(ends) - 2, -1, -1):
            newer_ms = moments_ms[kept[-1]]
            if position == 0 or newer_ms - moments_ms[position - 1] > (now_ms - newer_ms) // GAPS_PER_AGE:
                kept.append(position)
        kept = kept[:SAMPLES_KEPT]
        kept.reverse()
        self._ends = array("q", [ends[position] for position in kept])
        self._moments_ms = array("q", [moments_ms[position] for position in kept])
