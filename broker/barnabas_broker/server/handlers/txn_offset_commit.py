"""TxnOffsetCommit: store positions of a group that count when a transaction commits.

The group's coordinator appends them in the producer's name, as part of its transaction; they are *staged* until a
marker ends that (`coordinators.groups.staging`). How positions are stored is said in `storing_offsets`.

*The transaction is asked about first.* The offsets partition must be part of it, or no marker would ever come here. The
coordinator of the transaction knows: clients up to version 4 have told it (AddOffsetsToTxn), and it is asked whether
they have; for those of version 5 (KIP-890) the partition is added. Nobody is asked while the transaction has written
here before. The partition's guard is taken before the question (`Partition.verification`), so that what is appended
belongs to the transaction that the answer was about: behind a marker that came meanwhile it is INVALID_TXN_STATE, or
INVALID_PRODUCER_EPOCH if the marker has raised the epoch. Requests behind this one on its connection wait, and a client
that has gone meanwhile stores nothing: it may have stored something newer through another connection.

*Who may.* As in Kafka member, instance and generation are looked at only if any of them is given; see
`ConsumerGroup.check_staging`. Two cases have codes of their own from version 6 on (KIP-1319), and before that are
ILLEGAL_GENERATION: a generation of a group that does not exist, and an epoch that a member of a KIP-848 group has left
behind.

*Codes.* What passes by itself (the transaction's coordinator moves, cannot be reached, is being read) is
COORDINATOR_LOAD_IN_PROGRESS: the client comes again, and does not look for another coordinator of its group, for this
is the one. Clients before version 2 could not stand that code, and hear COORDINATOR_NOT_AVAILABLE. A fenced producer
hears INVALID_PRODUCER_EPOCH in every version, and TRANSACTION_ABORTABLE is INVALID_TXN_STATE before version 4.
"""

from collections.abc import Coroutine, Sequence
from typing import Any

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_broker.coordinators.runtime.contracts import Done, Writer
from barnabas_broker.coordinators.transactions.questions import Asked, Who
from barnabas_broker.coordinators.transactions.state_machine.codes import TXN_OFFSET_COMMIT, code_for
from barnabas_broker.coordinators.transactions.state_machine.location import java_hash
from barnabas_broker.partition.verifications import Verification
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.steps import at_once

from .consumer_offsets import may_commit
from .group_routing import Reply, Steps, certain_shard, has_outcome
from .storing_offsets import Forms, Place, Storing, refused

__all__ = ["handle", "refuse"]

LOADING_SINCE = 2
ADDS_SINCE = 5
IDS_SINCE = 6
TOLD_APART = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH}  # from version 6 on
PASSING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""What the way to the coordinator of transactions may say, which is none of the group's own."""


def _topic(
    asked: TxnOffsetCommitRequestTopic, results: list[TxnOffsetCommitResponsePartition]
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=results)


def _result(index: int, code: ErrorCode) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)


FORMS = Forms(TxnOffsetCommitResponse, _topic, _result)


class _Staging(Storing):
    """One request of a producer that may write, with the guard of its transaction."""

    def __init__(
        self, broker: BrokerContext, exchange: Exchange, request: TxnOffsetCommitRequest, guard: Verification | None
    ) -> None:
        super().__init__(broker, exchange, request.group_id, FORMS)
        self._request = request
        self._version = exchange.version
        self._writer = Writer(request.producer_id, request.producer_epoch, guard)

    def may(self, shard: GroupShard) -> ErrorCode:
        request = self._request
        if request.group_id in shard.consumers.groups:
            code, since = may_commit(shard, request, None)
            self.since = since and since._replace(stale=_as_known(since.stale, self._version))
            return _as_known(code, self._version)
        generation_id = request.generation_id_or_member_epoch
        hosted = shard.group(self.group_id) if generation_id >= 0 else shard.make_group(self.group_id)
        if hosted is None:
            if generation_id < 0:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return _as_known(ErrorCode.GROUP_ID_NOT_FOUND, self._version)
        return shard.check_staging(hosted, request.member_id, request.group_instance_id, generation_id)

    def find(self, topic: TxnOffsetCommitRequestTopic) -> HostedTopic | ErrorCode:
        by_id = self._version >= IDS_SINCE
        hosted = self.broker.topic(topic.name, topic.topic_id, by_id=by_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return unknown if hosted is None else hosted

    def has_room_for(self, shard: GroupShard, key: OffsetKey, value: CommittedOffset) -> bool:
        return shard.staging.has_room_for(self._writer.producer_id, key, value)

    def write(self, shard: GroupShard, places: Sequence[Place], done: Done) -> None:
        shard.staging.write(self._writer, places, done)


def _as_known(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code that clients of a version know."""
    return ErrorCode.ILLEGAL_GENERATION if code in TOLD_APART and version < IDS_SINCE else code


def handle(
    broker: BrokerContext, exchange: Exchange, request: TxnOffsetCommitRequest
) -> Reply | Coroutine[Any, Any, Message | None]:
    """Ask whether it may be, then append, and answer when it is committed."""
    if not request.group_id:
        return _refused(exchange.version, request, ErrorCode.INVALID_GROUP_ID)
    if request.producer_id < 0:
        return _refused(exchange.version, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    exchange.hold()
    return _stage(broker, exchange, request)


def refuse(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Answer every partition with `code`."""
    response: TxnOffsetCommitResponse = at_once(refused(FORMS, request.topics, code))
    return response


async def _stage(broker: BrokerContext, exchange: Exchange, request: TxnOffsetCommitRequest) -> Message | None:
    version = exchange.version
    guard: Verification | None = None
    shard = await certain_shard(broker, request.group_id)
    if isinstance(shard, GroupShard):
        error, guard = await _verify(broker, shard, request, adds=version >= ADDS_SINCE)
    else:
        error = shard
    if exchange.is_gone:
        return None
    if isinstance(shard, GroupShard) and error is ErrorCode.NONE:
        steps = _Staging(broker, exchange, request, guard).run(shard, request.topics)
    else:
        steps = _refused(version, request, error)
    response: Message | None = await taken(steps)
    exchange.release()
    return response


async def _verify(
    broker: BrokerContext, shard: GroupShard, request: TxnOffsetCommitRequest, *, adds: bool
) -> tuple[ErrorCode, Verification | None]:
    """Return NONE if the offsets partition is part of the producer's open transaction, and the guard of that."""
    partition = shard.runtime.partition
    try:
        guard = partition.verification(request.producer_id, request.producer_epoch, 0, bumps_epoch=adds)
    except NotLeaderError:
        return ErrorCode.NOT_COORDINATOR, None
    if guard is None:
        return ErrorCode.NONE, None
    name = request.transactional_id
    who = Who(name, java_hash(name), request.producer_id, request.producer_epoch, verify_only=not adds)
    code = await _asked(broker, who, (partition.topic_name, partition.index))
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in PASSING else code, guard


async def _asked(broker: BrokerContext, who: Who, place: tuple[str, int]) -> ErrorCode:
    """Return what the coordinator of transactions says of a partition."""
    asked: Asked | None = None

    def ask(told: Done) -> None:
        nonlocal asked
        asked = broker.questions.ask(who, place, told)

    try:
        return await has_outcome(ask)
    finally:
        if asked is not None:
            asked.withdraw()


def _refused(version: int, request: TxnOffsetCommitRequest, code: ErrorCode) -> Steps:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return refused(FORMS, request.topics, code_for(TXN_OFFSET_COMMIT, version, code))
