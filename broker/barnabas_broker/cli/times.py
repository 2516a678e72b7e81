"""Times and durations as people type them.

A time is ISO 8601 (`2026-11-21T10:00`, local unless it names an offset or ends in Z), milliseconds since 1970, or a
duration, which means that long ago. A duration is `90s`, `1h30m`, `2d`, or ISO 8601's `PT1H30M`.
"""

import re
from datetime import UTC, datetime

from barnabas_broker.config.quantities import TIME_UNITS_MS

from .errors import UsageError

__all__ = ["duration_ms", "readable", "timestamp_ms"]

PART = r"(\d+(?:\.\d+)?)(ms|[smhdw])"
# March 1973 in ms. A smaller number is a time in seconds, for everybody but historians.
LEAST_MS = 100_000_000_000
MAX_MS = 253_402_300_799_999
"""The end of the year 9999, where datetime ends."""


def timestamp_ms(text: str, now_ms: int) -> int:
    """Return the time that `text` names, in ms since 1970, given that it is `now_ms`.

    Raises:
        UsageError: it names none.
    """
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,20}", text):
        if not LEAST_MS <= int(text) <= MAX_MS:
            raise UsageError(f"{text} is not a time in milliseconds since 1970" + _hint(int(text)))
        return int(text)
    if _is_duration(text):
        return max(0, now_ms - duration_ms(text))
    try:
        at = datetime.fromisoformat(text)
        # A time without an offset is the reader's own; astimezone takes it so.
        found = round(at.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{text!r} is not a valid time; write 2026-11-21T10:00 or 2026-11-21T10:00Z, milliseconds since 1970, "
            "or 15m (ago)"
        ) from error
    if found < 0:
        raise UsageError(f"{text!r} is before 1970")
    return found


def duration_ms(text: str) -> int:
    """Return a duration in ms.

    Raises:
        UsageError: `text` is none, or longer than the calendar.
    """
    if not _is_duration(text):
        raise UsageError(f"{text!r} is not a valid duration; write 90s, 1h30m, 2d or PT1H30M")
    parts = re.findall(PART, text.lower().lstrip("p").replace("t", ""))
    found = sum(float(number) * TIME_UNITS_MS[unit] for number, unit in parts)
    if found > MAX_MS:
        raise UsageError(f"{text!r} is too long a duration; write at most {MAX_MS // TIME_UNITS_MS['d']}d")
    return round(found)


def readable(at_ms: int) -> str:
    """Return a time in UTC to the millisecond; as a number if the calendar does not reach it."""
    if not 0 <= at_ms <= MAX_MS:
        return str(at_ms)
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def _is_duration(text: str) -> bool:
    # In ISO 8601 months would be M too, before the T; so the T is what tells them apart.
    iso = r"p(?:\d+(?:\.\d+)?[wd])*(?:t(?:\d+(?:\.\d+)?[hms])+)?"
    return len(text) > 1 and re.fullmatch(rf"(?:{PART})+|{iso}", text.lower()) is not None


def _hint(number: int) -> str:
    return f"; {number}000 would be {readable(number * 1000)}" if LEAST_MS <= number * 1000 <= MAX_MS else ""
