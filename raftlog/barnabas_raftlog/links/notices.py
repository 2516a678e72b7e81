"""Limits log lines that a peer can cause to a rate for human readers.

The same notice (by its key) is written at most once per interval; those that were swallowed meanwhile are counted, and
said with the next one. Limit: `KEYS_MAX` keys are remembered, the oldest is forgotten first.
"""

import logging
from collections.abc import Callable

__all__ = ["Notices"]

INTERVAL_MS = 10_000
KEYS_MAX = 256

logger = logging.getLogger(__name__)


class Notices:
    """One node's rate-limited warnings. Returns whether a notice was written, so that callers can count facts too."""

    def __init__(self, clock: Callable[[], int], prefix: str) -> None:
        self._clock = clock
        self._prefix = prefix
        self._last: dict[str, tuple[int, int]] = {}  # key: (written_at_ms, swallowed since)

    def warn(self, key: str, text: str) -> bool:
        now_ms = self._clock()
        written_at_ms, swallowed = self._last.pop(key, (now_ms - INTERVAL_MS, 0))
        if now_ms - written_at_ms < INTERVAL_MS:
            self._last[key] = (written_at_ms, swallowed + 1)
            return False
        logger.warning("%s: %s%s", self._prefix, text, f" ({swallowed} like this before)" if swallowed else "")
        self._last[key] = (now_ms, 0)
        if len(self._last) > KEYS_MAX:
            del self._last[next(iter(self._last))]
        return True

    def forget(self, key: str) -> None:
        """Let the next notice of this key through: the situation had ended in between."""
        self._last.pop(key, None)
