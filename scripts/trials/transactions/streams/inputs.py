"""The records that go into the application, chosen by a seed. Pure.

Customers order; about every second order is paid, some of them twice, some with the same id as another one, some too
late. Within a partition the times of orders are out of order by less than the application waits for late ones, so that
none is late and the results depend on nothing but the records.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Order", "Payment", "ending", "orders_and_payments"]

CUSTOMERS = 12
ITEMS = 9
STEP_MS = 400
DISORDER_MS = 10_000  # the application closes a window a minute after its end
PAID_WITHIN_MS = 45_000  # it joins within 30 s
ENDING_AFTER_MS = 600_000


class Order(NamedTuple):
    """A record of the topic `orders`. `serial` is a number that no other order has."""

    customer: str
    order_id: str
    item: str
    amount: int
    serial: int
    time_ms: int

    @property
    def key(self) -> bytes:
        return self.customer.encode()

    @property
    def value(self) -> bytes:
        return f"{self.order_id} {self.item} {self.amount} {self.serial}".encode()


class Payment(NamedTuple):
    """A record of the topic `payments`. `serial` is a number that no other payment has."""

    order_id: str
    serial: int
    time_ms: int

    @property
    def key(self) -> bytes:
        return self.order_id.encode()

    @property
    def value(self) -> bytes:
        return b"%d" % self.serial


def orders_and_payments(seed: int, count: int, begin_ms: int) -> Iterator[Order | Payment]:
    """Yield `count` orders, and payments between them. Times are between `begin_ms` and 400 ms an order later."""
    chance = random.Random(seed)
    paid = 0
    for serial in range(count):
        # A customer orders for a while, and then not for some time: sessions.
        customer = chance.choice(range(serial // 50 % CUSTOMERS, serial // 50 % CUSTOMERS + 4)) % CUSTOMERS
        time_ms = begin_ms + DISORDER_MS + serial * STEP_MS + chance.randrange(-DISORDER_MS, DISORDER_MS)
        order_id = f"o{serial - chance.choice((0, 0, 0, 1, 2))}"
        item = f"i{chance.randrange(ITEMS)}"
        yield Order(f"c{customer}", order_id, item, chance.randrange(1, 1_000), serial, time_ms)
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            yield Payment(order_id, paid, max(begin_ms, time_ms + chance.randint(-PAID_WITHIN_MS, PAID_WITHIN_MS)))
            paid += 1


def ending(count: int, begin_ms: int, partition: int) -> Order:
    """Return the last order of a partition, so late that all windows before it are over."""
    time_ms = begin_ms + count * STEP_MS + ENDING_AFTER_MS
    return Order(f"end-{partition}", f"end-{partition}", "none", 0, -1 - partition, time_ms)
