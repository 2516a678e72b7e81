"""Holds memory while something is measured, so that what others get has been in use before.

The host of a virtual machine may take back what the machine has free (balloons that report free pages). The next one to
use such a page waits for the host: a GiB of page cache took 3 to 8 s where 0.4 s were enough for one that had been used
a moment before, all of it processor time of the kernel (`copy_folio_from_iter_atomic`). Two systems in turns then have
the figures of the pages that each happens to get: of one sink, every other round took 7 s instead of 2.5. Where most of
the memory is held, the rest goes from hand to hand, as on a server whose page cache is full.

This module is also the program that holds it.
"""

import argparse
import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .modules import module_command, module_environment

__all__ = ["add_option", "holding"]

PIECE = bytes(1 << 20)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--hold-memory`, whose value is for `holding`."""
    parser.add_argument(
        "--hold-memory",
        type=float,
        default=0.0,
        metavar="GIB",
        help="have so much memory used and held meanwhile; on a virtual machine, all but some 6 GiB of it",
    )


@contextmanager
def holding(gib: float) -> Iterator[None]:
    """Have a process that has used so many GiB, and keeps them, while the block runs; with 0 nothing is done.

    Raises:
        RuntimeError: it could not have them.
    """
    if not gib:
        yield
        return
    words = module_command("machines.held_memory", gib)
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=module_environment(), stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"{gib:g} GiB of memory cannot be held: the process has ended, status {process.wait()}")
        try:
            yield
        finally:
            process.kill()


def hold(gib: float) -> None:
    """Use so many GiB, say so, and keep them until standard input ends."""
    count = int(gib * 1024)
    with mmap.mmap(-1, count << 20) as memory:
        for _ in range(count):
            memory.write(PIECE)
        print("held", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    hold(float(sys.argv[1]))
