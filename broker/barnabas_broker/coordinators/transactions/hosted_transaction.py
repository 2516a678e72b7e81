"""Holds a transactional id for its coordinator, and the requests that wait for it.

Not here: anything that happens to it (`shard`).
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.timers import Timers

from .state_machine.messages import Answer, Decision
from .state_machine.transaction import Transaction

__all__ = ["Ask", "Decide", "HostedTransaction", "OnAnswer"]

OnAnswer: TypeAlias = Callable[[Answer], object]
Decide: TypeAlias = Callable[[Transaction, int, int | None], Decision]
"""Asks the state machine: with the time, in milliseconds since 1970, and a new producer id, None if none is at hand."""


class Ask:
    """A request about one transactional id: decided on now or later, perhaps more than once, and answered once.

    `wait_ms`: how long it may wait while the id is busy. `new_producer_id`: one that was got for it. `is_committed`:
    the transition that it has brought about holds; `is_stored`: as many replicas have it as the topic asks for.
    """

    __slots__ = (
        "_deadline",
        "_on_answer",
        "_timers",
        "decide",
        "is_committed",
        "is_stored",
        "new_producer_id",
        "transactional_id",
        "wait_ms",
        "waits_until_ms",
    )

    def __init__(
        self, transactional_id: str, decide: Decide, on_answer: OnAnswer, timers: Timers, *, wait_ms: int
    ) -> None:
        self.transactional_id = transactional_id
        self.decide = decide
        self.wait_ms = wait_ms
        self.waits_until_ms: int | None = None
        self.new_producer_id: int | None = None
        self.is_committed = self.is_stored = False
        self._on_answer: OnAnswer | None = on_answer
        self._timers = timers
        self._deadline: Deadline[Callable[[], None]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or nobody waits for the answer any more."""
        return self._on_answer is None

    def give(self, answer: Answer) -> None:
        """Answer it, unless it is over."""
        on_answer = self._on_answer
        self.abandon()
        if on_answer is not None:
            on_answer(answer)

    def give_in(self, delay_ms: int, answer: Answer) -> None:
        """Give this answer after so long, if there is no other by then."""
        self._cancel()
        if not self.is_over:
            self._deadline = self._timers.add(delay_ms, partial(self.give, answer))

    def abandon(self) -> None:
        """Nobody waits for the answer any more. What it has brought about goes on."""
        self._on_answer = None
        self._cancel()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._timers.cancel(self._deadline)
            self._deadline = None


class HostedTransaction:
    """A transactional id, with those who wait for it.

    `ask`: whose transition is under way; None also if it is the coordinator's own. `parked`: requests that wait until
    the id is not busy, in their order. `held_bytes`: its size as last counted. `is_noted`: it is about to be attended
    to. `is_sent`: the markers that it owes were given to the sender.
    """

    __slots__ = ("ask", "held_bytes", "is_noted", "is_sent", "parked", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.ask: Ask | None = None
        self.parked: list[Ask] = []
        self.held_bytes = 0
        self.is_noted = self.is_sent = False

    @property
    def transactional_id(self) -> str:
        return self.transaction.transactional_id

    @property
    def is_busy(self) -> bool:
        """Whether a transition is under way, or markers are: then most requests hear CONCURRENT_TRANSACTIONS."""
        return self.transaction.pending is not None or self.transaction.state.is_prepared
