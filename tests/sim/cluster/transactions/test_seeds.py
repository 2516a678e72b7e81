"""A share of the seeds of transactions. `scripts/sim --transactions` runs the others."""

import pytest
from machines.hash_seeds import printed_under

from sim.cluster.judges.coverage import OUTCOMES, judge_transactions
from sim.cluster.judges.strikes import FAULTS, TRANSACTIONAL
from sim.cluster.scenario import run_choice
from sim.cluster.swarm import transactional

SEEDS = (0, 5, 21, 27)
"""Logs are truncated in the last two: between data and marker, and through data."""


@pytest.mark.slow
def test_nothing_promised_is_broken_and_every_outcome_is_seen() -> None:
    runs = [run_choice(transactional(seed)).world.counts for seed in SEEDS]
    for key in (*OUTCOMES.values(), "truncated through data", "truncated between data and marker", "markers"):
        assert sum(run[key] for run in runs) > 0, f"no {key}"
    assert sum(run["held against the model"] for run in runs) > 500
    assert sum(run["not held against the model"] for run in runs) == 0


@pytest.mark.slow
def test_same_seed_same_story_whatever_the_hash_seed() -> None:
    code = (
        "from sim.cluster.scenario import run_choice\nfrom sim.cluster.swarm import transactional\n"
        "print(run_choice(transactional(4)).digest)"
    )
    assert len(printed_under((0, 1), code)) == 1


def test_runs_without_an_outcome_or_with_few_strikes_are_too_weak() -> None:
    seen = dict.fromkeys((FAULTS | TRANSACTIONAL | OUTCOMES).values(), 100)
    assert not judge_transactions([seen, *[{}] * 4_999])
    for name, key in (FAULTS | TRANSACTIONAL | OUTCOMES).items():
        (complaint,) = judge_transactions([seen | {key: 99}, *[{}] * 4_999])
        assert name in complaint


def test_few_runs_are_judged_by_outcomes_alone() -> None:
    seen = dict.fromkeys(OUTCOMES.values(), 20)
    assert not judge_transactions([seen, *[{}] * 998])
    assert any("state installed" in complaint for complaint in judge_transactions([seen, *[{}] * 999]))
    (complaint,) = judge_transactions([seen | {OUTCOMES["fenced"]: 0}, *[{}] * 49])
    assert "fenced" in complaint
    assert not judge_transactions([{}] * 49)
