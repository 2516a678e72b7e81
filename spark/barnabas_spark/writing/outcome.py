"""Tells the driver what a task has written.

The message of a task is the only thing that reaches the driver, and `commit` and `abort` in writers.py are the only
places that see it. A task that writes exactly once leaves its records in an open transaction, and names that here; the
driver alone ends it. It also names the batch that it belongs to, because PySpark hands a stream's driver nothing else.
"""

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from .exactly_once.decisions import Prepared, Vacant
from .exactly_once.plan import Begun

__all__ = ["Batch", "TaskOutcome"]


@dataclass(frozen=True)
class Batch:
    """One batch of a sink. `application` is the query that counts its versions, "" if the caller does."""

    sink: str
    begun: Begun
    version: int
    application: str = ""

    @property
    def is_done(self) -> bool:
        """True if it was written before, so that its tasks have nothing to do."""
        return self.version <= self.begun.done and self.application == self.begun.application


@dataclass(frozen=True)
class TaskOutcome(WriterCommitMessage):
    """Rows that brokers have acknowledged to one attempt of a task, and their bytes as they were sent.

    `prepared` is the transaction that has them, if there are any and `batch` is to be written exactly once.
    `vacant` are the transactional ids that were so when the batch began; one of its tasks tells them, and not `batch`.
    """

    rows: int
    sent_bytes: int
    prepared: Prepared | None = None
    batch: Batch | None = None
    vacant: tuple[Vacant, ...] = ()
