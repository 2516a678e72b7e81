"""Finds the name that somebody meant."""

from collections.abc import Iterable

from barnabas_broker.config.near_names import closest

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'orders'?)" if a known name is near, or else nothing; capitals do not count."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    near = closest(name.casefold(), by_folded)
    return "" if near is None else f" (did you mean {by_folded[near]!r}?)"
