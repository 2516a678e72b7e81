"""Ends the process when a callback of the event loop raises: that is a bug.

The loop would only log it, and go on with the callback's work undone: a timer that is not set again, requests that are
not looked at any more. A transport that fails is something else: the loop closes that connection, and says so here.
"""

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["end_on_bugs"]


def end_on_bugs(loop: asyncio.AbstractEventLoop, fail: Callable[[BaseException], None]) -> None:
    """Tell `fail` of every exception that a callback of `loop` raises, and of every failed assertion it reports."""

    def on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is not None and ("handle" in context or isinstance(error, AssertionError)):
            fail(error)

    loop.set_exception_handler(on_error)
