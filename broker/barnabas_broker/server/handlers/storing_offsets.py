"""Stores the positions that one request names, a piece at a time, for OffsetCommit and TxnOffsetCommit.

Each partition is checked for itself: it must exist, the note must not be too long (`offset.metadata.max.bytes`), and
there must be room. Only a member of an older epoch that may not store one of them stores none, as in Kafka
(`consumer_offsets`). Positions that pass become records of the coordinator's log, and are answered when those are
committed: what was acknowledged never goes back, whatever fails afterwards. A request that names thousands is worked
off in pieces, and before each it is asked again whether it may: a late piece never comes behind what a successor has
stored.

No answer within `APPEND_S` is COORDINATOR_NOT_AVAILABLE; the positions may be stored later all the same, and a client
that stores them again does no harm.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import NO_TIMESTAMP, CommittedOffset, OffsetKey
from barnabas_broker.coordinators.runtime.contracts import Done
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, respond
from barnabas_broker.timing.deadlines import Deadline
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message

from .consumer_offsets import Since
from .group_routing import APPEND_S, Steps

__all__ = ["Asked", "AskedTopic", "Forms", "Place", "Result", "Storing", "refused"]

PIECE = 300  # partitions between two yields
PIECE_BYTES = 48 << 10  # or bytes of their names and notes

Place = tuple[OffsetKey, CommittedOffset]


class Asked(Protocol):
    """A position in a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class AskedTopic(Protocol):
    """The positions in one topic of a request."""

    @property
    def partitions(self) -> Sequence[Asked]: ...


class Result(Protocol):
    """What is answered about one position."""

    partition_index: int
    error_code: int


class Forms(NamedTuple):
    """Makes the parts of an API's answer: the whole, which has a list of topics; of a topic and results; of a place."""

    response: Callable[[], Any]
    topic: Callable[[Any, list[Any]], Any]
    result: Callable[[int, ErrorCode], Result]


class Storing(ABC):
    """One request: its answer, which takes shape, and the pieces of it that are on their way to a majority.

    A subclass says what its API has of its own. `expire_ms`: when the positions go, if the client says so.
    """

    def __init__(self, broker: BrokerContext, exchange: Exchange, group_id: str, forms: Forms) -> None:
        self.broker = broker
        self.exchange = exchange
        self.group_id = group_id
        self.now_ms = broker.coordinator.host.wall_ms()
        self.expire_ms = NO_TIMESTAMP
        self._forms = forms
        self._response = forms.response()
        self._deadline: Deadline[Callable[[], None]] | None = None
        self._code = ErrorCode.NONE  # why it may not
        self.since: Since | None = None  # Of a member of KIP-848 whose epoch is older: since when it has what.
        self._open: list[list[Result]] = []  # Pieces whose fate is open.
        self._written = False  # Everything is appended, or refused.

    # What a subclass says.

    @abstractmethod
    def may(self, shard: GroupShard) -> ErrorCode:
        """Say whether the one who asks may store anything now; what decides for each partition is left in `since`."""

    @abstractmethod
    def find(self, topic: Any) -> HostedTopic | ErrorCode:
        """Return a topic of the request, or what is said because there is none."""

    @abstractmethod
    def has_room_for(self, shard: GroupShard, key: OffsetKey, value: CommittedOffset) -> bool:
        """Tell whether that may be stored."""

    @abstractmethod
    def write(self, shard: GroupShard, places: Sequence[Place], done: Done) -> None:
        """Append these; `done` is called once."""

    # The work.

    def run(self, shard: GroupShard, topics: Sequence[AskedTopic]) -> Steps:
        """Check and append, a piece at a time.

        Return the answer if it can be given; otherwise it is given when everything is committed.
        """
        self._code = self._may(shard)
        if not self._code and self.since is not None:
            refusal = yield from self._first_refusal(topics, self.since)
            self._code = refusal or self._may(shard)
        piece = _Piece()
        for topic in topics:
            hosted = self._code or self.find(topic)
            results: list[Result] = []
            for asked in topic.partitions:
                result = self._forms.result(asked.partition_index, self._code)
                if not self._code:
                    result.error_code = self._look_at(shard, asked, hosted, result, piece)
                results.append(result)
                piece.count += 1
                if piece.is_full:
                    piece = yield from self._next_piece(shard, piece)
            self._response.topics.append(self._forms.topic(topic, results))
            piece.count += 1
            if piece.is_full:
                piece = yield from self._next_piece(shard, piece)
        self._write(shard, piece)
        self._written = True
        if self._open:
            self._park()
            return None
        hosted_group = shard.group(self.group_id)
        if hosted_group is not None:
            shard.settle(hosted_group)  # It may have been made for this.
        response: Message = self._response
        return response

    def _first_refusal(self, topics: Sequence[AskedTopic], since: Since) -> Generator[None, None, ErrorCode]:
        """Return why one of the positions may not be stored by a member of an older epoch; NONE: all may."""
        count = 0
        for topic in topics:
            hosted = self.find(topic)
            count += 1
            if not count % PIECE:
                yield
            if isinstance(hosted, ErrorCode):
                continue
            for asked in topic.partitions:
                code = since.refusal(hosted.topic.topic_id, asked.partition_index)
                if code and not self._fault(asked, hosted):
                    return code
                count += 1
                if not count % PIECE:
                    yield
        return ErrorCode.NONE

    def _next_piece(self, shard: GroupShard, piece: "_Piece") -> Generator[None, None, "_Piece"]:
        """Append what there is, give others their turn, and see whether it still may."""
        self._write(shard, piece)
        yield
        self._code = self._code or self._may(shard)
        return _Piece()

    def _may(self, shard: GroupShard) -> ErrorCode:
        self.since = None
        return self.may(shard) if shard.runtime.state is ShardState.ACTIVE else ErrorCode.NOT_COORDINATOR

    def _look_at(
        self, shard: GroupShard, asked: Asked, hosted: HostedTopic | ErrorCode, result: Result, piece: "_Piece"
    ) -> ErrorCode:
        """Take a position into the piece, or return why it is not stored."""
        if isinstance(hosted, ErrorCode):
            return hosted
        if code := self._fault(asked, hosted):
            return code
        if self.since is not None and (code := self.since.refusal(hosted.topic.topic_id, asked.partition_index)):
            return code
        note = asked.committed_metadata or ""
        # The image's own string: a million offsets of one topic share it.
        key = OffsetKey(self.group_id, hosted.topic.name, asked.partition_index)
        epoch = asked.committed_leader_epoch
        topic_id = hosted.topic.topic_id
        # By position: one for each partition of each commit.
        value = CommittedOffset(asked.committed_offset, epoch, note, self.now_ms, self.expire_ms, topic_id)
        if not self.has_room_for(shard, key, value):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        piece.places.append((key, value))
        piece.stored.append(result)
        piece.size_bytes += len(note) + len(self.group_id) + len(key.topic)
        return ErrorCode.NONE

    def _fault(self, asked: Asked, hosted: HostedTopic) -> ErrorCode:
        """Say what is wrong with a position, whoever wants it stored."""
        if not 0 <= asked.partition_index < len(hosted.topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len((asked.committed_metadata or "").encode()) > self.broker.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _write(self, shard: GroupShard, piece: "_Piece") -> None:
        if piece.places:
            self._open.append(piece.stored)
            self.write(shard, piece.places, partial(self._done, piece.stored))

    def _park(self) -> None:
        self.exchange.abandon = self._abandon
        self._deadline = self.broker.timers.add(int(APPEND_S * 1000), self._give_up)

    def _done(self, stored: list[Result], error: ErrorCode) -> None:
        # The deadline may have been first, or the client may be gone.
        if self.exchange.is_answered or not any(one is stored for one in self._open):
            return
        for result in stored:
            result.error_code = error
        self._open = [one for one in self._open if one is not stored]
        if self._written and not self._open and self._deadline is not None:
            self._abandon()
            respond(self.exchange, self._response)

    def _give_up(self) -> None:
        if not self.exchange.is_answered:
            for stored in self._open:
                for result in stored:
                    result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._open = []
            respond(self.exchange, self._response)

    def _abandon(self) -> None:
        if self._deadline is not None:
            self.broker.timers.cancel(self._deadline)


class _Piece:
    """Partitions of one request that are appended together, and `count`, how many were looked at for it."""

    __slots__ = ("count", "places", "size_bytes", "stored")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.stored: list[Result] = []
        self.count = self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.count >= PIECE or self.size_bytes >= PIECE_BYTES


def refused(forms: Forms, topics: Sequence[AskedTopic], code: ErrorCode) -> Generator[None, None, Any]:
    """Return the answer that says `code` for every position, in steps."""
    response = forms.response()
    count = 0
    for topic in topics:
        results = []
        for one in topic.partitions:
            results.append(forms.result(one.partition_index, code))
            count += 1
            if not count % PIECE:
                yield
        response.topics.append(forms.topic(topic, results))
        count += 1
        if not count % PIECE:
            yield
    return response
