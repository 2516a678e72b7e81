"""Gives the same damaged batches to the compiled walker and to its twin: `python -m fuzzing.walker.comparing`.

    --count N --seed S    so many batches of this seed
    --pure-every N        the twin gets every so many-th of them (the compiled one gets all): 1 compares them all
    --compiled-in FOLDER  the compiled modules of this folder, and not those of the installation; they get bodies
                          without the zero byte that Python puts behind bytes, so that a sanitizer sees a read of it
    --keep-corpus         write what led somewhere new into tests/fuzzing/corpus/walker.txt, for the tests

Exit status: 0 both said the same of every batch, 1 they did not, or an error came out that none may raise.
"""

import argparse
import random
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from .damage import Corpus, Damaged, damaged, sound
from .families import FAMILIES, Family, outcome, place_of
from .sanitized import take

__all__ = ["CORPUS", "Compared", "compared", "kept", "main"]

CORPUS = Path(__file__).resolve().parents[3] / "tests" / "fuzzing" / "corpus" / "walker.txt"
SOUND = 300
FOUND_MAX = 20
KEPT_BYTES_MAX = 600


class Compared(NamedTuple):
    """What a run has seen: `wrong` has a text for each finding, `new` the batches that led somewhere new."""

    batches: int
    wrong: list[str]
    new: list[Damaged]


def kept() -> list[Damaged]:
    """Return the batches that earlier runs have kept."""
    return [Damaged.of_line(line) for line in CORPUS.read_text(encoding="ascii").splitlines()]


def compared(
    count: int,
    seed: int,
    families: Iterable[Family] = tuple(FAMILIES.values()),
    *,
    pure_every: int = 1,
    is_exact: bool = False,
) -> Compared:
    """Compare the twins on the kept batches, on sound ones, and on `count` damaged ones.

    `is_exact`: the compiled one gets bodies that have nothing behind them.

    Raises:
        ImportError: a compiled module is not there.
    """
    twins = [(family, *family.twins()) for family in families]
    chance = random.Random(seed)
    beginning = [*(kept() if CORPUS.exists() else ()), *sound(chance, SOUND)]
    corpus = Corpus(beginning)
    wrong: list[str] = []
    new: list[Damaged] = []
    number = 0
    stream: Iterator[Damaged] = chain(beginning, islice(damaged(chance, corpus), count))
    for number, batch in enumerate(stream, 1):
        places = []
        for family, compiled, pure in twins:
            try:
                found = outcome(family, compiled, _exact(batch) if is_exact else batch)
                expected = outcome(family, pure, batch) if number % pure_every == 0 else found
            except Exception as error:  # noqa: BLE001 - whatever comes out is the finding
                wrong.append(f"{family.name}: {error!r}\n  {batch.line()}")
                continue
            if found != expected:
                wrong.append(f"{family.name}: compiled {found}, in Python {expected}\n  {batch.line()}")
            places.append(place_of(found))
        if corpus.note(batch, tuple(places)) and len(batch.body) <= KEPT_BYTES_MAX:
            new.append(batch)
        if len(wrong) >= FOUND_MAX:
            break
    return Compared(number, wrong, new)


def _exact(batch: Damaged) -> Damaged:
    # A slice has no room to grow, which an array has that was made of bytes.
    return batch._replace(body=memoryview(array("B", batch.body)[:]))  # type: ignore[arg-type]  # it does for bytes


def main(arguments: list[str] | None = None) -> int:
    """Compare, print what was found, and return the exit status."""
    parser = argparse.ArgumentParser(prog="fuzzing.walker.comparing", description=__doc__.partition(":")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pure-every", type=int, default=1)
    parser.add_argument("--compiled-in", type=Path)
    parser.add_argument("--keep-corpus", action="store_true")
    options = parser.parse_args(arguments)
    if options.compiled_in is not None:
        take(str(options.compiled_in))
    begun_s = time.monotonic()
    is_exact = options.compiled_in is not None
    done = compared(options.count, options.seed, pure_every=options.pure_every, is_exact=is_exact)
    took_s = time.monotonic() - begun_s
    for text in done.wrong:
        print(f"WRONG: {text}")
    shares = "" if options.pure_every == 1 else f", every {options.pure_every}. by the twin"
    print(
        f"{done.batches} batches in {took_s:.0f} s, seed {options.seed}{shares}: {', '.join(FAMILIES)}; "
        f"{len(done.new)} led somewhere new; {len(done.wrong) or 'nothing'} {'were' if done.wrong else 'was'} wrong"
    )
    if options.keep_corpus and not done.wrong:
        CORPUS.write_text("".join(sorted(f"{batch.line()}\n" for batch in done.new)), encoding="ascii")
    return 1 if done.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
