"""Checks a history, event by event, and reports broken promises. Pure.

It judges what a client can know, without looking into any broker: the rules are in `violations.Rule`, the reasons in
`partition_rules` and `group_rules`. It never reports a history that an honest cluster could have produced, as long as
the recorder keeps the contract of `events`. It counts what it cannot judge for want of a reader: an acknowledged record
that nobody ever looked for is `unread`, not proven. So a history should end with consumers that read every partition
from its start to its end.

A history is read once. Memory: 40 bytes a record (see `partition_rules`), nothing for each acknowledgement or read;
10,000 violations are kept, all are counted.

Deliberately not here: the order of records of *different* producers beyond
"equal offset, equal record", linearizability of anything but committed offsets, and time: how long a cluster did not
answer is measured by the clients that wait.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .events import (
    Acknowledged,
    Assigned,
    Begun,
    CommitAcknowledged,
    CommitInvoked,
    CommittedAsked,
    CommittedFetched,
    CommittedReset,
    Consumed,
    DeclaredConsumer,
    DeclaredPartition,
    DeclaredProducer,
    Ended,
    Ending,
    EndReached,
    Event,
    Failed,
    FaultBegun,
    FaultEnded,
    HighWatermarkSeen,
    Invoked,
    LogStartSeen,
    OffsetSent,
    OwnerSeen,
    Positioned,
    Unknown,
)
from .group_rules import GroupRules, Owners
from .partition_rules import PartitionRules, ProducerRules
from .transaction_rules import Transaction, Transactions
from .violations import Report, Rule, Violation

__all__ = ["Checker", "Summary", "check"]


class Summary(NamedTuple):
    """How much a history says. `unread`: acknowledged records by partition that no consumer found, if any.

    `transactions`: how many ended so, by outcome; those that were never told to have ended are `open`.
    """

    events: int
    acknowledged: int
    consumed: int
    commits: int
    faults: int
    violations: int
    unread: dict[str, int]
    transactions: dict[str, int] = {}  # noqa: RUF012 - never changed


class Checker:
    """Takes the events of one history in order; event n is line n."""

    def __init__(self) -> None:
        self._report = Report()
        self._partitions: dict[str, PartitionRules] = {}
        self._producers: dict[str, ProducerRules] = {}
        self._groups: dict[str, GroupRules] = {}
        self._high_watermarks: dict[tuple[str, str], int] = {}
        self._faults = 0
        self._transactions = Transactions(self._report)
        self._owners = Owners(self._report)
        self._committed_readers: set[str] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            DeclaredPartition: self._on_partition,
            DeclaredProducer: self._on_producer,
            DeclaredConsumer: self._on_consumer,
            Begun: self._transactions.on_begun,
            OffsetSent: self._on_offset_sent,
            Ending: self._transactions.on_ending,
            Ended: self._transactions.on_ended,
            Invoked: self._on_invoked,
            Acknowledged: lambda event: self._partition(event).on_acknowledged(event),
            Failed: lambda event: self._partition(event).on_failed(event),
            Unknown: lambda event: self._partition(event).on_unknown(event),
            Positioned: self._on_positioned,
            Consumed: self._on_consumed,
            EndReached: lambda event: self._partition(event).on_end(event),
            LogStartSeen: lambda event: self._partition(event).on_log_start(event.offset),
            HighWatermarkSeen: self._on_high_watermark,
            CommitInvoked: lambda event: self._group(event).on_commit_invoked(event),
            CommitAcknowledged: lambda event: self._group(event).on_commit_acknowledged(event),
            CommittedReset: lambda event: self._group(event).on_reset(event),
            CommittedAsked: lambda event: self._group(event).on_asked(event),
            CommittedFetched: lambda event: self._group(event).on_fetched(event),
            Assigned: lambda event: self._group(event).on_assigned(event),
            OwnerSeen: self._owners.on_seen,
            FaultBegun: self._on_fault,
            FaultEnded: lambda event: None,
        }

    @property
    def violations(self) -> list[Violation]:
        """The first violations, in order; `summary().violations` counts all."""
        return self._report.kept

    def feed(self, event: Event) -> None:
        """Take the next event.

        Raises:
            HistoryError: it contradicts what its own writer said before; nothing can be concluded from this history.
        """
        self._report.line += 1
        self._handlers[type(event)](event)

    def summary(self) -> Summary:
        partitions = self._partitions.values()
        return Summary(
            events=self._report.line,
            acknowledged=sum(partition.promised.records for partition in partitions),
            consumed=sum(partition.consumed for partition in partitions),
            commits=sum(group.commits for group in self._groups.values()),
            faults=self._faults,
            violations=self._report.count,
            unread={partition.name: partition.unread for partition in partitions if partition.unread},
            transactions=self._transactions.outcomes(),
        )

    def _on_partition(self, event: DeclaredPartition) -> None:
        partition = self._partition(event)
        partition.is_dense = event.dense
        partition.is_compacted = event.compacted

    def _on_producer(self, event: DeclaredProducer) -> None:
        self._producer(event.producer).is_idempotent = event.idempotent

    def _on_consumer(self, event: DeclaredConsumer) -> None:
        if event.read_committed:
            self._committed_readers.add(event.consumer)
        else:
            self._committed_readers.discard(event.consumer)

    def _on_invoked(self, event: Invoked) -> None:
        transaction = self._open(event.transaction)
        self._partition(event).on_invoked(event, self._producer(event.producer), transaction)

    def _on_offset_sent(self, event: OffsetSent) -> None:
        self._group(event).on_offset_sent(event, self._transactions.at_work(event.transaction))

    def _on_positioned(self, event: Positioned) -> None:
        self._partition(event).on_positioned(event, reads_committed=event.consumer in self._committed_readers)

    def _on_consumed(self, event: Consumed) -> None:
        reads_committed = event.consumer in self._committed_readers
        reader = self._open(event.transaction)
        self._partition(event).on_consumed(event, reader, reads_committed=reads_committed)

    def _open(self, name: str | None) -> Transaction | None:
        return None if name is None else self._transactions.at_work(name)

    def _on_high_watermark(self, event: HighWatermarkSeen) -> None:
        key = event.observer, event.partition
        before = self._high_watermarks.get(key, 0)
        if event.offset < before:
            text = f"{event.observer} was told {event.offset} after {before}"
            self._report.add(Rule.HIGH_WATERMARK_BACK, event.partition, text)
        self._high_watermarks[key] = event.offset

    def _on_fault(self, _: FaultBegun) -> None:
        self._faults += 1
        self._report.fault_line = self._report.line

    def _partition(self, event: Any) -> PartitionRules:
        partition = self._partitions.get(event.partition)
        if partition is None:
            partition = self._partitions[event.partition] = PartitionRules(
                event.partition, self._report, self._transactions
            )
        return partition

    def _producer(self, name: str) -> ProducerRules:
        return self._producers.setdefault(name, ProducerRules())

    def _group(self, event: Any) -> GroupRules:
        group = self._groups.get(event.group)
        if group is None:
            group = self._groups[event.group] = GroupRules(event.group, self._report, self._transactions)
        return group


def check(events: Iterable[Event]) -> list[Violation]:
    """Return what is wrong with a history, in order; at most 10,000 violations, empty if all holds.

    Raises:
        HistoryError: the history contradicts itself.
    """
    checker = Checker()
    for event in events:
        checker.feed(event)
    return checker.violations
