"""The machine of a transactional id must catch these. If it does not, it is the machine that is broken.

Each is one mistake in the rules. Those that only change an answer, or that only show after thousands of steps, are left
to the tests of each request.
"""

import pytest
from broker.coordinators.mutants import assert_caught

from .state_machine.test_transaction_machine import TransactionMachine

MACHINE = "coordinators.transactions.state_machine"
MUTANTS = {  # what is broken: (module, the text, the text instead)
    "a takeover raises no epoch": (
        "initializing",
        "        owner = successor\n",
        "        owner = owner if given == NOBODY else successor\n",
    ),
    "an open transaction is taken over as it is": (
        "initializing",
        "if saved.state is not TransactionState.ONGOING:\n",
        "if saved.state is not TransactionState.ONGOING or request.producer == saved.owner:\n",
    ),
    "an abort that fences raises no epoch": (
        "ending",
        "raises = fences or version >= V2",
        "raises = version >= V2",
    ),
    "the markers carry the epoch of the data": (
        "ending",
        "min(producer.epoch + 1, EPOCH_MAX)",
        "producer.epoch",
    ),
    "a repeated end is told success whatever the outcome": (
        "ending",
        "if saved.state is _COMPLETE[request.is_commit]:",
        "if saved.state in _COMPLETE.values():",
    ),
    "a commit ends nothing but succeeds": (
        "ending",
        "    if request.is_commit:\n        return Answer(ErrorCode.INVALID_TXN_STATE)\n",
        "",
    ),
    "the new producer id is forgotten": (
        "ending",
        "next_producer=NOBODY if successor == producer else successor",
        "next_producer=NOBODY",
    ),
    "it is complete for its old owner": (
        "ending",
        "        producer=saved.owner,\n        next_producer",
        "        producer=saved.producer,\n        next_producer",
    ),
    "old epochs may add partitions": (
        "adding",
        "return ErrorCode.NONE if saved.owner == producer else ErrorCode.PRODUCER_FENCED",
        "return ErrorCode.NONE",
    ),
    "partitions may be added while markers are written": (
        "adding",
        "    if saved.state.is_prepared:\n        # Of v2",
        "    if False:\n        # Of v2",
    ),
    "a partition verifies what is not in the transaction": (
        "adding",
        "ErrorCode.NONE if place in saved.places else absent",
        "ErrorCode.NONE",
    ),
    "the new owner of a kept transaction writes in it": (
        "adding",
        "elif saved.is_kept:",
        "elif False:",
    ),
    "partitions are forgotten when another is added": (
        "adding",
        "places=all_places,",
        "places=frozenset(places),",
    ),
    "a marker of another transaction counts": (
        "transaction",
        "self.saved.state.is_prepared and self.saved.producer == producer:",
        "self.saved.state.is_prepared:",
    ),
    "it is complete when one marker is written": (
        "transaction",
        "self._unmarked.discard(place)",
        "self._unmarked.clear()",
    ),
    "verification does not see the end that is under way": (
        "adding",
        "        if saved.state.is_prepared:\n            error",
        "        if False:\n            error",
    ),
    "the last epoch of an id is not recognised after a move": (
        "records",
        "return -1 if owner.producer_id == saved.previous_producer_id else LAST_EPOCH",
        "return 0",
    ),
    "the next producer's epoch is not in the log": (
        "records",
        "max(0, value.next_producer_epoch)",
        "0",
    ),
    "what is refused has happened": (
        "transaction",
        "        assert self.pending is not None\n        self.pending = None",
        "        assert self.pending is not None\n        self.committed()",
    ),
    "a transaction times out a little early": (
        "transaction",
        "saved.times_out_at_ms > now_ms:",
        "saved.times_out_at_ms > now_ms + 1_000:",
    ),
    "an id expires in the middle of a transaction": (
        "transaction",
        "or self.pending is not None or not saved.state.is_idle:",
        "or self.pending is not None:",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_machine_catches(name: str) -> None:
    module, text, instead = MUTANTS[name]
    assert_caught(TransactionMachine, f"{MACHINE}.{module}", text, instead)
