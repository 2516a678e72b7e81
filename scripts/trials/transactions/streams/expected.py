"""What the application must make of its input, computed from the records alone. Pure.

Nothing here follows what Kafka Streams does, which looks at one record after another: each window is the set of
the records whose times it contains.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from .inputs import Order, Payment

__all__ = ["Expected", "Sums", "expected_of"]

TUMBLING_MS = 10_000
HOPPING_MS = 30_000
ADVANCE_MS = 10_000
GAP_MS = 5_000
JOINED_WITHIN_MS = 30_000

Sums = dict[str, tuple[int, int]]
"""How many orders, and the sum of their amounts, by the key of a result."""


class Expected(NamedTuple):
    """The results by topic. `joined` has each pair of serial numbers, behind the id of the order."""

    tumbling: Sums
    hopping: Sums
    sessions: Sums
    totals: Sums
    joined: Counter[tuple[str, str]]


def expected_of(orders: Sequence[Order], payments: Sequence[Payment]) -> Expected:
    """Return what comes of this input; without the orders that end it."""
    return Expected(
        tumbling=_sums((f"{one.customer}@{_floor(one.time_ms, TUMBLING_MS)}", one) for one in orders),
        hopping=_sums((f"{one.item}@{start}", one) for one in orders for start in _starts(one.time_ms)),
        sessions=_sums(_in_sessions(orders)),
        totals=_sums((one.customer, one) for one in orders),
        joined=_pairs(orders, payments),
    )


def _floor(time_ms: int, size_ms: int) -> int:
    return time_ms - time_ms % size_ms


def _starts(time_ms: int) -> range:
    """Return where the hopping windows that contain a moment begin."""
    last = _floor(time_ms, ADVANCE_MS)
    return range(last, time_ms - HOPPING_MS, -ADVANCE_MS)


def _sums(found: Iterable[tuple[str, Order]]) -> Sums:
    amounts = defaultdict[str, list[int]](list)
    for key, order in found:
        amounts[key].append(order.amount)
    return {key: (len(some), sum(some)) for key, some in amounts.items()}


def _in_sessions(orders: Sequence[Order]) -> Iterable[tuple[str, Order]]:
    """Yield each order with its session: no two neighbours in one are further apart than the gap."""
    of_customers = defaultdict[str, list[Order]](list)
    for order in sorted(orders, key=lambda one: one.time_ms):
        of_customers[order.customer].append(order)
    for customer, found in of_customers.items():
        cuts = [
            number for number, (one, other) in enumerate(pairwise(found), 1) if other.time_ms - one.time_ms > GAP_MS
        ]
        for begin, end in pairwise([0, *cuts, len(found)]):
            session = found[begin:end]
            yield from ((f"{customer}@{session[0].time_ms}-{session[-1].time_ms}", order) for order in session)


def _pairs(orders: Sequence[Order], payments: Sequence[Payment]) -> Counter[tuple[str, str]]:
    of_ids = defaultdict[str, list[Order]](list)
    for order in orders:
        of_ids[order.order_id].append(order)
    return Counter(
        (payment.order_id, f"{order.serial} {payment.serial}")
        for payment in payments
        for order in of_ids[payment.order_id]
        if abs(order.time_ms - payment.time_ms) <= JOINED_WITHIN_MS
    )
