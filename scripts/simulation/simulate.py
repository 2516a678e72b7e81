"""Runs seeds of the simulator and prints distributions; a failure ends it with status 1.

This is `scripts/sim`. A failure is printed with the command that shows it again. Whole brokers by default, a quarter of
which have transactions; every fourth seed has a second run, in which members of groups come and go. `--transactions`
and `--groups` give all of them such work, and little else; `--power-cuts` takes the power of all machines in the middle
of transactions in page-cache mode; `--cores` runs bare Raft groups, which are a hundred times cheaper and see less.
"""

import argparse
import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import NamedTuple

from sim import scenario as core_scenario
from sim.cluster.judges.coverage import OUTCOMES, PATHS, judge_groups, judge_strength, judge_transactions
from sim.cluster.judges.strikes import FAULTS, GROUPS, TRANSACTIONAL, least_strikes
from sim.cluster.scenario import SimulationError, run_choice
from sim.cluster.shrink import shrink
from sim.cluster.swarm import Choice, choose, grouped, transactional
from sim.cluster.transactions.power_cuts import SHOWN as POWER_CUTS_SHOWN
from sim.cluster.transactions.power_cuts import judge_power_cuts, run_power_cuts

SEEDS_BETWEEN_SIGNS = 250  # of life, while it runs
CORES_SHOWN = (
    "acknowledged",
    "elections",
    "crashes",
    "cuts",
    "stalls",
    "mistakes",
    "truncations",
    "snapshots",
    "reads",
)
NODES_SHOWN = (
    "acknowledged",
    "elections",
    "recoveries",
    "read",
    "commits",
    "deletions",
    "looks when all was owed",
    "own delivered",
    "own consumed",
    "events",
    "virtual ms",
    "cpu ms",
)
TRANSACTIONS_SHOWN = (
    *OUTCOMES.values(),
    "transactions unknown",
    "markers",
    "truncated through data",
    "truncated through a marker",
    "truncated between data and marker",
    "held against the model",
    "not held against the model",
    "coordinators loaded",
    "event coordinator log compacted",
    "witness led",
    "elections",
    "events",
    "virtual ms",
    "cpu ms",
)

GROUPS_SHOWN = (
    *GROUPS.values(),
    "group settling ms",
    "group commits",
    "group positions asked",
    "elections",
    "events",
    "virtual ms",
    "cpu ms",
)
GROUPED_EVERY = 4  # of seeds without a kind of their own


class Outcome(NamedTuple):
    """One seed: its counts, or its failure."""

    seed: int
    counts: dict[str, int]
    failure: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone; if it fails, shrink it")
    parser.add_argument("--count", type=int, default=50, help="run so many seeds (default 50)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--minutes", type=float, help="run as many seeds as this time allows")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--cores", action="store_true", help="bare Raft groups instead of whole brokers")
    kind.add_argument("--transactions", action="store_true", help="whole brokers that have little but transactions")
    kind.add_argument("--groups", action="store_true", help="whole brokers that have little but consumer groups")
    kind.add_argument("--power-cuts", action="store_true", help="power cuts of all machines in page-cache mode")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first failure")
    parser.add_argument("--at-least", type=int, default=0, metavar="N", help="strikes of each fault and path")
    options = parser.parse_args()
    if options.at_least and (options.cores or options.power_cuts or options.seed is not None):
        parser.error("--at-least is for many runs of whole brokers")
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _run_of(options: argparse.Namespace) -> Callable[[int], Outcome]:
    if options.cores:
        return _run_cores
    if options.power_cuts:
        return _run_power_cuts
    if options.groups:
        return _run_groups
    return _run_transactions if options.transactions else _run_nodes


def _one(options: argparse.Namespace) -> int:
    seed = options.seed
    choice = None
    if not (options.cores or options.power_cuts):
        choice = (transactional if options.transactions else grouped if options.groups else choose)(seed)
    outcome = _run_choice(choice) if choice is not None else _run_of(options)(seed)
    if outcome.failure:
        print(outcome.failure, file=sys.stderr)
        if choice is not None:
            _shrink(choice, outcome.failure)
        return 1
    if choice is not None:
        print(*(f"  {name} = {value}" for name, value in choice._asdict().items()), sep="\n")
    for name, value in sorted(outcome.counts.items()):
        print(f"{name:>24} {value:>9,}")
    return 0


def _shrink(choice: Choice, failure: str) -> None:
    print("shrinking ...", file=sys.stderr)
    kind = _kind(failure)

    def fails(candidate: Choice) -> bool:
        try:
            run_choice(candidate)
        except SimulationError as error:
            return _kind(str(error)) == kind
        return False

    try:
        run_choice(shrink(choice, fails))
    except SimulationError as error:
        print(f"the smallest run found that fails so:\n{error}", file=sys.stderr)


def _kind(failure: str) -> str:
    """Return the part of a failure that stays the same in a smaller run: its first words."""
    return " ".join(failure.split()[:4])


def _many(options: argparse.Namespace) -> int:
    run = _run_of(options)
    started_s = time.monotonic()
    outcomes = list[Outcome]()
    failures = list[Outcome]()
    seeds = _seeds(options)
    # Modules that are loaded already are no garbage, and need not be looked through after every seed.
    with ProcessPoolExecutor(options.jobs, initializer=gc.freeze) as pool:
        running = set[Future[Outcome]]()
        while True:
            while len(running) < 2 * options.jobs and (failures == [] or options.keep_going):
                seed = next(seeds, None)
                if seed is None:
                    break
                running.add(pool.submit(run, seed))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for outcome in (future.result() for future in done):
                if outcome.failure:
                    failures.append(outcome)
                    print(f"FAILED: {outcome.failure}", file=sys.stderr, flush=True)
                else:
                    outcomes.append(outcome)
                if not (finished := len(outcomes) + len(failures)) % SEEDS_BETWEEN_SIGNS:
                    seconds = time.monotonic() - started_s
                    print(f"{finished} seeds in {seconds:,.0f} s, {len(failures)} failed", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started_s
    return _conclude(options, outcomes, failures, seconds)


def _conclude(options: argparse.Namespace, outcomes: list[Outcome], failures: list[Outcome], seconds: float) -> int:
    """Print what was seen, and return the status."""
    shown = CORES_SHOWN if options.cores else TRANSACTIONS_SHOWN if options.transactions else NODES_SHOWN
    if options.power_cuts or options.groups:
        shown = POWER_CUTS_SHOWN if options.power_cuts else GROUPS_SHOWN
    _report(outcomes, shown, seconds)
    runs = [outcome.counts for outcome in outcomes]
    complaints = list[str]()
    if options.power_cuts:
        complaints = judge_power_cuts(runs)
    elif not options.cores:
        least = options.at_least
        if options.transactions:
            _report_paths(runs, FAULTS | TRANSACTIONAL | OUTCOMES, least)
            complaints = judge_transactions(runs, least)
        elif options.groups:
            _report_paths(runs, FAULTS | GROUPS, least)
            complaints = judge_groups(runs, least)
        else:
            _report_paths(runs, FAULTS | PATHS | OUTCOMES | GROUPS, least)
            complaints = judge_strength(runs, least)
    for kind, count in Counter(_kind(outcome.failure) for outcome in failures).most_common():
        print(f"{count:>6} seeds failed with: {kind}", file=sys.stderr)
    if failures:
        print(f"failed: {sorted(outcome.seed for outcome in failures)}", file=sys.stderr)
    for complaint in complaints:
        print(f"too weak: {complaint}", file=sys.stderr)
    return 1 if failures or complaints else 0


def _report_paths(runs: list[dict[str, int]], paths: dict[str, str], at_least: int) -> None:
    """Print how often each kind of fault struck and each rare path was gone, and those that never were."""
    print(f"\n{'':>28} {'times':>9} {'seeds':>7}")
    never = list[str]()
    for name, key in paths.items():
        times = [run.get(key, 0) for run in runs]
        print(f"{name:>28} {sum(times):>9,} {sum(map(bool, times)):>7,}")
        if not any(times):
            never.append(name)
    print(f"never reached: {', '.join(never) or 'nothing'}")
    least = max(at_least, least_strikes(len(runs)))
    print(f"asked of each: {least or 'nothing, of so few seeds'}")


def _report(outcomes: list[Outcome], shown: tuple[str, ...], seconds: float) -> None:
    print(f"{len(outcomes)} seeds, all invariants held, {seconds:.1f} s")
    if not outcomes:
        return
    print(f"{'':>24} {'total':>11} {'least':>8} {'median':>8} {'most':>8} {'seeds with any':>15}")
    for name in shown:
        values = [outcome.counts.get(name, 0) for outcome in outcomes]
        any_count = sum(value > 0 for value in values)
        print(
            f"{name:>24} {sum(values):>11,} {min(values):>8,} {statistics.median_low(values):>8,} {max(values):>8,}"
            f" {any_count:>15,}"
        )


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    end_s = time.monotonic() + options.minutes * 60 if options.minutes else None
    seed = options.first
    while time.monotonic() < end_s if end_s is not None else seed < options.first + options.count:
        yield seed
        seed += 1


def _run_nodes(seed: int) -> Outcome:
    outcome = _run_choice(choose(seed))
    if outcome.failure or seed % GROUPED_EVERY:
        return outcome
    other = _run_choice(grouped(seed))
    struck = {key: other.counts.get(key, 0) for key in GROUPS.values()}
    return Outcome(seed, {**outcome.counts, **struck}, other.failure)


def _run_groups(seed: int) -> Outcome:
    return _run_choice(grouped(seed))


def _run_power_cuts(seed: int) -> Outcome:
    try:
        return Outcome(seed, dict(run_power_cuts(seed).world.counts), "")
    except SimulationError as error:
        return Outcome(seed, {}, str(error))


def _run_transactions(seed: int) -> Outcome:
    return _run_choice(transactional(seed))


def _run_choice(choice: Choice) -> Outcome:
    seed = choice.seed
    started_s = time.process_time()
    try:
        run = run_choice(choice)
    except SimulationError as error:
        return Outcome(seed, {}, str(error))
    measures = {"virtual ms": run.world.now_us // 1_000, "cpu ms": int((time.process_time() - started_s) * 1_000)}
    return Outcome(seed, {**run.world.counts, **measures}, "")


def _run_cores(seed: int) -> Outcome:
    try:
        sim = core_scenario.run_seed(seed)
    except core_scenario.SimulationError as error:
        return Outcome(seed, {}, str(error))
    return Outcome(seed, {**sim.counts, "acknowledged": len(sim.acknowledged)}, "")


if __name__ == "__main__":
    sys.exit(main())
