"""ListTransactions, API key 66: the transactional ids that one broker coordinates. Pure.

Versions: 0 flexible already (KIP-664); 1 those that have been running for a time (KIP-994); 2 those whose id matches a
pattern (KIP-1152).
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListedTransaction",
]


@message(api_key=66, versions=range(3), flexible_since=0)
class ListTransactionsRequest(Message):
    """The ids to list. An empty filter lets every id pass, and so do a negative duration and an empty or null pattern.

    A duration lets those pass that have been running for longer. The pattern is a regular expression.
    """

    state_filters: Sequence[String] = ()
    producer_id_filters: Sequence[Int64] = ()
    duration_filter_ms: Annotated[Int64, wire(since=1)] = -1
    transactional_id_pattern: Annotated[String | None, wire(since=2)] = None


class ListedTransaction(Struct):
    """One id. States have Kafka's spelling: "Empty", "Ongoing", "PrepareCommit", "CompleteAbort"."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


@message(api_key=66, versions=range(3), flexible_since=0)
class ListTransactionsResponse(Message):
    """The ids of the partitions of the coordinator's log that the answering broker leads."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Sequence[String] = ()
    transaction_states: list[ListedTransaction] = field(default_factory=list)
