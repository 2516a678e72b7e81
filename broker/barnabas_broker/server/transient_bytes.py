"""Counts the bytes that clients make a node hold, and decides who must wait. Pure.

Bytes count if they are there: those of a request that have arrived, until it is answered, and those of an answer that
the client has not taken yet. Announced ones do not: nine connections that announce 100 MiB each and send nothing hold
nothing.

Below `bytes_max` everybody goes on. From there on connections that hold more than `SMALL_BYTES` wait, and the others go
on with the `reserve_bytes` above it: heartbeats, metadata, fetches are small, and a node that does not answer those is
dead to everybody. The reserve is shared by addresses: one that holds more than its part of everything waits, unless it
is alone. Above both everybody waits.

One of them must get to its end, or all would wait for each other: while there is no room, one of those that wait goes
on all the same, the `privileged` one, until it has been answered. If it makes no progress, its connection is ended
(`connections`). So a node holds `bytes_max`, the reserve and one request at most, and for every other connection the
bytes that were read before it was known that there is no room.
"""

from typing import Protocol

__all__ = ["SMALL_BYTES", "Holder", "TransientBytes"]

SMALL_BYTES = 64 << 10
"""A connection that holds more is among those that wait first."""


class Holder(Protocol):
    """One connection.

    `host` owns the part of the reserve that it takes from: an address, as long as there is no authentication. With that
    it is the principal, as for quotas; nothing here knows the difference.
    """

    held_bytes: int

    @property
    def host(self) -> str: ...


class TransientBytes:
    """The account of one node.

    Invariant: `total_bytes` is the sum of what the holders hold, and `_by_host` the same for each address.
    """

    __slots__ = ("_by_host", "bytes_max", "privileged", "reserve_bytes", "total_bytes", "total_max")

    def __init__(self, bytes_max: int, reserve_bytes: int) -> None:
        self.bytes_max = bytes_max
        self.reserve_bytes = reserve_bytes
        self.total_bytes = self.total_max = 0
        self._by_host: dict[str, int] = {}
        self.privileged: Holder | None = None

    @property
    def is_scarce(self) -> bool:
        return self.total_bytes >= self.bytes_max

    def add(self, holder: Holder, count: int) -> None:
        """Note that `holder` holds `count` bytes more, or fewer if it is negative."""
        held_bytes = holder.held_bytes = holder.held_bytes + count
        assert held_bytes >= 0
        self.total_bytes += count
        self.total_max = max(self.total_max, self.total_bytes)
        by_host = self._by_host
        host = holder.host
        of_host = by_host.get(host, 0) + count
        if of_host:
            by_host[host] = of_host
        else:
            by_host.pop(host, None)

    def forget(self, holder: Holder) -> None:
        """Note that `holder` is gone, with everything that it held."""
        self.add(holder, -holder.held_bytes)
        self.end_privilege(holder)

    def end_privilege(self, holder: Holder) -> None:
        """`holder` has got on; if it was the privileged one, another may be."""
        if holder is self.privileged:
            self.privileged = None

    def must_wait(self, holder: Holder) -> bool:
        """Tell whether `holder` may not be given more to hold now."""
        privileged = self.privileged
        if self.total_bytes < self.bytes_max or holder is privileged:
            return False
        # The bytes of the privileged one are beside the reserve, not in it.
        others_bytes = self.total_bytes - (0 if privileged is None else privileged.held_bytes)
        if holder.held_bytes > SMALL_BYTES or others_bytes >= self.bytes_max + self.reserve_bytes:
            return True
        hosts = len(self._by_host)
        return hosts > 1 and self._by_host.get(holder.host, 0) > (self.bytes_max + self.reserve_bytes) // hosts

    def room_for_answer(self) -> int:
        """Return how large an answer should be at most: a quarter of what is left, and a little always."""
        return max(SMALL_BYTES, (self.bytes_max - self.total_bytes) // 4)
