"""How often everything that is to be survived must have struck in many runs: a hundred times in five thousand seeds.

A fault or an outcome that was met once proves little. So each of these must have been met `STRIKES_A_RUN` times a seed.
In few runs chance decides, and a workload that has twice as many would fail now and then: so faults and rare paths are
judged from `COMPLETE_FROM` runs on, with a limit in proportion to their number, and the outcomes, which are common,
from `JUDGED_FROM` on (`coverage`).
"""

from collections.abc import Mapping, Sequence
from math import ceil

from sim.cluster.swarm import MEAN_US

__all__ = [
    "COMPLETE_FROM",
    "FAULTS",
    "GROUPS",
    "JUDGED_FROM",
    "STRIKES_A_RUN",
    "TRANSACTIONAL",
    "TRANSACTIONS",
    "Counts",
    "judge_strikes",
    "least_strikes",
]

Counts = Mapping[str, int]

STRIKES_A_RUN = 0.02
JUDGED_FROM = 50
COMPLETE_FROM = 1_000
"""So many seeds make a median worth judging, and so many must have gone every path."""

FAULTS = {f"fault {kind}": f"fault {kind}" for kind in sorted(MEAN_US)}

TRANSACTIONS = {
    "end marker appended": "markers",
    "abort marker read": "abort markers read",
    "aborted record passed over": "aborted records passed over",
    "truncated through data": "truncated through data",
    "truncated through a marker": "truncated through a marker",
    "truncated between data and marker": "truncated between data and marker",
    "transaction taken over": "event transaction aborted",
    "record worked off once": "records worked off",
    "coordinator of transactions": "coordinators loaded",
}
"""Rare paths of all runs that have transactions, by name in print, and the count that shows that each was gone."""

TRANSACTIONAL = TRANSACTIONS | {
    "begun before its log": "transactions begun before their log",
    "expired by age": "event records expired",
    "state installed": "states installed",
    "installed, some open": "installed with transactions open",
    "installed, some aborted": "installed with aborted transactions",
    "prepared, two-phase": "two-phase prepared",
    "prepared for long": "two-phase waited long",
    "ended by a successor": "two-phase ended by a successor",
    "ended by name": "two-phase ended by name",
    "died before it was prepared": "two-phase died unprepared",
    "successor fenced": "two-phase successors fenced",
    "late end": "late ends",
    "late end fenced": "late ends fenced",
    "next one ended, version 1": "next transaction ended",
    "finding about that": "findings about struck ones",
    "replica compared": "replicas compared",
    "compacted differently": "replicas compacted differently",
    "batch without records": "batches without records",
    "marker without record": "markers without record",
}
"""Those of runs with little but transactions."""

GROUPS = {
    "member joined": "group joins",
    "member left": "group leaves",
    "member died": "group members dead",
    "member stalled": "group members stalled",
    "static member left": "group static leaves",
    "static member restarted": "group static restarts",
    "instance of two processes": "group instances doubled",
    "instance not released": "group instances unreleased",
    "subscription changed": "group subscriptions changed",
    "expression changed": "group patterns changed",
    "partitions given up": "group revocations",
    "classic rebalance": "group rebalances",
    "group gone over to KIP-848": "groups gone over",
    "group gone back": "groups gone back",
    "found to be classic": "groups described as classic",
    "fenced by its epoch": "group FENCED_MEMBER_EPOCH",
    "fenced by its generation": "group ILLEGAL_GENERATION",
    "fenced by its instance": "group FENCED_INSTANCE_ID",
    "thrown out": "group UNKNOWN_MEMBER_ID",
    "forged epoch fenced": "group forged epochs fenced",
    "forged commit refused": "group forged commits refused",
    "coordinator of groups died": "group coordinators dead",
    "topic came and went": "group topics passed",
    "group described": "groups described",
    "group and records": "groups held against their records",
    "group's log read": "group logs read",
}
"""Those of groups, which every fourth seed of other runs has besides."""


def least_strikes(run_count: int) -> int:
    """Return how often each must have struck in so many runs; 0: they are too few to say."""
    return ceil(run_count * STRIKES_A_RUN) if run_count >= COMPLETE_FROM else 0


def judge_strikes(runs: Sequence[Counts], wanted: Mapping[str, str], at_least: int = 0) -> list[str]:
    """Return which of `wanted`, names and counts, have struck too seldom in these runs, in words.

    `at_least`: so often, if that is more than what their number asks for.
    """
    least = max(at_least, least_strikes(len(runs)))
    complaints = []
    for name, key in wanted.items():
        found = sum(run.get(key, 0) for run in runs)
        if found < least:
            complaints.append(f"{name}: {found} times in {len(runs)} seeds, and {least} are asked for")
    return complaints
