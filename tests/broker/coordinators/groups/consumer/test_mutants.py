"""The machine of migrations must catch these. If it does not, it is the machine that is broken."""

import pytest
from broker.coordinators.mutants import assert_caught

from .test_migration import MigrationMachine

MUTANTS = {  # what is broken: (module, the text, the text instead)
    "a classic member is told its target, whoever has that still": (
        "coordinators.groups.consumer.mixed",
        "return assignment_of(self.members[member_id], now.assigned, topics)",
        "return assignment_of(self.members[member_id], self.targets.get(member_id, NO_TARGET), topics)",
    ),
    "what classic members have is forgotten when their group is converted": (
        "coordinators.groups.consumer.conversion",
        "MemberAssignment(epoch, epoch, assigned=has)",
        "MemberAssignment(epoch, epoch)",
    ),
    "whoever waits in a group that is converted waits for ever": (
        "coordinators.groups.shard",
        "        self._take_out(hosted)\n        self.runtime.in_slices(_give(effects.answers))",
        "        self._take_out(hosted)",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_noticed(name: str) -> None:
    assert_caught(MigrationMachine, *MUTANTS[name])
