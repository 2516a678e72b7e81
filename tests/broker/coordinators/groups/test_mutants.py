"""The shard machine must catch these. If it does not, it is the machine that is broken.

Each is one mistake between the groups' state and their log. Those of the runtime under them are in
`broker/coordinators/runtime/test_mutants.py`.
"""

import pytest
from broker.coordinators.mutants import assert_caught

from .shard_machine import ShardMachine, make_small
from .staging.transaction_machine import TransactionMachine

MUTANTS = {  # what is broken: (module, the text, the text instead)
    "a deadline that came early is not armed again": (
        "coordinators.groups.shard",
        "            else:\n                self.settle(hosted)\n        except AssertionError",
        "            else:\n                pass\n        except AssertionError",
    ),
    "a group whose deletion is under way is forgotten": (
        "coordinators.groups.shard",
        "hosted.is_removed = True\n        if hosted.deadline",
        "hosted.is_removed = True\n        self._table.saved.pop(hosted.group_id, 0)\n        if hosted.deadline",
    ),
    "a deletion covers only what is committed": (
        "coordinators.groups.shard",
        "(*self.staging.staged.of_group(group_id), *(name[1:3] for name in coming))",
        "(*self.staging.staged.of_group(group_id),)",
    ),
    "a deletion leaves a group's record that is under way": (
        "coordinators.groups.shard",
        "in self._table.saved or GroupKey(group_id) in self.under_way",
        "in self._table.saved",
    ),
    "a group is forgotten while something of it is under way": (
        "coordinators.groups.shard",
        "            and not self.under_way.of_owner(group_id)\n",
        "",
    ),
    "an offset that is in use expires": (
        "coordinators.groups.expiry",
        "if place in known and not (coming and",
        "if place in known and not (False and",
    ),
    "a group that is in use expires": (
        "coordinators.groups.expiry",
        "and not coming and not pending:",
        "and not pending:",
    ),
    "nobody is listened to anew after a stall": (
        "coordinators.groups.shard",
        "                hosted.group.restart_sessions(now_ms)\n                self.settle(hosted)\n",
        "                pass\n",
    ),
}


WITH_TRANSACTIONS = {
    "a transaction with many offsets ends with a part of them": (
        "coordinators.groups.table",
        "return len(ended) == ENDED_STEP",
        "return False",
    ),
    "a record counts that is older than one in force": (
        "coordinators.groups.state_machine.staged",
        "            if is_commit and value is not None:\n",
        "            if False:\n",
    ),
    "a record passes for older than those before it": (
        "coordinators.groups.state_machine.staged",
        "        places[place] = (*others, producer_id)\n",
        "        places[place] = (producer_id, *others)\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MUTANTS, *WITH_TRANSACTIONS])
def test_the_machine_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    if name in MUTANTS:
        assert_caught(ShardMachine, *MUTANTS[name])
    else:
        assert_caught(TransactionMachine, *WITH_TRANSACTIONS[name])
