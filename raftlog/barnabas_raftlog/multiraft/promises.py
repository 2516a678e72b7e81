"""Holds messages back until the terms and votes that they rest on are durable.

A hard state is queued for the storage at once. At the end of the drive everything queued gets one *ticket*; messages
that rest on it are held until the storage calls that ticket durable. While a group has a promise under way, nearly all
its messages are held, not only those that the core marked: a later message (a repeated vote, an append) rests on the
same promise, and the order of a group's messages is kept.

*Answers to a leader* are not held. They promise nothing about the term: the entries that they acknowledge are durable,
and an entry on disk proves its own term; before a leader uses them to confirm itself, an entry of its term is durable
on a majority, so a follower that forgets the term cannot help to elect anybody in an older one. If they were held, a
disk that takes a second for a sync would depose every leader that has just been elected, again and again.

*Many at once.* A disk that was slow lets thousands of groups speak at the same time. `RELEASED_AT_ONCE` sends leave in
one drive, the others in the next ones; later messages of those groups are held behind them.

Limit: `HELD_MAX` held sends; beyond it the oldest are dropped, which Raft forgives. Only a disk that has
stopped gets there.
"""

from collections import deque
from collections.abc import Sequence

from barnabas_raftlog.raft.messages import AppendResponse, HardState, Message

from .group import RaftGroup
from .interfaces import GroupStorage
from .outbox import Outbox

__all__ = ["Promises"]

HELD_MAX = 100_000
RELEASED_AT_ONCE = 200
UNKNOWN_TICKET = 1 << 62  # of a promise made in this drive


class Promises:
    """All promises of one node that are not durable yet, oldest first."""

    __slots__ = ("_count", "_held", "_made", "_outbox", "_resting", "_storage", "is_behind")

    def __init__(self, storage: GroupStorage, outbox: Outbox) -> None:
        self._storage = storage
        self._outbox = outbox
        self._made: list[RaftGroup] = []
        self._resting: list[tuple[RaftGroup, Sequence[Message]]] = []
        self._held: deque[tuple[int, list[tuple[RaftGroup, Sequence[Message]]]]] = deque()
        self._count = 0
        self.is_behind = False  # The disk has caught up with more than `release` has let go.

    def __len__(self) -> int:
        return self._count

    def make(self, group: RaftGroup, hard_state: HardState) -> None:
        """Save a term and a vote."""
        self._storage.save_hard_state(group.group_id, hard_state)
        group.promise_ticket = UNKNOWN_TICKET
        self._made.append(group)

    def say(self, group: RaftGroup, messages: Sequence[Message]) -> None:
        """Send at once, unless the group has a promise under way; answers to a leader even then."""
        if group.promise_ticket <= self._storage.durable_ticket and not (self.is_behind and self._has_held(group)):
            self._outbox.add(group.group_id, messages)
            return
        held = [message for message in messages if not isinstance(message, AppendResponse)]
        if held:
            self._resting.append((group, held))
        if len(held) < len(messages):
            self._outbox.add(group.group_id, [message for message in messages if isinstance(message, AppendResponse)])

    def say_after(self, group: RaftGroup, messages: Sequence[Message]) -> None:
        """Send when everything that was saved up to the end of this drive is durable."""
        self._resting.append((group, messages))

    def seal(self) -> None:
        """Give this drive's promises their ticket. To be called before the storage is flushed."""
        if not self._resting and not self._made:
            return
        ticket = self._storage.ticket()
        for group in self._made:
            group.promise_ticket = ticket
        self._made.clear()
        if self._resting:
            self._held.append((ticket, self._resting))
            self._count += len(self._resting)
            self._resting = []
            while self._count > HELD_MAX:
                self._count -= len(self._held.popleft()[1])

    def release(self) -> None:
        """Hand sends to the outbox that the disk has caught up with, as many as one drive should send."""
        held = self._held
        left = RELEASED_AT_ONCE
        if not held:
            self.is_behind = False
            return
        durable_ticket = self._storage.durable_ticket
        while held and held[0][0] <= durable_ticket and left:
            ticket, sends = held.popleft()
            if len(sends) > left:
                held.appendleft((ticket, sends[left:]))
                sends = sends[:left]
            left -= len(sends)
            self._count -= len(sends)
            for group, messages in sends:
                if not group.is_removed:
                    self._outbox.add(group.group_id, messages)
        self.is_behind = bool(held) and held[0][0] <= durable_ticket

    def _has_held(self, group: RaftGroup) -> bool:
        """Tell whether a message of `group` may be among those that were not let go yet."""
        return bool(self._held) and group.promise_ticket >= self._held[0][0]
