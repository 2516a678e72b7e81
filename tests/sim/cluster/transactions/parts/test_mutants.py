"""The parts of transactional runs must catch these mistakes: each is one line, and a seed is named that notices it.

If one survives its seed, find another that catches it (`scripts/sim --transactions` with the mistake), or say why it is
none any more.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import getsource

import pytest

from sim.cluster.scenario import SimulationError, run_choice
from sim.cluster.swarm import transactional
from sim.mutants import in_place

PARTITION = "barnabas_broker.partition"
RULES = "barnabas_broker.coordinators.transactions.state_machine"
COMPACTION = "barnabas_raftlog.log.replica"
MUTANTS = {  # what is broken: (a seed that notices, the module, the text, the text instead)
    # Records of open transactions are deleted.
    "what is gone holds readers up": (
        1,
        f"{PARTITION}.partition",
        "min(self.high_watermark, max(first, self.log.log_start_offset))",
        "min(self.high_watermark, first)",
    ),
    # Replicas that lack the beginning are sent a state.
    "aborted ones are not sent where none is open": (
        10,
        f"{PARTITION}.saved_state",
        "    if transactions.is_empty:\n",
        "    if not transactions.undecided:\n",
    ),
    # Two-phase commit.
    "a prepared one times out": (
        4,
        f"{RULES}.initializing",
        "    return NO_TIMEOUT_MS if request.enables_two_phase else request.timeout_ms\n",
        "    return request.timeout_ms\n",
    ),
    # Late ends.
    "an epoch of before may end what is open": (
        1,
        f"{RULES}.ending",
        "    if error != ErrorCode.NONE:\n",
        "    if error != ErrorCode.NONE and saved.owner.producer_id != request.producer.producer_id:\n",
    ),
    "version 1, partitions are forgotten when another is added": (
        7,
        f"{RULES}.adding",
        "places=all_places,",
        "places=frozenset(places),",
    ),
    # Compacted topics.
    "a marker goes with its records": (
        166,
        f"{COMPACTION}.compaction",
        "gone_ms > self._spent_ms",
        "gone_ms > self._now_ms",
    ),
}


@contextmanager
def planted(module_name: str, text: str, instead: str) -> Iterator[None]:
    """Have `instead` in a module where it says `text`."""
    module = import_module(module_name)
    source = getsource(module)
    assert source.count(text) == 1, f"the mutant no longer fits {module_name}; write it anew"
    with in_place(module, ast.parse(source.replace(text, instead))):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seed_notices(name: str) -> None:
    seed, module, text, instead = MUTANTS[name]
    with planted(module, text, instead), pytest.raises(SimulationError):
        run_choice(transactional(seed))
