"""Real tasks and drivers of Spark are killed at every gate of a batch, and its rows are there once in the end."""

from pathlib import Path

import pytest
from spark.faults.exactly_once.gated import DRIVER_GATES, FLUSHED, GatedDataSource, Gates

from .sink import Sink, once

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

# Where the decision stands when the driver dies there: the batch is written by whoever comes next.
DECIDED = {"before-End", "between-ends", "before-done", "in-done", "after-done"}


@pytest.mark.parametrize("gate", [FLUSHED, *DRIVER_GATES])
def test_a_batch_is_there_once_whoever_dies_where(sink: Sink, gate: str, tmp_path: Path) -> None:
    """The next attempt has other partitions, and so another division of the same rows."""
    sink.spark.dataSource.register(GatedDataSource)
    gates = Gates(tmp_path)
    gates.close(gate, "kill")
    options = sink.given(txnAppId=sink.name, gates=str(tmp_path))

    def write(start: int, end: int, version: int, partitions: int) -> None:
        rows = sink.rows(start, end).repartition(partitions)
        rows.write.format("gated").options(**options, txnVersion=str(version)).mode("append").save()

    with pytest.raises(Exception, match=r"(?s)Py4JJavaError|crashed|EOF|exited"):
        write(0, 30, 0, 3)
    assert len(gates.struck(gate)) == 1
    seen = sink.read()
    assert set(seen) <= set(range(30)), seen
    if gate not in DECIDED:
        assert not seen
    write(0, 30, 0, 2)
    write(30, 40, 1, 2)
    assert sink.read() == once(range(40))
