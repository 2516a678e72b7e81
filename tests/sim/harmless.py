"""Mutants of the core that tests or seeds do not notice, each with the reason.

`harmless.txt`: nothing notices them, because they make no difference that anybody should mind. `scripts/mutants` ends
with status 1 if one of these is noticed all the same, or if one that is not here is noticed by nothing.

`beyond_seeds.txt`: of those that were chosen to be judged by seeds alone (`test_operator_mutants`), the ones that
break no promise that the simulator could watch; the examples notice them.

In both a reason stands in one line, and under it, indented, the names that `operators` gives them. A test fails if
one of these does not exist.
"""

from pathlib import Path

__all__ = ["BEYOND_SEEDS", "HARMLESS", "read_reasons"]


def read_reasons(file: Path) -> dict[str, str]:
    """Return the reason of each name in such a file."""
    found = dict[str, str]()
    reason = ""
    for line in filter(None, file.read_text().splitlines()):
        if line.startswith(" "):
            assert line.strip() not in found, f"twice: {line}"
            found[line.strip()] = reason
        else:
            reason = line
    return found


HARMLESS = read_reasons(Path(__file__).with_name("harmless.txt"))
"""By the name of the mutant: the reason."""

BEYOND_SEEDS = read_reasons(Path(__file__).with_name("beyond_seeds.txt"))
"""By the name of the mutant: the reason why an example sees it, and no seed."""
