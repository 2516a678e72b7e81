"""A fault at any call of a format neither loses nor doubles a row. `sweep.py` does all of it by command."""

import pytest
from spark.lake.formats.archives import ARCHIVES
from spark.lake.formats.sweep import HOWS, sweep

# One strike in so many calls in each test run, from another first call in each way: all of them take minutes.
EVERY = {"delta": 9, "iceberg": 41}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", sorted(ARCHIVES))
def test_a_fault_neither_loses_nor_doubles_a_row(kind: str, how: str) -> None:
    calls, wrong = sweep(kind, how, first=1 + 9 * HOWS.index(how), every=EVERY[kind])
    assert not wrong
    assert calls > 2 * EVERY[kind]
