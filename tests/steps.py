"""Takes generators that yield between small pieces of work to their end."""

from collections.abc import Generator
from typing import TypeVar

__all__ = ["outcome"]

T = TypeVar("T")


def outcome(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Return the generator's result, and how often it yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1
