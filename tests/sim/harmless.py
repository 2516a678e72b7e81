"""Mutants of the core that nothing notices, because they make no difference that anybody should mind; each with why.

They stand in `harmless.txt`: a reason in one line, and under it, indented, the names that `operators` gives them.
`scripts/mutants` ends with status 1 if one of these is noticed all the same, or if one that is not here is noticed by
nothing; a test fails if one of these does not exist.
"""

from pathlib import Path

__all__ = ["HARMLESS"]


def _read(text: str) -> dict[str, str]:
    found, reason = dict[str, str](), ""
    for line in filter(None, text.splitlines()):
        if line.startswith(" "):
            assert line.strip() not in found, f"twice: {line}"
            found[line.strip()] = reason
        else:
            reason = line
    return found


HARMLESS = _read(Path(__file__).with_suffix(".txt").read_text())
"""By the name of the mutant: the reason."""
