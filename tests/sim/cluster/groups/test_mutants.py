"""The simulator must catch these mistakes of groups, of both protocols.

Each is one line. A seed is named that notices it. If one survives its seed, find another that catches it (`scripts/sim
--groups` with the mistake), or say why it is none any more.
"""

import pytest
from broker.coordinators.mutants import planted

from sim.cluster.scenario import SimulationError, run_choice
from sim.cluster.swarm import grouped

GROUPS = "coordinators.groups"
CONSUMER = f"{GROUPS}.consumer"
CLASSIC = f"{GROUPS}.state_machine"
MUTANTS: dict[str, tuple[int, str, str, str]] = {}
"""What is broken: (a seed that notices, the module, the text, the text instead)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seed_notices(name: str) -> None:
    seed, module, text, instead = MUTANTS[name]
    with planted(module, text, instead), pytest.raises(SimulationError):
        run_choice(grouped(seed))
