"""A seed's demands on its cluster besides promises: that it is there for its clients.

Distances between hosts, limits so small that they matter within seconds, and clients that are at work all the time.
All of it is drawn from a stream of its own. The default asks for nothing.

`CLOSED` names fields that no seed draws for now, because they show something that is known and not mended yet.
"""

from random import Random
from typing import NamedTuple

from .groups.choice import NOBODY_GROUPED, Groups
from .transactions.parts.choice import Parts
from .world import MS, SECOND

__all__ = ["CLOSED", "MESSAGE_BYTES_MAX", "Load", "Service", "draw", "transact"]

CLOSED = frozenset[str]()

MESSAGE_BYTES_MAX = 1_048_588
NEAR = (200, 1 * MS)
FAR = (10 * MS, 80 * MS)
MIXED = (200, 80 * MS)
LAG_MS = 1_000
"""`replica.lag.time.max.ms` where it shall matter within a run."""
TRANSACTIONAL = 0.25  # of all seeds
DELETED = 0.4  # of those
JUDGED_US = 2 * SECOND
"""The time for which availability is judged in a quiet window, after twice the lag."""


class Load(NamedTuple):
    """Records for one partition at a steady rate, whether or not they are answered. `acks` as in a produce request."""

    acks: int
    per_second: int


class Service(NamedTuple):
    """See the module.

    - `distance_us`: how far apart two hosts are, at least and at most, one way.
    - `min_insync`: min.insync.replicas of the topic; `offsets_min_insync`: of the topic that coordinators write to.
    - `lag_ms`: replica.lag.time.max.ms.
    - `loads`: one partition each.
    - `quiet_us`: no fault strikes, or lasts into, this time of the run (its end is 0 where there is none).
    - `lasting_us`: so long the work goes on under no fault at the end.
    - `message_bytes`: max.message.bytes of the topic; `large_every`: one batch of so many is as large (0: none).
    - `tail_bytes`: of the recent batches that a broker has in memory; the rest is read from the disk.
    - `mixed_readers`: clients that fetch all partitions at once. `listers`: clients that look offsets up.
    - `rewrite_bytes`: from this size on a coordinator writes its log anew (0: as in life).
    - `producers`, `consumers`, `admins`: so many of the project's own.
    - `dies_us`: when a member of the group by hand vanishes (0: never).
    - `feeders`, `workers`: so many clients with transactions; without feeders the brokers offer none.
    - `transaction_partitions`: of what they write and read. `transaction_timeout_ms`: of each transaction.
      `deletes_output`: what has been written and read is deleted little by little. `parts`: of transactions besides.
    - `groups`: whose members come and go, of both protocols.
    """

    distance_us: tuple[int, int] = (0, 0)
    min_insync: int = 1
    lag_ms: int = 30_000
    loads: tuple[Load, ...] = ()
    quiet_us: tuple[int, int] = (0, 0)
    lasting_us: int = 0
    message_bytes: int = MESSAGE_BYTES_MAX
    large_every: int = 0
    tail_bytes: int = 1 << 20
    mixed_readers: int = 0
    listers: int = 0
    rewrite_bytes: int = 0
    offsets_min_insync: int = 1
    producers: int = 0
    consumers: int = 0
    admins: int = 0
    dies_us: int = 0
    feeders: int = 0
    workers: int = 0
    transaction_partitions: int = 2
    transaction_timeout_ms: int = 3_000
    deletes_output: bool = False
    parts: Parts = Parts()
    groups: Groups = NOBODY_GROUPED

    @property
    def is_judged(self) -> bool:
        """Whether the lag is short enough for anything to be said about a run of some seconds."""
        return self.lag_ms <= LAG_MS

    @property
    def settled_us(self) -> int:
        """So long after the last fault a cluster owes everything again."""
        return 2 * self.lag_ms * MS


def draw(seed: int, factor: int, safety_us: int) -> Service:
    """Return the demands of `seed`, on a topic of `factor` replicas, in a run whose faults end at `safety_us`."""
    rng = Random(f"{seed}/service")
    lag_ms = rng.choice((30_000, LAG_MS, LAG_MS))
    is_large = rng.random() < 0.2
    window_us = 2 * lag_ms * MS + JUDGED_US
    begin_us = rng.randrange(2 * SECOND, max(2 * SECOND + 1, safety_us - window_us))
    has_window = lag_ms == LAG_MS and safety_us >= window_us + 4 * SECOND and rng.random() < 0.5
    drawn = Service(
        distance_us=rng.choice(((0, 0), NEAR, FAR, MIXED)),
        min_insync=min(factor, rng.choice((1, 2, 2, 3))),
        lag_ms=lag_ms,
        loads=tuple(_load(rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))),
        quiet_us=(begin_us, begin_us + window_us) if has_window else (0, 0),
        lasting_us=rng.choice((0, 0, 0, 0, window_us, window_us, window_us, window_us + 7 * SECOND))
        if lag_ms == LAG_MS
        else 0,
        message_bytes=rng.choice((40_000, 300_000, MESSAGE_BYTES_MAX)) if is_large else MESSAGE_BYTES_MAX,
        large_every=40 if is_large else 0,
        tail_bytes=rng.choice((1 << 20, 4_000, 40_000)),
        mixed_readers=rng.choice((0, 0, 0, 1)),
        listers=rng.choice((0, 0, 0, 1)),
        rewrite_bytes=rng.choice((0, 6_000)),
        producers=rng.choice((0, 0, 0, 1)),
        consumers=rng.choice((0, 0, 0, 0, 1, 2)),
        admins=rng.choice((0, 0, 0, 0, 1)),
        dies_us=rng.choice((0, rng.randrange(2 * SECOND, safety_us))),
        offsets_min_insync=min(factor, rng.choice((1, 1, 2, 3))),
    )
    if rng.random() < TRANSACTIONAL:
        drawn = transact(seed, drawn)
    return drawn._replace(**{name: Service._field_defaults[name] for name in sorted(CLOSED)})


def transact(seed: int, service: Service) -> Service:
    """Return these demands with transactions besides."""
    rng = Random(f"{seed}/transactions")
    return service._replace(
        feeders=rng.choice((1, 2, 2, 3)),
        workers=rng.choice((0, 1, 1, 2)),
        transaction_partitions=rng.choice((1, 2, 3)),
        transaction_timeout_ms=rng.choice((1_500, 3_000)),
        deletes_output=Random(f"{seed}/deletions").random() < DELETED,
    )


def _load(rng: Random) -> Load:
    return Load(rng.choice((0, 1, 1, -1, -1)), rng.choice((10, 15, 25)))
