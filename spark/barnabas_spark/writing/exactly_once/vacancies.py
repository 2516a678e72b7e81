"""Which attempt may go on with which transactional id, so that a stream does not take new ones for ever. Pure.

Brokers keep an id for days. When a batch is done, the ids of its transactions are *vacant*: nothing is open there, and
nobody needs them any more. So the attempts of the next batch go on with them, each with that of its partition.

*Nobody asks for a vacant id.* Its next epoch is known: in the second protocol of transactions (KIP-890) the commit has
raised the epoch, and its answer has told the new one. To ask (InitProducerId) would end whatever is open there, and a
request that comes late, from an attempt or a driver that was believed dead, would end what was decided since. Kafka's
coordinator does so even if the request shows an old epoch. For the same reason what is to be aborted is aborted by its
producer id and epoch.

*One attempt alone has an epoch.* Two of them would number their batches alike, and brokers would take those of one for
repetitions of the other's. Spark cannot tell which attempt it is to be: PySpark's tasks do not know the number of their
stage's attempt, so two attempts that both are the first of their partition may run at a time; and a batch may be begun
by two drivers, or by one after the other. So each attempt draws a number of its partition, from an id that has no
transactions: InitProducerId raises the epoch, and tells it to nobody else. A vacant id is written down with the number
that the attempt before has drawn, and belongs to whoever draws the very next one. Whoever draws another one, or finds
no vacant id, makes an id. That number is drawn once, ever: a vacancy that was used, or may have been, is never used
again, whoever reads of it.

*How many there are.* In the ordinary case two ids for each partition, that of the numbers and a vacant one. An attempt
that has failed, lost or drawn the wrong number makes one, which then is the vacant one, and the id before is left to
its expiry. So it is for all partitions of a batch that failed.

Ids of partitions that a batch does not have, or that had no rows, are carried on, for `VACANT_MAX` partitions at most:
a decision is one record, of less than 1 MiB.

Not with the first protocol: there an id would have to be asked for.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from .decisions import Decision, Ticket, Vacant
from .names import partition_of

__all__ = ["VACANT_MAX", "Attempt", "Owner", "belongs_to", "unused", "vacant_after", "vacant_of"]

VACANT_MAX: Final = 2_000


class Owner(NamedTuple):
    """The producer id and epoch of an id's next transaction."""

    producer_id: int
    epoch: int


class Attempt(NamedTuple):
    """One attempt of a task: whose it is, the id that it makes, and the vacant one that it may have instead."""

    sink: str
    partition: int
    transactional_id: str
    vacant: Vacant | None = None


def vacant_of(sink: str, vacant: Iterable[Vacant], partition: int) -> Vacant | None:
    """Return the vacant id of a partition."""
    return next((one for one in vacant if partition_of(sink, one.transactional_id) == partition), None)


def belongs_to(vacant: Vacant | None, drawn: Ticket) -> bool:
    """Say whether a vacant id belongs to the attempt that has drawn this number."""
    return vacant is not None and drawn == vacant.ticket._replace(epoch=vacant.ticket.epoch + 1)


def unused(decision: Decision) -> tuple[Vacant, ...]:
    """Return the vacant ids of partitions that no transaction of a decision is of."""
    used = {partition_of(decision.sink, one.transactional_id) for one in decision.prepared}
    left = (one for one in decision.vacant if partition_of(decision.sink, one.transactional_id) not in used)
    return tuple(left)[:VACANT_MAX]


def vacant_after(decision: Decision, owners: Sequence[Owner | None]) -> tuple[Vacant, ...]:
    """Return the vacant ids when the transactions of a decision have ended.

    `owners` has the owner of the next transaction of each; None if its end did not raise the epoch.
    """
    found = {partition_of(decision.sink, one.transactional_id): one for one in unused(decision)}
    for one, owner in zip(decision.prepared, owners, strict=True):
        if owner is not None and one.ticket is not None:
            partition = partition_of(decision.sink, one.transactional_id)
            found[partition] = Vacant(one.transactional_id, *owner, one.ticket)
    return tuple(found[partition] for partition in sorted(found))[:VACANT_MAX]
