"""Judges a share of the core's mutants: each is noticed, or listed with the reason.

All of them take minutes (`scripts/mutants`). Two shares run here, chosen by name, so that they stay the same while
other functions change; no mutant is in both, and each share holds mutants of every judged module.

- *By seeds alone*: the simulator must notice within `SEEDS_ALONE` seeds, without any example. Mutants that it cannot
  see in principle, because no promise is broken, stand in `beyond_seeds.txt`; the examples notice them
  (`scripts/mutants`).
- *By seeds or examples*: one of all `SEEDS`, or an example.

If a mutant here is noticed by nothing any more, something that used to be visible no longer is: give the simulator a
check, or write a story. Only mutants that make no difference belong into `harmless.txt`, with the reason.
"""

import zlib

import pytest

from .harmless import BEYOND_SEEDS, HARMLESS
from .judges import SEEDS, failing_example, noticing_seed
from .mutants import JUDGED, operator_mutant, operator_mutants

ONE_IN = 6
ONE_IN_BY_SEEDS = 3
SEEDS_ALONE = 10
"""Most are noticed by the first or the second; a few hundredths of a second each."""
FIRST_SEEDS = 3
"""Examples are asked after so many seeds: they are quick, and what no early seed notices is mostly theirs."""

ALL = operator_mutants()
SHARE = [name for name in ALL if zlib.crc32(name.encode()) % ONE_IN == 0 and name not in HARMLESS]
CHOSEN_FOR_SEEDS = [name for name in ALL if zlib.crc32(name.encode()) % ONE_IN_BY_SEEDS == 1 and name not in HARMLESS]
SHARE_OF_SEEDS = [name for name in CHOSEN_FOR_SEEDS if name not in BEYOND_SEEDS]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARE_OF_SEEDS)
def test_seeds_alone_notice(name: str) -> None:
    with operator_mutant(name):
        seed = noticing_seed(SEEDS[:SEEDS_ALONE])
    assert seed is not None, (
        f"{SEEDS_ALONE} seeds do not notice: {name}\n"
        "Add a check to the simulator. If it breaks no promise, but costs time, list it in tests/sim/beyond_seeds.txt."
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARE)
def test_mutant_is_noticed(name: str) -> None:
    with operator_mutant(name):
        noticed = (
            noticing_seed(SEEDS[:FIRST_SEEDS]) is not None
            or failing_example() is not None
            or noticing_seed(SEEDS[FIRST_SEEDS:]) is not None
        )
    assert noticed, (
        f"neither {len(SEEDS)} seeds nor an example notice: {name}\n"
        "Add a check to the simulator, or a story. If it makes no difference, say why in tests/sim/harmless.txt."
    )


@pytest.mark.parametrize("share", [SHARE, SHARE_OF_SEEDS], ids=["seeds or examples", "seeds alone"])
def test_share_holds_mutants_of_every_module(share: list[str]) -> None:
    assert len(share) >= 60
    assert {name.partition(".")[0] for name in share} == set(JUDGED)


def test_shares_do_not_overlap() -> None:
    assert not set(SHARE) & set(CHOSEN_FOR_SEEDS)


def test_every_mutant_listed_as_beyond_seeds_is_chosen_for_them() -> None:
    others = BEYOND_SEEDS.keys() - set(CHOSEN_FOR_SEEDS)
    assert not others, f"listed in tests/sim/beyond_seeds.txt, but not chosen for seeds (any more): {sorted(others)}"


def test_every_mutant_listed_as_harmless_exists() -> None:
    gone = HARMLESS.keys() - ALL.keys()
    assert not gone, (
        f"listed in tests/sim/harmless.txt, but the core has no such place any more: {sorted(gone)}\n"
        "If that code went, remove the name; if it was reworded, run `scripts/mutants --only <function>`: what is not "
        "noticed under its new name goes back into the list if the reason still holds."
    )
