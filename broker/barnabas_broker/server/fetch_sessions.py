"""Keeps what clients fetch between their requests: fetch sessions (KIP-227).

A client that opens a session names all its partitions once. From then on it names those whose position has moved, those
that are new and those that it does not want any more, and is told only of partitions that have something new: records,
an error, another high watermark or start of the log. Each request of a session has the next epoch, so that one that is
repeated, or was lost, shows.

*A row* is one partition of a session. Rows are read in their order, and one that has given records goes to its end: so
each is the first one in its turn. A row that was looked at and had nothing new is *quiet* until its partition changes;
to find that out takes a fraction of a microsecond (`FetchRow.is_quiet`).

*Who goes when there is no room* is as in Kafka: the session that was used least lately, if that is more than
`EVICTION_MS` ago; else the smallest one of those that are older than that, if the new one has more partitions; else
there is no new one, and its client names all its partitions each time. The client of a session that has gone hears
FETCH_SESSION_ID_NOT_FOUND and opens another one.

Limits: `slots_max` sessions, and `bytes_max` for all of them, of which one may take an eighth, and no more than
`SESSION_BYTES_MAX`. One that grows beyond that ends. One that was not used for `IDLE_MS` ends as well, at the next
`sweep`: Kafka keeps it until its place is needed. Replicas of this cluster have no sessions, so there are none with
Kafka's privilege of followers.
"""

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple, Protocol

from barnabas_broker.partition.partition import Partition
from barnabas_clients.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData

__all__ = ["IDLE_MS", "FetchRow", "FetchSession", "FetchSessions", "RowKey", "SessionWatch", "next_epoch"]

EVICTION_MS = 120_000
IDLE_MS = 600_000
SESSION_SHARE = 8
SESSION_BYTES_MAX = 4 << 20  # or 10,000 partitions, which are freed in 3 ms
SESSION_BYTES = 1_000
ROW_BYTES = 400  # measured: 365
EPOCH_MAX = 2**31 - 1
INITIAL_EPOCH = 0
PIECE = 16  # rows that are made or ended at once

RowKey = tuple[str | bytes, int]
"""A topic by its name or by its id, as the version of the session has it, and the number of a partition."""


def next_epoch(epoch: int) -> int:
    """Return the epoch of a session's next request."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def _row_bytes(name: str | bytes) -> int:
    """Return how much memory a row takes at most, with its topic's name, which others may share."""
    return ROW_BYTES + (len(name) if isinstance(name, bytes) or name.isascii() else 4 * len(name))


class SessionWatch(Protocol):
    """Whoever waits for news of a session's partitions, also between two requests."""

    def end(self) -> None:
        """The session has ended."""


class FetchRow:
    """One partition of a session.

    `asked` is what the client wants of it. The figures are those that it was told last, -1 if that was an error.
    `partition` is the replica that was looked at last, unless it has something that the client does not know; `changes`
    are those of that moment.
    """

    __slots__ = (
        "asked",
        "changes",
        "high_watermark",
        "key",
        "last_stable_offset",
        "log_start_offset",
        "partition",
    )

    def __init__(self, key: RowKey, asked: FetchPartition) -> None:
        self.key = key
        self.asked = asked
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.partition: Partition | None = None
        self.changes = 0

    def ask(self, asked: FetchPartition) -> None:
        """Let the client want something else of it."""
        self.asked = asked
        self.partition = None

    def tell(self, result: PartitionData, seen: tuple[Partition, int] | None) -> bool:
        """Note what the client may be told; return whether it must be. `seen`: what was looked at, and its changes."""
        is_news = bool(
            result.error_code
            or result.records
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or result.preferred_read_replica >= 0
            or result.diverging_epoch.end_offset >= 0
        )
        is_settled = not (
            result.error_code or result.preferred_read_replica >= 0 or result.diverging_epoch.end_offset >= 0
        )
        # Of an error the client hears each time, and of what comes after it.
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.last_stable_offset = result.last_stable_offset
        self.log_start_offset = result.log_start_offset
        if seen is None or not is_settled:
            self.partition = None
        else:
            self.partition, self.changes = seen
        return is_news

    def is_quiet(self, *, is_committed: bool) -> bool:
        """Tell whether a look at the partition would bring nothing that the client does not know.

        A leader that has just lost touch with the others counts as quiet until it is told so, which is a change.
        """
        partition = self.partition
        return (
            partition is not None
            and partition.changes == self.changes
            and partition.high_watermark == self.high_watermark
            and partition.last_stable_offset == self.last_stable_offset
            and self.asked.fetch_offset >= (self.last_stable_offset if is_committed else self.high_watermark)
        )


class FetchSession:
    """What one client fetches, in its order. `epoch` is the one that its next request must have."""

    __slots__ = ("by_id", "created_ms", "epoch", "is_over", "rows", "session_id", "size_bytes", "used_ms", "watch")

    def __init__(self, session_id: int, rows: dict[RowKey, FetchRow], size_bytes: int, *, by_id: bool, now_ms: int):
        self.session_id = session_id
        self.rows = rows
        self.size_bytes = size_bytes
        self.by_id = by_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = self.used_ms = now_ms
        self.is_over = False
        self.watch: SessionWatch | None = None

    def move_to_end(self, row: FetchRow) -> None:
        """Let all others come before it: it has given something."""
        if self.rows.get(row.key) is row:
            del self.rows[row.key]
            self.rows[row.key] = row


class Made(NamedTuple):
    """Rows for a new session, and the memory that they take."""

    rows: dict[RowKey, FetchRow]
    size_bytes: int


class FetchSessions:
    """The sessions of one node. `new_number` draws a number from 0 on, of at least 31 bits.

    Invariant: `size_bytes` is the sum of those of the sessions, which are in the order of their last use.
    """

    def __init__(self, slots_max: int, bytes_max: int, new_number: Callable[[], int]) -> None:
        self.slots_max = slots_max
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self.opened_count = self.evicted_count = 0
        self._new_number = new_number
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def session_bytes_max(self) -> int:
        return min(self.bytes_max // SESSION_SHARE, SESSION_BYTES_MAX)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def use(self, session: FetchSession, now_ms: int) -> None:
        """Note that a request of the session has come: the next one must have the next epoch."""
        session.epoch = next_epoch(session.epoch)
        session.used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session

    def make(self, topics: Iterable[FetchTopic], *, by_id: bool) -> Generator[None, None, Made | None]:
        """Make rows of what a request names, in steps; None: it is too much for a session."""
        rows: dict[RowKey, FetchRow] = {}
        size_bytes = SESSION_BYTES
        for topic in topics:
            name = topic.topic_id if by_id else topic.topic
            for number, asked in enumerate(topic.partitions, 1):
                key = name, asked.partition
                if key in rows:
                    rows[key].ask(asked)
                else:
                    rows[key] = FetchRow(key, asked)
                    size_bytes += _row_bytes(name)
                    if size_bytes > self.session_bytes_max:
                        return None
                if not number % PIECE:
                    yield
            yield
        return Made(rows, size_bytes)

    def open(self, made: Made, *, by_id: bool, now_ms: int) -> Generator[None, None, FetchSession | None]:
        """Begin a session with rows, in steps: one for each that goes. None: there is no room, and nobody has to go."""
        while len(self._sessions) >= self.slots_max or self.size_bytes + made.size_bytes > self.bytes_max:
            dispensable = self._dispensable(len(made.rows), now_ms)
            if dispensable is None:
                return None
            self.evicted_count += 1
            self.end(dispensable)
            dispensable = None  # To free one takes up to 4 ms.
            yield
        session_id = 0
        while not session_id or session_id in self._sessions:
            session_id = self._new_number() & EPOCH_MAX
        session = FetchSession(session_id, made.rows, made.size_bytes, by_id=by_id, now_ms=now_ms)
        self._sessions[session_id] = session
        self.size_bytes += made.size_bytes
        self.opened_count += 1
        return session

    def change(
        self, session: FetchSession, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]
    ) -> Generator[None, None, bool]:
        """Follow what a request says of its session's partitions, in steps; False: that was too much, and it is over.

        One that is named and forgotten in the same request is forgotten.
        """
        rows = session.rows
        for topic in topics:
            name = topic.topic_id if session.by_id else topic.topic
            for number, asked in enumerate(topic.partitions, 1):
                key = name, asked.partition
                row = rows.get(key)
                if row is not None:
                    row.ask(asked)
                else:
                    rows[key] = FetchRow(key, asked)
                    self._resize(session, _row_bytes(name))
                    if session.size_bytes > self.session_bytes_max or self.size_bytes > self.bytes_max:
                        self.end(session)
                        return False
                if not number % PIECE:
                    yield
            yield
        for gone in forgotten:
            name = gone.topic_id if session.by_id else gone.topic
            for number, index in enumerate(gone.partitions, 1):
                if rows.pop((name, index), None) is not None:
                    self._resize(session, -_row_bytes(name))
                if not number % PIECE:
                    yield
            yield
        return True

    def end(self, session: FetchSession) -> None:
        """Forget a session, unless it is over."""
        if session.is_over:
            return
        session.is_over = True
        del self._sessions[session.session_id]
        self.size_bytes -= session.size_bytes
        watch, session.watch = session.watch, None
        if watch is not None:
            watch.end()

    def sweep(self, now_ms: int) -> int | None:
        """Forget the session that was used least lately, if that is long ago; return in how many ms to ask again."""
        session = next(iter(self._sessions.values()), None)
        if session is None:
            return None
        left_ms = session.used_ms + IDLE_MS - now_ms
        if left_ms > 0:
            return left_ms
        self.end(session)
        return 0 if self._sessions else None

    def _resize(self, session: FetchSession, count: int) -> None:
        session.size_bytes += count
        if not session.is_over:
            self.size_bytes += count

    def _dispensable(self, row_count: int, now_ms: int) -> FetchSession | None:
        """Return the session that goes for a new one of so many rows."""
        least_lately = next(iter(self._sessions.values()), None)
        if least_lately is None or now_ms - least_lately.used_ms > EVICTION_MS:
            return least_lately
        old = (one for one in self._sessions.values() if one.used_ms - one.created_ms > EVICTION_MS)
        smallest = min(old, key=lambda one: (len(one.rows), one.session_id), default=None)
        return smallest if smallest is not None and len(smallest.rows) < row_count else None
