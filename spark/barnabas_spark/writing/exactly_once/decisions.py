"""The record that decides about a batch, and its bytes. Pure.

There is one for each sink, under its name, in a compacted topic: the last one counts. It says which transactions have
the batch, and whether all of them are known to be committed. What it does not name is aborted. It also keeps the
transactional ids that the next batch may go on with (vacancies.py).

JSON with a version. Fields that are not known are left alone by older programs only within a version; another version
is refused, since to misunderstand a decision would tear a batch.
"""

import json
from typing import Final, NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["NONE_DONE", "Decision", "Prepared", "Ticket", "UnreadableDecisionError", "Vacant", "decode", "encode"]

VERSION: Final = 1
NONE_DONE: Final = -1
"""Stands for the version of a sink that has not written anything yet."""


class UnreadableDecisionError(BarnabasError):
    """A record in the topic of decisions that this program must not guess about."""


class Ticket(NamedTuple):
    """A number that an attempt has drawn, and no other ever draws: what InitProducerId has answered it."""

    producer_id: int
    epoch: int


class Prepared(NamedTuple):
    """A transaction in which everything of an attempt is stored, and which nobody has ended.

    `ticket` is what the attempt has drawn; None if it had no need to.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    ticket: Ticket | None = None


class Vacant(NamedTuple):
    """A transactional id that nobody uses, with the producer id and epoch of its next transaction.

    They belong to the attempt that draws the number behind `ticket`.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    ticket: Ticket


class Decision(NamedTuple):
    """All of `prepared` are the batch `version` of a sink. `application` is the query that numbers its batches.

    `vacant` has at most one id for each of Spark's partitions, in their order.
    """

    sink: str
    version: int
    prepared: tuple[Prepared, ...] = ()
    is_done: bool = False
    application: str = ""
    vacant: tuple[Vacant, ...] = ()


def encode(decision: Decision) -> bytes:
    """Return the value of the record."""
    fields = {
        "v": VERSION,
        "sink": decision.sink,
        "version": decision.version,
        "done": decision.is_done,
        "application": decision.application,
        "transactions": [[*one[:3], *(one.ticket or ())] for one in decision.prepared],
        "vacant": [[*one[:3], *one.ticket] for one in decision.vacant],
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(value: bytes) -> Decision:
    """Return the decision in a record's value.

    Raises:
        UnreadableDecisionError: it is of another version, or no decision at all.
    """
    try:
        fields = json.loads(value)
        if fields["v"] != VERSION:
            raise UnreadableDecisionError(f"a decision of version {fields['v']!r}, and this program knows {VERSION}")
        prepared = tuple(_prepared(*row) for row in fields["transactions"])
        found = Decision(
            _text(fields["sink"]),
            _number(fields["version"]),
            prepared,
            _flag(fields["done"]),
            _text(fields["application"]),
            tuple(_vacant(*row) for row in fields["vacant"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableDecisionError(f"no decision: {error!r}") from None
    return found


def _prepared(transactional_id: object, producer_id: object, epoch: object, *ticket: object) -> Prepared:
    return Prepared(_text(transactional_id), _number(producer_id), _number(epoch), _ticket(*ticket) if ticket else None)


def _vacant(transactional_id: object, producer_id: object, epoch: object, *ticket: object) -> Vacant:
    return Vacant(_text(transactional_id), _number(producer_id), _number(epoch), _ticket(*ticket))


def _ticket(producer_id: object, epoch: object) -> Ticket:
    return Ticket(_number(producer_id), _number(epoch))


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    return found


def _number(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(f"{found!r} is no whole number")
    return found


def _flag(found: object) -> bool:
    if not isinstance(found, bool):
        raise TypeError(f"{found!r} is neither true nor false")
    return found
