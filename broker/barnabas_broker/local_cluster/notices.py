"""Tells people what a blocking call waits for, once it has taken a second."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["NOTICE_S", "Tell", "noticed", "silent"]

NOTICE_S = 1.0

Tell = Callable[[str], None]


def silent(_: str) -> None:
    """Tell nobody."""


@contextmanager
def noticed(tell: Tell, text: str) -> Iterator[None]:
    """Tell the text, in another thread, if the block takes longer than a second; never after its end."""
    timer = threading.Timer(NOTICE_S, tell, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
