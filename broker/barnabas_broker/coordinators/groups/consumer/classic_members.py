"""Keeps what is known only of those members of a group of KIP-848 that speak the classic protocol. Pure.

Each has a session of its own length. It is told to join again by the answer to a heartbeat, and has its rebalance
timeout for that; and as long again to ask for its assignment once it has joined. There is always a protocol that all of
them offer: when the last of the others goes, they are a classic group again, which needs one.
"""

from collections import Counter
from collections.abc import Iterable

from .timeouts import Timeouts
from .values import MemberMetadata

__all__ = ["ClassicMembers"]


class ClassicMembers:
    """See the module. `count` is how many there are.

    `joins` has those who are to join again, `syncs` those who are to ask for their assignment, and until when.
    """

    __slots__ = ("_supporters", "count", "joins", "sessions", "syncs")

    def __init__(self) -> None:
        self.sessions = Timeouts()
        self.joins = Timeouts()
        self.syncs = Timeouts()
        self.count = 0
        self._supporters: Counter[str] = Counter()

    def note(self, before: MemberMetadata | None, after: MemberMetadata | None) -> None:
        """Take in that a member says something else; None: it is not there."""
        for metadata, sign in ((before, -1), (after, 1)):
            if metadata is None or metadata.classic is None:
                continue
            self.count += sign
            for name in {name for name, _ in metadata.classic.protocols}:
                self._supporters[name] += sign
                if not self._supporters[name]:
                    del self._supporters[name]

    def supports(self, names: Iterable[str]) -> bool:
        """Tell whether all members offer one of these protocols."""
        return any(self._supporters.get(name, 0) == self.count for name in names)

    @property
    def common(self) -> set[str]:
        """The protocols that all offer."""
        return {name for name, count in self._supporters.items() if count == self.count}

    def drop(self, member_id: str) -> None:
        """Forget the times of a member."""
        for timeouts in (self.sessions, self.joins, self.syncs):
            timeouts.drop(member_id)

    def clear(self) -> None:
        """Forget the times of all."""
        for timeouts in (self.sessions, self.joins, self.syncs):
            timeouts.clear()

    @property
    def deadline_ms(self) -> int | None:
        """When the first time may be over. None: nobody has one."""
        found = (timeouts.first_ms for timeouts in (self.sessions, self.joins, self.syncs))
        return min((at_ms for at_ms in found if at_ms is not None), default=None)

    def due(self, now_ms: int, count_max: int) -> dict[str, str]:
        """Return whose time is over, at most so many, and why each is thrown out."""
        gone: dict[str, str] = {}
        for timeouts, why in (
            (self.sessions, "was silent for its session timeout"),
            (self.joins, "did not join again in time"),
            (self.syncs, "did not ask for its assignment in time"),
        ):
            for member_id in timeouts.pop_due(now_ms, count_max - len(gone)):
                gone.setdefault(member_id, why)
        return gone
