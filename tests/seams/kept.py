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


KEPT: list[Kept] = [
    Kept(
        "a call that raises takes with it the records that it has taken, and they are committed",
        "clients/barnabas_clients/fetcher.py",
        "if not is_first:",
        "if False:",
        "tests/clients/consumer/test_consumer_model.py",
    ),
    Kept(
        "offsets without records finish with records that are in the application's hands",
        "clients/barnabas_clients/fetcher.py",
        "if queue.finished == queue.position:",
        "if True:",
        "tests/clients/consumer/test_consumer_model.py",
    ),
]
