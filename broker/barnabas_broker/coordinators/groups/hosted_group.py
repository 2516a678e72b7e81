"""Holds a group for its coordinator: the state machine and its unfinished saves.

Not here: anything that happens to it (`shard`).
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.messages import Answer, SavedGroup
from barnabas_broker.timing.deadlines import Deadline
from barnabas_clients.protocol.error_codes import ErrorCode

__all__ = ["HostedGroup", "Parked", "Save"]


class Parked(Protocol):
    """A request that waits for its group; its ticket."""

    def on_answer(self, answer: Answer) -> None: ...


class Save:
    """A group's record that it asked for. `is_begun`: it is appended, or could not be. `outcome`: None while open."""

    __slots__ = ("is_begun", "outcome", "record")

    def __init__(self, record: SavedGroup) -> None:
        self.record = record
        self.is_begun = False
        self.outcome: ErrorCode | None = None


class HostedGroup:
    """A group, with the saves whose outcome it does not know yet.

    `changed_at_ms`: when it last asked to be saved, in milliseconds since 1970; None: never. So an empty group is empty
    since then. `held_bytes`: its size as last counted. `is_saving`: its record is being made. `is_deleting`: its
    offsets are being deleted, and it goes with the last of them. `is_moving`: it is about to be one of KIP-848, and
    stands still.
    """

    __slots__ = (
        "changed_at_ms",
        "deadline",
        "group",
        "group_id",
        "held_bytes",
        "is_deleting",
        "is_moving",
        "is_removed",
        "is_saving",
        "saves",
    )

    def __init__(self, group_id: str, group: ConsumerGroup) -> None:
        self.group_id = group_id
        self.group = group
        self.changed_at_ms: int | None = None
        self.saves: deque[Save] = deque()
        self.deadline: Deadline[Callable[[], None]] | None = None
        self.held_bytes = 0
        self.is_removed = self.is_saving = self.is_deleting = self.is_moving = False
