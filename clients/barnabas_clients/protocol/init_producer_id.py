"""InitProducerId, API key 22: get a producer id and epoch, for idempotence and transactions. Pure.

Versions: 2 flexible; 3 lets a producer raise its own epoch (KIP-360); 4 may answer PRODUCER_FENCED; 5 transactions
of KIP-890. Version 6 (two-phase commit, KIP-939) is unstable in Kafka itself and not declared.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Int16, Int32, Int64, Message, String, message, wire

__all__ = [
    "InitProducerIdRequest",
    "InitProducerIdResponse",
]


@message(api_key=22, versions=range(6), flexible_since=2)
class InitProducerIdRequest(Message):
    """`transactional_id` None: idempotence only."""

    transactional_id: String | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, wire(since=3)] = -1
    producer_epoch: Annotated[Int16, wire(since=3)] = -1


@message(api_key=22, versions=range(6), flexible_since=2)
class InitProducerIdResponse(Message):
    """The id and epoch to put into batches."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
