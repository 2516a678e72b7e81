"""The parts of a transactional run that not every seed has. Pure.

They stand beside feeders and workers, each with topics and clients of its own. A third of the seeds have some, so that
the other two thirds go on as they were whatever is added here.
"""

from random import Random
from typing import NamedTuple

__all__ = ["EVERY", "Parts", "draw_parts"]

EVERY = 3
"""One seed of so many has parts."""


class Parts(NamedTuple):
    """See the module. The default has none.

    - `level`: of `transaction.version`, for all of the run.
    - `cuts`: records are deleted, also those of open transactions. `retention_ms`: and those that are so old (0: not).
    - `preparers`: so many clients of two-phase commit, which brokers offer then.
    - `repeats_ends`: clients whose EndTxn comes once more.
    - `compacts`: a topic with keys, of which only the newest record stays.
    """

    level: int = 2
    cuts: bool = False
    retention_ms: int = 0
    preparers: int = 0
    repeats_ends: bool = False
    compacts: bool = False


def draw_parts(seed: int) -> Parts:
    """Return the parts of `seed`."""
    if seed % EVERY != 1:
        return Parts()
    rng = Random(f"{seed}/parts")
    level = rng.choice((1, 2, 2))
    return Parts(
        level=level,
        cuts=rng.random() < 0.6,
        retention_ms=rng.choice((0, 700, 1_500)),
        preparers=rng.choice((0, 1, 2)) if level > 1 else 0,
        repeats_ends=rng.random() < (0.8 if level == 1 else 0.4),
        compacts=rng.random() < 0.4,
    )
