"""Hands the leaderships of a broker on while its disk is full.

A leader without room refuses every producer, though its followers may have room. So when the storage has lacked room
for `AFTER_S`, each leadership here goes to a replica that is in sync, live, and not without room itself. If there is no
such replica, this broker leads on, for its consumers. It looks again every `AFTER_S` for as long as there is no room: a
transfer may fail, and a replica that could not take over may be able to later.

Nothing comes back meanwhile: the other brokers hear in its datagrams that this one is to be sent no entries
(`barnabas_raftlog.links.busy_peers`), so none is handed to it, and it does not stand for elections
(`barnabas_raftlog.multiraft.driver`). When there is room again it follows, catches up, and gets its leaderships back as
after an absence (`preferred_leaders`), at the earliest when those are looked at the next time.

Limits: one timer, while there is no room; `TRANSFERS_PER_TURN` transfers at a time.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas_raftlog.multiraft.group import RaftGroup

__all__ = ["AFTER_S", "TRANSFERS_PER_TURN", "Led", "LedGroup", "NoRoom"]

AFTER_S = 1.0  # one look of the storage, which finds that what was deleted has made room
TRANSFERS_PER_TURN = 200
CallLater = Callable[[float, Callable[[], None]], object]


class Led(Protocol):
    """The part of a partition, or of the metadata, that is used here."""

    @property
    def can_serve(self) -> bool: ...
    @property
    def is_handing_over(self) -> bool: ...
    @property
    def successors(self) -> tuple[int, ...]:
        """The replicas that may lead now and have everything, in the order in which they should."""

    def transfer(self, node_id: int) -> None: ...


class LedGroup:
    """A group that is no partition, as `Led`: that of the metadata."""

    def __init__(self, group: RaftGroup) -> None:
        self._group = group

    @property
    def can_serve(self) -> bool:
        return self._group.confirmed

    @property
    def is_handing_over(self) -> bool:
        return self._group.core.transfer_target is not None

    @property
    def successors(self) -> tuple[int, ...]:
        able = sorted(self._group.configuration.full_voter_ids)
        return tuple(node_id for node_id in able if self._group.has_caught_up(node_id))

    def transfer(self, node_id: int) -> None:
        self._group.transfer(node_id)


class NoRoom:
    """Owned by the loop.

    Args:
        led: All that this node hosts; only groups that it leads are touched.
        able: The nodes that could take over now: live, available, with room.
        on_event: Told, by kind and cause, when handing on begins and when there is room again.
        call_later: Seconds, and what to do then.
    """

    def __init__(
        self,
        led: Callable[[], Iterable[Led]],
        able: Callable[[], set[int]],
        on_event: Callable[[str, str], None],
        call_later: CallLater,
    ) -> None:
        self._led = led
        self._able = able
        self._on_event = on_event
        self._call_later = call_later
        self._reason = ""  # why there is no room; empty if there is
        self._is_handing_on = self._is_waiting = self._is_closed = False

    def on_room(self, reason: str) -> None:
        """The storage has lost its room, for `reason`, or has room again."""
        self._reason = reason
        if reason:
            self._wait()
        elif self._is_handing_on:
            self._is_handing_on = False
            self._on_event("room again", "leaderships come back when this broker has caught up")

    def close(self) -> None:
        """Hand nothing on any more."""
        self._is_closed = True

    def _wait(self) -> None:
        if not self._is_waiting and not self._is_closed:
            self._is_waiting = True
            self._call_later(AFTER_S, self._turn)

    def _turn(self) -> None:
        self._is_waiting = False
        if not self._reason or self._is_closed:
            return
        if not self._is_handing_on:
            self._is_handing_on = True
            self._on_event("no room", f"{self._reason}: leaderships go to brokers that have room, and none comes here")
        able = self._able()
        left = TRANSFERS_PER_TURN
        for led in self._led():
            if not left:
                break
            if led.can_serve and not led.is_handing_over:
                target = next((node_id for node_id in led.successors if node_id in able), None)
                if target is not None:
                    led.transfer(target)
                    left -= 1
        self._wait()
