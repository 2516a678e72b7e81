"""Reads durations on the command line: 500ms, 30s, 10m, 2h, 1d. Pure."""

import re

from .errors import UsageError

__all__ = ["duration_ms"]

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_MS = 366 * _UNITS_MS["d"]


def duration_ms(option: str, text: str, *, least_ms: int = 1) -> int:
    """Return a duration in milliseconds, from `least_ms` to 366 days; raises `UsageError`."""
    found = re.fullmatch(r"([0-9]{1,12})(ms|s|m|h|d)", text.strip().lower())
    if found is None:
        raise UsageError(f"{option}: '{text}' is not a duration; write 500ms, 30s, 10m, 2h or 1d")
    duration = int(found[1]) * _UNITS_MS[found[2]]
    if not least_ms <= duration <= _MAX_MS:
        raise UsageError(f"{option}: '{text}' must be from {least_ms}ms to 366d")
    return duration
