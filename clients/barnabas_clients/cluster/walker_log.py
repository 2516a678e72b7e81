"""Tells in the log, once a process, that the compiled record walker is missing."""

import functools
import logging

from barnabas_raftlog.records.walker.twins import LACK

__all__ = ["tell_lack_once"]

logger = logging.getLogger("barnabas_clients.walker")


@functools.cache
def tell_lack_once() -> None:
    """Tell what this installation lacks, if it lacks anything and nobody was told."""
    if LACK:
        logger.info("%s", LACK)
