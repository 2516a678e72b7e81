"""WriteTxnMarkers, API key 27: end transactions in the partitions that a broker leads. Pure.

Versions: 1 flexible (the oldest that Kafka 4 speaks); 2 the protocol of the transaction, with which the leader judges
the epoch (KIP-1228). Coordinators ask it of brokers, and operators who abort a hanging transaction.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int8, Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class WritableTxnMarker(Struct):
    """One marker, and the partitions in which it ends its transaction; `transaction_result` True commits.

    `coordinator_epoch` is the term of the partition of the coordinator's log. `transaction_version` is 2 if the epoch
    is the raised one of KIP-890, and 0 or 1 if it is the one under which the transaction was written.
    """

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, wire(since=2)] = 0


@message(api_key=27, versions=range(1, 3), flexible_since=1)
class WriteTxnMarkersRequest(Message):
    """Markers of any number of transactions."""

    markers: list[WritableTxnMarker] = field(default_factory=list)


class WritableTxnMarkerPartitionResult(Struct):
    """The result for one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    """Outcomes for one topic."""

    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)


class WritableTxnMarkerResult(Struct):
    """Outcomes of the marker of one producer."""

    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)


@message(api_key=27, versions=range(1, 3), flexible_since=1)
class WriteTxnMarkersResponse(Message):
    """A success says that the marker has committed. There is no throttle time."""

    markers: list[WritableTxnMarkerResult] = field(default_factory=list)
