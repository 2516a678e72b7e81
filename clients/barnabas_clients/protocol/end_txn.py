"""EndTxn, API key 26: commit or abort a transaction. Pure.

Versions: 2 may answer PRODUCER_FENCED; 3 flexible; 4 may answer TRANSACTION_ABORTABLE; 5 raises the epoch with every
transaction, and answers with the id and epoch of the next one (KIP-890). A client asks in version 5 only if
`transaction.version` 2 is among the finalized features.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int16, Int32, Int64, Message, String, message, wire

__all__ = [
    "EndTxnRequest",
    "EndTxnResponse",
]


@message(api_key=26, versions=range(6), flexible_since=3)
class EndTxnRequest(Message):
    """`committed` False aborts."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


@message(api_key=26, versions=range(6), flexible_since=3)
class EndTxnResponse(Message):
    """The outcome is decided, though markers may still be on their way. The id and epoch are -1 with an error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, wire(since=5)] = -1
    producer_epoch: Annotated[Int16, wire(since=5)] = -1
