"""Knows why storage cannot do something now that it can do later (`disk_errors`). Pure.

A part of storage that is stopped by an error that will pass says so here (`note`), and waits. At the storage's next
tick `begin_retry` says that it is to be tried again. The trouble is over after an interval in which nothing was
stopped.
"""

from collections.abc import Callable

__all__ = ["Hampered"]


class Hampered:
    """One per node. `reason` is what to tell an operator, empty if there is nothing; `on_news` hears of a new one."""

    def __init__(self) -> None:
        self.reason = ""
        self.on_news: Callable[[str], None] | None = None
        self._is_noted_again = False

    def note(self, error: BaseException) -> None:
        """Something could not be done."""
        is_news = not self.reason
        self.reason = str(error)
        self._is_noted_again = True
        if is_news and self.on_news is not None:
            self.on_news(self.reason)

    def begin_retry(self) -> bool:
        """Return whether there is something to try again, and look after the next interval whether that did it."""
        if not self._is_noted_again:
            self.reason = ""
        self._is_noted_again = False
        return bool(self.reason)
