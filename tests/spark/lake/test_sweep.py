"""A fault at any call of an archive neither loses nor doubles a row. `sweep.py` does all of it by command."""

from typing import Any

import pytest
from spark.lake.faults import How
from spark.lake.produced import Topic, new_topic, produce
from spark.lake.sweep import FORMATS, ROWS, sweep

pytestmark = [pytest.mark.process, pytest.mark.slow]

# One strike in so many calls in each test run, from another first call in each way: all of them take a minute.
EVERY = {"parquet": 7, "delta": 9, "iceberg": 13}


@pytest.fixture(scope="module")
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(ROWS))
    return made


@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_fault_neither_loses_nor_doubles_a_row(name: str, how: How, topic: Topic) -> None:
    calls, wrong = sweep(topic, FORMATS[name], how, every=EVERY[name], first=1 + 2 * list(How).index(how))
    assert not wrong
    assert calls > 2 * EVERY[name]
