"""InitProducerId: give an idempotent producer its id and epoch.

Ids come from the controller in blocks; a block that this broker has begun is lost when it stops, which costs nothing of
2^63. A producer that already has an id (version 3 and later) wants to go on after an error: without a transactional id
it gets a new one, as from Kafka. To bump the epoch of whatever id a request names would let any client take over the
identity of any other.

Transactional ids are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code on which every client stops at
once and says so; there is no transaction coordinator yet.
"""

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_metadata_quorum.commands import Refused

from .create_topics import code_of

__all__ = ["handle", "refuse"]

BLOCK_TIMEOUT_S = 5.0


async def handle(broker: BrokerContext, _: Exchange, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Answer from the block at hand, or fetch one."""
    if request.transactional_id is not None:
        return refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    while not broker.producer_ids:
        try:
            block = await broker.metadata.allocate_producer_ids(BLOCK_TIMEOUT_S)
        except Refused as refused:
            return refuse(request, code_of(refused.reason))
        if not broker.producer_ids:  # Another request may have brought a block meanwhile; one of the two is lost.
            broker.producer_ids = range(block.first, block.first + block.count)
    producer_id, broker.producer_ids = broker.producer_ids[0], broker.producer_ids[1:]
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse(_: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """Answer with `code` and no id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
