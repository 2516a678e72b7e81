"""`scripts/mutants`: break the Raft core wherever an operator can, and print what the simulator did not notice."""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from sim.mutants import Caught, catch, mutant_source, operator_mutants
from sim.operators import Mutant

SEEDS = 24


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds for each mutant (default {SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--only", default="", help="only mutants whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--all", action="store_true", help="print those that were caught, too")
    options = parser.parse_args()
    jobs = [(module, source, found) for module, source, found in operator_mutants() if options.only in found.name]
    print(f"{len(jobs)} mutants, at most {options.seeds} seeds each", flush=True)
    started_s, seeds = time.monotonic(), range(options.first, options.first + options.seeds)
    fates = Counter[str]()
    with ProcessPoolExecutor(options.jobs) as pool:
        for (_, _, found), caught in zip(jobs, pool.map(_try, jobs, [seeds] * len(jobs)), strict=True):
            fates["not caught" if caught is None else "caught"] += 1
            if caught is None:
                print(f"not caught: {found.name}", flush=True)
            elif options.all:
                print(f"caught by seed {caught.seed} ({caught.how}): {found.name}", flush=True)
    print(f"{fates['caught']} caught, {fates['not caught']} not, in {time.monotonic() - started_s:.0f} s")
    return 0


def _try(job: tuple[str, str, Mutant], seeds: range) -> Caught | None:
    module, source, found = job
    return catch(mutant_source(module, found.applied_to(source)), seeds)


if __name__ == "__main__":
    sys.exit(main())
