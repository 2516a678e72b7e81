"""Declares the question how transactions have ended, between leaders of partitions and transaction coordinators. Pure.

A partition knows producer ids, and no transactional ids. So every coordinator is asked about all of them; each says
which partitions of `__transaction_state` it has answered for, and what it knows of.
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Int64, Message, String, Struct, field, message

__all__ = ["METHOD", "VERSION", "EndedTransaction", "OpenTransactionRow", "OutcomesRequest", "OutcomesResponse"]

METHOD = "transactions.outcomes"
VERSION = 0


class OpenTransactionRow(Struct):
    """A transaction that is open in a partition, by the producer of its data."""

    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    topic: String = ""
    partition: Int32 = 0


class EndedTransaction(Struct):
    """What is known of one row of the question. `outcome`: the value of an `Outcome`.

    The two epochs are those of the marker that it wants, if it is not open.
    """

    row: Int32 = 0
    outcome: Int8 = 0
    marker_epoch: Int16 = -1
    coordinator_epoch: Int32 = -1


@message(api_key=0, versions=range(1), flexible_since=0)
class OutcomesRequest(Message):
    """The question."""

    rows: list[OpenTransactionRow] = field(default_factory=list)


@message(api_key=0, versions=range(1), flexible_since=0)
class OutcomesResponse(Message):
    """The answer. `coordinated`: partitions of `__transaction_state` that were looked through.

    A row of which nothing is known there is in no `ended`.
    """

    coordinated: Sequence[Int32] = ()
    ended: list[EndedTransaction] = field(default_factory=list)
