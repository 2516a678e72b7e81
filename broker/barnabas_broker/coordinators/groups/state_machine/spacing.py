"""Limits how often the coming and going of members may disturb a group. Pure.

A rebalance stops everybody: with an eager assignor no member of the group reads anything from its first heartbeat
answer to its new assignment. In Kafka every join and every leave starts one, so a single member that joins and leaves
in a loop (a crash loop, usually) keeps all the others from working, for ever. Here rebalances that begin because
somebody comes or goes are *spaced*:

- The first `BURST_COUNT` begin at once, as in Kafka: a user who starts three consumers or stops one waits for nothing.
- A further one begins when the group has been STABLE for `rebalance_interval_ms`, and for as long as the last one
  took. So the members work at least half of the time from then on, however slow their rebalances are and however many
  members come and go.
- Quiet restores the burst: STABLE for `BURST_WINDOW_MS` without a break, and for at least `BURST_COUNT` times as long
  as the last one took (so that a client that counts to thirty before each attack gains nothing), and for the interval.

While a rebalance waits, the group is STABLE for its members, newcomers are parked, and the partitions of those who
have left are nobody's. If by then the newcomers have gone again and nobody of the generation has left, it does not
begin at all. The price of all this is that in a busy group a newcomer gets its partitions some seconds later, and
that the partitions of a member which has left rest for as long.

Not spaced are: the first generation after the group was empty; a member of the generation that joins again (the
second half of a cooperative rebalance, changed subscriptions, a leader that saw new partitions), though its time
counts as part of the rebalance it follows; and a change that leaves nobody to work: a leader that goes before it has
assigned, a generation of which no member is left.
"""

__all__ = ["BURST_COUNT", "BURST_WINDOW_MS", "Spacing"]

BURST_COUNT = 3
BURST_WINDOW_MS = 30_000


class Spacing:
    """The rebalances of one group as far as the next one depends on them.

    `_debt_ms` is how long the group must be STABLE before the next spaced rebalance, `_burst` how many may begin at
    once. `_stable_at_ms` is None while the group is not STABLE, `_begun_at_ms` while no rebalance is under way.
    """

    __slots__ = ("_begun_at_ms", "_burst", "_debt_ms", "_interval_ms", "_stable_at_ms")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self.emptied()

    def emptied(self) -> None:
        """Forget everything: there is nobody left to be disturbed."""
        self._burst = BURST_COUNT
        self._debt_ms = 0
        self._stable_at_ms: int | None = None
        self._begun_at_ms: int | None = None

    def settled(self, now_ms: int) -> None:
        """The group is STABLE now."""
        if self._begun_at_ms is not None:
            self._debt_ms += now_ms - self._begun_at_ms
        self._begun_at_ms = None
        self._stable_at_ms = now_ms

    def begun(self, now_ms: int, *, spaced: bool) -> None:
        """A rebalance begins. `spaced`: because somebody came or went, when `may_begin_at` allowed it."""
        if spaced:
            self._burst = max(0, self._burst_at(now_ms) - 1)
            self._debt_ms = 0
        elif self._stable_at_ms is not None:
            self._debt_ms = max(0, self._debt_ms - (now_ms - self._stable_at_ms))
        self._stable_at_ms = None
        if self._begun_at_ms is None:
            self._begun_at_ms = now_ms

    def may_begin_at(self, now_ms: int) -> int | None:
        """Return when a spaced rebalance may begin, at the earliest now. None: not before the group is STABLE."""
        if self._burst_at(now_ms):
            return now_ms
        if self._stable_at_ms is None:
            return None
        return max(now_ms, self._stable_at_ms + max(self._interval_ms, self._debt_ms))

    def _burst_at(self, now_ms: int) -> int:
        if self._stable_at_ms is None:
            return self._burst
        quiet_ms = now_ms - self._stable_at_ms
        enough_ms = max(BURST_WINDOW_MS, self._interval_ms, BURST_COUNT * self._debt_ms)
        return BURST_COUNT if quiet_ms >= enough_ms else self._burst
