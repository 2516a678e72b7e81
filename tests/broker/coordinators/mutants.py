"""Plants one mistake in a module of the broker, for machines that must notice it.

A function is given the code that it would have with the mistake, and keeps its name, so all its callers have the
mistake, too.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import getsource

from sim.mutants import in_place

__all__ = ["mutant"]


@contextmanager
def mutant(module_name: str, text: str, instead: str) -> Iterator[None]:
    """Have `instead` in a module of the broker where it says `text`."""
    module = import_module(f"barnabas_broker.{module_name}")
    source = getsource(module)
    assert source.count(text) == 1, f"the mutant no longer fits {module_name}.py; write it anew"
    with in_place(module, ast.parse(source.replace(text, instead))):
        yield
