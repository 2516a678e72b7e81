"""Long work as a generator that yields between small pieces, and the same without a pause. Pure."""

from collections.abc import Generator
from typing import TypeVar

__all__ = ["at_once"]

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """Take all steps, and return what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
