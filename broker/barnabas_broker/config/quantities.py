"""Reads and writes durations and sizes as people do: `7d`, `1h30m`, `10GiB`. Pure.

A plain number is what it always was: milliseconds, or bytes. Sizes have binary units, also where only a letter is
given (`10G` is 10 GiB, as in every memory limit); `GB` is refused, because half of its readers mean one and half the
other.
"""

import re

__all__ = [
    "BYTE_UNITS",
    "TIME_UNITS_MS",
    "UNLIMITED",
    "parse_bytes",
    "parse_duration_ms",
    "shown_bytes",
    "shown_duration_ms",
]

TIME_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTE_UNITS = {"": 1, "b": 1} | {
    f"{letter}{rest}": 1 << 10 * (power + 1) for power, letter in enumerate("kmgtp") for rest in ("", "ib")
}
# What an int can hold is no limit that anybody chose.
UNLIMITED = frozenset({(1 << 31) - 1, (1 << 63) - 1})
# More digits than any duration or size needs; longer numbers are refused as what they are, a mistake.
_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,20})?"
_PLAIN = r"-?[0-9]{1,20}"
_TIME_PART = rf"({_NUMBER})(ms|[smhdw])"
_SIZE = rf"({_NUMBER})\s*([a-z]*)"


def parse_duration_ms(text: str) -> int:
    """Return a duration in ms: a plain number of ms (also -1), or parts with units (`1h30m`).

    Raises:
        ValueError: the text is neither; it says what to write.
    """
    word = text.strip().lower()
    if re.fullmatch(_PLAIN, word):
        return int(word)
    if not re.fullmatch(f"(?:{_TIME_PART})+", word):
        raise ValueError(f"{text!r} is not a duration: write 7d, 1h30m, 500ms, or a number of milliseconds")
    return sum(_product(number, TIME_UNITS_MS[unit]) for number, unit in re.findall(_TIME_PART, word))


def parse_bytes(text: str) -> int:
    """Return a size in bytes: a plain number of bytes (also -1), or one with a binary unit (`10GiB`, `512k`).

    Raises:
        ValueError: the text is neither; it says what to write.
    """
    word = text.strip().lower()
    if re.fullmatch(_PLAIN, word):
        return int(word)
    found = re.fullmatch(_SIZE, word)
    if found is None or found[2] not in BYTE_UNITS:
        raise ValueError(f"{text!r} is not a size: write 10GiB, 512KiB, or a number of bytes")
    return _product(found[1], BYTE_UNITS[found[2]])


def _product(number: str, unit: int) -> int:
    """Return a decimal number times `unit`, exact up to the half of one: a float has 53 bits only."""
    whole, _, places = number.partition(".")
    scale = int(10 ** len(places))
    return (int(whole + places) * unit * 2 + scale) // (scale * 2)


def shown_duration_ms(duration_ms: int) -> str:
    """Return a duration as people write it, exactly: `7d`, `1h30m`, `1m500ms`; `parse_duration_ms` reads it.

    Weeks are told in days, as people speak of retention. 0 is `0ms`; the duration is not negative.
    """
    assert duration_ms >= 0
    parts = []
    left_ms = duration_ms
    for unit in ("d", "h", "m", "s", "ms"):
        count, left_ms = divmod(left_ms, TIME_UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0ms"


def shown_bytes(count: int) -> str:
    """Return a size as people read it, with three digits or fewer: `17 B`, `1.5 KiB`, `203 GiB`."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        if size < 999.5 or unit == "PiB":
            return f"{size:.1f} {unit}" if size < 9.95 else f"{size:.0f} {unit}"
    raise AssertionError("the last unit takes every size")
