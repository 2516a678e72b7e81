"""Tells the driver what a task has written.

The message of a task is the only thing that reaches the driver, and `commit` and `abort` in writers.py are the only
places that see it. So this is where writing exactly once will begin: a task will leave its records in an open
transaction, name that here, and the driver alone will end it.
"""

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

__all__ = ["TaskOutcome"]


@dataclass(frozen=True)
class TaskOutcome(WriterCommitMessage):
    """Rows that brokers have acknowledged to one attempt of a task, and their bytes as they were sent."""

    rows: int
    sent_bytes: int
