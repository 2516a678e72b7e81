"""Transactional clients in processes of their own, which are killed in the middle of a transaction.

Each is one feeder or worker of `clients.py`. Its successor, another process with the same transactional id, fences it:
what it has left open is aborted, or committed if it had asked for that.

*Their history* is told by the parent. The process hands over each event and waits for a byte before it goes on, so that
nothing is done that is not written, and no line of a killed one is lost that others could have seen the effect of. The
parent closes what a killed one has left open: nobody knows about its records, nor about its transaction.

`python -m trials.transactions.mortals` is such a process.
"""

import argparse
import contextlib
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from machines.background import Background
from machines.modules import module_command, module_environment

from barnabas_broker.history import Event
from barnabas_broker.history import events as e
from trials.load import Recorder

from .clients import Cast, Clients
from .story import Book

__all__ = ["KILLED", "Mortals"]

KILLED = "client killed"
LIVES_MAX = 10_000  # the numbers of lives of one process
LIFE_S = (0.5, 3.0)  # from the first transaction on
EVENTS_MAX = 15  # from a transaction's first event to the death; most have about that many


class Mortals(Background):
    """Processes under one transactional id, one after the other. `finish` ends the last one."""

    def __init__(self, book: Book, bootstrap: str, seed: int, who: str, log: Path) -> None:
        super().__init__(f"mortals {who}")
        self._book = book
        self._servers = bootstrap
        self._who = who
        self._log = log
        self._chance = random.Random(f"{seed} {who}")
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def work(self) -> None:
        generation = 0
        while not self._over.is_set():
            generation += 1
            self._live(generation)

    def finish(self, limit_s: float = 60.0) -> None:
        self._over.set()
        if (process := self._process) is not None:
            process.kill()
        if self.is_alive():
            self.join(limit_s)

    def _live(self, generation: int) -> None:
        words = [self._who, self._servers, self._chance.randrange(1 << 30), generation * LIVES_MAX]
        left = Left(self._book, self._who)
        with (
            self._log.open("ab") as log,
            subprocess.Popen(
                module_command("trials.transactions.mortals", *words),
                env=module_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            ) as process,
        ):
            self._process = process
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                if self._follow(process.stdout, process.stdin, left):
                    self._book.seen[KILLED] += 1
            finally:
                process.kill()
                left.close()
        if not self._over.is_set() and process.returncode != -9:
            raise RuntimeError(f"{self._who} has ended by itself, status {process.returncode}; see {self._log}")

    def _follow(self, lines: IO[bytes], answers: IO[bytes], left: "Left") -> bool:
        """Tell what the process tells, until it is to die; return whether it dies in a transaction."""
        dies_at = None
        events_left = self._chance.randint(1, EVENTS_MAX)
        for number, line in enumerate(lines, 1):
            if self._over.is_set():
                return False
            left.tell(e.decode(line, number))
            if left.is_open and dies_at is None:
                dies_at = time.monotonic() + self._chance.uniform(*LIFE_S)
            if left.is_open and dies_at is not None and time.monotonic() >= dies_at:
                events_left -= 1
                if not events_left:
                    if self._chance.random() < 0.7:
                        _go_on(answers)
                        time.sleep(self._chance.uniform(0.0, 0.02))
                    return True
            _go_on(answers)
        return False


def _go_on(answers: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        answers.write(b".")
        answers.flush()


class Left:
    """Tells the events of one process, and knows what it would leave open."""

    def __init__(self, book: Book, transactional_id: str) -> None:
        self._book = book
        self._transactional_id = transactional_id
        self._records: dict[tuple[str, str, int], None] = {}
        self._transactions: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._transactions)

    def tell(self, event: Event) -> None:
        self._book.recorder.tell(event)
        if isinstance(event, e.Invoked):
            self._records[event.producer, event.partition, event.sequence] = None
        elif isinstance(event, e.Acknowledged | e.Failed | e.Unknown):
            self._records.pop((event.producer, event.partition, event.sequence), None)
        elif isinstance(event, e.Begun):
            self._transactions[event.transaction] = None
            self._book.begin(event.transaction)
        elif isinstance(event, e.Ending):
            self._book.begin_end(event.transaction, self._transactional_id)
        elif isinstance(event, e.Ended):
            self._transactions.pop(event.transaction, None)
            self._book.finish_end(event.transaction, event.outcome)

    def close(self) -> None:
        """Say of all that is open that nobody knows more."""
        for producer, partition, sequence in list(self._records):
            self.tell(e.Unknown(producer=producer, partition=partition, sequence=sequence))
        for transaction in list(self._transactions):
            self.tell(e.Ended(transaction=transaction, outcome="unknown"))


# In the process.


class Piped(Recorder):
    """Hands events to the parent, and waits until they are told."""

    def __init__(self, lines: IO[bytes], answers: IO[bytes]) -> None:
        super().__init__(Path("/dev/null"))
        self._lines = lines
        self._answers = answers

    def tell(self, event: Event) -> None:
        self._lines.write(e.encode(event))
        self._lines.flush()
        if not self._answers.read(1):
            sys.exit("the parent has gone")


def main() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("who", help="the transactional id; feeds if it says so, else works")
    parser.add_argument("bootstrap")
    parser.add_argument("seed", type=int)
    parser.add_argument("lives", type=int, help="number of its first life")
    options = parser.parse_args()
    book = Book(Piped(sys.stdout.buffer, sys.stdin.buffer))
    cast = Cast(feeders=(options.who,)) if "feed" in options.who else Cast(workers=(options.who,))
    clients = Clients(book, options.bootstrap, options.seed, cast, options.lives)
    clients.run()
    return f"{options.who}: {clients.failure!r}"


if __name__ == "__main__":
    sys.exit(main())
