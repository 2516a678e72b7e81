"""Does the work of a generator that pauses between small pieces, without the pauses. Pure.

The broker's `timing.slices` and `timing.turns`, and the controller, do it with them.
"""

from collections.abc import Generator
from typing import TypeVar

__all__ = ["at_once"]

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """Take all steps, and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
