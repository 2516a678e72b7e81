"""What of a node's storage cannot be done at this moment, for a reason that will pass (`disk_errors`). Pure.

Whoever is stopped by such an error says so here (`note`), and waits. At the storage's next tick `begin_retry` says that
it is to be tried again. After an interval in which nobody was stopped it is over.
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
        is_news, self.reason, self._is_noted_again = not self.reason, str(error), True
        if is_news and self.on_news is not None:
            self.on_news(self.reason)

    def begin_retry(self) -> bool:
        """Return whether there is something to try again, and look after the next interval whether that did it."""
        if not self._is_noted_again:
            self.reason = ""
        self._is_noted_again = False
        return bool(self.reason)
