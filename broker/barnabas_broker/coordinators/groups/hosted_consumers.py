"""Holds a group of KIP-848 for its coordinator: the rules, the answers that wait, and what is on its way to the log.

Not here: anything that happens to it (`consumers`).
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from barnabas_broker.coordinators.groups.consumer.group import Change
from barnabas_broker.coordinators.groups.consumer.messages import ConsumerAnswer, Heard, Refusal
from barnabas_broker.coordinators.groups.consumer.mixed import MixedGroup
from barnabas_broker.coordinators.runtime.contracts import Done, Steps
from barnabas_broker.timing.deadlines import Deadline
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.steps import at_once

__all__ = ["Flight", "HostedConsumers", "ParkedBeat", "Waiting"]


DONES_STEP = 20  # that are called in one go


class ParkedBeat(Protocol):
    """A heartbeat that waits for its answer."""

    def on_answer(self, answer: ConsumerAnswer | Refusal) -> None: ...


class Waiting(NamedTuple):
    """A member that was let in and waits for the target of an epoch."""

    heard: Heard
    ticket: ParkedBeat


class Flight:
    """What waits for something that was appended, the last of it: `dones` are called once."""

    __slots__ = ("dones", "is_over")

    def __init__(self, dones: list[Done]) -> None:
        self.dones = dones
        self.is_over = False

    def land(self, error: ErrorCode) -> None:
        at_once(self.land_in_steps(error))

    def land_in_steps(self, error: ErrorCode) -> Steps:
        """Call them, a few at a time: thousands of heartbeats may have come while it was under way."""
        self.is_over = True
        dones, self.dones = self.dones, []
        for begin in range(0, len(dones), DONES_STEP):
            if begin:
                yield
            call_each(dones[begin : begin + DONES_STEP], lambda done: done(error))


class HostedConsumers:
    """A group, with the members that wait for a target and the answers that wait for the log.

    `held_bytes`: its size as last counted. `held`: what those have changed that wait; nobody was told of it, and it is
    appended with the next changes. `is_planning`: a target is being made; `plan_not_before_ms`: none before then.
    `is_deleting`: its offsets are being deleted, and it goes with the last of them. `is_moving`: it is about to be a
    classic one, and nothing may change it.
    """

    __slots__ = (
        "deadline",
        "flights",
        "group",
        "group_id",
        "held",
        "held_bytes",
        "is_deleting",
        "is_moving",
        "is_planning",
        "is_removed",
        "plan_not_before_ms",
        "waiting",
    )

    def __init__(self, group_id: str, group: MixedGroup) -> None:
        self.group_id = group_id
        self.group = group
        self.held: list[Change] = []
        self.waiting: deque[Waiting] = deque()
        self.flights: deque[Flight] = deque()
        self.deadline: Deadline[Callable[[], None]] | None = None
        self.held_bytes = self.plan_not_before_ms = 0
        self.is_planning = self.is_deleting = self.is_moving = self.is_removed = False

    @property
    def is_busy(self) -> bool:
        """True while nothing may be asked of it that changes it."""
        return self.is_deleting or self.is_moving

    @property
    def is_any_ready(self) -> bool:
        """True if the target is there that somebody waits for; epochs rise, so it is the first one's."""
        return bool(self.waiting) and self.waiting[0].heard.epoch <= self.group.target_number

    def pop_ready(self, count_max: int) -> list[Waiting]:
        """Return so many of those whose target is there; they wait no more."""
        ready: list[Waiting] = []
        while len(ready) < count_max and self.is_any_ready:
            ready.append(self.waiting.popleft())
        return ready

    def take_changes(self) -> list[Change]:
        """Return all that has changed and is not appended, in order."""
        held, self.held = self.held, []
        return [*held, *self.group.take_changes()]
