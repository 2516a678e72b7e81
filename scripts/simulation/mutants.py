"""Breaks the Raft core wherever an operator can, and prints the mistakes that nothing noticed.

This is `scripts/mutants`.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from sim.harmless import HARMLESS
from sim.judges import SEEDS, failing_example, noticing_seed
from sim.mutants import JUDGED, MODULES, operator_mutant, operator_mutants


class Fate(NamedTuple):
    """The seed and the example that noticed a mutant, each None if there was none, or if it was not asked."""

    seed: int | None
    example: str | None

    def __str__(self) -> str:
        return f"seed {self.seed}" if self.seed is not None else self.example or "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--module", choices=MODULES, help=f"this module (default: {', '.join(JUDGED)})")
    parser.add_argument("--only", default="", help="only mutants whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--all", action="store_true", help="print the seed or example that noticed each of the others, too"
    )
    parser.add_argument(
        "--seeds-alone", action="store_true", help="leave out the examples: judge by the simulator alone"
    )
    options = parser.parse_args()
    places = operator_mutants([options.module] if options.module else JUDGED)
    names = [name for name in places if options.only in name]
    print(f"{len(names)} mutants, at most {len(SEEDS)} seeds each", flush=True)
    started_s = time.monotonic()
    fates = Counter[str]()
    wrong_count = 0
    for name in sorted(HARMLESS.keys() - operator_mutants().keys()):
        print(f"listed, but no operator makes it any more: {name}")
        wrong_count += 1
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, fate in zip(names, pool.map(partial(_judge, seeds_alone=options.seeds_alone), names), strict=True):
            is_noticed = fate != Fate(None, None)
            fates["noticed by a seed"] += fate.seed is not None
            fates["noticed by an example only"] += fate.seed is None and is_noticed
            fates["harmless, with the reason"] += not is_noticed and name in HARMLESS
            if is_noticed and name in HARMLESS:
                print(f"listed as harmless, but noticed by {fate}: {name}", flush=True)
            elif not is_noticed and name not in HARMLESS:
                print(f"noticed by nothing: {places[name]} {name}", flush=True)
            elif options.all:
                print(f"{fate}: {name}", flush=True)
            wrong_count += is_noticed == (name in HARMLESS)
    summary = ", ".join(f"{count} {what}" for what, count in fates.items())
    print(f"{summary}; {wrong_count} wrong, in {time.monotonic() - started_s:.0f} s")
    return 1 if wrong_count and not options.seeds_alone else 0


def _judge(name: str, *, seeds_alone: bool) -> Fate:
    with operator_mutant(name):
        seed = noticing_seed(SEEDS)
        return Fate(seed, None if seeds_alone or seed is not None else failing_example())


if __name__ == "__main__":
    sys.exit(main())
