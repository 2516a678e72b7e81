"""Writes times by a layout: Go's (`2006-01-02T15:04:05Z07:00`) or strftime's (`%Y-%m-%d`), in UTC."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

from barnabas_broker.cli.times import MAX_MS

__all__ = ["date_form"]

# What a part of Go's reference time stands for, in the words of strftime.
GO_PARTS: dict[str, str | Callable[[datetime], str]] = {
    "January": "%B",
    "Jan": "%b",
    "Monday": "%A",
    "Mon": "%a",
    "MST": "%Z",
    "2006": "%Y",
    "Z07:00": lambda _: "Z",
    "Z0700": lambda _: "Z",
    "-07:00": lambda _: "+00:00",
    "-0700": lambda _: "+0000",
    "-07": lambda _: "+00",
    "002": "%j",
    "01": "%m",
    "02": "%d",
    "03": "%I",
    "04": "%M",
    "05": "%S",
    "06": "%y",
    "15": "%H",
    "PM": "%p",
    "pm": lambda at: at.strftime("%p").lower(),
    "_2": lambda at: f"{at.day:2}",
    "1": lambda at: str(at.month),
    "2": lambda at: str(at.day),
    "3": lambda at: str(at.hour % 12 or 12),
    "4": lambda at: str(at.minute),
    "5": lambda at: str(at.second),
}
# Fractions of a second follow a point or a comma: zeros keep their number, nines leave zeros at the end out.
GO_LAYOUT = re.compile(r"[.,]0+(?!\d)|[.,]9+(?!\d)|" + "|".join(map(re.escape, GO_PARTS)))


def date_form(language: str, layout: str) -> Callable[[int], str]:
    """Return what writes ms since 1970 by a layout in "go" or "strftime"; as a number if the calendar ends before."""

    def write(at_ms: int) -> str:
        if not 0 <= at_ms <= MAX_MS:
            return str(at_ms)
        at = datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)
        return GO_LAYOUT.sub(lambda found: _go_part(found[0], at), layout) if language == "go" else at.strftime(layout)

    return write


def _go_part(part: str, at: datetime) -> str:
    if part[0] in ".,":
        fraction = f"{at.microsecond:06}000"[: len(part) - 1].ljust(len(part) - 1, "0")
        if part[1] == "9":
            fraction = fraction.rstrip("0")
        return f"{part[0]}{fraction}" if fraction else ""
    known = GO_PARTS[part]
    return at.strftime(known) if isinstance(known, str) else known(at)
