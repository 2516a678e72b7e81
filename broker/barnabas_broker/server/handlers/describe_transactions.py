"""DescribeTransactions: show transactional ids that this broker coordinates, with the partitions of their transactions.

While a transaction ends, the partitions are those that lack their marker yet. A coordinator that may have been deposed
asks first. An id of which nothing is known is TRANSACTIONAL_ID_NOT_FOUND; one that another broker coordinates is
NOT_COORDINATOR, each by itself.
"""

from barnabas_broker.coordinators.transactions.state_machine.views import Described, describe
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import distinct
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTopic,
)
from barnabas_clients.protocol.error_codes import ErrorCode

__all__ = ["handle", "refuse"]

REQUEST_MS = 10_000
"""For all that a request waits for: shards that are being read, majorities that are asked. The rest is refused."""


async def handle(
    broker: BrokerContext, exchange: Exchange, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | None:
    """Describe each id, once. None: the client has gone meanwhile."""
    rows = []
    slices = Slices()
    until_ms = broker.now_ms() + REQUEST_MS
    for transactional_id in await taken(distinct(request.transactional_ids, str)):
        await slices.yield_if_due()
        if exchange.is_gone:
            return None
        rows.append(await _row(broker, transactional_id, is_late=broker.now_ms() >= until_ms))
    return DescribeTransactionsResponse(transaction_states=rows)


def refuse(request: DescribeTransactionsRequest, code: ErrorCode) -> DescribeTransactionsResponse:
    """Answer every id with `code`."""
    rows = [DescribedTransaction(transactional_id=name, error_code=code) for name in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=rows)


async def _row(broker: BrokerContext, transactional_id: str, *, is_late: bool) -> DescribedTransaction:
    if not transactional_id:
        return DescribedTransaction(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
    shard = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE if is_late else await broker.transactions.certain_shard(transactional_id)
    )
    if isinstance(shard, ErrorCode):
        return DescribedTransaction(transactional_id=transactional_id, error_code=shard)
    hosted = shard.ids.get(transactional_id)
    shown = None if hosted is None else describe(hosted.transaction)
    if shown is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(transactional_id=transactional_id, error_code=code)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=shown.state.title,
        transaction_timeout_ms=shown.timeout_ms,
        transaction_start_time_ms=shown.started_ms,
        producer_id=shown.producer.producer_id,
        producer_epoch=shown.producer.epoch,
        topics=_topics(shown),
    )


def _topics(shown: Described) -> list[DescribeTransactionsTopic]:
    """Return the partitions by topic; there are some thousand at most."""
    by_topic: dict[str, list[int]] = {}
    for name, index in shown.places:
        by_topic.setdefault(name, []).append(index)
    return [DescribeTransactionsTopic(topic=name, partitions=indexes) for name, indexes in by_topic.items()]
