"""Reads and writes the events of a history: one JSON object a line. Pure.

`type` says which event it is. A history is what *clients* did and saw, never what brokers say about themselves. Its
lines are in the order in which one recorder was told, and the recorder owes the checker three things:

- what a client is about to do (`invoked`, `commit_invoked`, `committed_asked`) is written before it is done, and the
  outcome after the answer is there;
- the lines of one client are in that client's order;
- nothing is written twice, and nothing that happened is left out: a record whose fate is not known is `unknown`.

A *partition* is written `topic-number`. A record is known by its producer and a sequence number that the producer
counts for each partition, from 0; the record's value carries both, so that a reader can tell whose record it has. The
digest is of the whole value, 64 bits in hexadecimal, and shows a record that kept its name and lost its content. A
value that names nobody is consumed with `producer` null.

Offsets are positions; `position`, `end`, `high_watermark`, `log_start` and committed offsets are exclusive ends: the
next offset to be read. Every event may carry `at_ms`, milliseconds on the recorder's monotonic clock: for people, never
judged, since no two clients share an order finer than the lines.

*Transactions.* A client names each of its transactions anew (`begun`), and every record that it sends in one
(`invoked.transaction`), and every offset (`offset_sent`). What it is about to ask (`ending`) is written before it asks,
and `ended` when nothing more comes. A record whose transaction failed is `unknown`, not `failed`: it may be in the log,
aborted. Consumers who read committed records only say so (`consumer`). The end that such a one reaches is the last
stable offset of that moment. A partition with transactions is not dense: their markers have offsets.

Unknown types and unknown fields are refused: a misspelt one would be a rule that is silently not checked.
"""

from typing import Annotated, Literal

import msgspec

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.unpacking import UNREADABLE

__all__ = [
    "Acknowledged",
    "Assigned",
    "Begun",
    "CommitAcknowledged",
    "CommitInvoked",
    "CommittedAsked",
    "CommittedFetched",
    "CommittedReset",
    "Consumed",
    "DeclaredConsumer",
    "DeclaredPartition",
    "DeclaredProducer",
    "EndReached",
    "Ended",
    "Ending",
    "Event",
    "Failed",
    "FaultBegun",
    "FaultEnded",
    "HighWatermarkSeen",
    "HistoryError",
    "Invoked",
    "LogStartSeen",
    "OffsetSent",
    "OwnerSeen",
    "Positioned",
    "Unknown",
    "decode",
    "encode",
]

COUNT_MAX = (1 << 62) - 1
Name = Annotated[str, msgspec.Meta(min_length=1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
# Empty: nobody computed one, and contents are not compared.
Digest = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{16})?$")]


class HistoryError(BarnabasError, ValueError):
    """A history that makes no sense: nothing can be concluded from it. `line` counts from 1."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")
        self.line = line
        self.text = text


class Timed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"
):
    """The base of all events."""

    at_ms: int | None = None


# Promises. Without these lines: dense offsets, idempotent producers, consumers who read everything.


class DeclaredPartition(Timed, tag="partition", frozen=True, kw_only=True):
    """`dense`: offsets have no holes. `compacted`: records may go while their offsets are within the log."""

    partition: Name
    dense: bool = True
    compacted: bool = False


class DeclaredProducer(Timed, tag="producer", frozen=True, kw_only=True):
    """Not idempotent: its records may be there twice, and out of order where it had to try again."""

    producer: Name
    idempotent: bool = True


class DeclaredConsumer(Timed, tag="consumer", frozen=True, kw_only=True):
    """`read_committed`: what it gets is committed."""

    consumer: Name
    read_committed: bool = False


# Producing.


class Invoked(Timed, tag="invoked", frozen=True, kw_only=True):
    """A record is about to be sent, perhaps in a transaction."""

    producer: Name
    partition: Name
    sequence: Sequence
    digest: Digest = ""
    transaction: Name | None = None


class Acknowledged(Timed, tag="acknowledged", frozen=True, kw_only=True):
    """The cluster has promised to keep the record. `offset` null: it did not say where."""

    producer: Name
    partition: Name
    sequence: Sequence
    offset: Offset | None = None


class Failed(Timed, tag="failed", frozen=True, kw_only=True):
    """Refused for certain: the record must never be seen."""

    producer: Name
    partition: Name
    sequence: Sequence


class Unknown(Timed, tag="unknown", frozen=True, kw_only=True):
    """Nobody can say: a timeout, a client that died. The record may be there, once, or not."""

    producer: Name
    partition: Name
    sequence: Sequence


# Transactions.


class Begun(Timed, tag="begun", frozen=True, kw_only=True):
    """A transaction begins; no other has its name."""

    transaction: Name


class OffsetSent(Timed, tag="offset_sent", frozen=True, kw_only=True):
    """A group's offset is about to be sent with the transaction.

    `start`: the transaction has worked off the records from there to the offset; they are nobody else's work.
    """

    transaction: Name
    group: Name
    partition: Name
    offset: Offset
    start: Offset | None = None


class Ending(Timed, tag="ending", frozen=True, kw_only=True):
    """The client is about to ask for the transaction's end. Without `commit` nobody may ever see it as committed."""

    transaction: Name
    commit: bool


class Ended(Timed, tag="ended", frozen=True, kw_only=True):
    """The client asks nothing more of the transaction.

    `committed` and `aborted` are certain. The others say why the client does not know more: somebody took over its
    transactional id, its time was over, or something else. If it had asked for the commit, it may be committed.
    """

    transaction: Name
    outcome: Literal["committed", "aborted", "fenced", "timed_out", "unknown"]


# Consuming.


class Positioned(Timed, tag="position", frozen=True, kw_only=True):
    """A consumer begins a session on a partition: it was assigned, or it went elsewhere."""

    consumer: Name
    partition: Name
    offset: Offset


class Consumed(Timed, tag="consumed", frozen=True, kw_only=True):
    """A consumer got a record. `producer` null: its value names nobody who writes this history.

    `transaction`: what it does with the record is part of that transaction.
    """

    consumer: Name
    partition: Name
    offset: Offset
    producer: str | None
    sequence: Sequence = 0
    digest: Digest = ""
    transaction: Name | None = None


class EndReached(Timed, tag="end", frozen=True, kw_only=True):
    """The consumer has read all there is; the next record will have `offset`."""

    consumer: Name
    partition: Name
    offset: Offset


class HighWatermarkSeen(Timed, tag="high_watermark", frozen=True, kw_only=True):
    """An observer was told a partition's high watermark; it asks one question at a time."""

    observer: Name
    partition: Name
    offset: Offset


class LogStartSeen(Timed, tag="log_start", frozen=True, kw_only=True):
    """Records below `offset` were deleted, or may be: nobody misses them from here on."""

    partition: Name
    offset: Offset


# Groups.


class CommitInvoked(Timed, tag="commit_invoked", frozen=True, kw_only=True):
    """A member is about to commit."""

    group: Name
    partition: Name
    offset: Offset


class CommitAcknowledged(Timed, tag="commit_acknowledged", frozen=True, kw_only=True):
    """The coordinator has promised to keep the commit."""

    group: Name
    partition: Name
    offset: Offset


class CommittedReset(Timed, tag="commit_reset", frozen=True, kw_only=True):
    """Somebody is about to set the group's offset back, or away (null), on purpose."""

    group: Name
    partition: Name
    offset: Offset | None = None


class CommittedAsked(Timed, tag="committed_asked", frozen=True, kw_only=True):
    """A reader is about to ask for a committed offset. Without it, the answer's line counts as the question's."""

    reader: Name
    group: Name
    partition: Name


class CommittedFetched(Timed, tag="committed", frozen=True, kw_only=True):
    """The reader was told; null: there is none.

    `stable`: it asked to be told nothing while a transaction may change it. Who does not ask that may be told what
    held before a transaction that is committed already.
    """

    reader: Name
    group: Name
    partition: Name
    offset: Offset | None = None
    stable: bool = True


class Assigned(Timed, tag="assigned", frozen=True, kw_only=True):
    """A member owns these partitions in this generation, perhaps among others named before."""

    group: Name
    generation: Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
    member: Name
    partitions: list[Name]


class OwnerSeen(Timed, tag="owner", frozen=True, kw_only=True):
    """Something is somebody's in an epoch: a partition its leader's, a transactional id a producer's.

    A leader has to say so itself: the Metadata of a broker that is cut off may name another one, as a guess.
    """

    subject: Name
    epoch: Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
    owner: Name


# Faults of the cluster. Judged by nobody; a violation names the last one before it.


class FaultBegun(Timed, tag="fault", frozen=True, kw_only=True):
    """Something was broken: `kind` is a word, `target` what or whom it struck."""

    kind: Name
    target: str = ""


class FaultEnded(Timed, tag="fault_ended", frozen=True, kw_only=True):
    """It was mended."""

    kind: Name
    target: str = ""


Event = (
    DeclaredPartition
    | DeclaredProducer
    | DeclaredConsumer
    | Invoked
    | Acknowledged
    | Failed
    | Unknown
    | Begun
    | OffsetSent
    | Ending
    | Ended
    | Positioned
    | Consumed
    | EndReached
    | HighWatermarkSeen
    | LogStartSeen
    | CommitInvoked
    | CommitAcknowledged
    | CommittedReset
    | CommittedAsked
    | CommittedFetched
    | Assigned
    | OwnerSeen
    | FaultBegun
    | FaultEnded
)
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()


def decode(line: bytes | str, number: int) -> Event:
    """Read line `number` of a history.

    Raises:
        HistoryError: it is not an event.
    """
    try:
        return _decoder.decode(line)
    except UNREADABLE as error:
        raise HistoryError(number, str(error)) from error


def encode(event: Event) -> bytes:
    """Return the event as one line, newline included."""
    return _encoder.encode(event) + b"\n"
