"""The rare paths of a run, and how strong many runs must be.

A run that never goes somewhere proves nothing there. Paths are known by the brokers' own events (`EventHistory`), by
the faults that struck, and by the counts of clients. `judge_strength` looks at many runs together and says what they
lack.
"""

import statistics
from collections.abc import Sequence

from .strikes import (
    COMPLETE_FROM,
    FAULTS,
    GROUPS,
    JUDGED_FROM,
    STRIKES_A_RUN,
    TRANSACTIONAL,
    TRANSACTIONS,
    Counts,
    judge_strikes,
)

__all__ = ["MEDIANS", "OUTCOMES", "PATHS", "SHARES", "judge_groups", "judge_strength", "judge_transactions"]

PATHS = {
    "log truncated": "event log truncated",
    "segments transferred": "event catch-up finished",
    "transfer interrupted": "event catch-up interrupted",
    "metadata snapshot": "event metadata snapshot installed",
    "journal failed": "event storage failed",
    "journal renewed": "event storage recovered",
    "append refused": "event append refused",
    "segment damaged": "event segment damaged",
    "segment repaired": "event segment repaired",
    "segment not repaired": "event segment not repaired",
    "follower forgot": "event follower may have forgotten",
    "certain again": "event certain again",
    "move completed": "event partition moved",
    "move called off": "moves called off",
    "members changing": "event members changing",
    "leader left itself out": "event removed",
    "observers changed": "observers changed",
    "read from a replica": "read from replicas",
    "disk replaced": "disks replaced",
    "controller's disk replaced": "controllers' disks replaced",
    "member lost": "event member lost",
    "witness led": "witness led",
    "witness forgot": "witness forgot",
    "leadership handed on": "event transfer",
    "hand-over failed": "event transfer failed",
    "stall noticed": "event stall",
    "broker fenced": "event broker fenced",
    "clean stop": "clean stops",
    "ambush": "ambushes",
    "records deleted": "deletions",
    "log compacted": "event log compacted",
    "read behind what was compacted": "compacted away",
    "topic deleted": "topics deleted",
    "load with acks=0": "sent with acks=0",
    "load with acks=1": "sent with acks=1",
    "load with acks=all": "sent with acks=-1",
    "batch at the limit": "large batches",
    "batch beyond the limit": "too large",
    "many partitions a fetch": "fetches of many",
    "offset looked up": "offsets looked up",
    "coordinator's log rewritten": "event coordinator log compacted",
    "offsets in several copies": "copies of offsets demanded",
    "member vanished": "members that vanished",
    "our producer delivered": "own delivered",
    "our consumer was handed": "own consumed",
    "our consumer committed": "own commits",
    "our admin made topics": "own topics",
    **TRANSACTIONS,
}
"""Each path's name in print, and the count that shows that it was gone."""

MEDIANS = {"acknowledged": 200, "elections": 3, "recoveries": 1}
"""The least that the median seed must reach: less, and the workload has become too weak."""

SHARES = {"looks when all was owed": 0.2, "own delivered": 0.1, "own consumed": 0.1}
"""The least share of the seeds that must count any."""

OUTCOMES = {
    "committed": "transactions committed",
    "aborted": "transactions aborted",
    "timed out": "event transaction timed out",
    "fenced": "transactions fenced",
    "prepared over a failover": "transactions prepared over a failover",
}
"""Each fate of a transaction, and its count."""


def judge_strength(runs: Sequence[Counts], at_least: int = 0) -> list[str]:
    """Return in what these runs are too weak, in words; nothing if they are strong, or too few to say.

    `at_least`: so often everything must have struck (`judge_strikes`), however few they are.
    """
    complaints = []
    if len(runs) >= JUDGED_FROM:
        for name, least in MEDIANS.items():
            median = statistics.median_low([run.get(name, 0) for run in runs])
            if median < least:
                complaints.append(f"the median of {name} is {median}, and should be {least} at least")
        for name, least_share in SHARES.items():
            share = sum(bool(run.get(name)) for run in runs) / len(runs)
            if share < least_share:
                complaints.append(f"{share:.0%} of the seeds have {name}, and {least_share:.0%} should at least")
    complaints += _judge_outcomes(runs, at_least)
    complaints += judge_strikes(runs, FAULTS | GROUPS, at_least)
    if len(runs) >= COMPLETE_FROM:
        for name, key in PATHS.items():
            if not any(run.get(key) for run in runs):
                complaints.append(f"never reached: {name}")
    return complaints


def judge_transactions(runs: Sequence[Counts], at_least: int = 0) -> list[str]:
    """Return in what runs with little but transactions are too weak, as `judge_strength`."""
    return _judge_outcomes(runs, at_least) + judge_strikes(runs, FAULTS | TRANSACTIONAL, at_least)


def judge_groups(runs: Sequence[Counts], at_least: int = 0) -> list[str]:
    """Return in what runs with little but groups are too weak, as `judge_strength`."""
    return judge_strikes(runs, FAULTS | GROUPS, at_least)


def _judge_outcomes(runs: Sequence[Counts], at_least: int) -> list[str]:
    """Return which outcomes of transactions these runs have too seldom."""
    complaints = []
    least = max(at_least, len(runs) * STRIKES_A_RUN if len(runs) >= JUDGED_FROM else 0)
    for name, key in OUTCOMES.items():
        found = sum(run.get(key, 0) for run in runs)
        if found < least:
            complaints.append(f"{found} transactions were {name}, of {len(runs)} seeds")
    return complaints
