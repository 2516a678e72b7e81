"""OffsetCommit: store positions of a group, and answer when a majority has them.

The group's state machine says whether the member may commit; a commit outside of group management (generation -1) makes
the group if it does not exist. Each partition is checked for itself: it must exist, and the note must not be too long
(`offset.metadata.max.bytes`). Positions that pass become records of the coordinator's log, and are answered when those
are committed: an offset that was acknowledged never goes back, whatever fails afterwards. A request that names
thousands is worked off in pieces; a member that is thrown out meanwhile is told so for the rest.

No answer within `APPEND_S` is COORDINATOR_NOT_AVAILABLE; the offsets may be stored later all the same, and a client
that commits again does no harm.
"""

from collections.abc import Callable, Generator
from functools import partial

from barnabas_broker.coordinators.groups.shard import Change, GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import NO_TIMESTAMP, CommittedOffset, OffsetKey
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, respond
from barnabas_broker.timing.deadlines import Deadline
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_raftlog.steps import at_once

from .group_routing import APPEND_S, Outcome, Steps, route

__all__ = ["handle", "refuse"]

IDS_SINCE = 10
NOT_FOUND_SINCE = 9
TIMESTAMP_MAX = (1 << 63) - 1
PIECE = 300  # partitions between two yields
PIECE_BYTES = 48 << 10  # or bytes of their names and notes


class _Commit:
    """One request: its answer, which takes shape, and the pieces of it that are on their way to a majority."""

    __slots__ = (
        "_code",
        "_expire_ms",
        "_now_ms",
        "_open",
        "_written",
        "broker",
        "deadline",
        "exchange",
        "request",
        "response",
    )

    def __init__(self, broker: BrokerContext, exchange: Exchange, request: OffsetCommitRequest) -> None:
        self.broker = broker
        self.exchange = exchange
        self.request = request
        self.response = OffsetCommitResponse()
        self.deadline: Deadline[Callable[[], None]] | None = None
        self._now_ms = broker.coordinator.host.wall_ms()
        kept_ms = request.retention_time_ms
        self._expire_ms = min(self._now_ms + kept_ms, TIMESTAMP_MAX) if kept_ms >= 0 else NO_TIMESTAMP
        self._code = ErrorCode.NONE  # why the member may not commit
        self._open: list[list[OffsetCommitResponsePartition]] = []  # Pieces whose fate is open.
        self._written = False  # Everything is appended, or refused.

    def run(self, shard: GroupShard) -> Steps:
        """Check and append, a piece at a time; the group is asked before each whether the member may.

        So a late commit of a member never comes behind one of its successor. Return the answer if it can be given;
        otherwise it is given when everything is committed.
        """
        self._code = self._may(shard)
        by_id = self.exchange.version >= IDS_SINCE
        piece = _Piece()
        for topic in self.request.topics:
            hosted = None if self._code else self.broker.topic(topic.name, topic.topic_id, by_id=by_id)
            results: list[OffsetCommitResponsePartition] = []
            for asked in topic.partitions:
                result = OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=self._code)
                if not self._code:
                    self._look_at(shard, asked, hosted, result, piece)
                results.append(result)
                piece.count += 1
                if piece.is_full:
                    piece = yield from self._next_piece(shard, piece)
            self.response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
            )
            piece.count += 1
            if piece.is_full:
                piece = yield from self._next_piece(shard, piece)
        self._write(shard, piece)
        self._written = True
        if not self._open:
            _settle(shard, self.request.group_id)
            return self.response
        self._park()
        return None

    def _next_piece(self, shard: GroupShard, piece: "_Piece") -> Generator[None, None, "_Piece"]:
        """Append what there is, give others their turn, and see whether the member still may."""
        self._write(shard, piece)
        yield
        self._code = self._code or self._may(shard)
        return _Piece()

    def _may(self, shard: GroupShard) -> ErrorCode:
        if shard.runtime.state is not ShardState.ACTIVE:
            return ErrorCode.NOT_COORDINATOR
        return _check_member(self.exchange.version, self.request, shard)

    def _look_at(
        self,
        shard: GroupShard,
        asked: OffsetCommitRequestPartition,
        hosted: HostedTopic | None,
        result: OffsetCommitResponsePartition,
        piece: "_Piece",
    ) -> None:
        note = asked.committed_metadata or ""
        if hosted is None:
            by_id = self.exchange.version >= IDS_SINCE
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        if not 0 <= asked.partition_index < len(hosted.topic.partitions):
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        if len(note.encode()) > self.broker.config.offset_metadata_max_bytes:
            result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            return
        # The image's own string: a million offsets of one topic share it.
        key = OffsetKey(self.request.group_id, hosted.topic.name, asked.partition_index)
        epoch = asked.committed_leader_epoch
        topic_id = hosted.topic.topic_id
        # By position: one for each partition of each commit.
        value = CommittedOffset(asked.committed_offset, epoch, note, self._now_ms, self._expire_ms, topic_id)
        if not shard.has_room_for(key, value):
            result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return
        piece.changes.append((key, value))
        piece.stored.append(result)
        piece.size_bytes += len(note) + len(self.request.group_id) + len(key.topic)

    def _write(self, shard: GroupShard, piece: "_Piece") -> None:
        if piece.changes:
            self._open.append(piece.stored)
            shard.write_offsets(piece.changes, partial(self._done, piece.stored))

    def _park(self) -> None:
        self.exchange.abandon = self._abandon
        self.deadline = self.broker.timers.add(int(APPEND_S * 1000), self._give_up)

    def _done(self, stored: list[OffsetCommitResponsePartition], error: ErrorCode) -> None:
        # The deadline may have been first, or the client may be gone.
        if self.exchange.is_answered or not any(one is stored for one in self._open):
            return
        for result in stored:
            result.error_code = error
        self._open = [one for one in self._open if one is not stored]
        if self._written and not self._open and self.deadline is not None:
            self._abandon()
            respond(self.exchange, self.response)

    def _give_up(self) -> None:
        if not self.exchange.is_answered:
            for stored in self._open:
                for result in stored:
                    result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._open = []
            respond(self.exchange, self.response)

    def _abandon(self) -> None:
        if self.deadline is not None:
            self.broker.timers.cancel(self.deadline)


class _Piece:
    """Partitions of one request that are appended together, and `count`, how many were looked at for it."""

    __slots__ = ("changes", "count", "size_bytes", "stored")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.stored: list[OffsetCommitResponsePartition] = []
        self.count = self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.count >= PIECE or self.size_bytes >= PIECE_BYTES


def handle(broker: BrokerContext, exchange: Exchange, request: OffsetCommitRequest) -> Outcome:
    """Check, append, and wait without a task."""
    return route(
        broker,
        exchange,
        request.group_id,
        lambda shard: _Commit(broker, exchange, request).run(shard),
        lambda code: _refuse_in_steps(request, code),
    )


def refuse(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Answer every partition with `code`."""
    return at_once(_refuse_in_steps(request, code))


def _refuse_in_steps(request: OffsetCommitRequest, code: ErrorCode) -> Generator[None, None, OffsetCommitResponse]:
    topics = []
    count = 0
    for topic in request.topics:
        results = []
        for one in topic.partitions:
            results.append(OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code))
            count += 1
            if not count % PIECE:
                yield
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results))
        count += 1
        if not count % PIECE:
            yield
    return OffsetCommitResponse(topics=topics)


def _check_member(version: int, request: OffsetCommitRequest, shard: GroupShard) -> ErrorCode:
    generation_id = request.generation_id_or_member_epoch
    hosted = shard.group(request.group_id) if generation_id >= 0 else shard.make_group(request.group_id)
    if hosted is None:
        if generation_id < 0:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
    return shard.check_commit(hosted, request.member_id, request.group_instance_id, generation_id)


def _settle(shard: GroupShard, group_id: str) -> None:
    """Let go of a group that was made for a commit of which nothing is stored."""
    hosted = shard.group(group_id)
    if hosted is not None:
        shard.settle(hosted)
