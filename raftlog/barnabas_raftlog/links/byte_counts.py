"""Compares the bytes sent at one end of a connection with those that arrive. Pure.

A connection can swallow bytes without a word to either end: a firewall forgot it, a route lets small packets through
and no large ones. TCP itself gives up after many seconds at best, and only at the end that sends. Datagrams take
another way, so both nodes are live all the while, and followers of a quiet leader trust it for that; a leader
whose every word is swallowed could keep them waiting for ever.

So each end says, in the datagrams that flow anyway, how many bytes of each connection it has sent and received
(`ByteCounts`), and each compares with its own (`ByteWatch`): the sender finds that nothing arrives, the receiver finds
that something was sent. Both must compare, because the word of either may be swallowed, too. A connection is *broken*
when, for a stated time in which the other end kept reporting, none of the bytes that were under way at its beginning
arrived, although not all of them had; or when the other end does not have this connection.

Any progress begins a new time: a slow link is not broken. So does a gap in the reports: an end that stood still reads
nothing, and has no time to. Counts are of one connection, named by a number that both took from its handshake; they
begin anew with the next. Cost: eight numbers in each datagram, a few comparisons for each that arrives; nothing for a
frame but one addition.

Not here: the end of a broken connection (`links`).
"""

from typing import NamedTuple

__all__ = ["NO_CONNECTION", "ByteCounts", "ByteWatch"]

GAP_MS = 500  # Five datagrams missed in a row: an end that reports again may have stood still.


class ByteCounts(NamedTuple):
    """One end's word on one connection: which one, and its bytes from the first of the handshake on."""

    mark: int
    sent: int
    received: int


NO_CONNECTION = ByteCounts(0, 0, 0)


class _Flow:
    """One direction. Since `since_ms` nothing has arrived beyond `arrived`, though `sent` bytes were sent by then."""

    __slots__ = ("arrived", "sent", "since_ms")

    def __init__(self) -> None:
        self.sent = 0
        self.arrived = 0
        self.since_ms = 0

    def compare(self, sent: int, arrived: int, now_ms: int, *, begin_anew: bool) -> None:
        if begin_anew or arrived > self.arrived or arrived >= self.sent:
            self.sent = sent
            self.arrived = arrived
            self.since_ms = now_ms


class ByteWatch:
    """Watches one connection from one end. Owned by the connection; times are `now_ms` arguments."""

    __slots__ = ("_inward", "_known_ms", "_outward", "_told_ms")

    def __init__(self) -> None:
        self._inward = _Flow()
        self._outward = _Flow()
        self._told_ms: int | None = None
        self._known_ms = 0  # When the other end last said that it has this connection.

    def is_broken(self, ours: ByteCounts, theirs: ByteCounts, now_ms: int, patience_ms: int) -> bool:
        """Take in one report of the other end; True if `patience_ms` are over. Reports come in the order of sending."""
        begin_anew = self._told_ms is None or now_ms - self._told_ms > GAP_MS
        self._told_ms = now_ms
        is_known = ours.mark == theirs.mark
        if is_known or begin_anew:
            self._known_ms = now_ms
            self._outward.compare(ours.sent, theirs.received, now_ms, begin_anew=begin_anew)
            self._inward.compare(theirs.sent, ours.received, now_ms, begin_anew=begin_anew)
        if not is_known:
            return now_ms - self._known_ms >= patience_ms
        return now_ms - min(self._outward.since_ms, self._inward.since_ms) >= patience_ms
