"""Rules of one partition, towards its producers and consumers. Pure.

A record has one *place*: the offset that its acknowledgement named, or where the first consumer found it. From then on
every acknowledgement and every consumer must agree, from both sides: the record is nowhere else (`DUPLICATED`), and
nothing else is at the offset (`OFFSET_REUSED`). Both hold for records that are unknown, too: an idempotent producer's
record may be there or not, never twice.

A record that was sent in a transaction is promised to nobody before its commit, and then to those who read committed
records: that one of them has got it, or has stepped over its place, is told to its transaction (`transaction_rules`).
To all others it is a record like any. The `end` of one who reads committed records may lie before records of a
transaction whose markers are still on their way, so nothing is missed behind it.

Order is judged where it shows: along one consumer's session sequence numbers of a producer rise with the offsets, and
an acknowledgement's offset lies beyond those of all earlier sequence numbers.

*Loss* needs a consumer that has looked. A consumer that steps over an offset, or finds another record at it, has looked
there: if an acknowledged record has its place at it, the record is lost. A consumer that reaches the end (`end`) has
looked everywhere from where its session began: a record that was acknowledged before that, and lies at or beyond the
end, is lost. A record acknowledged without an offset must have been found by then, if the session began at the log's
start. `unread` counts the acknowledged records that no consumer has found; the command says so, since nothing is known
of them.

Memory: five columns (`Column`) of eight bytes, so 40 bytes a record, 48 in a transaction, and for each session one
number a producer.
"""

from typing import NamedTuple

from .columns import Column
from .events import Acknowledged, Consumed, EndReached, Failed, HistoryError, Invoked, Positioned, Unknown
from .transaction_rules import Promised, Transaction, Transactions
from .violations import Report, Rule

__all__ = ["PartitionRules", "ProducerRules"]

# The knowledge about a record, as bits. 0: invoked.
ACKNOWLEDGED = 1
FAILED = 2
UNKNOWN = 4
READ = 8
FATES = ACKNOWLEDGED | FAILED | UNKNOWN


class ProducerRules:
    """Promises to one producer, for all partitions."""

    __slots__ = ("is_idempotent",)

    def __init__(self) -> None:
        self.is_idempotent = True


class _Stream:
    """The records of one producer in one partition, by sequence number."""

    __slots__ = (
        "digests",
        "last_offset",
        "last_sequence",
        "name",
        "number",
        "offsets",
        "producer",
        "states",
        "transactions",
    )

    def __init__(self, number: int, name: str, producer: ProducerRules) -> None:
        self.number = number
        self.name = name
        self.producer = producer
        self.states = Column()
        self.digests = Column()
        self.offsets = Column()
        self.transactions = Column()  # their numbers
        # The acknowledged record with the highest sequence number, and where it is.
        self.last_sequence = self.last_offset = -1


class _Unplaced(NamedTuple):
    stream: int
    sequence: int


class _Session:
    """One consumer on its way through a partition."""

    __slots__ = ("acknowledged_end", "last_sequences", "position", "reads_committed", "unplaced")

    def __init__(
        self,
        position: int,
        acknowledged_end: int = 0,
        unplaced: frozenset[_Unplaced] = frozenset(),
        *,
        reads_committed: bool = False,
    ) -> None:
        self.position = position
        self.reads_committed = reads_committed
        # The records acknowledged when it began: their end, and those that a reader from the start must find.
        self.acknowledged_end = acknowledged_end
        self.unplaced = unplaced
        self.last_sequences: dict[int, int] = {}


class PartitionRules:
    """One partition's share of the history, and the rules about it."""

    def __init__(self, name: str, report: Report, transactions: Transactions) -> None:
        self.name = name
        self.is_dense = True
        self.is_compacted = False
        self.promised = Promised()
        self.consumed = 0
        self._report = report
        self._transactions = transactions
        self._log_start = 0
        self._acknowledged_end = 0
        self._streams: dict[str, _Stream] = {}
        self._by_number: list[_Stream] = []
        # By offset: whose record is there, and which.
        self._stream_at = Column()
        self._sequence_at = Column()
        self._unplaced: set[_Unplaced] = set()
        self._sessions: dict[str, _Session] = {}

    @property
    def unread(self) -> int:
        """How many acknowledged records no consumer has found, to whom they were promised."""
        return self.promised.records - self.promised.found

    # Producing.

    def on_invoked(self, event: Invoked, producer: ProducerRules, transaction: Transaction | None) -> None:
        stream = self._streams.get(event.producer)
        if stream is None:
            stream = self._streams[event.producer] = _Stream(len(self._by_number), event.producer, producer)
            self._by_number.append(stream)
        if stream.states.get(event.sequence) != -1:
            raise HistoryError(self._report.line, f"{event.producer} invokes {event.sequence} of {self.name} again")
        stream.states.put(event.sequence, 0)
        stream.digests.put(event.sequence, _number(event.digest))
        if transaction is not None:
            stream.transactions.put(event.sequence, transaction.number)
            self.is_dense = False

    def on_acknowledged(self, event: Acknowledged) -> None:
        stream, state = self._settle(event, ACKNOWLEDGED)
        sequence = event.sequence
        offset = event.offset
        self._promise(self._transaction_of(stream, sequence), is_found=bool(state & READ))
        if offset is None:
            if stream.offsets.get(sequence) == -1:
                self._unplaced.add(_Unplaced(stream.number, sequence))
            return
        self._place(stream, sequence, offset)
        self._acknowledged_end = max(self._acknowledged_end, offset + 1)
        is_later = sequence > stream.last_sequence
        if is_later != (offset > stream.last_offset) and stream.producer.is_idempotent:
            self._report.add(
                Rule.REORDERED,
                self.name,
                f"{stream.name} {sequence} acknowledged at {offset}, {stream.last_sequence} at {stream.last_offset}",
            )
        if is_later:
            stream.last_sequence = sequence
            stream.last_offset = offset

    def on_failed(self, event: Failed) -> None:
        stream, _ = self._settle(event, FAILED)
        if stream.offsets.get(event.sequence) != -1:
            self._refused_yet_there(stream, event.sequence)

    def on_unknown(self, event: Unknown) -> None:
        self._settle(event, UNKNOWN)

    def _settle(self, event: Acknowledged | Failed | Unknown, fate: int) -> tuple[_Stream, int]:
        """Note the fate of a record; return what was known of it before."""
        stream = self._streams.get(event.producer)
        state = -1 if stream is None else stream.states.get(event.sequence)
        if stream is None or state == -1:
            raise HistoryError(self._report.line, f"{event.producer} never invoked {event.sequence} of {self.name}")
        if state & FATES:
            raise HistoryError(
                self._report.line, f"{event.producer} {event.sequence} of {self.name} has a fate already"
            )
        stream.states.put(event.sequence, state | fate)
        return stream, state

    # Consuming.

    def _promise(self, transaction: Transaction | None, *, is_found: bool) -> None:
        promised = self.promised if transaction is None else transaction.promised_at(self.promised)
        promised.records += 1
        promised.found += is_found

    def _transaction_of(self, stream: _Stream, sequence: int) -> Transaction | None:
        number = stream.transactions.get(sequence)
        return None if number == -1 else self._transactions[number]

    def on_positioned(self, event: Positioned, *, reads_committed: bool) -> None:
        if reads_committed:
            self._sessions[event.consumer] = _Session(event.offset, reads_committed=True)
            return
        due = frozenset(self._unplaced) if event.offset <= self._log_start else frozenset[_Unplaced]()
        self._sessions[event.consumer] = _Session(event.offset, self._acknowledged_end, due)

    def on_consumed(self, event: Consumed, reader: Transaction | None, *, reads_committed: bool) -> None:
        session = self._sessions.get(event.consumer)
        if session is None:
            # It never said where it began: nothing before this is asked of it.
            session = self._sessions[event.consumer] = _Session(event.offset, reads_committed=reads_committed)
        self.consumed += 1
        self._advance(session, event.consumer, event.offset)
        session.position = event.offset + 1
        stream = None if event.producer is None else self._streams.get(event.producer)
        state = -1 if stream is None else stream.states.get(event.sequence)
        if stream is None or state == -1:
            whose = "nobody's record" if event.producer is None else f"{event.producer} {event.sequence}"
            self._report.add(Rule.NEVER_SENT, self.name, f"{event.consumer} got {whose} at {event.offset}")
            return
        self._judge_content(stream, event)
        self._judge_order(session, stream, event)
        self._judge_place(stream, event)
        self._place(stream, event.sequence, event.offset)
        transaction = self._transaction_of(stream, event.sequence)
        if transaction is not None and session.reads_committed:
            text = f"{event.consumer} got {stream.name} {event.sequence} at {event.offset}"
            self._transactions.saw(transaction, self.name, text, reader)
        if not state & READ:
            self._found(session, stream, event.sequence, state, transaction)

    def _found(
        self, session: _Session, stream: _Stream, sequence: int, state: int, transaction: Transaction | None
    ) -> None:
        """Note that a record was found, by the first to whom it was promised, or somebody before."""
        self._unplaced.discard(_Unplaced(stream.number, sequence))
        if state & FAILED:
            self._refused_yet_there(stream, sequence)
        if transaction is None or session.reads_committed:
            stream.states.put(sequence, state | READ)
            promised = self.promised if transaction is None else transaction.promised_at(self.promised)
            promised.found += bool(state & ACKNOWLEDGED)

    def on_end(self, event: EndReached) -> None:
        session = self._sessions.get(event.consumer)
        if session is None:
            raise HistoryError(self._report.line, f"{event.consumer} is at the end of {self.name} without a position")
        self._advance(session, event.consumer, event.offset)
        session.position = event.offset
        if not self.is_compacted and not session.reads_committed:
            self._report_lost(session, event.consumer, max(event.offset, self._log_start), session.acknowledged_end)
        for number, sequence in sorted(session.unplaced & self._unplaced):
            whose = f"{self._by_number[number].name} {sequence}"
            self._report.add(Rule.LOST, self.name, f"{event.consumer} read to the end and did not find {whose}")

    def on_log_start(self, offset: int) -> None:
        self._log_start = max(self._log_start, offset)

    def _advance(self, session: _Session, consumer: str, offset: int) -> None:
        """Judge a consumer's step from its position to `offset`."""
        expected = session.position
        if offset < expected:
            self._report.add(Rule.POSITION_BACK, self.name, f"{consumer} is at {offset}, {expected} was due")
            return
        start = max(expected, self._log_start)
        if offset <= start:
            return
        if self.is_dense and not self.is_compacted:
            self._report.add(Rule.HOLE, self.name, f"{consumer} is at {offset}, {start} was due")
        if not self.is_compacted:
            self._report_lost(session, consumer, start, offset)

    def _report_lost(self, session: _Session, consumer: str, start: int, end: int) -> None:
        """Report every acknowledged record with its place in [start, end), where the consumer found nothing."""
        for offset, number in self._stream_at.within(start, end):
            stream = self._by_number[number]
            sequence = self._sequence_at.get(offset)
            if stream.states.get(sequence) & ACKNOWLEDGED and stream.offsets.get(sequence) == offset:
                text = f"{stream.name} {sequence}, acknowledged at {offset}, is not there for {consumer}"
                transaction = self._transaction_of(stream, sequence) if session.reads_committed else None
                if transaction is None:
                    self._report.add(Rule.LOST, self.name, text)
                else:
                    self._transactions.missed(transaction, self.name, text)

    def _judge_content(self, stream: _Stream, event: Consumed) -> None:
        sent = stream.digests.get(event.sequence)
        got = _number(event.digest)
        if got not in {sent, -1} and sent != -1:
            text = f"{stream.name} {event.sequence} at {event.offset} is not what was sent"
            self._report.add(Rule.CHANGED, self.name, text)

    def _judge_place(self, stream: _Stream, event: Consumed) -> None:
        """Report the acknowledged record that should be where the consumer got another."""
        other = self._stream_at.get(event.offset)
        if other == -1:
            return
        due = self._by_number[other]
        sequence = self._sequence_at.get(event.offset)
        if (due, sequence) != (stream, event.sequence) and due.states.get(sequence) & ACKNOWLEDGED:
            text = f"{due.name} {sequence}, acknowledged at {event.offset}, is not there for {event.consumer}"
            self._report.add(Rule.LOST, self.name, text)

    def _judge_order(self, session: _Session, stream: _Stream, event: Consumed) -> None:
        last = session.last_sequences.get(stream.number, -1)
        if event.sequence < last and stream.producer.is_idempotent:
            text = f"{event.consumer} got {stream.name} {event.sequence} at {event.offset}, behind {last}"
            self._report.add(Rule.REORDERED, self.name, text)
        session.last_sequences[stream.number] = max(last, event.sequence)

    def _refused_yet_there(self, stream: _Stream, sequence: int) -> None:
        text = f"{stream.name} {sequence} was refused and is at {stream.offsets.get(sequence)}"
        self._report.add(Rule.REFUSED_YET_THERE, self.name, text)

    def _place(self, stream: _Stream, sequence: int, offset: int) -> None:
        """Note that a record stands at `offset`; judge it against the one of before there, and its place of before."""
        other = self._stream_at.get(offset)
        if other == -1:
            self._stream_at.put(offset, stream.number)
            self._sequence_at.put(offset, sequence)
        elif (other, there := self._sequence_at.get(offset)) != (stream.number, sequence):
            first = f"{self._by_number[other].name} {there}"
            self._report.add(Rule.OFFSET_REUSED, self.name, f"{first} and {stream.name} {sequence} at {offset}")
        place = stream.offsets.get(sequence)
        if place == -1:
            stream.offsets.put(sequence, offset)
        elif place != offset and stream.producer.is_idempotent:
            self._report.add(Rule.DUPLICATED, self.name, f"{stream.name} {sequence} at {place} and at {offset}")


def _number(digest: str) -> int:
    """Return 63 of the digest's bits, or -1 if there is none: so many fit a column."""
    return int(digest, 16) >> 1 if digest else -1
