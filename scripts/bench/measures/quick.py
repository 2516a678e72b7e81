"""Measures Barnabas alone for a minute, and compares with the last figures of this machine.

Three brokers are started once; every workload runs three times, in turn. Beside them a yardstick, a piece of Python
that has nothing to do with Barnabas, is timed before each: a figure is taken relative to it, because other work on the
machine slows both. A workload counts as slower when its *best* run is worse than the *worst* run of last time, and its
median by more than `TOLERANCE`; as faster likewise.

The figures are kept in the benchmarks' cache, one file a machine; `--keep` puts these in their place.

`--against COMMIT` asks for more, and takes longer: see `bench.measures.against`.
"""

import argparse
import hashlib
import platform
import statistics
import sys
import time
from pathlib import Path

import msgspec
from machines import held_memory
from machines.cache import CACHE
from rich.console import Console
from rich.table import Table

from bench import systems
from bench.loads.load import Load

from .against import against
from .compare import put_on

TURNS = 3
TOLERANCE = 0.1
YARDSTICK_STEPS = 400_000
WAY = "one session"  # of running brokers and load: figures of another way are no comparison
LOADS = {
    "produce, 1 KiB": ("mb_s", Load(kind="throughput", records=100_000)),
    "1 in flight": ("requests_s", Load(kind="tiny", seconds=2.0, record_bytes=100)),
    "16 in flight": ("requests_s", Load(kind="tiny", seconds=2.0, record_bytes=100, in_flight=16)),
}
Figures = dict[str, list[float]]


def yardstick() -> float:
    """Return the steps of plain Python that this machine does in a second, now."""
    began = time.perf_counter()
    total = 0
    for number in range(YARDSTICK_STEPS):
        total += number & 7
    return YARDSTICK_STEPS / (time.perf_counter() - began)


def measure() -> Figures:
    """Return each workload's figures, in units of a million steps of the yardstick."""
    figures = Figures()
    with systems.barnabas(synced=False) as running:
        put_on("barnabas", running, Load(kind="throughput", records=50_000))
        for _ in range(TURNS):
            for name, (metric, load) in LOADS.items():
                speed = yardstick()
                first = put_on("barnabas", running, load)[0]
                figures.setdefault(name, []).append(first.metrics[metric] / speed * 1e6)
    return figures


def verdict(now: list[float], before: list[float] | None) -> str:
    """Say whether figures of which more is better have changed by more than the noise."""
    if not before:
        return "nothing to compare with"
    change = statistics.median(now) / statistics.median(before) - 1
    if max(now) < min(before) and change < -TOLERANCE:
        return f"SLOWER by {-change:.0%}"
    if min(now) > max(before) and change > TOLERANCE:
        return f"faster by {change:.0%}"
    return f"within the noise ({change:+.0%})"


def file_of_machine() -> Path:
    machine = f"{platform.node()}/{platform.machine()}/{platform.release()}/{platform.python_version()}/{WAY}"
    return CACHE / f"quick-{hashlib.sha256(machine.encode()).hexdigest()[:12]}.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="compare with these figures from now on")
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit as well, in turn, and compare the two")
    parser.add_argument("--rounds", type=int, default=5, help="with --against: rounds of each")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="with --against: where samples go")
    held_memory.add_option(parser)
    options = parser.parse_args()
    with held_memory.holding(options.hold_memory):
        if not options.against:
            return before_and_now(keeps=options.keep)
        try:
            return against(options, Console(width=140))
        except ValueError as error:
            parser.error(str(error))


def before_and_now(*, keeps: bool) -> int:
    """Measure, print a table beside the figures that are kept, and return 1 if anything is slower, else 0."""
    file = file_of_machine()
    before = msgspec.json.decode(file.read_bytes(), type=Figures) if file.exists() else Figures()
    now = measure()
    table = Table(title=f"three brokers on this machine, {TURNS} turns; figures per million steps of Python")
    for heading in ("workload", "median", "least to most", "last time", "verdict"):
        table.add_column(heading)
    verdicts = {name: verdict(found, before.get(name)) for name, found in now.items()}
    for name, found in now.items():
        last = f"{statistics.median(before[name]):,.1f}" if before.get(name) else ""
        spread = f"{min(found):,.1f} to {max(found):,.1f}"
        table.add_row(name, f"{statistics.median(found):,.1f}", spread, last, verdicts[name])
    Console().print(table)
    if keeps or not before:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(now))
    return 1 if any(said.startswith("SLOWER") for said in verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
