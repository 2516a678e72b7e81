"""DescribeTransactions, API key 65: the state of transactional ids, as their coordinators have it. Pure.

There is only version 0, which is flexible (KIP-664).
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import Int16, Int32, Int64, Message, String, Struct, field, message

__all__ = [
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeTransactionsTopic",
    "DescribedTransaction",
]


@message(api_key=65, versions=range(1), flexible_since=0)
class DescribeTransactionsRequest(Message):
    """The ids to describe; none are described if there are none."""

    transactional_ids: Sequence[String] = ()


class DescribeTransactionsTopic(Struct):
    """Partitions of one topic that are in the transaction; while it is ended, those that lack the marker."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


class DescribedTransaction(Struct):
    """One id. States have Kafka's spelling: "Empty", "Ongoing", "PrepareCommit", "CompleteAbort".

    `transaction_start_time_ms` counts from 1970, and is -1 if no transaction is open.
    """

    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[DescribeTransactionsTopic] = field(default_factory=list)


@message(api_key=65, versions=range(1), flexible_since=0)
class DescribeTransactionsResponse(Message):
    """One answer for each id."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction] = field(default_factory=list)
