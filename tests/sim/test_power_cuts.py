"""Page-cache mode: a power cut of one machine, crashes of others, and nothing acknowledged is lost.

Every leader must have every committed entry (`GroupHistory`), and at the end every acknowledged value must be there
once (`scenario.check_converged`). The mutants show that these seeds would notice.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from .mutants import mutant
from .scenario import SimulationError, run_seed
from .simulator import Implementation, Simulator


def seeds_with_power_cuts(first: int) -> Iterator[int]:
    while True:
        if Simulator(first).swarm.power_interval_ms:
            yield first
        first += 1


def run_many(seeds: Iterator[int], broken: Implementation) -> None:
    for seed, _ in zip(seeds, range(8), strict=False):
        run_seed(seed, broken)


def test_power_cuts_of_one_machine_at_a_time_lose_nothing_acknowledged() -> None:
    counts, acknowledged = Counter[str](), 0
    for seed, _ in zip(seeds_with_power_cuts(4_000), range(15), strict=False):
        sim = run_seed(seed)
        counts.update(sim.counts)
        acknowledged += len(sim.acknowledged)
    assert counts["power cuts"] > 30
    assert counts["crashes"] > 50
    assert acknowledged > 500


@pytest.mark.parametrize(
    ("module", "line", "instead", "first"),
    [
        (
            "uncertainty",
            "return len(votes - raft.doubtful) >= majority(len(voters)) or (bool(voters) and votes >= voters)",
            "return len(votes) >= majority(len(voters))",
            30_290,
        ),
        ("uncertainty", "        progress.match_index = 0\n", "", 2_050),
    ],
    ids=["votes of uncertain voters count", "what a follower had before its return is believed"],
)
def test_the_seeds_notice_what_would_break_this(module: str, line: str, instead: str, first: int) -> None:
    broken = mutant(module, line, instead)
    with pytest.raises((SimulationError, AssertionError)):
        run_many(seeds_with_power_cuts(first), broken)
