"""The judges of a mistake in the core: seeds of the simulator, and the examples.

*Seeds* look for broken promises, however they came about, and for groups that do not recover. *Examples* are the tests
of the paper and of the core, and the golden stories, which say word by word what a group does: a mistake that only
costs time, say an election that begins late, breaks no promise and shows in a story. Both run in this process, so that
a mistake that is in place (`mutants`) is judged without a start.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from inspect import isfunction, signature
from types import ModuleType
from typing import Any

import pytest

from .scenario import run_seed

SEEDS = (
    40,
    345,
    26,
    445,
    248,
    388,
    181,
    213,
    304,
    58,
    81,
    152,
    129,
    171,
    188,
    223,
    452,
    455,
    486,
    16,
    51,
    133,
    384,
    392,
    27,
)
"""A mistake that breaks a promise must be noticed by one of these: of the first 500 those with most faults,
and three for mistakes that need a rare one."""

EXAMPLES = (
    "paper.test_raft",
    "paper.test_membership",
    "test_core",
    "test_elections",
    "test_standing",
    "test_following",
    "test_consent",
    "test_leading",
    "test_power_loss",
    "test_progress",
    "test_log_ends",
    "test_distant_elections",
)
STORIES = "test_stories"


def noticing_seed(seeds: Iterable[int]) -> int | None:
    """Run seeds until one fails; return it."""
    return next((seed for seed in seeds if _fails(run_seed, seed)), None)


def failing_example() -> str | None:
    """Run the examples until one fails; return its name."""
    return next((name for name, test in _examples().items() if _fails(test)), None)


def _fails(test: Callable[..., object], *arguments: object) -> bool:
    try:
        test(*arguments)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a broken core may raise anything; all of it is a catch
        return True
    return False


@cache
def _examples() -> dict[str, Callable[[], object]]:
    found = {name: test for module in EXAMPLES for name, test in _tests_of(_raft_tests(module))}
    stories = _raft_tests(STORIES)
    for path in stories.STORIES:
        found[f"story {path.stem}"] = partial(stories.test_story, path)
    return found


def _raft_tests(name: str) -> Any:
    return import_module(f"raftlog.raft.{name}")


def _tests_of(module: ModuleType) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the tests that need nothing from pytest, and are expected to pass."""
    for name, test in vars(module).items():
        if name.startswith("test_") and isfunction(test) and not signature(test).parameters and not _marks(test):
            yield name, test


def _marks(test: object) -> set[str]:
    return {mark.name for mark in getattr(test, "pytestmark", ())} - {"slow"}
