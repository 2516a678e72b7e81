"""A coordinator of groups knows what the log says, after anything that can happen."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .shard_machine import ShardMachine, make_small
from .staging.transaction_machine import TransactionMachine


@pytest.mark.slow
@pytest.mark.parametrize("machine", [ShardMachine, TransactionMachine])
def test_a_coordinator_knows_what_the_log_says_whatever_happens(
    machine: type[ShardMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
