"""The groups of a seed, drawn from a stream of their own."""

from random import Random
from typing import NamedTuple

__all__ = ["NOBODY_GROUPED", "Groups", "draw_groups"]


class Groups(NamedTuple):
    """`consumer`, `classic`, `mixed` (with members of both protocols): so many groups; none: a run without this work.

    - `members_max`: of one group.
    - `topics`, `partitions`: what stays. `topics_pass`: others come and go, which expressions match.
    - `pause_ms`: so long, about, a group is left alone between two things that happen to it.
    """

    consumer: int = 0
    classic: int = 0
    mixed: int = 0
    members_max: int = 4
    topics: int = 2
    partitions: int = 3
    topics_pass: bool = False
    pause_ms: int = 600

    @property
    def is_there(self) -> bool:
        return bool(self.consumer or self.classic or self.mixed)


NOBODY_GROUPED = Groups()


def draw_groups(seed: int) -> Groups:
    """Return the groups of `seed`: one or two of KIP-848, at times a classic one, at times one with both protocols."""
    rng = Random(f"{seed}/groups")
    return Groups(
        consumer=rng.choice((1, 1, 2)),
        classic=rng.choice((0, 0, 1)),
        members_max=rng.choice((2, 3, 4, 5)),
        topics=rng.choice((1, 2, 2, 3)),
        partitions=rng.choice((1, 2, 3, 4)),
        topics_pass=rng.random() < 0.6,
        pause_ms=rng.choice((300, 600, 1_200)),
        mixed=rng.choice((0, 1)),
    )
