"""Checks of configurations' values: each says what is wrong with a text, or nothing. Pure.

Values are texts, as clients send them. Numbers and booleans are read as Kafka reads them: blanks around them do not
count, nor does the case of a boolean; digits of other scripts, which Python would read, are no digits.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "Complaint",
    "KnownConfig",
    "boolean",
    "brokers",
    "gzip_level",
    "integer",
    "items_of",
    "one_of",
    "only",
    "policy",
    "ratio",
    "throttled",
]

INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_is_number = re.compile(
    r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?|[+-]?\.[0-9]+(?:[eE][+-]?[0-9]{1,3})?"
).fullmatch
_is_integer = re.compile(r"[+-]?[0-9]+").fullmatch
_is_throttled = re.compile(r"\*|(?:[0-9]{1,9}:(?:[0-9]{1,9}|\*)(?:,[0-9]{1,9}:(?:[0-9]{1,9}|\*))*)?").fullmatch

Complaint = Callable[[str], str | None]
"""Returns what is wrong with a value, or None."""


class KnownConfig(NamedTuple):
    """One name: Kafka's type for it, its value when nobody set one, its check, and what it is for."""

    name: str
    type: str
    default: str
    complaint: Complaint
    documentation: str


def items_of(value: str) -> list[str]:
    """Return the items of a list."""
    return [item.strip() for item in value.split(",")] if value.strip() else []


def one_of(*allowed: str, because: str = "") -> Complaint:
    """Check for one of a few words."""

    def complaint(value: str) -> str | None:
        return None if value in allowed else f"must be {' or '.join(allowed)}{because}"

    return complaint


def only(allowed: str, because: str) -> Complaint:
    """Check for the one value that means what is so anyway; all others are refused for a reason."""

    def complaint(value: str) -> str | None:
        return None if value.strip().lower() == allowed else f"must be {allowed}: {because}"

    return complaint


def boolean(value: str) -> str | None:
    """Check for true or false."""
    return None if value.strip().lower() in {"true", "false"} else "must be true or false"


def integer(low: int, high: int) -> Complaint:
    """Check for a whole number from `low` to `high`."""

    def complaint(value: str) -> str | None:
        text = value.strip()
        if not _is_integer(text):
            return "must be an integer"
        return None if len(text) <= 20 and low <= int(text) <= high else f"must be between {low} and {high}"

    return complaint


def gzip_level(value: str) -> str | None:
    """Check for a level of gzip: zlib knows a level 0, which does not compress, and Kafka refuses it."""
    return integer(-1, 9)(value) or ("must be -1, or between 1 and 9" if int(value) == 0 else None)


def policy(value: str) -> str | None:
    """Check for a cleanup policy."""
    items = items_of(value)
    if not {*items} <= {"compact", "delete"} or len({*items}) < len(items):
        return "must be delete, compact, both, or empty"
    return None


def brokers(value: str) -> str | None:
    """Check for ids of brokers, each named once."""
    items = items_of(value)
    if not all(item.isascii() and item.isdecimal() and len(item) < 10 for item in items):
        return "must be broker ids, separated by commas"
    return None if len({int(item) for item in items}) == len(items) else "names a broker twice"


def throttled(value: str) -> str | None:
    """Check for replicas as Kafka names those that are throttled: `partition:broker,...`, or all of them by a star."""
    is_right = _is_throttled(value.replace(" ", ""))
    return None if is_right else "must be *, or partition:broker pairs separated by commas"


def ratio(value: str) -> str | None:
    """Check for a number from 0 to 1."""
    text = value.strip()
    if not _is_number(text):
        return "must be a number"
    return None if 0 <= float(text) <= 1 else "must be between 0 and 1"
