"""Finds the name that somebody meant, of a setting or of anything else. Pure."""

from collections.abc import Iterable

__all__ = ["closest", "nearest"]


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest, or None if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error; 0.2 MiB in every broker

    return next(iter(get_close_matches(name, known, n=1)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" if a known name is near, or else nothing."""
    near = closest(name, known)
    return "" if near is None else f" (did you mean {near}?)"
