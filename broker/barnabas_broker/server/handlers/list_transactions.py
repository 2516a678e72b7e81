"""ListTransactions: name the transactional ids that this broker coordinates. A client that wants all asks every broker.

What is listed has committed. A filter of states that names none which exists lets nothing through, and one that names
some such is told which.
"""

from collections.abc import Generator, Iterable
from typing import TypeVar

from barnabas_broker.coordinators.patterns import Pattern, PatternError
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.state_machine.views import list_filter, listed
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

__all__ = ["handle", "refuse"]

TITLES = frozenset(state.title for state in TransactionState)
PIECE = 100  # ids, or items of a filter, between two yields

T = TypeVar("T")


def handle(
    broker: BrokerContext, _: Exchange, request: ListTransactionsRequest
) -> Generator[None, None, ListTransactionsResponse]:
    """Answer now; while a partition is being read the list would be wrong, and the answer says so."""
    coordinator = broker.transactions
    if coordinator.is_loading:
        return refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        pattern = Pattern.compile(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except PatternError:
        return refuse(request, ErrorCode.INVALID_REGULAR_EXPRESSION)
    yield
    known, unknown = yield from _states(request.state_filters)
    producer_ids = yield from _distinct(request.producer_id_filters)
    # Of the states that do not exist one says as much as all.
    wanted, _unknown = list_filter((*known, *unknown[:1]), producer_ids, request.duration_filter_ms)
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    now_ms = coordinator.host.wall_ms()
    for shard in coordinator.active_shards():
        for number, hosted in enumerate(list(shard.ids.values())):
            if not number % PIECE:
                yield
            row = listed(hosted.transactional_id, hosted.transaction.saved, wanted, now_ms)
            if row is not None and (pattern is None or (yield from pattern.matching(row.transactional_id))):
                response.transaction_states.append(
                    ListedTransaction(
                        transactional_id=row.transactional_id,
                        producer_id=row.producer_id,
                        transaction_state=row.state.title,
                    )
                )
    return response


def refuse(_: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    """Answer with `code` and no ids."""
    return ListTransactionsResponse(error_code=code)


def _states(names: Iterable[str]) -> Generator[None, None, tuple[set[str], list[str]]]:
    """Return those of the names that are states, and the others."""
    known: set[str] = set()
    unknown: list[str] = []
    for number, name in enumerate(names, 1):
        if name in TITLES:
            known.add(name)
        else:
            unknown.append(name)
        if not number % PIECE:
            yield
    return known, unknown


def _distinct(items: Iterable[T]) -> Generator[None, None, set[T]]:
    found: set[T] = set()
    for number, item in enumerate(items, 1):
        found.add(item)
        if not number % PIECE:
            yield
    return found
