"""Runs checks of record batches in threads, short ones beside a long one.

A check is a function of whether it may take long. It is called with False first, and if it says `TakesLongError`, with
True, behind the others that have said so. One thread at most has a long one, so a short one never waits for more than
short ones, however many long ones there are: a batch of 12 KB may stand for 128 MiB.

Whoever submits has one check here at a time for each of its clients (`server/handlers/produce`), so the order of
arrival is a round of the clients.

Threads are made when the first check comes. At the end of a node those that run are waited for, the others are not
begun.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from barnabas_raftlog.log.machine.worker import Worker

from .checks import TakesLongError

__all__ = ["CheckThreads"]

THREADS = 2

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]


class _Check(NamedTuple):
    run: Callable[[bool], Any]
    done: Callable[[Any, BaseException | None], None]
    is_given_up: Callable[[], bool]


class CheckThreads:
    """The threads of one node, owned by its loop. `new_worker` makes one with a name. Limit: none of its own."""

    def __init__(self, new_worker: Callable[[str], Worker], threads: int = THREADS) -> None:
        self._new_worker = new_worker
        self._threads = threads
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._short = deque[_Check]()
        self._long = deque[_Check]()
        self._has_long = False
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many checks wait, and how many are under way."""
        return len(self._short) + len(self._long) + len(self._workers) - len(self._idle)

    def submit(
        self,
        run: Callable[[bool], T],
        done: Callable[[T | None, BaseException | None], None],
        is_given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call `run` in a thread, and `done` on the loop with what it returned or raised; never within this call.

        If nobody wants it any more when its turn comes (`is_given_up`), it is not run, and `done` gets None, None.
        """
        self._short.append(_Check(run, done, is_given_up))
        self._begin_some()

    def close(self) -> None:
        """Begin no check any more, and tell nobody of those under way. Returns when those are over."""
        self._is_closed = True
        self._short.clear()
        self._long.clear()
        for worker in self._workers:
            worker.stop()

    def _begin_some(self) -> None:
        while not self._is_closed:
            is_long = bool(self._long) and not self._has_long
            if not is_long and not self._short:
                return
            if not self._idle:
                if len(self._workers) == self._threads:
                    return
                worker = self._new_worker(f"checks-{len(self._workers) + 1}")
                self._workers.append(worker)
                self._idle.append(worker)
            self._begin(self._idle.pop(), (self._long if is_long else self._short).popleft(), is_long=is_long)

    def _begin(self, worker: Worker, check: _Check, *, is_long: bool) -> None:
        self._has_long |= is_long
        run = _nothing if check.is_given_up() else partial(_guarded, check.run, is_long)
        worker.submit(run, partial(self._on_done, worker, check, is_long))

    def _on_done(self, worker: Worker, check: _Check, is_long: bool, outcome: Outcome) -> None:
        self._idle.append(worker)
        if is_long:
            self._has_long = False
        if self._is_closed:
            return
        try:
            if isinstance(outcome[1], TakesLongError) and not is_long:
                self._long.append(check)
            else:
                check.done(*outcome)
        finally:
            self._begin_some()


def _guarded(run: Callable[[bool], Any], is_long: bool) -> Outcome:
    try:
        return run(is_long), None
    except BaseException as error:  # noqa: BLE001 - for `done`, which tells whoever waits
        return None, error


def _nothing() -> Outcome:
    return None, None
