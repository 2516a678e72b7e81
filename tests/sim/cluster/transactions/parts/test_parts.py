"""A share of the seeds that have parts. `scripts/sim --transactions` runs the others."""

import pytest

from sim.cluster.judges.strikes import TRANSACTIONAL
from sim.cluster.scenario import run_choice
from sim.cluster.swarm import transactional

from .choice import EVERY, Parts, draw_parts

SEEDS = (37, 394)
"""The first deletes, comes late and compacts at level 1; the second has two-phase commit."""
RARE = {
    "truncated through data",
    "truncated through a marker",
    "truncated between data and marker",
    "compacted differently",
}


@pytest.mark.slow
def test_every_part_strikes_and_nothing_promised_is_broken() -> None:
    runs = [run_choice(transactional(seed)).world.counts for seed in SEEDS]
    for name, key in TRANSACTIONAL.items():
        assert name in RARE or sum(run[key] for run in runs) > 0, f"no {name}"
    assert sum(run["not held against the model"] for run in runs) == 0


def test_a_third_of_the_seeds_have_parts_and_each_part_is_in_many() -> None:
    drawn = [draw_parts(seed) for seed in range(600)]
    assert all(parts == Parts() for seed, parts in enumerate(drawn) if seed % EVERY != 1)
    assert sum(parts.level == 1 for parts in drawn) > 50
    for name in ("cuts", "preparers", "repeats_ends", "compacts", "retention_ms"):
        assert sum(bool(getattr(parts, name)) for parts in drawn) > 50, name
    assert not any(parts.level == 1 and parts.preparers for parts in drawn)
