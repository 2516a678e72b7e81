"""AddOffsetsToTxn: add the offsets of a group to a transaction, so that TxnOffsetCommit may follow.

What is added is the partition of the offsets topic that has the group. The topic is made if there is none: otherwise
nobody could say which partition that is.
"""

from collections.abc import Coroutine, Generator

from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.transactions.state_machine.messages import V1, Answer
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message

from .transaction_routing import Outcome, ask

__all__ = ["handle", "refuse"]


def handle(broker: BrokerContext, exchange: Exchange, request: AddOffsetsToTxnRequest) -> Outcome:
    """Ask the shard; wait for the offsets topic first if there is none."""
    index = broker.coordinator.partition_of(request.group_id)
    return _after_creation(broker, exchange, request) if index is None else _add(broker, exchange, request, index)


def refuse(_: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    """Answer with `code`."""
    return AddOffsetsToTxnResponse(error_code=code)


async def _after_creation(broker: BrokerContext, exchange: Exchange, request: AddOffsetsToTxnRequest) -> Message | None:
    await broker.coordinator.ensure_topic()
    index = broker.coordinator.partition_of(request.group_id)
    if index is None:
        return refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    outcome = _add(broker, exchange, request, index)
    if isinstance(outcome, Generator):
        return await taken(outcome)
    return await outcome if isinstance(outcome, Coroutine) else outcome


def _add(broker: BrokerContext, exchange: Exchange, request: AddOffsetsToTxnRequest, index: int) -> Outcome:
    transactional_id = request.transactional_id
    producer = Producer(request.producer_id, request.producer_epoch)
    # Clients of v2 do not ask this: their TxnOffsetCommit adds the partition by itself.
    return ask(
        broker,
        exchange,
        transactional_id,
        lambda shard, on_answer: shard.add(transactional_id, producer, [(OFFSETS_TOPIC, index)], V1, on_answer),
        _response,
    )


def _response(answer: Answer) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=answer.code)
