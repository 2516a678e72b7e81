"""UnregisterBroker: have the controller forget a broker that is away and holds nothing.

Any broker takes the request, the active controller decides. Kafka's forgets whatever it is told to; here a broker that
runs, or holds replicas, is refused in words.
"""

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas_metadata_quorum.controller.commands import Refused, UnregisterBroker

from .create_topics import TIMEOUT_S_MAX, code_of

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Ask the controller."""
    try:
        await broker.metadata.submit(UnregisterBroker(request.broker_id), TIMEOUT_S_MAX)
    except Refused as refused:
        return UnregisterBrokerResponse(error_code=code_of(refused.reason), error_message=in_words(refused.message))
    return UnregisterBrokerResponse()


def refuse(_: UnregisterBrokerRequest, code: ErrorCode) -> UnregisterBrokerResponse:
    """Answer with `code`."""
    return UnregisterBrokerResponse(error_code=code)
