"""Mistakes that a user would have paid for and that no test noticed once; each with the test that does now.

`scripts/seam-mutants` draws others by chance. These are kept for good: `test_kept` plants them, one at a time, and
runs the test that is named beside it.
"""

from typing import NamedTuple

__all__ = ["KEPT", "Kept"]


class Kept(NamedTuple):
    """One mistake: in `file`, `line` (which is there once) is replaced by `instead`; `test` must fail then.

    `what` says in a few words what a user would see.
    """

    what: str
    file: str
    line: str
    instead: str
    test: str


KEPT: list[Kept] = []
