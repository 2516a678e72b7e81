"""Carries requests about one transactional id to its shard (`shard_routing`), and has them answered.

A request that waits for its record, or for markers, is an object in the shard: no task. When its connection ends, the
shard is told that nobody waits for the answer; what it has brought about goes on.
"""

from collections.abc import Callable, Generator

from barnabas_broker.coordinators.transactions.hosted_transaction import Ask, OnAnswer
from barnabas_broker.coordinators.transactions.shard import TransactionShard
from barnabas_broker.coordinators.transactions.state_machine.codes import code_for
from barnabas_broker.coordinators.transactions.state_machine.messages import Answer
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, respond, respond_in_steps
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import Message

from .shard_routing import Outcome, route

__all__ = ["Begin", "Outcome", "Steps", "ask"]

Steps = Generator[None, None, Message]

Begin = Callable[[TransactionShard, OnAnswer], Ask]
"""Asks the shard, which answers what it is given, now or later."""


def ask(
    broker: BrokerContext,
    exchange: Exchange,
    transactional_id: str,
    begin: Begin,
    response_to: Callable[[Answer], Message | Steps],
) -> Outcome:
    """Return what a handler returns. `response_to` makes the response; with codes that the client's version has."""

    def reply_to(answer: Answer) -> Message | Steps:
        return response_to(answer._replace(code=code_for(exchange.api_key, exchange.version, answer.code)))

    def on_answer(answer: Answer) -> None:
        reply = reply_to(answer)
        if isinstance(reply, Message):
            respond(exchange, reply)
        else:
            respond_in_steps(exchange, reply)

    def act(shard: TransactionShard) -> None:
        waiting = begin(shard, on_answer)
        if not exchange.is_answered:
            exchange.abandon = waiting.abandon

    if not transactional_id:
        return reply_to(Answer(ErrorCode.INVALID_REQUEST))
    return route(broker.transactions, exchange, transactional_id, act, lambda code: reply_to(Answer(code)))
