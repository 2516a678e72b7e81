"""Every kept mistake is noticed by its test, and every harmless one exists."""

from collections.abc import Iterator

import pytest

from .copies import ROOT, Copy, copy_of_checkout
from .drawn import AT_LEAST, HARMLESS, SEAMS, all_mutants, draw
from .kept import KEPT, Kept


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    with copy_of_checkout() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("mutant", KEPT, ids=lambda mutant: mutant.what.replace(" ", "_"))
def test_kept_mutant_is_noticed(mutant: Kept, copy: Copy) -> None:
    source = (ROOT / mutant.file).read_text()
    assert source.count(mutant.line) == 1, f"the mutant no longer fits {mutant.file}; write it anew"
    with copy.changed(mutant.file, source.replace(mutant.line, mutant.instead)):
        assert copy.first_failure([mutant.test]) is not None, f"{mutant.test} does not notice it"


def test_every_mutant_listed_as_harmless_exists() -> None:
    gone = HARMLESS.keys() - {name for seam in SEAMS for name in all_mutants(seam)}
    assert not gone, f"listed in tests/seams/harmless.txt, but no operator makes it any more: {sorted(gone)}"


def test_a_draw_has_enough_of_each_seam_and_is_the_same_again() -> None:
    drawn = draw(7, 60)
    assert sum(map(len, drawn.values())) == 60
    assert all(len(names) >= AT_LEAST for names in drawn.values())
    assert drawn == draw(7, 60)
