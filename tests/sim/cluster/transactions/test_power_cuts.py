"""A few power cuts of all machines in page-cache mode, and mistakes that they must show. `--power-cuts` runs others."""

import pytest
from broker.coordinators.mutants import planted

from sim.cluster.scenario import SimulationError

from .power_cuts import REPLACED, judge_power_cuts, run_power_cuts

RULES = "coordinators.transactions.state_machine"
SEED = 9
MUTANTS = {  # what is broken: (a seed that notices, what it says, the module, the text, the text instead)
    "an outcome is forgotten when the next one is kept": (
        9,
        "was committed, is there, and is not read",
        f"{RULES}.outcomes",
        "    producer_id, end_epoch, runs = kept[-1]\n",
        "    producer_id, end_epoch, runs = kept[-1]\n    runs = b''\n",
    ),
    "nobody asks": (
        9,
        "stays open for ever",
        "partition.partition",
        "            self.host.on_doubts(self)\n",
        "            pass\n",
    ),
    "the marker of a later transaction ends what is in doubt": (
        9,
        "was aborted, and is read",
        "partition.partition",
        "        if doubt is not None and not is_answer and marker",
        "        if doubt is not None and not doubt and marker",
    ),
}


@pytest.mark.slow
def test_what_has_lost_its_marker_ends_as_it_had_ended() -> None:
    counts = run_power_cuts(SEED).world.counts
    assert counts[REPLACED] > 0
    assert counts["records committed"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seed_notices(name: str) -> None:
    seed, complaint, module, text, instead = MUTANTS[name]
    with planted(module, text, instead), pytest.raises(SimulationError, match=complaint):
        run_power_cuts(seed)


def test_runs_in_which_nothing_strikes_are_too_weak() -> None:
    struck = {
        "records committed": 20,
        "records aborted": 20,
        "records lost": 20,
        REPLACED: 1,
        "held against the log": 6,
    }
    assert not judge_power_cuts([struck, struck])
    for name in struck:
        (complaint,) = judge_power_cuts([struck | {name: 0}])
        assert name in complaint
