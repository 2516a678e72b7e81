"""Gives each test a world of numbers in which slices of time are empty."""

from collections.abc import Iterator

import pytest
from broker.coordinators.runtime.numbers import NumberWorld


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[NumberWorld]:
    monkeypatch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    with NumberWorld() as world:
        yield world
