"""Plants mistakes in the shells between the pure cores; a test must notice each.

This is `scripts/simulation/seam-mutants`. A seed draws the mistakes.
"""

import argparse
import ast
import random
import sys
import time
from pathlib import Path

from seams.copies import ROOT, Copy, copy_of_checkout
from seams.drawn import HARMLESS, SEAMS, all_mutants, draw, file_and_tests
from sim.operators import mutated


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/simulation/seam-mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="draw these (default: another one each time, which is printed)")
    parser.add_argument("--count", type=int, default=60, help="mutants in all, five of each module at least")
    parser.add_argument("--seam", choices=SEAMS, help="only this module")
    parser.add_argument("--only", help="draw nothing: take all mutants whose name contains this")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    if options.only:
        chosen = {seam: [name for name in all_mutants(seam) if options.only in name] for seam in SEAMS}
    else:
        chosen = draw(seed, options.count)
    if options.seam:
        chosen = {options.seam: chosen[options.seam]}
    total = sum(len(names) for names in chosen.values())
    print(f"{total} mutants, seed {seed}", flush=True)
    noticed = 0
    harmless = 0
    wrong = 0
    with copy_of_checkout() as copy:
        for seam, names in chosen.items():
            for name in names:
                began = time.monotonic()
                said = _judge(copy, seam, name)
                is_listed = name in HARMLESS
                noticed += said is not None
                harmless += said is None and is_listed
                wrong += (said is not None) == is_listed
                told = said or ("harmless: " + HARMLESS[name] if is_listed else "NOTICED BY NOTHING")
                listed = ", though listed as harmless" if said and is_listed else ""
                print(f"{time.monotonic() - began:4.0f} s  {name}\n        {told}{listed}", flush=True)
    print(f"{noticed} noticed, {harmless} harmless with the reason; {wrong} wrong")
    return 1 if wrong else 0


def _judge(copy: Copy, seam: str, name: str) -> str | None:
    path, tests = file_and_tests(seam, name)
    tree = mutated(path.stem, path.read_text(), name)
    assert tree is not None
    with copy.changed(str(Path(path).relative_to(ROOT)), ast.unparse(tree)):
        for part in tests:
            if said := copy.first_failure([part]):
                return said
    return None


if __name__ == "__main__":
    sys.exit(main())
