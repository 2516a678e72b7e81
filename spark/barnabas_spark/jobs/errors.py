"""Turns failures of a job into one line on standard error and an exit status. Tracebacks are for our own bugs."""

import os
import sys
from collections.abc import Callable

from barnabas_raftlog.errors import BarnabasError

from .output import complain

__all__ = ["INTERRUPTED", "UsageError", "guarded"]

FAILED = 1
ASKED_WRONGLY = 2
INTERRUPTED = 130


class UsageError(BarnabasError):
    """The command line makes no sense, whatever the cluster and the table are like: exit status 2."""

    status = ASKED_WRONGLY


def guarded(job: Callable[[], int]) -> int:
    """Run a job, and turn every expected failure into its line and status."""
    try:
        status = job()
        sys.stdout.flush()
    except BarnabasError as error:
        complain(str(error))
        return getattr(error, "status", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has had enough (`| head`). Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return FAILED
    return status
