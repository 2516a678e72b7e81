"""A share of the simulator's seeds. `scripts/sim` runs the others."""

import pytest
from machines.hash_seeds import printed_under

from .scenario import run_seed

SEEDS_A_TEST = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_150, SEEDS_A_TEST))
def test_invariants_hold_under_faults_and_groups_recover(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run_seed(seed)


def test_seeds_reach_what_they_are_for() -> None:
    """A simulator whose faults never strike proves nothing."""
    sims = [run_seed(seed) for seed in range(1_200, 1_220)]
    for name in ("elections", "crashes", "cuts", "stalls", "mistakes", "reads", "busy"):
        assert sum(sim.counts[name] for sim in sims) > 0, f"no {name}"
    assert sum(len(sim.acknowledged) for sim in sims) > 500


@pytest.mark.slow
def test_same_seed_same_trace_whatever_the_hash_seed() -> None:
    code = "from sim.scenario import run_seed; print([run_seed(s, digest=True).digest for s in (3, 7, 21, 1205)])"
    assert len(printed_under((0, 1, 4711), code)) == 1
