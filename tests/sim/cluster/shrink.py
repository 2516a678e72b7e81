"""Makes a failing run smaller, as long as it still fails the same way.

That is: fewer faults, fewer clients, a shorter time. The plan of faults is a list (`swarm.Choice.faults`), so delta
debugging applies: leave out halves, then quarters, and so on. A smaller run counts as the same failure if the first
words of its message are the same.
"""

from collections.abc import Callable, Iterator, Sequence

from .service import Service
from .swarm import Choice, Fault

__all__ = ["shrink"]

ATTEMPTS_MAX = 60


def shrink(choice: Choice, fails: Callable[[Choice], bool]) -> Choice:
    """Return a choice as small as `ATTEMPTS_MAX` runs allow that still fails. `fails(choice)` is known to be true."""
    left = ATTEMPTS_MAX

    def try_all(candidates: Iterator[Choice]) -> Choice | None:
        nonlocal left
        for candidate in candidates:
            if not left:
                return None
            left -= 1
            if fails(candidate):
                return candidate
        return None

    pieces = 2
    while choice.faults and left:
        smaller = try_all(choice._replace(faults=rest) for rest in _without_a_piece(choice.faults, pieces))
        if smaller is not None:
            choice = smaller
            pieces = max(2, pieces - 1)
        elif pieces >= len(choice.faults):
            break
        else:
            pieces = min(2 * pieces, len(choice.faults))
    while (smaller := try_all(_simpler(choice))) is not None:
        choice = smaller
    return choice


def _without_a_piece(faults: Sequence[Fault], pieces: int) -> Iterator[tuple[Fault, ...]]:
    size = max(1, len(faults) // pieces)
    for start in range(0, len(faults), size):
        yield (*faults[:start], *faults[start + size :])


def _simpler(choice: Choice) -> Iterator[Choice]:
    last_us = max((fault.at_us + fault.duration_us for fault in choice.faults), default=0) + 500_000
    if last_us < choice.safety_us:
        yield choice._replace(safety_us=last_us)
    for name, value in choice.service._asdict().items():
        least = Service._field_defaults[name]
        if value != least:
            yield choice._replace(service=choice.service._replace(**{name: least}))
    if choice.plain_producers:
        yield choice._replace(plain_producers=0)
    if choice.idempotent_producers > 1:
        yield choice._replace(idempotent_producers=1)
    if choice.members:
        yield choice._replace(members=0)
    if choice.partitions > 1:
        yield choice._replace(partitions=1)
