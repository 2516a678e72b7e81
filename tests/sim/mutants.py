"""Puts a mistake into the core while it is there for all to use.

A function of Python can be given other code, and keeps its name, its place in every table and its callers. So a mutant
is the whole module compiled with one mistake, and its functions' code in place of theirs until it was judged. Nothing
is copied, and all tests of the core test the mutant: simulated seeds, golden stories, tests of the paper.

A mutant may never end. Every `while` of the modules is compiled with a limit of turns, and the simulator has a limit
of steps; so a mutant that hangs is caught by counting, in every run alike, and not by a clock.
"""

import ast
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from inspect import getsource
from types import CodeType, FunctionType, ModuleType

from .operators import mutants_of, mutated

PACKAGE = "barnabas_raftlog.raft"
MODULES = (
    "quorum",
    "log_ends",
    "progress",
    "state",
    "uncertainty",
    "witness",
    "election",
    "follower",
    "replication",
    "leadership",
    "reconnect",
    "membership",
    "membership_change",
    "core",
)
"""The core without its messages, which decide nothing, and without its invariants, which are a judge."""

JUDGED = ("quorum", "state", "election", "follower", "log_ends", "progress")
"""Votes, elections, what is appended and acknowledged, what is committed: each mutant of these is noticed, or listed.

Not yet the others: `scripts/mutants --module replication` shows what nothing notices there.
"""

TURNS_MAX = 20_000
"""Turns of one loop. The core's longest runs over the entries that fit a window, a few hundred here."""


def operator_mutants(modules: Iterable[str] = JUDGED) -> dict[str, str]:
    """Return the name of every mutant that operators can make of these modules, and where it is: `election.py:81`."""
    return {
        name: f"{module}.py:{line}"
        for module in modules
        for name, line in mutants_of(module, source_of(module)).items()
    }


@contextmanager
def operator_mutant(name: str) -> Iterator[None]:
    """Keep the mistake of that name in the core."""
    module = name.partition(".")[0]
    tree = mutated(module, source_of(module), name) if module in MODULES else None
    assert tree is not None, f"no operator makes this of the core any more: {name}"
    with _in_place(module, tree):
        yield


@contextmanager
def mutant(module: str, line: str, instead: str) -> Iterator[None]:
    """Keep `instead` in the core in place of `line` of `module`."""
    source = source_of(module)
    assert source.count(line) == 1, f"the mutant no longer fits {module}.py; write it anew"
    with _in_place(module, ast.parse(source.replace(line, instead))):
        yield


def source_of(module: str) -> str:
    """Return the text of a module of the core."""
    return getsource(_imported(module))


def _imported(module: str) -> ModuleType:
    return import_module(f"{PACKAGE}.{module}")


@contextmanager
def in_place(module: ModuleType, tree: ast.Module) -> Iterator[None]:
    """Let the functions of a module run as in `tree`, which is that module with a mistake in it."""
    with ExitStack() as stack:
        _replace(stack, module, _codes(tree))
        yield


@contextmanager
def _in_place(module: str, tree: ast.Module) -> Iterator[None]:
    with ExitStack() as stack:
        for name in MODULES:
            _replace(stack, _imported(name), _codes(tree) if name == module else _limited(name))
        yield


def _replace(stack: ExitStack, module: ModuleType, codes: dict[str, CodeType]) -> None:
    for function in _functions(module):
        stack.callback(setattr, function, "__code__", function.__code__)
        function.__code__ = codes[function.__qualname__]


@cache
def _limited(module: str) -> dict[str, CodeType]:
    return _codes(ast.parse(source_of(module)))


def _codes(tree: ast.Module) -> dict[str, CodeType]:
    """Compile a module with limits for its loops; return the code of each function by its qualified name."""
    found = dict[str, CodeType]()
    waiting = [compile(ast.fix_missing_locations(_Limits().visit(tree)), "mutant", "exec")]
    while waiting:
        code = waiting.pop()
        found[code.co_qualname] = code
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


class _Limits(ast.NodeTransformer):
    """Ends every `while` that does not end itself."""

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        self.generic_visit(node)
        count, check = ast.parse(f"turns += 1\nassert turns <= {TURNS_MAX}, 'a loop without end'").body
        node.body[:0] = [count, check]
        return [*ast.parse("turns = 0").body, node]


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions, methods and properties that a module defines."""
    owners = [module, *(value for value in vars(module).values() if isinstance(value, type))]
    for owner in owners:
        if owner is module or owner.__module__ == module.__name__:
            for value in vars(owner).values():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(function, FunctionType) and function.__code__.co_filename == module.__file__:
                    yield function
