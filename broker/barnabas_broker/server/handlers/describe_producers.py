"""DescribeProducers: tell which producers partitions remember, and since which offset each has a transaction open.

With this an operator finds what holds the readers of committed records up (KIP-664). It is answered by a leader that is
certain to lead, which knows what is under way as well; any other broker is NOT_LEADER_OR_FOLLOWER. A partition
remembers twenty thousand producers, and those with a transaction open: a list is made in steps, and one that changes
meanwhile has whoever was there when it was begun and is there when it is looked at.

Limits: an answer has `PRODUCERS_MAX` producers and those of one partition more; the partitions behind that are
INVALID_REQUEST, and to be asked for in a request of their own.
"""

from barnabas_broker.partition.partition import Partition
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.slices import Slices
from barnabas_clients.protocol.describe_producers import (
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    ProducerState,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from .list_offsets import led_partition

__all__ = ["handle", "refuse"]

PRODUCERS_MAX = 100_000


async def handle(
    broker: BrokerContext, exchange: Exchange, request: DescribeProducersRequest
) -> DescribeProducersResponse | None:
    """Describe each partition. None: the client has gone meanwhile."""
    response = DescribeProducersResponse()
    slices = Slices()
    left = PRODUCERS_MAX
    for topic in request.topics:
        result = DescribedProducersTopic(name=topic.name)
        response.topics.append(result)
        for index in topic.partition_indexes:
            row = DescribedProducersPartition(partition_index=index)
            result.partitions.append(row)
            partition = led_partition(broker.partitions.topics.get(topic.name), index, -1)
            if not isinstance(partition, Partition):
                row.error_code = partition
            elif not partition.can_serve:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif left <= 0:
                row.error_code = ErrorCode.INVALID_REQUEST
                row.error_message = "the partitions before it have too many producers for one answer; ask for fewer"
            else:
                await _describe(partition, row, slices)
                left -= len(row.active_producers)
            await slices.yield_if_due()
            if exchange.is_gone:
                return None
        await slices.yield_if_due()
    return response


def refuse(request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    """Answer every partition with `code`."""

    def refused(topic: DescribeProducersTopic) -> DescribedProducersTopic:
        rows = [
            DescribedProducersPartition(partition_index=index, error_code=code) for index in topic.partition_indexes
        ]
        return DescribedProducersTopic(name=topic.name, partitions=rows)

    return DescribeProducersResponse(topics=[refused(topic) for topic in request.topics])


async def _describe(partition: Partition, row: DescribedProducersPartition, slices: Slices) -> None:
    for producer_id in list(partition.producers.producer_ids()):
        state = _state(partition, producer_id)
        if state is not None:
            row.active_producers.append(state)
        await slices.yield_if_due()


def _state(partition: Partition, producer_id: int) -> ProducerState | None:
    batches = partition.producers.batches(producer_id)
    if not batches:
        return None
    last = batches[-1]
    sent = next((batch for batch in reversed(batches) if not batch.is_marker and batch.epoch == last.epoch), None)
    transaction = partition.state.transactions.transaction_of(producer_id)
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=last.epoch,
        last_sequence=-1 if sent is None else sent.last_sequence,
        last_timestamp_ms=last.timestamp_ms,
        coordinator_epoch=last.coordinator_epoch,
        current_txn_start_offset=-1 if transaction is None else transaction.first_offset,
    )
