"""Shows transactional ids to operators: ListTransactions and DescribeTransactions. Pure.

What is shown has committed. A transaction whose outcome is decided shows the partitions that still lack their marker,
which are the ones to look at when it does not end.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from .messages import Place, SavedTransaction
from .producers import Producer
from .states import TransactionState
from .transaction import Transaction

__all__ = ["Described", "ListFilter", "Listed", "describe", "list_filter", "listed"]


class Described(NamedTuple):
    """A transactional id in full. `started_ms` -1: it has had no transaction yet. `places` are in order.

    `owner`: who may act; it is not the producer of the transaction if that was kept for another process.
    """

    state: TransactionState
    producer: Producer
    timeout_ms: int
    started_ms: int
    places: tuple[Place, ...]
    owner: Producer


class Listed(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class ListFilter(NamedTuple):
    """What is to be in a list; an empty set, -1 and None are no condition.

    `running_ms`: only what began longer ago. `matches`: only ids of which it says so.
    """

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_ms: int = -1
    matches: Callable[[str], bool] | None = None
    is_never: bool = False
    """States were asked for, and none of them exists."""


_BY_TITLE = {state.title: state for state in TransactionState}


def list_filter(
    state_names: Collection[str],
    producer_ids: Collection[int] = (),
    running_ms: int = -1,
    matches: Callable[[str], bool] | None = None,
) -> tuple[ListFilter, tuple[str, ...]]:
    """Return the filter that a ListTransactions asks for, and the names of states that do not exist."""
    known = frozenset(_BY_TITLE[name] for name in state_names if name in _BY_TITLE)
    unknown = tuple(name for name in state_names if name not in _BY_TITLE)
    wanted = ListFilter(known, frozenset(producer_ids), running_ms, matches, bool(unknown) and not known)
    return wanted, unknown


def listed(transactional_id: str, saved: SavedTransaction | None, wanted: ListFilter, now_ms: int) -> Listed | None:
    """Return the line of a transactional id; None: it is not wanted."""
    if saved is None or wanted.is_never:
        return None
    if wanted.states and saved.state not in wanted.states:
        return None
    if wanted.producer_ids and saved.producer.producer_id not in wanted.producer_ids:
        return None
    if wanted.running_ms >= 0 and (saved.started_ms < 0 or now_ms - saved.started_ms <= wanted.running_ms):
        return None
    if wanted.matches is not None and not wanted.matches(transactional_id):
        return None
    return Listed(transactional_id, saved.producer.producer_id, saved.state)


def describe(transaction: Transaction | None) -> Described | None:
    """Return a transactional id in full; None: it is not known, TRANSACTIONAL_ID_NOT_FOUND."""
    saved = None if transaction is None else transaction.saved
    if transaction is None or saved is None:
        return None
    places = transaction.unmarked if saved.state.is_prepared else saved.places
    return Described(
        state=saved.state,
        producer=saved.producer,
        timeout_ms=saved.timeout_ms,
        started_ms=saved.started_ms,
        places=tuple(sorted(places)),
        owner=saved.owner,
    )
