"""Compares what the application has written with what it must write. Pure.

Only the last result of a session counts, or of none if that is null: a session that grew has another key. Of totals
and hopping windows every result counts: one for each order, the first of which says one order, the second two, and so
on, so that one that was written twice, or left out, shows itself also if the last one is right.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from .expected import Expected, Sums

__all__ = ["RESULTS", "Results", "mismatches"]

RESULTS = ("tumbling", "hopping", "sessions", "totals", "joined")
"""The topics that the application writes."""

Results = Mapping[str, Sequence[tuple[str, str | None]]]
"""By topic, keys and values in the order in which they stand; those of one key are in one partition."""


def mismatches(results: Results, expected: Expected) -> list[str]:
    """Return all differences, each with what it is about."""
    found = _differences("tumbling", _single("tumbling", results["tumbling"]), expected.tumbling)
    for topic, sums in (("hopping", expected.hopping), ("totals", expected.totals)):
        found += _steps(topic, results[topic]) + _differences(topic, _last(results[topic]), sums)
    found += _differences("sessions", _last(results["sessions"]), expected.sessions)
    pairs = Counter((key, str(value)) for key, value in results["joined"])
    found += [f"joined: {count} times too often {pair}" for pair, count in sorted((pairs - expected.joined).items())]
    found += [f"joined: {count} times missing {pair}" for pair, count in sorted((expected.joined - pairs).items())]
    return found


def _sums_of(value: str) -> tuple[int, int]:
    count, _, amount = value.partition(" ")
    return int(count), int(amount)


def _last(results: Sequence[tuple[str, str | None]]) -> Sums:
    found = dict(results)
    return {key: _sums_of(value) for key, value in found.items() if value is not None}


def _single(topic: str, results: Sequence[tuple[str, str | None]]) -> Sums:
    """Return the results of a topic in which each key stands once; others count as differences."""
    counts = Counter(key for key, _ in results)
    twice = {f"{key}, {count} times": (0, 0) for key, count in counts.items() if count > 1}
    return _last(results) | twice


def _steps(topic: str, results: Sequence[tuple[str, str | None]]) -> list[str]:
    seen = Counter[str]()
    wrong = []
    for key, value in results:
        seen[key] += 1
        if value is None or _sums_of(value)[0] != seen[key]:
            wrong.append(f"{topic}: result {seen[key]} of {key} is {value}")
    return wrong


def _differences(topic: str, found: Sums, expected: Sums) -> list[str]:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return [f"{topic}: {key} is {found.get(key)}, and not {expected.get(key)}" for key in keys]
