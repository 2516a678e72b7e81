"""A share of the mutants that operators make of the core: each is noticed, or is harmless for a stated reason.

All of them take minutes (`scripts/mutants`). The share is chosen by name, so that it stays the same while other
functions change, and holds mutants of every module. A mutant of it must be noticed by one of `SEEDS`, or by an example.

If a mutant here is noticed by nothing any more, something that used to be visible no longer is: give the simulator a
check, or write a story. Only what makes no difference belongs into `harmless`, with the reason.
"""

import zlib

import pytest

from .harmless import HARMLESS
from .judges import SEEDS, failing_example, noticing_seed
from .mutants import JUDGED, operator_mutant, operator_mutants

ONE_IN = 6
FIRST_SEEDS = 3
"""Examples are asked after so many seeds: they are quick, and what no early seed notices is mostly theirs."""

ALL = operator_mutants()
SHARE = [name for name in ALL if zlib.crc32(name.encode()) % ONE_IN == 0 and name not in HARMLESS]


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


def test_share_holds_mutants_of_every_module() -> None:
    assert len(SHARE) >= 60
    assert {name.partition(".")[0] for name in SHARE} == set(JUDGED)


def test_every_mutant_listed_as_harmless_exists() -> None:
    gone = HARMLESS.keys() - ALL.keys()
    assert not gone, (
        f"listed in tests/sim/harmless.txt, but the core has no such place any more: {sorted(gone)}\n"
        "If that code went, remove the name; if it was reworded, run `scripts/mutants --only <function>`: what is not "
        "noticed under its new name goes back into the list if the reason still holds."
    )
