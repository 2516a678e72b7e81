"""Fetch: read batches from partitions, and wait for some if there are too few.

A request is looked at once when it arrives. If it yields less than `min_bytes` and no error, it is parked on its
partitions, and looked at again when they have gained what is missing (`FetchWaiters`), when one of them changes in
another way, or for the last time when `max_wait_ms` is over; one of more than `PARKED_MAX` partitions only then. A
partition that has more than the limits let it give gives nothing more for what it gains, and one that does not serve
yet may serve after any commit. So thousands of fetches that wait for more than there will ever be cost nothing for each
commit. Batches leave as the buffers that the log holds, untouched. To look at many partitions takes several turns of
the loop (`turns`). Bytes that they gain meanwhile, behind the look, count as well, and any other change has it look
again.

*Bytes* (KIP-74): `max_bytes`, or `fetch.max.bytes` if that is less, bounds the response and `partition_max_bytes` each
partition, but the first partition with something to read gives at least one batch, else a large batch could never be
read. The first one is the one named first, in memory or not: once one is met that must be read from disk, all after it
get the bytes that it leaves. Clients name those last that gave something last, so every partition is the first one in
its turn.

*Room.* The bytes of an answer count until the client has taken them (`transient_bytes`). A client is given more from
disk only as it takes it (`cold_window`). If others hold much, an answer is smaller; if there is no room at all, a fetch
finds nothing, and waits until there is some.

*The readable part* ends at the high watermark, and for readers of committed records (`isolation_level` 1) at the last
stable offset. From there to the end of the log a fetch waits; only beyond that is it OFFSET_OUT_OF_RANGE. A leader that
is not confirmed yet gives nothing and lets the fetch wait. If it is not confirmed by the end of the wait, it says that
it does not lead, and no high watermark: the one that it knows may be older than the one that its predecessor has told
this very client.

*Aborted transactions.* Readers of committed records are told which transactions were aborted that have something from
the offset that they asked for to the end of what they get; they drop those records. There may be one for every hundred
bytes, or thousands that were open for long: an answer with more than `ABORTED_AT_ONCE` of them is put together in
several turns. Which ones they are is settled with the read. If the start of the log, or the state beside it, changes
while records are read from disk, the index may have forgotten what those need: they are left out, and the client asks
again.

*Epochs* (KIP-320, KIP-595): a client with an older leader epoch is fenced, one with a newer is told that we do not know
it; a client whose last fetched epoch ends before its offset here gets the diverging epoch instead of records.

*Sessions* (KIP-227, `fetch_sessions`). A request of epoch 0 opens one with what it names, if there is room; else the
session id in the answer is 0, and the client names its partitions each time. A later one says what has changed, and is
answered with what has changed here. Of its partitions only those are looked at that are not quiet. While nothing at all
happens to them, one entry stays parked on them from one request to the next (`_Watch`), and nothing is looked at before
the end of a request's wait. A request that another one of its session has overtaken is told of no partition.

*Racks* (KIP-392): a consumer that names its rack is sent to a replica there, if the leader is elsewhere and one is in
sync (`read_replicas`); the answer has no records then, and does not wait. A replica that does not lead serves clients
that name a rack, and no others, up to the high watermark that it knows, as long as it follows a leader. It judges a
client's epoch by the term of that leader; of logs it judges only the part that it knows to be committed, because it may
be behind. Beyond its own log it says OFFSET_NOT_AVAILABLE, upon which consumers turn to the leader. OFFSET_OUT_OF_RANGE
would make those that take it for the leader, by metadata that is old or a guess, start again where `auto.offset.reset`
says.

Replicas of this cluster do not use this API, so a request in the name of one comes from outside and is refused.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator

from barnabas_broker.partition.aborted_index import AbortedRange
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.read_replicas import ReadReplica, preferred_replica
from barnabas_broker.partition.waiters import FetchWaiters, ParkedFetch
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.cold_window import ColdWindow
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, code_of, respond
from barnabas_broker.server.fetch_sessions import FetchRow, FetchSession, next_epoch
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.pieces import emptied
from barnabas_broker.timing.slices import Slices, taken
from barnabas_broker.timing.turns import Work
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.header import SIZE_PREFIX_BYTES, next_offset

__all__ = ["handle", "refuse"]

SESSIONS_SINCE = 7
IDS_SINCE = 13
HINTS_SINCE = 16
RACKS_SINCE = 11
REPLICA_STATE_SINCE = 15
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
PIECE = 16  # partitions that are looked at without giving others their turn
QUIET_PIECE = 256  # quiet rows of a session that are passed without that
RESULTS_PIECE = 500  # whose leaders are looked up
FREED_AT_ONCE = 2_000  # tuples
PARKED_MAX = 5_000  # to park on as many takes up to 7 ms
ABORTED_AT_ONCE = 500  # rows of aborted transactions: half a millisecond
TOLD_AT_ONCE = 500  # partitions of a session that are answered without giving others their turn
READ_COMMITTED = 1  # the isolation level
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

Hopes = tuple[list[Partition], list[Partition], list[Partition]]


class _Watch:
    """Waits on all partitions of a session until something happens to one, through one request and the next.

    `fetch` is the request that waits now, if one does (SessionWatch, ParkedFetch).
    """

    __slots__ = ("fetch", "waiters")

    def __init__(self, waiters: FetchWaiters[Partition, ParkedFetch]) -> None:
        self.waiters = waiters
        self.fetch: _Fetch | None = None

    def on_woken(self) -> None:
        if self.fetch is not None:
            # Not by `on_error`: it may have left by the time at which it fails.
            call_each((self.fetch,), _Fetch.on_woken, _Fetch.on_error)

    def on_error(self, error: Exception) -> None:
        if self.fetch is not None:
            self.fetch.on_error(error)

    def end(self) -> None:
        if self.fetch is None:
            self.waiters.discard(self)


class _Fetch:
    """One request, looked at as often as needed (ParkedFetch).

    `session` is the one that it continues; `opens`: it wants to begin one.
    """

    __slots__ = (
        "broker",
        "deadline",
        "exchange",
        "is_cramped",
        "is_last_look",
        "is_looking",
        "is_new",
        "is_short",
        "opens",
        "request",
        "session",
        "waiters",
        "watch",
    )

    def __init__(
        self,
        broker: BrokerContext,
        exchange: Exchange,
        request: FetchRequest,
        session: FetchSession | None = None,
        *,
        opens: bool = False,
    ) -> None:
        self.broker = broker
        self.exchange = exchange
        self.request = request
        is_committed = request.isolation_level == READ_COMMITTED
        self.waiters = broker.parked_committed_fetches if is_committed else broker.parked_fetches
        self.deadline: Deadline[Callable[[], None]] | None = None
        self.is_last_look = request.max_wait_ms <= 0
        self.is_cramped = self.is_looking = False
        topics = request.topics
        self.is_short = len(topics) < PIECE and sum([len(topic.partitions) for topic in topics]) < PIECE
        self.session = session
        self.opens = opens
        self.watch: _Watch | None = None
        self.is_new = session is not None
        if session is not None:
            self.is_short = self.is_short and len(session.rows) < PIECE and exchange.is_small

    def __repr__(self) -> str:
        return f"a fetch from {self.exchange.connection}"

    def on_woken(self) -> None:
        self.look()

    def on_error(self, error: Exception) -> None:
        self.is_looking = False
        self._stop_waiting()
        if not self.exchange.is_answered:
            respond(self.exchange, refuse(self.request, code_of(error)))

    def look(self) -> None:
        """Read what there is; answer, or park."""
        self._stop_awaiting_room()
        if self.is_short:
            for _ in self._look():
                pass
            return
        self.is_looking = True
        self.exchange.turns.begin(Work(self.exchange, self._look(), self.on_error, name="Fetch"))

    def _look(self) -> Generator[None, None, None]:
        if self.is_new:
            self.is_new = False
            is_over = yield from self._go_on_with_session()
            if is_over:
                self.is_looking = False
                return
        missed_bytes: int | None = 0
        hopes: Hopes | None = None
        session = self.session
        turns = self.exchange.turns
        while True:
            look = _Look(self.broker, self.exchange.version, self.request, self.exchange.room_bytes)
            slices = 0 if session is None else turns.slices
            if session is not None:
                yield from look.run_rows(list(session.rows.values()), is_last=self.is_last_look)
            else:
                yield from look.run()
            if look.unread or self._is_enough(look):
                break
            self._set_deadline()
            if self.is_short or len(look.partitions) > PARKED_MAX:
                break
            if session is not None and turns.slices == slices:
                break  # It was one callback: nothing was missed.
            hopes = look.hopes()
            missed_bytes = look.missed_bytes(hopes)
            if missed_bytes is not None and look.size_bytes + missed_bytes < self.request.min_bytes:
                break
            yield
        self.is_looking = False
        if look.unread:
            # From disk: a task, because it waits. It answers with what it finds: there is at least one batch.
            self._stop_waiting()
            self.exchange.hold()
            window = self.exchange.cold_window()
            look.bytes_left = min(look.bytes_left, window.look(*self.exchange.untaken_bytes()))
            self.exchange.grow(look.bytes_left)
            self.broker.start_task(self._read_cold(look, window), self._on_read)
        elif self._is_enough(look):
            if self.is_short and look.is_long:
                self._stop_waiting()
                self.is_looking = True
                self.exchange.turns.begin(Work(self.exchange, self._answer(look), self.on_error, name="Fetch"))
            else:
                yield from self._answer(look)
        else:
            self._park(look, self.request.min_bytes - look.size_bytes - (missed_bytes or 0), hopes)

    def _go_on_with_session(self) -> Generator[None, None, bool]:
        """Follow what the request says of its session; tell whether there is nothing to look at now."""
        session, request = self.session, self.request
        assert session is not None
        sessions = self.broker.fetch_sessions
        watch = session.watch
        if isinstance(watch, _Watch):
            watch.fetch = None  # A request that it has waited for was overtaken, and answered at its deadline.
        if request.topics or request.forgotten_topics_data:
            is_kept = yield from sessions.change(session, request.topics, request.forgotten_topics_data)
            if not is_kept:
                respond(self.exchange, FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), request)
                return True
            if not session.rows:
                sessions.end(session)
                self.session = None
        elif isinstance(watch, _Watch) and self._may_wait_with(watch):
            watch.fetch = self
            self.watch = watch
            self._set_deadline()
            return True
        return False

    def _may_wait_with(self, watch: _Watch) -> bool:
        """Tell whether nothing has happened since the last answer, and what would be enough can only come."""
        may_wait = self.request.min_bytes > 0 and not (self.is_last_look or self.broker.is_stopping)
        is_parked = watch.waiters is self.waiters and watch in self.waiters
        return may_wait and is_parked and not is_elsewhere(self.broker, self.request.rack_id)

    def _is_enough(self, look: "_Look") -> bool:
        is_enough = look.has_error or look.is_redirecting or look.size_bytes >= self.request.min_bytes
        return is_enough or not look.partitions or self.is_last_look or self.broker.is_stopping

    def _park(self, look: "_Look", missing_bytes: int, hopes: Hopes | None) -> None:
        if look.is_cramped:
            self.is_cramped = True
            self.exchange.await_room(self._on_room)
        if len(look.partitions) > PARKED_MAX:
            return
        waiters = self.waiters
        if missing_bytes <= 1 and not (look.size_bytes or look.withheld):
            waiters.park(self if self.session is None else self._new_watch(self.session), look.partitions)
        else:
            gaining, eager, full = hopes or look.hopes()
            waiters.park(self, gaining, missing_bytes, eager=eager, full=full)

    def _new_watch(self, session: FetchSession) -> ParkedFetch:
        """Return what waits on the partitions of a session, in place of what has waited there before."""
        if session.is_over:
            return self
        if isinstance(session.watch, _Watch):
            session.watch.waiters.discard(session.watch)
        session.watch = self.watch = _Watch(self.waiters)
        self.watch.fetch = self
        return self.watch

    def _on_room(self) -> None:
        self._leave_watch()
        self.waiters.discard(self)
        call_each((self,), _Fetch.look, _Fetch.on_error)

    def _stop_awaiting_room(self) -> None:
        if self.is_cramped:
            self.is_cramped = False
            self.exchange.forget_room()

    def _set_deadline(self) -> None:
        if self.deadline is None:
            self.exchange.hold()
            self.exchange.abandon = self._abandon
            self.deadline = self.broker.timers.add(self.request.max_wait_ms, self._on_timeout)

    def _on_timeout(self) -> None:
        self.is_last_look = True
        self._leave_watch()
        self.waiters.discard(self)
        if not self.is_looking and not self.exchange.is_answered:
            call_each((self,), _Fetch.look, _Fetch.on_error)

    def _abandon(self) -> None:
        self.waiters.discard(self)
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._stop_awaiting_room()
        self._leave_watch()
        self.exchange.abandon = None
        if self.deadline is not None:
            self.broker.timers.cancel(self.deadline)

    def _leave_watch(self) -> None:
        """Wait with the session's watch no more. It stays where it is, unless the session is over."""
        watch, self.watch = self.watch, None
        if watch is not None and watch.fetch is self:
            watch.fetch = None
            if self.session is None or self.session.watch is not watch:
                watch.end()

    async def _read_cold(self, look: "_Look", window: ColdWindow) -> None:
        await look.read_rest()
        window.given_bytes = look.size_bytes
        if not self.exchange.is_answered:
            await taken(self._answer(look))

    def _on_read(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            call_each((self,), lambda _: task.result(), _Fetch.on_error)

    def _answer(self, look: "_Look") -> Generator[None, None, None]:
        self._stop_waiting()
        session = self.session
        if session is not None and session.epoch != next_epoch(self.request.session_epoch):
            overtaken = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            response = FetchResponse(error_code=overtaken, session_id=session.session_id)
        else:
            if session is not None:
                yield from look.tell(session)
            response = yield from look.response_in_steps(self.exchange.client_id or "", self.exchange.listener_name)
            if session is not None:
                response.session_id = session.session_id
            elif self.opens and not self.exchange.is_gone:
                response.session_id = yield from self._open_session(look)
        if not self.exchange.is_answered:
            respond(self.exchange, response, self.request, is_long=look.is_long)
        if not self.is_short:
            yield from look.let_go()

    def _open_session(self, look: "_Look") -> Generator[None, None, int]:
        """Begin a session with what was asked for and found; return its id, 0 if there is no room for it."""
        sessions = self.broker.fetch_sessions
        by_id = self.exchange.version >= IDS_SINCE
        made = yield from sessions.make(self.request.topics, by_id=by_id)
        if made is None:
            return 0
        for topic in look.topics:
            name = topic.topic_id if by_id else topic.topic
            for number, result in enumerate(topic.partitions, 1):
                made.rows[name, result.partition_index].tell(result, None)
                if not number % PIECE:
                    yield
            yield
        session = yield from sessions.open(made, by_id=by_id, now_ms=self.broker.now_ms())
        if session is None:
            return 0
        self.broker.sweep_fetch_sessions_later()
        return session.session_id


class _Look:
    """One pass over the partitions of a request.

    `unread`: those with something to read, from the first one on whose batches are not in memory. `aborted`: for each
    of those that give something to readers of committed records, what it has of aborted transactions. `told`: rows of a
    session that are not quiet, what was found of each, and the replica with its `changes`.
    """

    __slots__ = (
        "aborted",
        "broker",
        "bytes_left",
        "has_error",
        "is_committed",
        "is_cramped",
        "is_redirecting",
        "partitions",
        "rack",
        "reads",
        "request",
        "seen",
        "size_bytes",
        "told",
        "topics",
        "unread",
        "unserving",
        "version",
        "withheld",
    )

    def __init__(self, broker: BrokerContext, version: int, request: FetchRequest, room_bytes: int) -> None:
        self.broker = broker
        self.version = version
        self.request = request
        self.bytes_left = min(request.max_bytes, broker.config.fetch_max_bytes, room_bytes)
        self.is_cramped = room_bytes <= self.bytes_left
        self.size_bytes = 0
        self.has_error = self.is_redirecting = False
        self.is_committed = request.isolation_level == READ_COMMITTED
        self.aborted: list[tuple[PartitionData, AbortedRange]] = []
        self.rack = request.rack_id if version >= RACKS_SINCE else ""
        self.topics: list[FetchableTopicResponse] = []
        self.told: list[tuple[FetchRow, PartitionData, tuple[Partition, int] | None]] = []
        self.partitions: list[Partition] = []
        self.seen: list[
            tuple[int, int]
        ] = []  # their `changes`, and how far they could be read, when they were looked at
        self.unserving: list[Partition] = []
        self.withheld: list[Partition] = []  # those with something to read that gave nothing, for want of room
        self.reads: list[tuple[Partition, FetchPartition, list[Buffer]]] = []
        self.unread: list[tuple[Partition, FetchPartition, PartitionData, int, int]] = []  # with what `seen` has of it

    @property
    def is_long(self) -> bool:
        """Whether an answer may have more rows than are worked on at once, though the request is small."""
        aborted_count = sum([found.row_count_max for _, found in self.aborted])
        return aborted_count > ABORTED_AT_ONCE or len(self.told) > TOLD_AT_ONCE

    def run(self) -> Generator[None, None, None]:
        by_id = self.version >= IDS_SINCE
        count = 0
        for topic in self.request.topics:
            hosted = self.broker.topic(topic.topic, topic.topic_id, by_id=by_id)
            results = []
            for asked in topic.partitions:
                results.append(self._one(hosted, asked, by_id=by_id))
                count += 1
                if not count % PIECE:
                    yield
            count += 1
            if not count % PIECE:
                yield
            if by_id:
                self.topics.append(FetchableTopicResponse(topic_id=topic.topic_id, partitions=results))
            else:
                self.topics.append(FetchableTopicResponse(topic=topic.topic, partitions=results))

    def run_rows(self, rows: list[FetchRow], *, is_last: bool) -> Generator[None, None, None]:
        """Look at the rows of a session in their order, those that are quiet excepted.

        `is_last`: nobody is going to wait for the quiet ones.
        """
        by_id = self.version >= IDS_SINCE
        is_committed = self.is_committed
        partitions, seen = self.partitions, self.seen
        may_be_quiet = not self.broker.is_stopping
        is_redirected = is_elsewhere(self.broker, self.rack)
        name: str | bytes | None = None
        hosted: HostedTopic | None = None
        work = 0
        for row in rows:
            partition = row.partition
            if (
                partition is not None
                and may_be_quiet
                and row.is_quiet(is_committed=is_committed)
                and not (is_redirected and partition.is_leader)
            ):
                if not is_last:
                    partitions.append(partition)
                    seen.append((row.changes, partition.last_stable_offset if is_committed else row.high_watermark))
                work += 1
                if work >= QUIET_PIECE:
                    work = 0
                    yield
                continue
            if row.key[0] != name or name is None:
                name = row.key[0]
                hosted = self._hosted(name)
            count = len(partitions)
            result = self._one(hosted, row.asked, by_id=by_id)
            found = (partitions[count], seen[count][0]) if len(partitions) > count else None
            self.told.append((row, result, found))
            work += QUIET_PIECE // PIECE
            if work >= QUIET_PIECE:
                work = 0
                yield

    def _hosted(self, name: str | bytes) -> HostedTopic | None:
        if isinstance(name, str):
            return self.broker.topic(name, b"", by_id=False)
        return self.broker.topic("", name, by_id=True)

    def tell(self, session: FetchSession) -> Generator[None, None, None]:
        """Keep what the client of a session must hear, and let those be the last ones that have given something."""
        name: str | bytes | None = None
        for number, (row, result, seen) in enumerate(self.told, 1):
            if row.tell(result, seen):
                if row.key[0] != name or name is None:
                    name = row.key[0]
                    self.topics.append(_topic_response(name))
                self.topics[-1].partitions.append(result)
                if result.records:
                    session.move_to_end(row)
            if not number % PIECE:
                yield

    def missed_bytes(self, hopes: Hopes) -> int | None:
        """Return how much the partitions that may give more have gained since the look, untold.

        `hopes` are this look's, and of now.

        None: another change was missed, or it is not known.
        """
        ends: dict[Partition, int] = {}
        for partition, (changes, end) in zip(self.partitions, self.seen, strict=True):
            if partition.changes != changes:
                return None
            ends.setdefault(partition, end)
        gaining, eager, _ = hopes
        missed = 0
        for partition in gaining:
            end = self._end_of(partition)
            if end != ends[partition]:
                count = partition.bytes_between(ends[partition], end)
                if count is None:
                    return None
                missed += count
        return None if any(self._end_of(partition) != ends[partition] for partition in eager) else missed

    def hopes(self) -> Hopes:
        """Return the partitions that may give more by gaining, those that may by any change, and the others.

        If limits have cut a partition short, or left it nothing to give, records behind that do not matter. One that is
        asked for several times is there as often.
        """
        full = list(self.withheld)
        for partition, _, buffers in self.reads:
            if _end_offset(buffers[-1]) < self._end_of(partition):
                full.append(partition)
        without = Counter(full + self.unserving)
        gaining = list[Partition]()
        for partition in self.partitions:
            if without.get(partition):
                without[partition] -= 1
            else:
                gaining.append(partition)
        return gaining, self.unserving, full

    def _one(self, hosted: HostedTopic | None, asked: FetchPartition, *, by_id: bool) -> PartitionData:
        if hosted is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return self._error(asked, unknown)
        partition = hosted.partitions.get(asked.partition)
        if partition is None:
            known = 0 <= asked.partition < len(hosted.topic.partitions)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return self._error(asked, code, hosted)
        if self.broker.is_stopping or not (partition.is_leader or (self.rack and partition.follows)):
            return self._error(asked, partition.not_leading_code, hosted)
        if asked.current_leader_epoch >= 0 and asked.current_leader_epoch != partition.term:
            older = asked.current_leader_epoch < partition.term
            code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            return self._error(asked, code, hosted)
        if self.rack and partition.can_serve:
            elsewhere = self._preferred(partition, asked.fetch_offset)
            if elsewhere is not None:
                self.is_redirecting = True
                return self._result(partition, asked, elsewhere)
        return self._read(partition, asked)

    def _preferred(self, partition: Partition, fetch_offset: int) -> int | None:
        """Return the other replica that this consumer should read from, if it should and that can be told."""
        brokers = self.broker.image.brokers
        now_ms = self.broker.now_ms()
        me = brokers.get(self.broker.node_id)
        if me is None or me.rack == self.rack or fetch_offset < partition.log.log_start_offset:
            return None
        try:
            elsewhere = partition.readable_elsewhere(now_ms)
        except StorageFailedError:
            return None  # The end of a follower's log may be in a segment that cannot be read.
        replicas = [
            ReadReplica(node_id, brokers[node_id].rack, end_offset)
            for node_id, end_offset in elsewhere
            if node_id in brokers and not brokers[node_id].fenced
        ]
        return preferred_replica(self.rack, me.rack, fetch_offset, replicas)

    def _end_of(self, partition: Partition) -> int:
        """Return how far these clients may read, now."""
        return partition.last_stable_offset if self.is_committed else partition.high_watermark

    def _result(self, partition: Partition, asked: FetchPartition, elsewhere: int = -1) -> PartitionData:
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=[] if self.is_committed else None,
            preferred_read_replica=elsewhere,
        )

    def _read(self, partition: Partition, asked: FetchPartition) -> PartitionData:
        log = partition.log
        start = asked.fetch_offset
        end = self._end_of(partition)
        result = self._result(partition, asked)
        self.partitions.append(partition)
        self.seen.append((partition.changes, end))
        if partition.is_leader and not partition.can_serve:
            # Not an error that ends the wait: it is about to be confirmed, or deposed.
            self.unserving.append(partition)
            return _failed(result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if asked.last_fetched_epoch >= 0 and (partition.is_leader or start <= partition.high_watermark):
            found = log.epoch_end_offset(asked.last_fetched_epoch)
            if found is not None and (found[0] < asked.last_fetched_epoch or found[1] < start):
                result.diverging_epoch = EpochEndOffset(epoch=found[0], end_offset=found[1])
                self.has_error = True
                return result
        if not log.log_start_offset <= start <= log.log_end_offset:
            # The start of a log is committed, and so true of all replicas. The end of this one need not be.
            is_certain = partition.is_leader or start < log.log_start_offset
            self.has_error = True
            return _failed(result, ErrorCode.OFFSET_OUT_OF_RANGE if is_certain else ErrorCode.OFFSET_NOT_AVAILABLE)
        if start < end:
            self._read_from_memory(partition, asked, result, end)
        return result

    def _read_from_memory(self, partition: Partition, asked: FetchPartition, result: PartitionData, end: int) -> None:
        if self.unread:
            self.unread.append((partition, asked, result, end, partition.changes))
            return
        bytes_max = self._bytes_max(asked)
        if bytes_max is None:
            self.withheld.append(partition)
            return
        try:
            buffers = partition.log.read(asked.fetch_offset, end, bytes_max)
        except StorageFailedError:
            self._fail(result)
            return
        if buffers is None:
            self.unread.append((partition, asked, result, end, partition.changes))
        else:
            self._take(partition, asked, result, buffers, bytes_max)

    async def read_rest(self) -> None:
        """Read the rest, in the order of the request: from memory, or from disk."""
        slices = Slices()
        for partition, asked, result, end, changes in self.unread:
            await slices.yield_if_due()
            bytes_max = self._bytes_max(asked)
            if bytes_max is None:
                break
            try:
                buffers = await partition.log.read_cold(asked.fetch_offset, end, bytes_max)
            except StorageFailedError:
                self._fail(result)
                continue
            if self.is_committed and partition.changes != changes:
                continue  # What was aborted there may be forgotten.
            self._take(partition, asked, result, buffers, bytes_max)

    def _bytes_max(self, asked: FetchPartition) -> int | None:
        """Return how much a partition may give, one batch that is larger excepted; None: nothing, there is no room."""
        if self.bytes_left < 0 or (not self.bytes_left and self.size_bytes):
            return None
        return max(0, min(asked.partition_max_bytes, self.bytes_left))

    def _take(
        self, partition: Partition, asked: FetchPartition, result: PartitionData, buffers: list[Buffer], bytes_max: int
    ) -> None:
        size_bytes = sum(map(len, buffers))
        if not size_bytes:
            return
        if size_bytes > bytes_max and self.size_bytes:
            self.withheld.append(partition)  # One batch, larger than what is left, and not the first: next time.
            return
        result.records = buffers
        self.size_bytes += size_bytes
        self.bytes_left -= size_bytes
        self.reads.append((partition, asked, buffers))
        if self.is_committed:
            aborted = partition.aborted_range(asked.fetch_offset, _end_offset(buffers[-1]))
            if aborted is not None:
                self.aborted.append((result, aborted))

    def _fail(self, result: PartitionData) -> None:
        self.has_error = True
        _failed(result, ErrorCode.KAFKA_STORAGE_ERROR)

    def _error(self, asked: FetchPartition, code: ErrorCode, hosted: HostedTopic | None = None) -> PartitionData:
        self.has_error = True
        result = PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1)
        if code not in _UNKNOWN:
            result.aborted_transactions = None
        if hosted is not None and code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}:
            leader = self.broker.leader_of(hosted, asked.partition)
            if leader.leader_id >= 0:
                result.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch)
        return result

    def let_go(self) -> Generator[None, None, None]:
        """Free what only the look has needed; the answer is not its own any more."""
        # The partitions are not its own, and the rows of an answer are the answer's.
        self.partitions.clear()
        for rows in (self.seen, self.reads, self.unread, self.aborted, self.told):
            if len(rows) <= FREED_AT_ONCE:
                rows.clear()
            else:
                yield from emptied(rows)

    def response_in_steps(self, client_id: str, listener: str) -> Generator[None, None, FetchResponse]:
        """Count the read, and return the answer for a client of a listener."""
        for number, (partition, asked, buffers) in enumerate(self.reads, 1):
            size_bytes = sum(map(len, buffers))
            end = _end_offset(buffers[-1])
            self.broker.fetches.add(
                client_id, partition.topic_name, partition.index, size_bytes, asked.fetch_offset, end
            )
            if not number % PIECE:
                yield
        yield from self._name_aborted()
        response = FetchResponse(responses=self.topics)
        if self.has_error and self.version >= HINTS_SINCE:
            leader_ids = set[int]()
            for topic in self.topics:
                for number, result in enumerate(topic.partitions, 1):
                    leader_ids.add(result.current_leader.leader_id)
                    if not number % RESULTS_PIECE:
                        yield
                yield
            response.node_endpoints = self.broker.endpoints(leader_ids, listener)
        return response

    def _name_aborted(self) -> Generator[None, None, None]:
        for result, aborted in self.aborted:
            found = yield from aborted.in_steps()
            rows = []
            for number, (producer_id, first_offset, _) in enumerate(found, 1):
                rows.append(AbortedTransaction(producer_id=producer_id, first_offset=first_offset))
                if not number % ABORTED_AT_ONCE:
                    yield
            result.aborted_transactions = rows


def handle(broker: BrokerContext, exchange: Exchange, request: FetchRequest) -> FetchResponse | None:
    """Read, answer or park."""
    version = exchange.version
    replica_id = request.replica_state.replica_id if version >= REPLICA_STATE_SINCE else request.replica_id
    if replica_id >= 0:
        return refuse(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if version < SESSIONS_SINCE:
        _Fetch(broker, exchange, request).look()
        return None
    sessions = broker.fetch_sessions
    session = sessions.get(request.session_id)
    if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
        if session is not None:
            sessions.end(session)
        _Fetch(broker, exchange, request, opens=request.session_epoch == INITIAL_EPOCH).look()
        return None
    if session is None:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if session.epoch != request.session_epoch:
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if session.by_id != (version >= IDS_SINCE):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    sessions.use(session, broker.now_ms())
    _Fetch(broker, exchange, request, session).look()
    return None


def _topic_response(name: str | bytes) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic=name) if isinstance(name, str) else FetchableTopicResponse(topic_id=name)


def is_elsewhere(broker: BrokerContext, rack: str) -> bool:
    """Tell whether a consumer's rack is named, and not this broker's."""
    if not rack:
        return False
    me = broker.image.brokers.get(broker.node_id)
    return me is None or me.rack != rack


def refuse(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Answer every partition with `code`: versions before 7 have no other place for it.

    A request that continues a session need not name any, and hears it of the whole.
    """
    return FetchResponse(
        error_code=code if request.session_epoch > INITIAL_EPOCH else ErrorCode.NONE,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _failed(result: PartitionData, code: ErrorCode) -> PartitionData:
    """Let a result say `code` and nothing else, with a null list of aborted transactions, as Kafka's answers do."""
    result.error_code = code
    result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
    result.aborted_transactions = None
    return result


def _end_offset(buffer: Buffer) -> int:
    """Return the offset after the last batch in `buffer`, which holds whole batches."""
    position = 0
    while True:
        size = int.from_bytes(buffer[position + 8 : position + SIZE_PREFIX_BYTES], "big")
        following = position + SIZE_PREFIX_BYTES + size
        if following >= len(buffer):
            return next_offset(buffer, position)
        position = following
