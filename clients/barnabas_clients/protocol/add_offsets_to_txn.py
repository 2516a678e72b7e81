"""AddOffsetsToTxn, API key 25: add the offsets of a group to a transaction. Pure.

Versions: 2 may answer PRODUCER_FENCED; 3 flexible; 4 may answer TRANSACTION_ABORTABLE (KIP-890). It adds the partition
of the offsets topic that has the group; the offsets themselves follow in TxnOffsetCommit.
"""

from barnabas_raftlog.wire.schema import Int16, Int32, Int64, Message, String, message

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
]


@message(api_key=25, versions=range(5), flexible_since=3)
class AddOffsetsToTxnRequest(Message):
    """The group whose offsets the transaction is to hold."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


@message(api_key=25, versions=range(5), flexible_since=3)
class AddOffsetsToTxnResponse(Message):
    """Whether the group is in the transaction now."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
