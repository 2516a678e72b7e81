"""Turns failures of a command into one line on stderr and an exit status. Tracebacks are for our own bugs."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas_raftlog.errors import BarnabasError

from .output import complain

__all__ = ["CommandError", "UsageError", "guarded", "report", "typed"]

FAILED = 1
ASKED_WRONGLY = 2
INTERRUPTED = 130


class CommandError(BarnabasError):
    """The command cannot be done; the text is for the person who typed it."""

    status = FAILED


class UsageError(CommandError):
    """The command line makes no sense, whatever the cluster is like: exit status 2."""

    status = ASKED_WRONGLY


@contextmanager
def typed() -> Iterator[None]:
    """Say in one line what a client refuses at the call: a typed value is too long, or too large."""
    try:
        yield
    except ValueError as error:
        raise CommandError(str(error)) from error


def guarded(command: Callable[[], int]) -> int:
    """Run a command and turn every expected failure into its line and status."""
    try:
        status = command()
        sys.stdout.flush()
    except BarnabasError as error:
        return report(str(error), getattr(error, "status", FAILED))
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        # So typer and rich end a process whose write failed for want of a reader; 1 would say that the command failed.
        if isinstance(end.__context__, BrokenPipeError):
            return _nobody_reads()
        raise
    except OSError as error:
        if error.errno == errno.EPIPE:
            return _nobody_reads()
        return report(f"{error.filename}: {error.strerror}" if error.filename else str(error), FAILED)
    return status


def _nobody_reads() -> int:
    """End well: the reader of our output has had enough (`| head`). Python must not complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def report(text: str, status: int) -> int:
    """Print one line, whatever the text looks like, and return the status."""
    complain(" ".join(text.split()))
    return status
