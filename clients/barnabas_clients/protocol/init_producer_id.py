"""InitProducerId, API key 22: get a producer id and epoch, for idempotence and transactions. Pure.

Versions: 2 flexible; 3 lets a producer raise its own epoch (KIP-360); 4 may answer PRODUCER_FENCED; 5 transactions
of KIP-890; 6 two-phase commit (KIP-939). Version 6 is unstable in Kafka itself: its brokers do not list it.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int16, Int32, Int64, Message, String, message, wire

__all__ = [
    "InitProducerIdRequest",
    "InitProducerIdResponse",
]


@message(api_key=22, versions=range(7), flexible_since=2)
class InitProducerIdRequest(Message):
    """`transactional_id` None: idempotence only.

    `enable_2pc`: transactions of this id do not time out. `keep_prepared_txn`: what is open stays so, to be ended by
    the caller, instead of being aborted.
    """

    transactional_id: String | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, wire(since=3)] = -1
    producer_epoch: Annotated[Int16, wire(since=3)] = -1
    enable_2pc: Annotated[Bool, wire(since=6)] = False
    keep_prepared_txn: Annotated[Bool, wire(since=6)] = False


@message(api_key=22, versions=range(7), flexible_since=2)
class InitProducerIdResponse(Message):
    """The id and epoch to put into batches; and those of the transaction that was kept open, -1 if there is none."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, wire(since=6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, wire(since=6)] = -1
