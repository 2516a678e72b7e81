"""Judges in one line how well a cluster is. Pure.

    healthy    nothing is lacking
    degraded   every partition is served, and something is lacking: a broker, a copy, a controller
    down       a partition is not served, or no broker answers

"Served" means that a leader takes and gives records. Without a controller records go on, but nothing can be created or
changed, and no broker can come back.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Facts", "Health", "Verdict", "brokers_named", "enumerated", "judge"]


class Health(StrEnum):
    """The three words for it, best first."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"


class Facts(NamedTuple):
    """What is known of a cluster.

    `brokers` tells the state of each in one word; `WELL` is the word for one that lacks nothing. `under_replicated`
    counts partitions that have a leader and a replica too few. `waiting` says what the controllers wait for before the
    metadata group has the voters that it should have; "": it has.
    """

    brokers: Mapping[int, str]
    partitions: int
    without_leader: int
    under_replicated: int
    has_controller: bool
    is_answered: bool = True
    waiting: str = ""


class Verdict(NamedTuple):
    """The judgement, and the reasons for it in words."""

    health: Health
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.health}: {'; '.join(self.reasons)}"


WELL = ("running", "live")


def judge(facts: Facts) -> Verdict:
    """Return the verdict on a cluster, with reasons in every case."""
    reasons = list(_absent(facts.brokers))
    if not facts.is_answered:
        return Verdict(Health.DOWN, tuple(reasons) or ("no broker answers",))
    if not facts.has_controller:
        reasons.append("there is no controller, so nothing can be created or changed")
    if facts.waiting:
        reasons.append(f"the controllers wait: {facts.waiting}")
    served = facts.partitions - facts.without_leader
    lacking = bool(facts.without_leader or facts.under_replicated)
    if not reasons and not lacking:
        return Verdict(Health.HEALTHY, (f"{_count(len(facts.brokers), 'broker')}, {_served(facts.partitions)}",))
    reasons.append(
        f"{served} of {_count(facts.partitions, 'partition')} {'is' if facts.partitions == 1 else 'are'} served"
        + (
            f", {facts.under_replicated} {_have(facts.under_replicated)} a replica too few"
            * bool(facts.under_replicated)
        )
    )
    return Verdict(Health.DOWN if facts.without_leader else Health.DEGRADED, tuple(reasons))


def _absent(brokers: Mapping[int, str]) -> Sequence[str]:
    """Say which brokers are not well, those in the same state together."""
    by_state: dict[str, list[int]] = {}
    for node_id, state in sorted(brokers.items()):
        if state not in WELL:
            by_state.setdefault(state, []).append(node_id)
    return [f"{brokers_named(ids)} {'is' if len(ids) == 1 else 'are'} {state}" for state, ids in by_state.items()]


def brokers_named(ids: Sequence[int]) -> str:
    """Return `broker 2`, `brokers 1, 2 and 3`."""
    return f"broker{'s' * (len(ids) != 1)} {enumerated(ids)}"


def enumerated(numbers: Sequence[int]) -> str:
    """Return numbers, one at least, as a list in a sentence: `1, 2 and 3`."""
    words = [str(number) for number in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _served(partitions: int) -> str:
    return f"{_count(partitions, 'partition')} served" if partitions else "no partitions yet"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + "s" * (number != 1)


def _have(number: int) -> str:
    return "has" if number == 1 else "have"
