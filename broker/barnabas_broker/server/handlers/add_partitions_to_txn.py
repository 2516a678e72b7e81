"""AddPartitionsToTxn: have partitions in a transaction, so that they may be written to and get its marker.

Up to version 3 a client asks, for one transaction. Internal topics are not for clients: the offsets of a group are
added by AddOffsetsToTxn. From version 4 on brokers ask, for many, and more often over their links
(`coordinators.transactions.additions`); what is asked here is answered alike.

A request may name a hundred thousand partitions, of which a transaction takes 4,000.
"""

from collections.abc import Coroutine, Generator
from typing import Any

from barnabas_broker.coordinators.transactions.additions import (
    Codes,
    all_alike,
    existing_places,
    not_attempted,
    results_of,
)
from barnabas_broker.coordinators.transactions.state_machine.messages import V1
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.steps import at_once

from .transaction_routing import ask

__all__ = ["handle", "refuse"]

MANY_SINCE = 4

Later = Coroutine[Any, Any, Message | None]
Steps = Generator[None, None, Message | Later | None]
Outcome = Later | Steps


def handle(broker: BrokerContext, exchange: Exchange, request: AddPartitionsToTxnRequest) -> Outcome:
    """Check the partitions, then ask the shard, which answers when all are added."""
    if exchange.version >= MANY_SINCE:
        return broker.transactions.add_partitions(request)
    return _add(broker, exchange, request)


def refuse(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Answer every partition with `code`."""
    codes = all_alike(code)
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id, topic_results=at_once(results_of(one.topics, codes))
            )
            for one in request.transactions
        ],
        results_by_topic_v3_and_below=at_once(results_of(request.v3_and_below_topics, codes)),
    )


def _add(broker: BrokerContext, exchange: Exchange, request: AddPartitionsToTxnRequest) -> Steps:
    topics = request.v3_and_below_topics

    def response(codes: Codes) -> Generator[None, None, AddPartitionsToTxnResponse]:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from results_of(topics, codes)))

    places = yield from existing_places(broker.partitions, topics, INTERNAL_TOPICS)
    if places is None:
        return (yield from response(not_attempted(broker.partitions, INTERNAL_TOPICS)))
    transactional_id = request.v3_and_below_transactional_id
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    outcome = ask(
        broker,
        exchange,
        transactional_id,
        lambda shard, on_answer: shard.add(transactional_id, producer, places, V1, on_answer),
        lambda answer: response(all_alike(answer.code)),
    )
    if isinstance(outcome, Generator):
        return (yield from outcome)
    return outcome
