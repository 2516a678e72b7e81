"""The sink with gates between its steps, where the process that comes there is killed or held.

A gate is closed by a file with its name in a folder; the file says `kill` or `hold`. Whoever comes there first takes
the file away, so that every strike strikes once, and leaves a note `struck-<gate>.<process>`. With `kill` it ends
itself by SIGKILL; with `hold` it waits until there is a file `go`, and whoever holds it kills it, stops it, or lets it
go. Between the gates is the code of the sink, unchanged.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas_clients.producer.producer import Producer
from barnabas_spark.source import BarnabasDataSource
from barnabas_spark.writing.exactly_once import requests
from barnabas_spark.writing.exactly_once.plan import Effect, Write
from barnabas_spark.writing.exactly_once.starting import Beginning
from barnabas_spark.writing.writers import BarnabasStreamWriter, BarnabasWriter, batch_writer, stream_writer

__all__ = ["DRIVER_GATES", "FLUSHED", "GatedDataSource", "Gates"]

FLUSHED: Final = "flushed"
"""A task has stored its rows, and its transaction is prepared; the driver does not know of it."""
DRIVER_GATES: Final = (
    "before-Fence",
    "before-Sweep",
    "before-Verify",
    "before-decision",
    "in-decision",
    "before-End",
    "between-ends",
    "before-done",
    "in-done",
    "after-done",
)
"""Where a driver may die. The decision is a record in a transaction: `in-decision` is before that is committed."""
_HELD_S: Final = 300.0


class Gates:
    """The gates of a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def close(self, gate: str, how: str) -> None:
        """Have the next process that comes to a gate killed (`kill`) or held (`hold`)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "go").unlink(missing_ok=True)
        (self.folder / f"new-{gate}").write_text(how)
        (self.folder / f"new-{gate}").rename(self.folder / gate)

    def open(self) -> None:
        """Let go whoever is held."""
        (self.folder / "go").touch()

    def struck(self, gate: str) -> list[int]:
        """Return the processes that were struck at a gate."""
        return [int(path.name.rpartition(".")[2]) for path in self.folder.glob(f"struck-{gate}.*")]

    def flushed(self) -> list[tuple[str, str]]:
        """Return partition and attempt of each task that has stored its rows, as Spark numbers them."""
        names = [path.name.split(".") for path in self.folder.glob("stored.*")]
        return [(name[1], name[2]) for name in names]

    def arrive(self, gate: str) -> None:
        """Pass a gate, if it is open."""
        note = self.folder / f"struck-{gate}.{os.getpid()}"
        try:
            how = (self.folder / gate).read_text()
            (self.folder / gate).rename(note)
        except OSError:
            return  # It is open, or another process has come first.
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        deadline = time.monotonic() + _HELD_S
        while not (self.folder / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.005)

    def flush(self) -> None:
        """Come to the gate of tasks."""
        context = TaskContext.get()
        assert context is not None
        (self.folder / f"stored.{context.partitionId()}.{context.taskAttemptId()}").touch()
        self.arrive(FLUSHED)

    @contextmanager
    def around_steps(self) -> Iterator[None]:
        """Have the steps of a driver pass the gates, and the ends of a batch one after the other."""
        writes = ""
        ends = 0
        carry_out, end_one = requests._carried_out, requests._end_one

        def gated(effect: Effect, options: Any) -> Any:
            nonlocal writes, ends
            kind = type(effect).__name__
            if isinstance(effect, Write):
                writes = "done" if effect.decision.is_done else "decision"
                kind = writes
            ends = 0
            self.arrive(f"before-{kind}")
            found = carry_out(effect, options)
            self.arrive(f"after-{kind}")
            return found

        async def end_gated(*given: Any) -> Any:
            nonlocal ends
            if ends == 1:
                self.arrive("between-ends")
            ends += 1
            return await end_one(*given)

        class GatedProducer(Producer):
            async def send_and_wait(producer, *given: Any, **also: Any) -> Any:  # noqa: N805 - `self` are the gates
                found = await super().send_and_wait(*given, **also)
                self.arrive(f"in-{writes}")
                return found

        with (
            mock.patch.object(requests, "_carried_out", gated),
            mock.patch.object(requests, "_end_one", end_gated),
            mock.patch.object(requests, "ENDS_AT_ONCE", 1),
            mock.patch.object(requests, "Producer", GatedProducer),
        ):
            yield


class _Gated:
    """The gates of a writer, of a batch or of a stream: a base before the sink's own."""

    gates: Gates
    _beginning: Beginning | None

    def __getstate__(self) -> dict[str, Any]:
        """Begin the batch, as its way to the tasks does, and return what goes there."""
        assert self._beginning is not None
        with self.gates.around_steps():
            assert self._beginning.begun
        return dict(self.__dict__)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        found: WriterCommitMessage = super().write(iterator)  # type: ignore[misc]
        self.gates.flush()
        return found

    def commit(self, *given: Any, **named: Any) -> None:
        with self.gates.around_steps():
            super().commit(*given, **named)  # type: ignore[misc]


class _Writer(_Gated, BarnabasWriter):
    pass


class _StreamWriter(_Gated, BarnabasStreamWriter):
    pass


class GatedDataSource(BarnabasDataSource):
    """`format("gated")`: the sink with gates in the folder of the option `gates`."""

    @classmethod
    def name(cls) -> str:
        return "gated"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        gates = self._gates()
        plain = batch_writer(self.options, schema, overwrite=overwrite)
        return _with(gates, _Writer(plain._options, plain._layout))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - PySpark's
        gates = self._gates()
        plain = stream_writer(self.options, schema)
        return _with(gates, _StreamWriter(plain._options, plain._layout))

    def _gates(self) -> Gates:
        return Gates(self.options.pop("gates"))


def _with(gates: Gates, writer: _Writer | _StreamWriter) -> _Writer | _StreamWriter:
    writer.gates = gates
    return writer
