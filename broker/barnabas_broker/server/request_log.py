"""Logs each request with its client and the time that its answer took, where somebody asked for that.

With `log.level=DEBUG` a listener makes its exchanges of this class; else of `Exchange`, which knows nothing of it, so a
broker that does not log requests pays nothing. The time counts from when the whole request was there to when its answer
was given: for a fetch that waited for records, with the wait. A second has at most `LINES_PER_SECOND` lines, a tenth
of one `LINES_PER_TENTH`, because one callback may answer hundreds of requests; the next second begins with how many
there would have been more. Requests whose client has left before the answer have none.
"""

import logging
from collections.abc import Callable, Sequence

from barnabas_clients.protocol.registry import APIS
from barnabas_raftlog.printable import printable
from barnabas_raftlog.raft.messages import Buffer

from .connections import Connection, Exchange

__all__ = ["LINES_PER_SECOND", "LINES_PER_TENTH", "LoggedExchange", "RequestLog", "is_wanted"]

logger = logging.getLogger(__name__)

LINES_PER_SECOND = 200
LINES_PER_TENTH = 40  # A line takes up to 100 us.
CLIENT_ID_CHARACTERS_MAX = 100


def is_wanted() -> bool:
    """Tell whether anybody would see the lines."""
    return logger.isEnabledFor(logging.DEBUG)


class RequestLog:
    """Writes the lines of one listener, and makes its exchanges."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns  # The loop's own clock stands still during a turn, which is as long as most requests.
        self._second = -1
        self._lines = 0
        self._tenth = -1  # of a second
        self._lines_of_tenth = 0
        self._unsaid = 0

    def exchange(self, connection: Connection, frame: bytearray) -> Exchange:
        """Return an exchange that tells this of its answer."""
        return LoggedExchange(connection, frame, self, self._clock_ns())

    def add(self, exchange: Exchange, begun_ns: int, asked_bytes: int, answered_bytes: int) -> None:
        """Say what was asked and answered, unless this second has had enough lines."""
        now_ns = self._clock_ns()
        if now_ns // 1_000_000_000 != self._second:
            self._second = now_ns // 1_000_000_000
            self._lines = 0
            if self._unsaid:
                logger.debug("%d more requests, too many for a line each", self._unsaid)
                self._unsaid = 0
        if now_ns // 100_000_000 != self._tenth:
            self._tenth = now_ns // 100_000_000
            self._lines_of_tenth = 0
        if self._lines >= LINES_PER_SECOND or self._lines_of_tenth >= LINES_PER_TENTH:
            self._unsaid += 1
            return
        self._lines += 1
        self._lines_of_tenth += 1
        api = APIS.get(exchange.api_key)
        name = f"{api.name if api else f'API key {exchange.api_key}'} v{exchange.version}"
        client_id = printable(exchange.client_id or "-", CLIENT_ID_CHARACTERS_MAX)
        took_ms = (now_ns - begun_ns) / 1_000_000
        fields = {"api": name, "client": str(exchange.connection), "client_id": client_id, "took_ms": round(took_ms, 3)}
        text = "%s from %s as %s: %d bytes asked, %d answered, took %.1f ms"
        words = (name, exchange.connection, client_id, asked_bytes, answered_bytes, took_ms)
        logger.debug(text, *words, extra={"fields": fields})


class LoggedExchange(Exchange):
    """An exchange that has its answer logged."""

    __slots__ = ("_asked_bytes", "_begun_ns", "_log")

    def __init__(self, connection: Connection, frame: bytearray, log: RequestLog, begun_ns: int) -> None:
        super().__init__(connection, frame)
        self._log = log
        self._begun_ns = begun_ns
        self._asked_bytes = len(frame)

    def answer(self, buffers: Sequence[Buffer], *, keeps_frame: bool = False) -> None:
        """Do what every exchange does, and say so."""
        size_bytes = sum(map(len, buffers))
        super().answer(buffers, keeps_frame=keeps_frame)
        if not self.is_gone:
            self._log.add(self, self._begun_ns, self._asked_bytes, size_bytes)
