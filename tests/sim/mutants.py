"""Build a copy of the core with one line broken, and see whether the simulator notices."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import NamedTuple

import barnabas_raftlog.raft
from barnabas_raftlog.raft import membership, messages

from .operators import Mutant, mutants_of
from .scenario import run_seed
from .simulator import Implementation

FOLDER = Path(barnabas_raftlog.raft.__file__).parent
CLONE = "barnabas_raftlog.raft_mutant"
# In the order in which they import each other. `messages` and `membership` stay the real ones: they are the language
# of the simulator.
MODULES = (
    *("quorum", "progress", "state", "uncertainty", "witness", "election", "follower", "replication", "leadership"),
    *("reconnect", "membership_change"),
    *("invariants", "core"),
)

HANGING_S = 30.0
"""CPU time after which a seed, which takes a fifth of a second, is taken for one that never ends."""


class Caught(NamedTuple):
    """`seed` noticed, by an exception of this kind."""

    seed: int
    how: str


class HangingError(Exception):
    """A seed did not end."""


def catch(implementation: Implementation, seeds: range) -> Caught | None:
    """Run seeds until one notices; None if none does. For the main thread, because of the time limit."""
    for seed in seeds:
        try:
            with _cpu_limit():
                run_seed(seed, implementation)
        except Exception as error:  # noqa: BLE001 - a broken core may raise anything, and all of it is a catch
            return Caught(seed, type(error).__name__)
    return None


@contextmanager
def _cpu_limit() -> Iterator[None]:
    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        raise HangingError(f"no end after {HANGING_S:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, on_alarm)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGING_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def mutant(module: str, line: str, instead: str) -> Implementation:
    """Return the core with `line` of `module` replaced."""
    source = source_of(module)
    assert source.count(line) == 1, f"the mutant no longer fits {module}.py; write it anew"
    return mutant_source(module, source.replace(line, instead))


def operator_mutants() -> Iterator[tuple[str, str, Mutant]]:
    """Return every mutant that operators can make of the core: (module, its source, the mutant)."""
    for module in MODULES:
        if module != "invariants":
            source = source_of(module)
            for found in mutants_of(module, source):
                yield module, source, found


def source_of(module: str) -> str:
    """Return the text of a module of the core."""
    return (FOLDER / f"{module}.py").read_text()


def mutant_source(module: str, mutated: str) -> Implementation:
    """Return the core with another text for `module`, as modules of their own beside the real ones."""
    package = ModuleType(CLONE)
    package.__path__ = []
    clones = {CLONE: package, f"{CLONE}.messages": messages, f"{CLONE}.membership": membership}
    before = {name: sys.modules.get(name) for name in (*clones, *(f"{CLONE}.{name}" for name in MODULES))}
    sys.modules.update(clones)
    try:
        for name in MODULES:
            source = mutated if name == module else source_of(name)
            clone = ModuleType(f"{CLONE}.{name}")
            clone.__package__ = CLONE
            sys.modules[clone.__name__] = clone
            exec(compile(source, f"mutant {name}.py", "exec"), clone.__dict__)  # noqa: S102
            setattr(package, name, clone)
    finally:
        for name, was in before.items():
            if was is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = was
    return Implementation(core=package.core, invariants=package.invariants)
