"""The clients that ask for subscriptions and push metrics: when each may, and what it was told last. Pure.

The rules are Kafka's. A client asks, and asks again, or pushes, one interval later; a push may follow the answer at
once, because clients wait for a part of the interval that they draw. One that was told that it does not know what is
wanted, or that a codec is not known, may ask at once, and so may everybody when subscriptions have changed. A client
that has said that it ends pushes no more.

Limit: `INSTANCES_MAX` clients, Kafka's number; then the one that was heard longest ago is forgotten.
"""

from barnabas_clients.protocol.error_codes import ErrorCode

from .subscriptions import Wanted

__all__ = ["INSTANCES_MAX", "Instance", "Instances"]

INSTANCES_MAX = 16_384
NEVER_MS = -(1 << 62)
_MAY_ASK = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


class Instance:
    """One client on one connection. `version` is that of the subscriptions that it was compared with.

    It is remembered what it was asked for by a number alone: the names may be thousands.
    """

    __slots__ = ("asked_ms", "interval_ms", "is_ending", "last_code", "number", "peer", "pushed_ms", "version")

    def __init__(self, instance_id: bytes, peer: str, version: int, wanted: Wanted) -> None:
        self.peer = peer
        self.version = version
        self.interval_ms = wanted.interval_ms
        self.number = wanted.number_for(instance_id)
        self.asked_ms = self.pushed_ms = NEVER_MS
        self.is_ending = False
        self.last_code = ErrorCode.NONE

    def ask(self, now_ms: int) -> ErrorCode:
        """Note a question; return NONE if it may be answered."""
        if now_ms - max(self.asked_ms, self.pushed_ms) >= self.interval_ms:
            self.asked_ms = now_ms
        elif self.last_code not in _MAY_ASK:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.last_code = ErrorCode.NONE
        return ErrorCode.NONE

    def push(self, now_ms: int, number: int, *, codec_is_known: bool, fits: bool, is_ending: bool) -> ErrorCode:
        """Note a push; return NONE if its metrics may be taken."""
        code = self._push_code(now_ms, number, codec_is_known=codec_is_known, fits=fits, is_ending=is_ending)
        self.is_ending = is_ending
        self.last_code = code
        return code

    def _push_code(self, now_ms: int, number: int, *, codec_is_known: bool, fits: bool, is_ending: bool) -> ErrorCode:
        if self.is_ending:
            return ErrorCode.INVALID_REQUEST
        is_due = self.asked_ms > self.pushed_ms or now_ms - self.pushed_ms >= self.interval_ms
        if is_due:
            self.pushed_ms = now_ms
        elif not is_ending:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if number != self.number:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not codec_is_known:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.NONE if fits else ErrorCode.TELEMETRY_TOO_LARGE


class Instances:
    """The clients by id, the one heard last at the end."""

    def __init__(self) -> None:
        self._known: dict[bytes, Instance] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, instance_id: bytes, peer: str, version: int) -> Instance | None:
        """Return a client that asks on the connection, and by the subscriptions, that it asked by last."""
        found = self._known.pop(instance_id, None)
        if found is None or found.peer != peer or found.version != version:
            return None
        self._known[instance_id] = found
        return found

    def keep(self, instance_id: bytes, instance: Instance) -> None:
        """Remember a client."""
        self._known.pop(instance_id, None)
        if len(self._known) >= INSTANCES_MAX:
            del self._known[next(iter(self._known))]
        self._known[instance_id] = instance
