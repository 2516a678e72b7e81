"""InitProducerId: give an idempotent producer its id and epoch.

Ids come from the controller in blocks (`producer_ids`). A producer that already has an id (version 3 and later) wants
to go on after an error: without a transactional id it gets a new one, as from Kafka. If the epoch of the id in a
request were bumped, any client could take over the identity of any other.

Transactional ids are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code on which every client stops at
once and says so; there is no transaction coordinator yet.
"""

from collections.abc import Coroutine
from typing import Any

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_metadata_quorum.controller.commands import Refused

from .create_topics import code_of

__all__ = ["handle", "refuse"]


def handle(
    broker: BrokerContext, _: Exchange, request: InitProducerIdRequest
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    """Answer from the block at hand, or wait for one."""
    if request.transactional_id is not None:
        return refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    producer_id = broker.producer_ids.take_now()
    return _wait(broker, request) if producer_id is None else _given(producer_id)


def refuse(_: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """Answer with `code` and no id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def _wait(broker: BrokerContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        return _given(await broker.producer_ids.take())
    except Refused as refused:
        return refuse(request, code_of(refused.reason))


def _given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
