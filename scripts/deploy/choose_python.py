"""Chooses the interpreter for `.venv`: `choose_python.py PYTHON...` prints one of them.

The first is the default, and runs this. Another one of the same version (3.11, say) is taken if the same code takes it
less than `WORTH_IT` of the default's time: interpreters that were built without profile-guided optimization, as version
managers do unless they are told otherwise, let a broker need more of the processor, and records wait a third longer
(docs/adr/code/0014-the-interpreter-is-chosen.md). Flags of the build say too little of that, so it is measured.
"""

import os
import subprocess
import sys
from collections.abc import Mapping

__all__ = ["choose", "main"]

WORTH_IT = 0.92  # two runs of one interpreter differ by less
ROUNDS = 3  # in turn, so that other work of the machine meets all of them
LIMIT_S = 20  # for a probe, which takes a quarter of a second

# Calls, attributes, small objects, a dictionary: a broker's work. Prints the version and the best time, in seconds.
PROBE = """
import ensurepip, sys, time, venv
class Counter:
    __slots__ = ("count",)
    def __init__(self):
        self.count = 0
    def add(self, number):
        self.count += number
        return self.count
def work():
    counter, seen = Counter(), {}
    for number in range(100_000):
        seen[number & 255] = (counter.add(number), number)
best = 1e9
for _ in range(8):
    begun = time.perf_counter()
    work()
    best = min(best, time.perf_counter() - begun)
print(sys.version_info[0], sys.version_info[1], best)
"""


def choose(default: str, best_s: Mapping[str, float]) -> str:
    """Return the interpreter to use. `best_s`: the time of each that can be used, in seconds; ties go to the first."""
    if not best_s:
        return default
    quickest = min(best_s, key=best_s.__getitem__)
    is_worth_it = default not in best_s or best_s[quickest] < WORTH_IT * best_s[default]
    return quickest if is_worth_it else default


def probe(python: str) -> tuple[tuple[int, int], float] | None:
    """Return the version of an interpreter and its time in seconds; None if it cannot make an environment."""
    try:
        command = [python, "-I", "-c", PROBE]
        said = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        major, minor, best = said.split()
        return (int(major), int(minor)), float(best)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def main(candidates: list[str]) -> int:
    default = candidates[0]
    first: dict[str, str] = {}  # of several names of one file
    for python in candidates:
        first.setdefault(os.path.realpath(python), python)
    usable = list(first.values())
    best_s: dict[str, float] = {}
    for _ in range(ROUNDS if len(usable) > 1 else 0):
        for python in usable.copy():
            found = probe(python)
            if found is None or found[0] != sys.version_info[:2]:
                usable.remove(python)
                best_s.pop(python, None)
                continue
            best_s[python] = min(found[1], best_s.get(python, found[1]))
    chosen = choose(default, best_s)
    if chosen != default and default in best_s:
        ratio = best_s[default] / best_s[chosen]
        print(f"{chosen}: {ratio:.2f} times as fast as {default} (PYTHON=... chooses another)", file=sys.stderr)
    print(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
