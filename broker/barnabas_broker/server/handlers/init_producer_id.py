"""InitProducerId: give an idempotent producer its id and epoch.

Ids come from the controller in blocks (`producer_ids`). A producer that already has an id (version 3 and later) wants
to go on after an error: without a transactional id it gets a new one, as from Kafka. If the epoch of the id in a
request were bumped, any client could take over the identity of any other.

With a transactional id the producer becomes the only one of that name: its coordinator gives it the next epoch, after
the transaction of whoever came before has been aborted (`coordinators.transactions`). A broker that does not offer
transactions refuses that with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code on which every client stops at once
and says so.
"""

from barnabas_broker.coordinators.transactions.state_machine.messages import Answer, InitRequest
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_metadata_quorum.controller.commands import Refused
from barnabas_metadata_quorum.controller.features import has_transactions

from .create_topics import code_of
from .transaction_routing import Outcome, ask

__all__ = ["handle", "refuse"]


def handle(broker: BrokerContext, exchange: Exchange, request: InitProducerIdRequest) -> Outcome:
    """Answer from the block at hand, or wait for one; ask the shard of a transactional id."""
    if request.transactional_id is not None:
        if not has_transactions(broker.image):
            return refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _ask(broker, exchange, request, request.transactional_id)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    producer_id = broker.producer_ids.take_now()
    return _wait(broker, request) if producer_id is None else _given(producer_id)


def refuse(_: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """Answer with `code` and no id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _ask(broker: BrokerContext, exchange: Exchange, request: InitProducerIdRequest, transactional_id: str) -> Outcome:
    init = InitRequest(
        request.transaction_timeout_ms,
        Producer(request.producer_id, request.producer_epoch),
        enables_two_phase=request.enable_2pc,
        keeps_prepared=request.keep_prepared_txn,
    )
    return ask(
        broker,
        exchange,
        transactional_id,
        lambda shard, on_answer: shard.initialize(transactional_id, init, on_answer),
        _response,
    )


def _response(answer: Answer) -> InitProducerIdResponse:
    producer, ongoing = answer.producer, answer.ongoing
    return InitProducerIdResponse(
        error_code=answer.code,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.epoch,
    )


async def _wait(broker: BrokerContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        return _given(await broker.producer_ids.take())
    except Refused as refused:
        return refuse(request, code_of(refused.reason))


def _given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
