"""A group as its coordinator's shell holds it: the state machine, and what it still has to be told of the log.

Not here: anything that happens to it (`coordinator_shard`).
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from barnabas_clients.protocol.error_codes import ErrorCode

from .groups.group import Group
from .groups.messages import Answer
from .waiting import Deadline

__all__ = ["HostedGroup", "Parked", "Save"]


class Parked(Protocol):
    """A request that waits for its group; its ticket."""

    def on_answer(self, answer: Answer) -> None: ...


class Save:
    """A group's record that it asked for. `outcome`: None while that is open."""

    __slots__ = ("generation_id", "outcome")

    def __init__(self, generation_id: int) -> None:
        self.generation_id = generation_id
        self.outcome: ErrorCode | None = None


class HostedGroup:
    """A group, with the saves of which it was not told yet what became of them.

    `changed_at_ms`: when it last asked to be saved, in milliseconds since 1970; None: never. So an empty group is empty
    since then.
    """

    __slots__ = ("changed_at_ms", "deadline", "group", "group_id", "is_removed", "saves")

    def __init__(self, group_id: str, group: Group) -> None:
        self.group_id, self.group = group_id, group
        self.changed_at_ms: int | None = None
        self.saves: deque[Save] = deque()
        self.deadline: Deadline[Callable[[], None]] | None = None
        self.is_removed = False
