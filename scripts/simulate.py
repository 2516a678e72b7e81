"""`scripts/sim`: run seeds, print distributions; on a failure print how to see it again, and end with 1."""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator

from sim.scenario import SimulationError, run_seed
from sim.simulator import Simulator

SHOWN = ("acknowledged", "elections", "crashes", "cuts", "stalls", "mistakes", "truncations", "snapshots", "reads")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--count", type=int, default=200, help="run so many seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--minutes", type=float, help="run as many seeds as this time allows")
    options = parser.parse_args()
    runs = list[dict[str, int]]()
    started_s = time.monotonic()
    for seed in _seeds(options):
        try:
            sim = run_seed(seed)
        except SimulationError as error:
            print(f"FAILED after {len(runs)} good seeds: {error}", file=sys.stderr)
            return 1
        runs.append(_measures(sim))
        if options.seed is not None:
            print(sim.swarm)
    seconds = time.monotonic() - started_s
    print(f"{len(runs)} seeds, all invariants held, {seconds:.1f} s, {sum(run['steps'] for run in runs):,} steps")
    print(f"{'':>14} {'total':>9} {'least':>7} {'median':>7} {'most':>7} {'seeds with any':>15}")
    for name in SHOWN:
        values = [run[name] for run in runs]
        any_count = sum(value > 0 for value in values)
        print(
            f"{name:>14} {sum(values):>9,} {min(values):>7,} {statistics.median_low(values):>7,} {max(values):>7,}"
            f" {any_count:>15,}"
        )
    return 0


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    if options.seed is not None:
        yield options.seed
        return
    end_s = time.monotonic() + options.minutes * 60 if options.minutes else None
    seed = options.first
    while time.monotonic() < end_s if end_s is not None else seed < options.first + options.count:
        yield seed
        seed += 1


def _measures(sim: Simulator) -> dict[str, int]:
    return {**{name: sim.counts[name] for name in (*SHOWN, "steps")}, "acknowledged": len(sim.acknowledged)}


if __name__ == "__main__":
    sys.exit(main())
