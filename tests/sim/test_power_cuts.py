"""Power cuts in page-cache mode, one machine at a time: nothing acknowledged is lost.

Other machines crash meanwhile. Every leader must have every committed entry (`GroupHistory`), and at the end every
acknowledged value must be there once (`scenario.check_converged`). Members change meanwhile, and disks are replaced, as
long as enough is left of every configuration to live on (`membership.can_decide`). The mutants show that these seeds
would notice.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from . import simulator
from .disk import Disk
from .mutants import mutant
from .scenario import SimulationError, run_seed
from .simulator import Simulator


def seeds_with_power_cuts(first: int, *, changes: bool = False) -> Iterator[int]:
    """Yield seeds whose members change, or whose members stay and keep their disks."""
    while True:
        swarm = Simulator(first).swarm
        is_settled = not (swarm.change_interval_ms or swarm.replace_interval_ms)
        if swarm.power_interval_ms and (swarm.change_interval_ms if changes else is_settled):
            yield first
        first += 1


def run_many(seeds: Iterator[int]) -> None:
    for seed, _ in zip(seeds, range(8), strict=False):
        run_seed(seed)


def test_power_cuts_of_one_machine_at_a_time_lose_nothing_acknowledged() -> None:
    counts = Counter[str]()
    acknowledged = 0
    for seed, _ in zip(seeds_with_power_cuts(4_000), range(15), strict=False):
        sim = run_seed(seed)
        counts.update(sim.counts)
        acknowledged += len(sim.acknowledged)
    assert counts["power cuts"] > 30
    assert counts["crashes"] > 50
    assert acknowledged > 500


def test_nor_do_they_while_members_change_and_disks_are_replaced() -> None:
    counts = Counter[str]()
    for seed, _ in zip(seeds_with_power_cuts(100_000, changes=True), range(25), strict=False):
        counts.update(run_seed(seed).counts)
    assert counts["power cuts"] > 40
    assert counts["changes"] > 80
    assert counts["disks replaced"] > 10


def test_the_seeds_notice_a_disk_that_forgets_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Voters then elect by a configuration of before; 20294 has three members, 36038 has two."""
    monkeypatch.setattr(Disk, "syncs_changes", False)
    monkeypatch.setattr(simulator, "WITNESS_SHARE", 0.0)  # These two are about full voters.
    for seed in (20_294, 36_038):
        with pytest.raises(SimulationError, match="lacks committed entry"):
            run_seed(seed)


@pytest.mark.parametrize(
    ("module", "line", "instead", "first"),
    [
        (
            "uncertainty",
            "if len(certain & voters) >= majority(len(voters)):",
            "if len(votes & voters) >= majority(len(voters)):",
            30_580,
        ),
        ("uncertainty", "        progress.match_index = 0\n", "", 4_300),
    ],
    ids=["votes of uncertain voters count", "what a follower had before its return is believed"],
)
def test_the_seeds_notice_what_would_break_this(module: str, line: str, instead: str, first: int) -> None:
    seeds = seeds_with_power_cuts(first)
    with mutant(module, line, instead), pytest.raises((SimulationError, AssertionError)):
        run_many(seeds)
