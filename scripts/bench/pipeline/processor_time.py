"""Sums the processor time of a process and of all below it: what a query costs, however busy the machine is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Spent", "processor_s", "spent_of", "tree_s"]


class Spent(NamedTuple):
    """One process: its parent, and its own seconds with those of children that it has waited for."""

    parent: int
    seconds: float


def processor_s(pid: int) -> float:
    """Return the processor seconds of a process and its descendants so far, those that have ended included.

    Those count that somebody below `pid` waited for.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = file.read_text()
        except OSError:
            continue  # It has ended.
        found[int(file.parent.name)] = spent_of(text, ticks)
    return tree_s(pid, found)


def spent_of(stat: str, ticks: int) -> Spent:
    """Read a line of `/proc/PID/stat`. The name in it is in brackets, and may contain anything."""
    fields = stat.rpartition(")")[2].split()
    return Spent(int(fields[1]), sum(map(int, fields[11:15])) / ticks)


def tree_s(pid: int, processes: Mapping[int, Spent]) -> float:
    """Return the sum over `pid` and all that are below it."""
    total = 0.0
    for one in processes:
        above = one
        while above != pid and above in processes:
            above = processes[above].parent
        if above == pid:
            total += processes[one].seconds
    return total
