"""Plants one mistake in a module of the broker, for machines that must notice it.

A function is given the code that it would have with the mistake, and keeps its name, so all its callers have the
mistake, too.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import getsource

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from sim.mutants import in_place

# Finding is enough here: shrinking is for readers. Each is found within 250 examples, most within 50.
WANTED = settings(
    max_examples=1_000,
    stateful_step_count=50,
    deadline=None,
    phases=[Phase.generate],
    database=None,
    derandomize=True,
)

__all__ = ["assert_caught", "planted"]


def assert_caught(machine: type[RuleBasedStateMachine], module_name: str, text: str, instead: str) -> None:
    """Have the mistake, and hold the machine to notice it in any way."""
    with planted(module_name, text, instead), pytest.raises(BaseException):  # noqa: B017, PT011 - any way is good
        run_state_machine_as_test(machine, settings=WANTED)


@contextmanager
def planted(module_name: str, text: str, instead: str) -> Iterator[None]:
    """Have `instead` in a module of the broker where it says `text`."""
    module = import_module(f"barnabas_broker.{module_name}")
    source = getsource(module)
    assert source.count(text) == 1, f"the mutant no longer fits {module_name}.py; write it anew"
    with in_place(module, ast.parse(source.replace(text, instead))):
        yield
