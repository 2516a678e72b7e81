"""Whatever happens to a partition of transactional ids, in any order, it keeps its promises.

The machine must catch each of the mutants, which are one mistake in the shard. If it does not, it is the machine that
is broken. They are such that it finds within seconds; the others are in the tests of each situation.
"""

import pytest
from broker.coordinators.mutants import assert_caught
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .shard_machine import ShardMachine

SHARD = "coordinators.transactions.shard"
MUTANTS = {  # what is broken: (the text, the text instead)
    "a record that was refused stays on its way": (
        "        hosted.transaction.refused()\n",
        "        pass\n",
    ),
    "those who wait are not decided on again": (
        "            if not ask.is_over:\n                self._decide(ask)\n\n    def _send",
        "            pass\n\n    def _send",
    ),
    "markers of the next transaction are taken for sent": (
        "        hosted.is_sent = False\n",
        "",
    ),
    "a new coordinator's markers are forgotten": (
        "        if was_active:\n            for number",
        "        yield\n        self._shared.markers.forget(0)\n        if was_active:\n            for number",
    ),
    "an end tells nobody who waits": (
        "                for ask in (hosted.ask, *hosted.parked):\n",
        "                for ask in (hosted.ask,):\n",
    ),
    "what is known of an id is not counted anew": (
        "        self._account(hosted, record_bytes)\n",
        "",
    ),
    "markers are not asked for until the next record": (
        "        self._file(hosted)\n        self._note(hosted)\n",
        "        self._file(hosted)\n",
    ),
    "a marker completes nothing": (
        "            hosted.transaction.marked(producer, place)\n            self._note(hosted)\n",
        "            hosted.transaction.marked(producer, place)\n",
    ),
    "an answer comes before its record": (
        "        if not (ask.is_committed and ask.is_stored):\n            return\n",
        "",
    ),
}


def test_a_shard_keeps_its_promises_whatever_happens() -> None:
    run_state_machine_as_test(ShardMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_machine_catches(name: str) -> None:
    assert_caught(ShardMachine, SHARD, *MUTANTS[name])
