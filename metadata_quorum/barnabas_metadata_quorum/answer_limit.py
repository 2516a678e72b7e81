"""Says how long to wait for the next answer, by how long the last ones took. Pure.

A limit that never changes is wrong on a machine that is slow: if each answer takes longer than the limit, none is ever
heard, however often it is asked, and everything that waits for one waits for ever. So a try that had no answer in time
doubles the limit of the next, and an answer sets it to `SLOWER` times what it took; never less than `least_s`, which is
for machines as they should be, nor more than `most_s`.
"""

__all__ = ["AnswerLimit"]

SLOWER = 3


class AnswerLimit:
    """The limit for one kind of question; `limit_s` is that of the next one."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self.limit_s = least_s
        self._least_s = least_s
        self._most_s = most_s

    def on_silence(self, waited_s: float) -> None:
        """A question had no answer within `waited_s`; no news if that is less than the limit by now."""
        self.limit_s = max(self.limit_s, min(2 * waited_s, self._most_s))

    def on_answer(self, took_s: float) -> None:
        self.limit_s = min(max(self._least_s, SLOWER * took_s), self._most_s)
