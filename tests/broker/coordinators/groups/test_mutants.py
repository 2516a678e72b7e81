"""The shard machine must catch these. If it does not, it is the machine that is broken.

Each is one mistake between the coordinator's state and its log. A function is given the code that it would have with
the mistake, and keeps its name, so whoever calls it has the mistake, too.

Not here, because it changes nothing: a compaction that does not wait until what it has written is committed. Its cut
comes behind that in the log, and so in every outcome; waiting only bounds what is on its way.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import getsource

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sim.mutants import in_place

from .shard_machine import ShardMachine, make_small

MUTANTS = {  # what is broken: (module, the text, the text instead)
    "compaction writes what has a newer record under way": (
        "coordinators.runtime.shard",
        "if name in self.under_way:",
        "if False:",
    ),
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
    "a deletion covers only what is committed": (
        "coordinators.groups.shard",
        "places += [name[1:] for name in coming if isinstance(name, OffsetKey) and name[1:] not in known]",
        "pass",
    ),
    "a deletion leaves a group's record that is under way": (
        "coordinators.groups.shard",
        "in self._table.saved or GroupKey(group_id) in coming",
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
        "and not coming and not hosted.saves:",
        "and not hosted.saves:",
    ),
    "compaction does not wait for what is under way": (
        "coordinators.runtime.rewriting",
        "    if not await runtime.wait_committed():\n        return False\n    slices",
        "    slices",
    ),
    "a log that was cut is read on as if nothing had gone": (
        "coordinators.runtime.standby",
        "            self._forget()\n            self.applied_index",
        "            self.applied_index",
    ),
    "nobody is listened to anew after a stall": (
        "coordinators.groups.shard",
        "                hosted.group.restart_sessions(now_ms)\n                self.settle(hosted)\n",
        "                pass\n",
    ),
}


@contextmanager
def mutant(module_name: str, text: str, instead: str) -> Iterator[None]:
    """Have `instead` in a module of the broker where it says `text`."""
    module = import_module(f"barnabas_broker.{module_name}")
    source = getsource(module)
    assert source.count(text) == 1, f"the mutant no longer fits {module_name}.py; write it anew"
    with in_place(module, ast.parse(source.replace(text, instead))):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_machine_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    # Finding is enough here: shrinking is for readers. Each is found within 250 examples, most within 50.
    wanted = settings(
        max_examples=1_000,
        stateful_step_count=50,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
    )
    with mutant(*MUTANTS[name]), pytest.raises(BaseException):  # noqa: B017, PT011 - any way of noticing is good
        run_state_machine_as_test(ShardMachine, settings=wanted)
