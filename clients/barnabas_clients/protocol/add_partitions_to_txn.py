"""AddPartitionsToTxn, API key 24: add partitions to a transaction, or ask whether they are in it. Pure.

Versions: 2 may answer PRODUCER_FENCED; 3 flexible; 4 many transactions at once, and verification; 5 may answer
TRANSACTION_ABORTABLE (KIP-890). Clients ask up to version 3, in the fields that begin with `v3_and_below`; versions
4 and 5 are for brokers, which ask the coordinator before they append.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
]


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: String = ""
    partitions: Sequence[Int32] = ()


class AddPartitionsToTxnTransaction(Struct):
    """Partitions of one transaction; `verify_only` adds none, and asks whether they are in it."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@message(api_key=24, versions=range(6), flexible_since=3)
class AddPartitionsToTxnRequest(Message):
    """Up to version 3 one transaction in the fields of those versions, then any number in `transactions`."""

    transactions: Annotated[list[AddPartitionsToTxnTransaction], wire(since=4)] = field(default_factory=list)
    v3_and_below_transactional_id: Annotated[String, wire(until=3)] = ""
    v3_and_below_producer_id: Annotated[Int64, wire(until=3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, wire(until=3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], wire(until=3)] = field(default_factory=list)


class AddPartitionsToTxnPartitionResult(Struct):
    """The result for one partition. If one of a transaction is refused, none of the others is added either."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    """Outcomes for one topic."""

    name: String = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


class AddPartitionsToTxnResult(Struct):
    """Outcomes for one transaction."""

    transactional_id: String = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)


@message(api_key=24, versions=range(6), flexible_since=3)
class AddPartitionsToTxnResponse(Message):
    """Up to version 3 the outcomes of the one transaction, then those of all and a top-level error."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, wire(since=4)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], wire(since=4)] = field(default_factory=list)
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], wire(until=3)] = field(
        default_factory=list
    )
