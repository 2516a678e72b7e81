"""A coordinator of groups knows what the log says, after anything that can happen."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .shard_machine import ShardMachine, make_small


@pytest.mark.slow
def test_a_coordinator_knows_what_the_log_says_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    run_state_machine_as_test(ShardMachine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
