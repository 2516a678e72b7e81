"""Tells by datagrams whether the other node is alive, and hears us. Pure.

Every `INTERVAL_MS` a node sends each peer its incarnation, a sequence number and an *echo*: the newest sequence it
received from that peer, and how long ago. An echo proves both directions at once: the peer heard a datagram that we
sent at a known time, and we hear the peer now. A peer is *fresh* while the newest echoed datagram was sent less than
`timeout_ms` ago; a one-way cut therefore makes both sides silent, not one.

*Adaptive timeout.* Three times the smoothed age of echoes (mean plus four deviations, as in RFC 6298), at least
`timeout_ms_min` and at most five times it: a machine whose loop lags makes its peers patient. After a pause of our own,
`forgive` grants every peer a few intervals to show a fresh echo before it is judged.

*Sequences that nobody can have reached* are not believed: the first of a link counts only with its connection's mark,
and the next ones may be ahead only by what can have been sent. A peer of which none counts for a timeout *is not
understood*, and its link is made anew. `docs/links.md` ("Datagrams") has the reasons.

Datagrams are fixed structs of 100 bytes, or 116 with the HMAC of a cluster secret: far below any MTU. They name the
cluster by a hash, and carry the numbers of `byte_counts` and a flag for `busy_peers`, too.

Not here: membership, and any decision about groups. TCP says when a process died; this says when it fell silent.
"""

import hmac
import struct
from hashlib import sha256
from typing import NamedTuple

from .byte_counts import NO_CONNECTION, ByteCounts

__all__ = [
    "DATAGRAM_BYTES_MAX",
    "INTERVAL_MS",
    "Datagram",
    "PeerLiveness",
    "cluster_mark",
    "decode_datagram",
    "encode_datagram",
]

INTERVAL_MS = 100
DATAGRAM_BYTES_MAX = 116
SENT_REMEMBERED = 128  # Send times of the newest datagrams, 12.8 s: older echoes prove nothing worth knowing.
PACE_MAX = 2  # how many times as fast as ours a peer's clock may run
FORGIVEN_INTERVALS = 5

_LAYOUT = struct.Struct(">HBBQiQQQQiQIQQIQQ")
_MAGIC = 0xBA5B
_VERSION = 2
_MAC_BYTES = 16
_BUSY = 1  # a flag
_DELAY_MAX = (1 << 31) - 1


class Datagram(NamedTuple):
    """`echo_incarnation` and `echo_sequence`: the newest datagram received from the one this goes to; 0 if none.

    `dialled`, `accepted`: the connection between the two that the sender dialled, and the one that it accepted.
    """

    node_id: int
    incarnation: int
    sequence: int
    echo_incarnation: int
    echo_sequence: int
    echo_delay_ms: int
    dialled: ByteCounts = NO_CONNECTION
    accepted: ByteCounts = NO_CONNECTION
    is_busy: bool = False


def cluster_mark(cluster_id: str) -> int:
    """Return eight bytes of hash that tell clusters apart."""
    return int.from_bytes(sha256(cluster_id.encode()).digest()[:8], "big")


def encode_datagram(datagram: Datagram, target: int, mark: int, secret: bytes | None) -> bytes:
    """Return the bytes of `datagram` for node `target`, signed when there is a secret."""
    data = _LAYOUT.pack(
        _MAGIC,
        _VERSION,
        _BUSY if datagram.is_busy else 0,
        mark,
        datagram.node_id,
        datagram.incarnation,
        datagram.sequence,
        datagram.echo_incarnation,
        datagram.echo_sequence,
        min(datagram.echo_delay_ms, _DELAY_MAX),
        target,
        *datagram.dialled,
        *datagram.accepted,
    )
    return data if secret is None else data + hmac.digest(secret, data, "sha256")[:_MAC_BYTES]


def decode_datagram(data: bytes, target: int, mark: int, secret: bytes | None) -> Datagram | None:
    """Return the datagram in `data`; None for garbage, for another cluster or node, or if it is signed otherwise."""
    if len(data) != _LAYOUT.size + (0 if secret is None else _MAC_BYTES):
        return None
    fields = _LAYOUT.unpack_from(data)
    if fields[0] != _MAGIC or fields[1] != _VERSION or fields[3] != mark or fields[10] != target:
        return None
    if secret is not None:
        expected = hmac.digest(secret, data[: _LAYOUT.size], "sha256")[:_MAC_BYTES]
        if not hmac.compare_digest(expected, data[_LAYOUT.size :]):
            return None
    counts = (ByteCounts._make(fields[11:14]), ByteCounts._make(fields[14:17]))
    datagram = Datagram._make((*fields[4:10], *counts, fields[2] & _BUSY != 0))
    return datagram if datagram.node_id >= 0 and datagram.echo_delay_ms >= 0 else None


class PeerLiveness:
    """Keeps count of one peer's datagrams. Owned by the links; times are `now_ms` arguments.

    Invariant: `fresh_at_ms` never decreases while one incarnation lasts; the peer is fresh while
    ``now_ms - fresh_at_ms < timeout_ms``.
    """

    __slots__ = (
        "_age_deviation_ms",
        "_age_ms",
        "_base_ms",
        "_discarded_since_ms",
        "_has_rtt",
        "_last_at_ms",
        "_last_echoed",
        "_last_sequence",
        "_learns_from_ms",
        "_mark",
        "_sent_at_ms",
        "_sequence",
        "fresh_at_ms",
        "incarnation",
        "loss",
        "received",
        "rtt_ms",
    )

    def __init__(self, timeout_ms_min: int, now_ms: int) -> None:
        self._base_ms = timeout_ms_min
        self._sequence = 0
        self._sent_at_ms = [0] * SENT_REMEMBERED
        self.incarnation: int | None = None
        self.received = 0
        self.rtt_ms = 0.0
        self._has_rtt = False
        self.loss = 0.0
        self._age_ms = float(INTERVAL_MS)
        self._age_deviation_ms = 0.0
        self._last_sequence = 0
        self._last_echoed = 0
        self._last_at_ms = now_ms
        self._learns_from_ms = now_ms
        self.fresh_at_ms = now_ms - 10 * timeout_ms_min
        self._mark = NO_CONNECTION.mark
        self._discarded_since_ms: int | None = None  # Since then none has counted, and this is when the first came.

    @property
    def timeout_ms(self) -> int:
        observed = 3 * (self._age_ms + 4 * self._age_deviation_ms)
        return int(min(max(self._base_ms, observed), 5 * self._base_ms))

    def connected(self, incarnation: int, now_ms: int, mark: int = NO_CONNECTION.mark) -> None:
        """TCP has just spoken with this life of the peer: that is as good as a fresh echo.

        `mark`: of the connection that we dialled. Nothing is known from here on of how far the peer has counted.
        """
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self.loss = 0.0
        self._last_sequence = 0
        self._mark = mark
        self._discarded_since_ms = None
        self.fresh_at_ms = now_ms

    def is_fresh(self, now_ms: int) -> bool:
        return now_ms - self.fresh_at_ms < self.timeout_ms

    def is_not_understood(self, now_ms: int) -> bool:
        """Datagrams of the peer's known life have come for a timeout, and none of them counted."""
        since_ms = self._discarded_since_ms
        return since_ms is not None and now_ms - since_ms >= self.timeout_ms

    def forgive(self, now_ms: int) -> None:
        """Give a peer that was fresh before we were away a few intervals to prove that it still is."""
        self.fresh_at_ms = max(self.fresh_at_ms, now_ms - self.timeout_ms + FORGIVEN_INTERVALS * INTERVAL_MS)
        self._discarded_since_ms = None

    def next(
        self,
        node_id: int,
        incarnation: int,
        now_ms: int,
        dialled: ByteCounts = NO_CONNECTION,
        accepted: ByteCounts = NO_CONNECTION,
        *,
        is_busy: bool = False,
    ) -> Datagram:
        """Return the datagram to send now."""
        self._sequence += 1
        self._sent_at_ms[self._sequence % SENT_REMEMBERED] = now_ms
        return Datagram(
            node_id=node_id,
            incarnation=incarnation,
            sequence=self._sequence,
            echo_incarnation=self.incarnation or 0,
            echo_sequence=self._last_sequence,
            echo_delay_ms=max(0, now_ms - self._last_at_ms),
            dialled=dialled,
            accepted=accepted,
            is_busy=is_busy,
        )

    def on_datagram(self, datagram: Datagram, my_incarnation: int, now_ms: int) -> bool:
        """Take one in; True if it counted: of the peer's known life, newer than the last, and not too new."""
        if datagram.incarnation != self.incarnation:
            return False
        if not self._can_be_next(datagram, now_ms):
            if self._discarded_since_ms is None:
                self._discarded_since_ms = now_ms
            return False
        self._discarded_since_ms = None
        if self._last_sequence:
            # One in sixteen: about the last second and a half.
            for _ in range(min(datagram.sequence - self._last_sequence - 1, SENT_REMEMBERED)):
                self.loss += (1.0 - self.loss) / 16
            self.loss -= self.loss / 16
        if now_ms - self._last_at_ms >= self._base_ms:
            self._learns_from_ms = now_ms
        self._last_sequence = datagram.sequence
        self._last_at_ms = now_ms
        self.received += 1
        echoed = datagram.echo_sequence
        if (
            datagram.echo_incarnation == my_incarnation
            and self._last_echoed < echoed <= self._sequence
            and self._sequence - echoed < SENT_REMEMBERED
        ):
            # The same echo again says that the peer lives, not that it hears us; its age must not make us patient.
            self._last_echoed = echoed
            self._on_echo(self._sent_at_ms[echoed % SENT_REMEMBERED], datagram.echo_delay_ms, now_ms)
        return True

    def _can_be_next(self, datagram: Datagram, now_ms: int) -> bool:
        if not self._last_sequence:
            return datagram.sequence > 0 and datagram.accepted.mark == self._mark
        sent_since = PACE_MAX * (now_ms - self._last_at_ms) // INTERVAL_MS
        return 0 < datagram.sequence - self._last_sequence <= SENT_REMEMBERED + sent_since

    def _on_echo(self, sent_at_ms: int, delay_ms: int, now_ms: int) -> None:
        age_ms = max(0, now_ms - sent_at_ms)
        self.fresh_at_ms = max(self.fresh_at_ms, sent_at_ms)
        if delay_ms >= self._base_ms or sent_at_ms < self._learns_from_ms:
            # An echo of a datagram from before a cut that has been mended, or from before one of us stood still. That
            # was no slowness, and must not make us slow to notice the next silence (measured: 3.1 s instead of 1.0 a
            # second after a cut was mended, 2.2 s after a process had been stopped for a while).
            return
        self._age_deviation_ms += (abs(age_ms - self._age_ms) - self._age_deviation_ms) / 4
        self._age_ms += (age_ms - self._age_ms) / 8
        rtt_ms = max(0, age_ms - delay_ms)
        # The first one counts whole, as in RFC 6298: nobody should take a far peer for a near one for a second.
        self.rtt_ms = self.rtt_ms + (rtt_ms - self.rtt_ms) / 8 if self._has_rtt else float(rtt_ms)
        self._has_rtt = True
