"""Holds what all records of a batch share, for those who make objects of its records. Pure."""

from typing import NamedTuple

__all__ = ["BatchFrame"]


class BatchFrame(NamedTuple):
    """The values that all records of a batch share. If `log_append_timestamp` is not None, it replaces their times."""

    topic: str
    partition: int
    base_offset: int
    last_delta: int
    base_timestamp: int
    log_append_timestamp: int | None
    epoch: int
