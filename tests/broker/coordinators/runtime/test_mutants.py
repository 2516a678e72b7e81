"""The machine of numbers must catch these. If it does not, it is the machine that is broken.

Each is one mistake between a shard and its log.

Not here, because it changes nothing: a rewriting that does not wait until what it has written is committed. Its cut
comes behind that in the log, and so in every outcome; waiting only bounds what is on its way.
"""

import pytest
from broker.coordinators.mutants import assert_caught
from broker.coordinators.runtime.number_machine import NumberMachine, make_small

MUTANTS = {  # what is broken: (module, the text, the text instead)
    "rewriting writes what has a newer record under way": (
        "coordinators.runtime.shard",
        "if name in self.under_way or",
        "if",
    ),
    "what is committed counts when it may be answered": (
        "partition.partition",
        "if self.observer is not None and not self.is_witness:",
        "if self.observer is not None and not self.min_insync > copies_of_committed(self.group.configuration):",
    ),
    "a later leader's entries are taken for one's own": (
        "coordinators.runtime.shard",
        " and self.partition.log.term_at(commit_index) == self.term:",
        ":",
    ),
    "what is known is said to be more": (
        "coordinators.runtime.shard",
        "return self.standby\n",
        "self.standby.applied_index += 1\n        return self.standby\n",
    ),
    "rewriting does not wait for what is under way": (
        "coordinators.runtime.rewriting",
        "    if not await runtime.wait_committed():\n        return None\n    slices",
        "    slices",
    ),
    "a log that was cut is read on as if nothing had gone": (
        "coordinators.runtime.standby",
        "            self._forget()\n            self.applied_index",
        "            self.applied_index",
    ),
    "no deadline begins anew after a stall": (
        "coordinators.runtime.shard",
        "            self.in_slices(self.shard.recover_in_steps())\n",
        "            pass\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_machine_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    assert_caught(NumberMachine, *MUTANTS[name])
