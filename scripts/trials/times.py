"""Reads out of the brokers' logs where the time after a fault went.

A partition that loses its leader passes these points, each counted in seconds from the moment of the fault:

    missed        another broker says that the leader is gone, or the leader says that nobody hears it
    elected       a replica has the votes of a majority
    confirmed     an entry of its own term is committed: from here on it acknowledges
    acknowledged  a client has the answer to a record that it sent after the fault

The first is the failure detector's share, the next two are Raft's and the disks', the last is the client's. A partition
whose leader was not struck passes none but the last.

Pure but for `LogReader`. It relies on the wording of three events and the time in front of a line, both the brokers'
own. If they are not found, the answer is only that nothing is known.
"""

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

__all__ = ["LogReader", "Pause", "Phases", "medians", "percentile", "phases_of"]

# 2026-11-21 23:18:03,221 INFO barnabas_broker.status.events: torture-3: leader elected: votes of [2, 3] (term 3)
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \w+ barnabas_broker\.status\.events: (\S+): ([a-z ]+): ")
_MISSED = frozenset({"leader lost", "leadership ended", "campaign"})
_ELECTED = "leader elected"
_CONFIRMED = "leadership confirmed"


class Phases(NamedTuple):
    """Seconds from the fault to each point."""

    missed_s: float
    elected_s: float
    confirmed_s: float
    acknowledged_s: float

    def __str__(self) -> str:
        return (
            f"missed {self.missed_s:.2f}, elected {self.elected_s:.2f}, confirmed {self.confirmed_s:.2f}, "
            f"acknowledged {self.acknowledged_s:.2f}"
        )


class Pause(NamedTuple):
    """The cost of one round: the slowest partition, its time, and its way there, if it had an election."""

    partition: str
    seconds: float
    phases: Phases | None


def phases_of(lines: Iterable[str], partition: str, struck_at: float, seconds: float) -> Phases | None:
    """Return a partition's way from the fault to its first acknowledgement, out of the lines of all brokers.

    Several elections may have been needed: the one that counts is the last that was confirmed before the
    acknowledgement. None: there was none.
    """
    missed = []
    elected = []
    confirmed = []
    for line in lines:
        found = _LINE.match(line)
        if found is None or found[2] != partition:
            continue
        after_s = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp() - struck_at  # noqa: DTZ007 - local time, as logged
        if not 0 <= after_s <= seconds:
            continue
        if found[3] in _MISSED:
            missed.append(after_s)
        elif found[3] == _ELECTED:
            elected.append(after_s)
        elif found[3] == _CONFIRMED:
            confirmed.append(after_s)
    if not missed or not confirmed:
        return None
    last_s = max(confirmed)
    before = [at_s for at_s in elected if at_s <= last_s]
    return Phases(min(missed), max(before), last_s, seconds) if before else None


def medians(pauses: Sequence[Pause]) -> Phases | None:
    """Return the median of each point over the rounds in which the slowest partition had an election."""
    known = [pause.phases for pause in pauses if pause.phases is not None]
    return Phases(*map(statistics.median, zip(*known, strict=True))) if known else None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * share) - 1)]


class LogReader:
    """Reads what was added to some files since `skip`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._positions = dict.fromkeys(paths, 0)

    def skip(self) -> None:
        for path in self._positions:
            self._positions[path] = path.stat().st_size

    def lines(self) -> list[str]:
        found = []
        for path, position in self._positions.items():
            with path.open(errors="replace") as file:
                file.seek(position)
                found += file.readlines()
        return found
