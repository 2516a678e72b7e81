"""EndTxn: commit or abort a transaction.

Answered when the outcome is decided, which is when the record of it has committed. Readers see it when each partition
has its marker, a moment later.
"""

from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2, Answer, EndRequest
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_clients.protocol.error_codes import ErrorCode

from .transaction_routing import Outcome, ask

__all__ = ["handle", "refuse"]

V2_SINCE = 5


def handle(broker: BrokerContext, exchange: Exchange, request: EndTxnRequest) -> Outcome:
    """Ask the shard, which answers when it is decided."""
    end = EndRequest(
        Producer(request.producer_id, request.producer_epoch),
        is_commit=request.committed,
        version=V2 if exchange.version >= V2_SINCE else V1,
    )
    transactional_id = request.transactional_id
    return ask(
        broker,
        exchange,
        transactional_id,
        lambda shard, on_answer: shard.end(transactional_id, end, on_answer),
        _response,
    )


def refuse(_: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """Answer with `code` and no producer."""
    return EndTxnResponse(error_code=code)


def _response(answer: Answer) -> EndTxnResponse:
    producer = answer.producer
    return EndTxnResponse(error_code=answer.code, producer_id=producer.producer_id, producer_epoch=producer.epoch)
