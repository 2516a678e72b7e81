"""Finds the name that somebody meant."""

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'orders'?)" if a known name is near, or else nothing; capitals do not count."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return f" (did you mean {by_folded[near[0]]!r}?)" if near else ""
