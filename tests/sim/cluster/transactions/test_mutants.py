"""The simulator must catch these mistakes of coordinators, markers and last stable offsets.

Each is one line. A seed is named that notices it; most seeds do. If one survives its seed, find another that catches
it (`scripts/sim --transactions` with the mistake), or say why it is none any more.
"""

import pytest
from broker.coordinators.mutants import planted

from sim.cluster.scenario import SimulationError, run_choice
from sim.cluster.swarm import transactional

COORDINATOR = "coordinators.transactions"
RULES = f"{COORDINATOR}.state_machine"
MUTANTS = {  # what is broken: (a seed that notices, the module, the text, the text instead)
    # Coordinators.
    "a new coordinator sends no markers": (
        0,
        f"{COORDINATOR}.shard",
        "                self._note(hosted)\n            if not number % IDS_STEP:",
        "                pass\n            if not number % IDS_STEP:",
    ),
    "partitions are forgotten when another is added": (
        0,
        f"{RULES}.adding",
        "places=all_places,",
        "places=frozenset(places),",
    ),
    "the markers carry the epoch of the data": (
        0,
        f"{RULES}.ending",
        "min(producer.epoch + 1, EPOCH_MAX)",
        "producer.epoch",
    ),
    "a takeover raises no epoch": (
        0,
        f"{RULES}.initializing",
        "        owner = successor\n",
        "        owner = owner if given == NOBODY else successor\n",
    ),
    "an open transaction is taken over as it is": (
        0,
        f"{RULES}.initializing",
        "if saved.state is not TransactionState.ONGOING:\n",
        "if saved.state is not TransactionState.ONGOING or request.producer == NOBODY:\n",
    ),
    "an abort is a commit": (
        0,
        f"{COORDINATOR}.marker_queues",
        "self.is_commit = markers.is_commit",
        "self.is_commit = True",
    ),
    "what is committed is not in the table": (
        0,
        f"{COORDINATOR}.shard",
        "        self._table.put(hosted.transactional_id, transition.saved, size_bytes)\n",
        "",
    ),
    # Markers.
    "a marker that is refused is taken for written": (
        35,
        f"{COORDINATOR}.marker_queues",
        "        if code == ErrorCode.NONE:\n            queue.failures = 0",
        "        if code in {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}:\n            queue.failures = 0",
    ),
    "a place is not looked for again": (
        0,
        f"{COORDINATOR}.marker_queues",
        "            self._look_at_ms = max(now_ms, self._look_next_ms)",
        "            pass",
    ),
    "truncating a marker leaves its transaction ended": (
        41,
        "partition.transactions",
        "                self._open[transaction.producer_id] = transaction\n",
        "                pass\n",
    ),
    "truncating the beginning leaves the transaction open": (
        27,
        "partition.transactions",
        "            if self._open.get(transaction.producer_id) is transaction:\n",
        "            if False:\n",
    ),
    "an abort is not listed": (
        0,
        "partition.transactions",
        "            if not is_commit:\n",
        "            if False:\n",
    ),
    # The last stable offset.
    "it is the high watermark": (
        0,
        "partition.partition",
        "        if first is None:\n            return self.high_watermark\n",
        "        return self.high_watermark\n",
    ),
    "an end counts when it is appended": (
        0,
        "partition.transactions",
        "            self._ends.append(_End(index, offset, is_commit, transaction))\n",
        "            self._undecided.pop(transaction.first_offset, None)\n",
    ),
    "the end of one transaction decides all": (
        0,
        "partition.transactions",
        "        if transaction is None or transaction.first_index > self.commit_index:\n",
        "        if transaction is None or len(self._undecided) > 1:\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seed_notices(name: str) -> None:
    seed, module, text, instead = MUTANTS[name]
    with planted(module, text, instead), pytest.raises(SimulationError):
        run_choice(transactional(seed))
