"""Compares two commits of Barnabas in one run, round by round.

In each round three brokers of one commit are started afresh, warmed up and measured in each durability mode, then three
of the other; their order alternates. So work that slows the machine for a minute slows both. The load is this
checkout's in either case, and so are the libraries and the interpreter: only the brokers' code differs. The other
commit's is taken out of git once, into the benchmarks' cache.

A figure counts as slower when its median is less than `RATIO_MIN` of the other commit's as good, *and* lies outside of
the range of the other commit's rounds.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from machines.cache import CACHE
from rich.console import Console
from rich.table import Table

from bench import systems
from bench.loads.load import Load, Measured
from bench.report import Row, Sample, Samples, rows_of

from .compare import WARM, header_of, put_on
from .idle import rss_mib

__all__ = ["against", "tree_of", "verdict"]

ROOT = Path(__file__).resolve().parents[3]
RATIO_MIN = 0.95
NOW = "barnabas"  # as `Row.ratio` calls it
BEFORE = "before"
MODES = ("page-cache", "synced")
JUDGED = ("mb_s", "p50_ms", "p99_ms", "rss_mib")
LOADS = {
    "1 KiB": Load(kind="throughput", records=200_000),
    "1,000 records/s": Load(kind="latency", rate=1_000, seconds=6.0),
}


def tree_of(commit: str, repository: Path = ROOT, cache: Path = CACHE) -> Path:
    """Return a folder in `cache` with the files of a commit, taken out of git if it is not there yet.

    Raises:
        ValueError: git knows no such commit.
    """
    asked = ("git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    name = subprocess.run(asked, cwd=repository, capture_output=True, text=True, check=False).stdout.strip()
    if not name:
        raise ValueError(f"{commit} is not a commit that git knows here")
    folder = cache / "commits" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent))
        archive = subprocess.run(("git", "archive", name), cwd=repository, capture_output=True, check=True).stdout
        subprocess.run(("tar", "-x", "-C", part), input=archive, check=True)
        # Otherwise the first start of three brokers compiles everything three times at once.
        subprocess.run((sys.executable, "-m", "compileall", "-q", part), check=False, capture_output=True)
        # A commit of before the compiled walker has no such file, and needs none.
        if (compiler := part / "clients" / "compile_walker.py").exists():
            subprocess.run((sys.executable, compiler), check=True, capture_output=True)
        part.rename(folder)  # As one step: a folder of that name has all of it.
    return folder


def against(options: argparse.Namespace, console: Console) -> int:
    """Measure this checkout and the commit `options.against`, print a table, return 1 if anything is slower, else 0.

    Every single value is kept in the folder `options.out` (`samples.json`).
    """
    commit = options.against
    rounds = options.rounds
    trees = {NOW: ROOT, BEFORE: tree_of(commit)}
    samples = Samples(header_of(options), [])
    for number in range(1, rounds + 1):
        for mode in MODES:
            for name in (NOW, BEFORE) if number % 2 else (BEFORE, NOW):
                samples.rows += _measure(name, mode, number, trees[name])
                samples.save(options.out)
        console.print(f"round {number} of {rounds} is over")
    rows = [row for row in rows_of(samples) if row.metric in JUDGED]
    console.print(_table(commit, rounds, rows))
    return 1 if any(verdict(row).startswith("SLOWER") for row in rows) else 0


def _measure(name: str, mode: str, number: int, tree: Path) -> list[Sample]:
    rows = list[Sample]()
    with systems.barnabas_at(tree, synced=mode == "synced") as running:
        put_on("barnabas", running, WARM["barnabas"])
        for workload, load in LOADS.items():
            rows += [
                Sample(system=name, mode=mode, round=number, workload=workload, measured=measured)
                for measured in put_on("barnabas", running, load)
            ]
        largest = max(rss_mib(pid) for pid in running.pids.values())
        rows.append(
            Sample(
                system=name,
                mode=mode,
                round=number,
                workload="all of it",
                measured=Measured("memory", {"rss_mib": largest}, 0.0, {}),
            )
        )
    return rows


def verdict(row: Row) -> str:
    """Say whether the figures of two commits differ by more than the noise, and in which direction."""
    ratio = row.ratio(BEFORE)
    if ratio is None:
        return "not measured"
    before = row.values[BEFORE]
    median = row.medians[NOW]
    is_inside = min(before) <= median <= max(before)
    if ratio < RATIO_MIN and not is_inside:
        return f"SLOWER: {ratio:.2f} of it"
    if ratio > 1 / RATIO_MIN and not is_inside:
        return f"better: {ratio:.2f}"
    return f"within the noise ({ratio:.2f})"


def _table(commit: str, rounds: int, rows: list[Row]) -> Table:
    table = Table(title=f"three brokers, this checkout and {commit} in turn, {rounds} rounds of each")
    for heading in ("mode", "workload", "figure", "now", "least to most", commit, "least to most", "verdict"):
        table.add_column(heading)
    for row in rows:
        cells = [row.mode, f"{row.workload}, {row.phase}", row.metric]
        for name in (NOW, BEFORE):
            found = row.values.get(name, [math.nan])
            cells += [f"{row.medians.get(name, math.nan):,.2f}", f"{min(found):,.2f} to {max(found):,.2f}"]
        table.add_row(*cells, verdict(row))
    return table
