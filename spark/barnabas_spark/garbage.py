"""Keeps a worker process of PySpark from paying for memory again and again: its garbage collector, and its pages.

PySpark's daemon collects garbage after every call, in planning processes and in those of tasks, before the process can
take the next one. Over the modules that a task needs that takes 40 ms of a processor, and over what the first task has
left (connections, and modules that were imported on the way) another 12: half a task of a small read (measured).

Answers of brokers and columns of Arrow come and go in pieces of some megabytes. The C library returns such pieces to
the kernel as they are freed, and gets them back page by page: a fifth of what a task spends on receiving.
"""

import gc

__all__ = ["freeze_once", "keep_pages"]

_frozen: set[str] = set()


def freeze_once(moment: str) -> None:
    """Hide everything that is there now from the garbage collector, once for each `moment` of a process' life."""
    if moment not in _frozen:
        _frozen.add(moment)
        gc.freeze()


def keep_pages() -> None:
    """Have memory that is freed stay with this process, which is some tens of megabytes in a read."""
    from barnabas_raftlog.memory import keep_freed  # noqa: PLC0415 - planning has no use for it

    keep_freed()
