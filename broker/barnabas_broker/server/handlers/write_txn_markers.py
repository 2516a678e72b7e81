"""WriteTxnMarkers: end transactions in the partitions that this broker leads, for an operator.

The brokers' own coordinators send their markers over the links (`replicas/transaction_markers`), to the same effect.
Kafka's tools ask this way to abort a transaction that no coordinator knows any more. Nobody else should: a marker ends
whatever its producer has open there.
"""

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Write all, and answer when each is committed or has failed; some may commit after that."""
    return await broker.markers.write_out_of_turn(request)


def refuse(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Answer every partition with `code`."""

    def refused(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        topics = [
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    return WriteTxnMarkersResponse(markers=[refused(marker) for marker in request.markers])
