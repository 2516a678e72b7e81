"""Calls many, one after the other, so that the failure of one is its own.

A caller that takes all due items out of its queue and then calls one after the other loses those behind the first that
raises: nobody knows of them any more, and they wait for ever. So every such loop is `call_each`
(`tests/test_architecture.py` finds those that are not). An exception goes to a function that can tell the item that it
concerns. If there is none, and for a failed assertion, the others are called all the same, and then it is raised: the
process ends with it, as with any bug, whether the Raft driver called or the event loop.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["call_each"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


def call_each(
    items: Iterable[T], call: Callable[[T], object], failed: Callable[[T, Exception], None] | None = None
) -> None:
    """Call `call(item)` for each of `items`, also for those behind one for which it raises.

    `failed(item, error)` tells those that wait for that one; the traceback has been logged then.

    Raises:
        AssertionError: from `call`, when all were called.
        Exception: the same, if there is no `failed`, or if that raises. Of several the first; all are logged.
    """
    first: Exception | None = None
    for item in items:
        try:
            call(item)
        except Exception as error:
            logger.exception("the call for %s has failed", item)
            unsaid = _tell(item, error, failed)
            first = first or unsaid
    if first is not None:
        raise first


def _tell(item: T, error: Exception, failed: Callable[[T, Exception], None] | None) -> Exception | None:
    """Return the error that nobody could be told of."""
    if failed is None or isinstance(error, AssertionError):
        return error
    try:
        failed(item, error)
    except Exception as worse:
        logger.exception("%s could not be told of it", item)
        return worse
    return None
