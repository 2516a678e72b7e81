"""Build a copy of the core with one line broken."""

import sys
from pathlib import Path
from types import ModuleType

import barnabas_raftlog.raft
from barnabas_raftlog.raft import membership, messages

from .simulator import Implementation

FOLDER = Path(barnabas_raftlog.raft.__file__).parent
CLONE = "barnabas_raftlog.raft_mutant"
# In the order in which they import each other. `messages` and `membership` stay the real ones: they are the language
# of the simulator.
MODULES = (
    *("quorum", "progress", "state", "uncertainty", "election", "follower", "replication", "leadership", "reconnect"),
    "membership_change",
    *("invariants", "core"),
)


def mutant(module: str, line: str, instead: str) -> Implementation:
    """Return the core with `line` of `module` replaced."""
    source = source_of(module)
    assert source.count(line) == 1, f"the mutant no longer fits {module}.py; write it anew"
    return mutant_source(module, source.replace(line, instead))


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
                del sys.modules[name]
            else:
                sys.modules[name] = was
    return Implementation(core=package.core, invariants=package.invariants)
