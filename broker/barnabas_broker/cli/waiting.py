"""Tells people on stderr what a command waits for, once it has waited for a second, and what its client warns of.

The text comes from the client (`trouble`): nobody answers at an address, or a request is tried again and again. A text
that has not changed is not repeated.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from barnabas_broker.local_cluster.notices import NOTICE_S
from barnabas_clients import DeadlineExceededError
from barnabas_clients.cluster.connection import CLOSED_AT_ONCE
from barnabas_clients.cluster.trouble import NO_BROKER

from .errors import CommandError
from .output import complain

__all__ = ["Client", "told"]

# So that a wait which begins later is not told of a whole second late.
LOOK_EVERY_S = 0.25
# A cluster that flaps must not fill a screen. The last failure is told at the end in any case.
LINES_MAX = 10
LIBRARY = "barnabas_clients"
OUTAGES = f"{LIBRARY}.cluster"
NOBODY = "Is a cluster running? (barnabas cluster start --data DIR)"


class Client(Protocol):
    """An Admin, a Producer or a Consumer."""

    @property
    def trouble(self) -> str:
        """Why nothing happens, in one line; "" if all is well."""
        ...


class _Warnings(logging.Handler):
    """Prints what the clients' library warns of as lines of this command."""

    def emit(self, record: logging.LogRecord) -> None:
        # An outage is told by `trouble`, with the time that is left.
        if record.name != OUTAGES:
            complain(record.getMessage())


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Print the library's warnings while the block runs; blocks in each other print them once."""
    logger = logging.getLogger(LIBRARY)
    if any(isinstance(handler, _Warnings) for handler in logger.handlers):
        yield
        return
    handler = _Warnings(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@asynccontextmanager
async def told(source: Client | str, timeout_s: float | None) -> AsyncIterator[None]:
    """While the block runs, tell what `source` waits for when that has taken a second, and then each change of it.

    Args:
        source: a client, or what is waited for if the block is a wait for one thing.
        timeout_s: how long one request is tried, for people to know; None: without an end.

    Raises:
        CommandError: the block has run into a deadline because no broker can be reached.
    """
    loop = asyncio.get_running_loop()
    until = "" if timeout_s is None else f"; trying until {timeout_s:g} s are over"
    lines: list[str] = []
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        text = f"waiting for {source}" if isinstance(source, str) else source.trouble
        if text and text not in lines[-1:]:
            lines.append(text)
            complain(f"{text}{until}")
        if len(lines) < LINES_MAX:
            timer = loop.call_later(LOOK_EVERY_S, look)

    timer = loop.call_later(NOTICE_S, look)
    try:
        with _warnings_told():
            yield
    except DeadlineExceededError as error:
        trouble = "" if isinstance(source, str) else source.trouble
        if trouble.startswith(NO_BROKER):
            raise CommandError(trouble if CLOSED_AT_ONCE in trouble else f"{trouble}. {NOBODY}") from error
        raise
    finally:
        timer.cancel()
