"""Lets a job decide what SIGTERM does: the one by which service managers and schedulers ask it to end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["at_sigterm"]


@contextmanager
def at_sigterm(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` at each SIGTERM, in the main thread and between any two of its instructions. SIGINT interrupts all."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        act()

    before: Any = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
