"""Talks about producers and transactions: a client's, and what brokers and administrators ask of each other."""

from typing import Any

from broker.wire_client import batch, produce_request

from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_clients.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_clients.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from barnabas_clients.protocol.describe_transactions import DescribeTransactionsRequest
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.list_transactions import ListTransactionsRequest
from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from .consumer_talks import joining
from .group_talks import ABSENT, absent_id
from .talks import Fields, Step, Talk

__all__ = ["MARKERS", "PRODUCERS", "TRANSACTIONS"]

TRANSACTIONAL = 0x10
TIMEOUT_MS = 60_000
IDS_SINCE = 13
NOT_MAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
WRONG = ErrorCode.INVALID_REQUEST
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = ErrorCode.UNKNOWN_TOPIC_ID
GENERATION = ErrorCode.ILLEGAL_GENERATION
NO_STATE = ErrorCode.INVALID_TXN_STATE
KEEP = {"producer": "producer_id", "epoch": "producer_epoch"}


def _begun(t: Talk, **more: Any) -> Fields:
    return {"transactional_id": t.name("txn"), "transaction_timeout_ms": TIMEOUT_MS} | more


def _mine(t: Talk, **more: Any) -> dict[str, Any]:
    return {"transactional_id": t.name("txn"), "producer_id": t["producer"], "producer_epoch": t["epoch"]} | more


def _added(t: Talk, *topics: tuple[str, int], verify: bool = False, **more: Any) -> Fields:
    mine = _mine(t, **more)
    rows = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in topics]
    one = AddPartitionsToTxnTransaction(**mine, verify_only=verify, topics=rows)
    old = {f"v3_and_below_{name}": value for name, value in mine.items()}
    return {"transactions": [one], "v3_and_below_topics": rows, **old}


def _produced(t: Talk, sequence: int, **more: Any) -> Fields:
    records = batch(
        producer_id=t["producer"], epoch=t["epoch"], sequence=sequence, attributes=TRANSACTIONAL, timestamp=1_000
    )
    request = produce_request(t.topic, records, topic_id=t.topic_id)
    return {
        "transactional_id": t.name("txn"),
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": request.topic_data,
    } | more


def _with_offsets(t: Talk, topic: str = "", partition: int = 0, **more: Any) -> Fields:
    row = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_leader_epoch=0)
    topic_id = absent_id() if topic else t.topic_id
    rows = [TxnOffsetCommitRequestTopic(name=topic or t.topic, topic_id=topic_id, partitions=[row])]
    return _mine(t, group_id=t.name("txn-group"), topics=rows) | more


def _one(generation: int, member: str = "x") -> Fields:
    return {"member_id": member, "generation_id_or_member_epoch": generation}


def _producers(topic: str, *partitions: int) -> Fields:
    return {"topics": [DescribeProducersTopic(name=topic, partition_indexes=partitions)]}


PRODUCERS = (
    Step(InitProducerIdRequest, "idempotent", lambda _: {"transaction_timeout_ms": TIMEOUT_MS}, keep=KEEP),
    Step(InitProducerIdRequest, "an empty id", lambda _: {"transactional_id": ""}, WRONG),
    Step(
        InitProducerIdRequest,
        "no time",
        lambda t: _begun(t, transaction_timeout_ms=0),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ),
    Step(
        InitProducerIdRequest,
        "too much time",
        lambda t: _begun(t, transaction_timeout_ms=1 << 30),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ),
    Step(InitProducerIdRequest, "an id without epoch", lambda t: _begun(t, producer_id=5), WRONG, since=3),
    Step(InitProducerIdRequest, "an epoch without id", lambda t: _begun(t, producer_epoch=5), WRONG, since=3),
    Step(InitProducerIdRequest, "transactional", _begun, keep=KEEP),
    Step(InitProducerIdRequest, "again", _begun, keep=KEEP),
    Step(
        InitProducerIdRequest,
        "to go on",
        lambda t: _begun(t, producer_id=t["producer"], producer_epoch=t["epoch"]),
        since=3,
        keep=KEEP,
    ),
    Step(
        InitProducerIdRequest,
        "fenced",
        lambda t: _begun(t, producer_id=t["producer"], producer_epoch=t["epoch"] + 5),
        FENCED,
        since=3,
        codes={3: OLD_EPOCH},
    ),
    Step(
        InitProducerIdRequest,
        "somebody else's id",
        lambda t: _begun(t, producer_id=t["producer"] + 1000, producer_epoch=0),
        FENCED,
        since=3,
        codes={3: OLD_EPOCH},
    ),
)

TRANSACTIONS = (
    Step(InitProducerIdRequest, "begin", _begun, keep=KEEP),
    Step(DescribeTransactionsRequest, "empty", lambda t: {"transactional_ids": [t.name("txn")]}),
    Step(
        DescribeTransactionsRequest,
        "nobody",
        lambda _: {"transactional_ids": [ABSENT]},
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ),
    Step(DescribeTransactionsRequest, "no id", lambda _: {"transactional_ids": [""]}, WRONG),
    Step(EndTxnRequest, "of nothing", lambda t: _mine(t, committed=True), NO_STATE),
    Step(
        AddPartitionsToTxnRequest,
        "no topic",
        lambda t: _added(t, (ABSENT, 0), (t.topic, 0)),
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ),
    Step(AddPartitionsToTxnRequest, "no partition", lambda t: _added(t, (t.topic, 9)), UNKNOWN),
    Step(
        AddPartitionsToTxnRequest,
        "somebody else's id",
        lambda t: _added(t, (t.topic, 0), producer_id=t["producer"] + 1000),
        NOT_MAPPED,
    ),
    Step(
        AddPartitionsToTxnRequest,
        "nobody's id",
        lambda t: _added(t, (t.topic, 0), transactional_id=ABSENT),
        NOT_MAPPED,
    ),
    Step(
        AddPartitionsToTxnRequest,
        "another epoch",
        lambda t: _added(t, (t.topic, 0), producer_epoch=t["epoch"] + 1),
        FENCED,
        codes={0: OLD_EPOCH, 1: OLD_EPOCH},
    ),
    Step(
        AddPartitionsToTxnRequest,
        "is it there? no",
        lambda t: _added(t, (t.topic, 0), verify=True),
        ErrorCode.TRANSACTION_ABORTABLE,
        since=4,
    ),
    Step(AddPartitionsToTxnRequest, "a partition", lambda t: _added(t, (t.topic, 0))),
    Step(AddPartitionsToTxnRequest, "a partition again", lambda t: _added(t, (t.topic, 0))),
    Step(AddPartitionsToTxnRequest, "is it there? yes", lambda t: _added(t, (t.topic, 0), verify=True), since=4),
    Step(ProduceRequest, "records", lambda t: _produced(t, 0), since=3),
    Step(DescribeProducersRequest, "a partition's", lambda t: _producers(ABSENT, 0), UNKNOWN),
    Step(DescribeProducersRequest, "no partition", lambda t: _producers(t.topic, 9), UNKNOWN),
    Step(ListTransactionsRequest, "all", lambda _: {}),
    Step(ListTransactionsRequest, "ongoing", lambda _: {"state_filters": ["Ongoing", "x"]}),
    Step(ListTransactionsRequest, "its own", lambda t: {"producer_id_filters": [t["producer"]]}),
    Step(ListTransactionsRequest, "nobody's", lambda _: {"producer_id_filters": [1 << 40]}),
    Step(
        ListTransactionsRequest,
        "long ones",
        lambda _: {"duration_filter_ms": 3_600_000},
        since=1,
        but=("transaction_states",),
    ),
    Step(ListTransactionsRequest, "by a pattern", lambda t: {"transactional_id_pattern": f"t.*-{t.age}"}, since=2),
    Step(
        ListTransactionsRequest,
        "by no pattern",
        lambda _: {"transactional_id_pattern": "("},
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        since=2,
    ),
    Step(DescribeTransactionsRequest, "ongoing", lambda t: {"transactional_ids": [t.name("txn")]}),
    Step(AddOffsetsToTxnRequest, "no group", lambda t: _mine(t, group_id="")),
    Step(
        AddOffsetsToTxnRequest,
        "another epoch",
        lambda t: _mine(t, group_id=t.name("txn-group"), producer_epoch=t["epoch"] + 1),
        FENCED,
        codes={0: OLD_EPOCH, 1: OLD_EPOCH},
    ),
    Step(
        AddOffsetsToTxnRequest,
        "somebody else's id",
        lambda t: _mine(t, group_id=t.name("txn-group"), producer_id=t["producer"] + 1000),
        NOT_MAPPED,
    ),
    Step(AddOffsetsToTxnRequest, "offsets", lambda t: _mine(t, group_id=t.name("txn-group"))),
    Step(TxnOffsetCommitRequest, "offsets", _with_offsets),
    Step(TxnOffsetCommitRequest, "no topic", lambda t: _with_offsets(t, ABSENT), UNKNOWN, codes={6: NO_ID}),
    Step(TxnOffsetCommitRequest, "no partition", lambda t: _with_offsets(t, partition=9), UNKNOWN),
    Step(TxnOffsetCommitRequest, "no group", lambda t: _with_offsets(t, group_id=""), ErrorCode.INVALID_GROUP_ID),
    Step(
        TxnOffsetCommitRequest,
        "a stranger's",
        lambda t: _with_offsets(t, member_id="x", generation_id_or_member_epoch=1),
        ErrorCode.UNKNOWN_MEMBER_ID,
        since=3,
    ),
    Step(AddOffsetsToTxnRequest, "a group that is not there", lambda t: _mine(t, group_id=t.name("txn-none"))),
    Step(
        TxnOffsetCommitRequest,
        "a generation of it",
        lambda t: _with_offsets(t, group_id=t.name("txn-none"), **_one(1)),
        GENERATION,
        since=3,
        codes={6: ErrorCode.GROUP_ID_NOT_FOUND},
    ),
    Step(
        ConsumerGroupHeartbeatRequest,
        "a member",
        lambda t: joining(t, group_id=t.name("txn-members")),
        keep={"member": "member_id", "member_epoch": "member_epoch"},
    ),
    Step(AddOffsetsToTxnRequest, "its group", lambda t: _mine(t, group_id=t.name("txn-members"))),
    Step(
        TxnOffsetCommitRequest,
        "in its epoch",
        lambda t: _with_offsets(t, group_id=t.name("txn-members"), **_one(t["member_epoch"], t["member"])),
    ),
    Step(
        TxnOffsetCommitRequest,
        "in an epoch to come",
        lambda t: _with_offsets(t, group_id=t.name("txn-members"), **_one(t["member_epoch"] + 5, t["member"])),
        GENERATION,
        since=3,
        codes={6: ErrorCode.STALE_MEMBER_EPOCH},
    ),
    Step(
        ConsumerGroupHeartbeatRequest,
        "the member leaves",
        lambda t: {"group_id": t.name("txn-members"), "member_id": t["member"], "member_epoch": -1},
    ),
    Step(
        TxnOffsetCommitRequest,
        "an old epoch",
        lambda t: _with_offsets(t, producer_epoch=t["epoch"] - 1),
        OLD_EPOCH,
    ),
    Step(
        EndTxnRequest,
        "another epoch",
        lambda t: _mine(t, producer_epoch=t["epoch"] + 1),
        FENCED,
        codes={0: OLD_EPOCH, 1: OLD_EPOCH},
    ),
    Step(EndTxnRequest, "somebody else's id", lambda t: _mine(t, producer_id=t["producer"] + 1000), NOT_MAPPED),
    Step(EndTxnRequest, "nobody's id", lambda t: _mine(t, transactional_id=ABSENT), NOT_MAPPED),
    Step(EndTxnRequest, "commit", lambda t: _mine(t, committed=True), until=4),
    Step(EndTxnRequest, "commit again", lambda t: _mine(t, committed=True), until=4),
    Step(EndTxnRequest, "commit and a new epoch", lambda t: _mine(t, committed=True), since=5, keep=KEEP),
    Step(EndTxnRequest, "abort nothing", lambda t: _mine(t, committed=False), since=5, keep=KEEP),
    Step(EndTxnRequest, "abort what is committed", lambda t: _mine(t, committed=False), NO_STATE, until=4),
    Step(AddPartitionsToTxnRequest, "the next one", lambda t: _added(t, (t.topic, 0))),
    Step(EndTxnRequest, "abort", lambda t: _mine(t, committed=False), keep=KEEP, since=5),
    Step(EndTxnRequest, "abort it", lambda t: _mine(t, committed=False), until=4),
)


def _marked(t: Talk, *topics: tuple[str, int], epoch: int = 0, producer: int = 0, version: int = 0) -> Fields:
    rows = [WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in topics]
    marker = WritableTxnMarker(
        producer_id=producer or t["producer"],
        producer_epoch=t["epoch"] + epoch,
        transaction_result=True,
        topics=rows,
        coordinator_epoch=0,
        transaction_version=version,
    )
    return {"markers": [marker]}


MARKERS = (
    Step(InitProducerIdRequest, "a producer", lambda _: {"transaction_timeout_ms": TIMEOUT_MS}, keep=KEEP),
    Step(WriteTxnMarkersRequest, "none", lambda _: {"markers": []}),
    Step(WriteTxnMarkersRequest, "no topic", lambda t: _marked(t, (ABSENT, 0)), UNKNOWN),
    Step(WriteTxnMarkersRequest, "no partition", lambda t: _marked(t, (t.topic, 9)), UNKNOWN),
    Step(WriteTxnMarkersRequest, "one", lambda t: _marked(t, (t.topic, 0))),
    Step(WriteTxnMarkersRequest, "one again", lambda t: _marked(t, (t.topic, 0))),
    Step(WriteTxnMarkersRequest, "a later one", lambda t: _marked(t, (t.topic, 0), epoch=1)),
    Step(WriteTxnMarkersRequest, "an old one", lambda t: _marked(t, (t.topic, 0)), OLD_EPOCH),
    Step(
        WriteTxnMarkersRequest,
        "one of the second protocol",
        lambda t: _marked(t, (t.topic, 0), epoch=1, version=2),
        since=2,
    ),
)
