"""What transactional clients tell the recorder: names, records, and how a transaction has ended."""

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from barnabas_broker.history import events as e
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.errors import ClientError
from barnabas_clients.producer.producer import Delivery, Producer, RecordsLostError
from barnabas_clients.producer.transaction import Transaction
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import KafkaError
from trials.load import Recorder, digest_of, value_of

__all__ = ["Aborting", "Book", "Outcome", "Telling", "consumed_of", "source_of"]

VALUE_BYTES = 120
Outcome = Literal["committed", "aborted", "fenced", "timed_out", "unknown"]


class Aborting(Exception):  # noqa: N818 - it is none
    """The client has changed its mind."""


class Book:
    """Counts what the history does not say: which ends were under way while which fault struck. Any thread may ask."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.trouble: list[str] = []
        self.seen: Counter[str] = Counter()
        self.names = itertools.count(1)
        self._lock = threading.Lock()
        self._asked = threading.Condition(self._lock)
        self._open: set[str] = set()
        self._ends: dict[str, str] = {}
        self._struck: set[str] = set()

    def begin(self, name: str) -> None:
        with self._lock:
            self._open.add(name)

    def begin_end(self, name: str, transactional_id: str) -> None:
        with self._lock:
            self._ends[name] = transactional_id
            self._asked.notify_all()

    def finish_end(self, name: str, outcome: str) -> None:
        with self._lock:
            self._open.discard(name)
            self._ends.pop(name, None)
            if name in self._struck:
                self._struck.discard(name)
                self.seen[f"{outcome} over a fault"] += 1

    def wait_for_ends(self, count: int, limit_s: float) -> list[str]:
        """Wait until so many ends of transactions are asked for and not answered; return their transactional ids."""
        with self._lock:
            self._asked.wait_for(lambda: len(self._ends) >= count, limit_s)
            return list(self._ends.values())

    def strike(self) -> tuple[int, list[str]]:
        """Note that a fault strikes now.

        Return how many transactions are open, and the transactional ids of those whose end is asked for.
        """
        with self._lock:
            self._struck |= set(self._ends)
            return len(self._open), list(self._ends.values())

    def note(self, line: str) -> None:
        if len(self.trouble) < 10_000:
            self.trouble.append(f"{self.recorder.now_ms():8} {line}")


class Telling:
    """One life of a transactional producer: sends records and tells it.

    `name` is of this life; sequence numbers of a partition count on within it.
    """

    def __init__(self, book: Book, producer: Producer, transactional_id: str, name: str) -> None:
        self.book = book
        self.producer = producer
        self.transactional_id = transactional_id
        self.name = name
        self._tell = book.recorder.tell
        self._sequences: dict[str, int] = {}
        self._sent: list[tuple[str, int, Delivery]] = []

    @asynccontextmanager
    async def transaction(self, outcome_if_dropped: list[Outcome]) -> AsyncIterator[tuple[str, Transaction]]:
        """Be one transaction: its name, and the client's own. Ends as the client's; raises what that raises.

        `outcome_if_dropped`: its last word says what has befallen it, should it turn out to be aborted.
        """
        name = f"{self.name}/{next(self.book.names)}"
        self._tell(e.Begun(transaction=name))
        self.book.begin(name)
        asked = False
        outcome: Outcome = "unknown"
        try:
            async with self.producer.transaction() as transaction:
                self._tell_owner()
                yield name, transaction
                await self._settle()
                self._tell(e.Ending(transaction=name, commit=True))
                asked = True
                self.book.begin_end(name, self.transactional_id)
            outcome = "committed"
        except Aborting:
            outcome = "aborted"
            raise
        except (ClientError, KafkaError) as error:
            self.book.note(f"{name}: {type(error).__name__}: {error}")
            if error.fenced:
                outcome = "fenced"
            elif not asked or error.may_be_done is False:
                # Nobody but time has ended it, unless this client has had it done.
                is_too_late = isinstance(error, KafkaError) and error.code == ErrorCode.INVALID_TXN_STATE
                outcome = outcome_if_dropped[-1] if outcome_if_dropped else "timed_out" if is_too_late else "aborted"
            raise
        finally:
            await self._settle_rest()
            self.book.finish_end(name, outcome)
            self._tell(e.Ended(transaction=name, outcome=outcome))

    def _tell_owner(self) -> None:
        """Tell in whose name this life writes now: no other one may have that."""
        conversation = self.producer._conversation  # nobody's business but this check's
        assert conversation is not None
        owner = conversation.machine.owner
        if owner.epoch >= 0:
            subject = f"{owner.transactional_id}, producer {owner.producer_id}"
            self._tell(e.OwnerSeen(subject=subject, epoch=owner.epoch, owner=self.name))

    async def send(self, transaction: str, topic: str, partition: int, source: str = "") -> None:
        """Send the next record to this partition, and tell it. `source` is the place of the one that it is made of."""
        place = f"{topic}-{partition}"
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        value = value_of(self.name, sequence, VALUE_BYTES) + b" from " + source.encode()
        self._tell(
            e.Invoked(
                producer=self.name,
                partition=place,
                sequence=sequence,
                digest=digest_of(value),
                transaction=transaction,
            )
        )
        try:
            delivery = await self.producer.send(topic, value, partition=partition)
        except BaseException:
            self._tell(e.Unknown(producer=self.name, partition=place, sequence=sequence))
            raise
        self._sent.append((place, sequence, delivery))

    async def _settle(self) -> None:
        """Wait for the records of the transaction, and tell their fate; raise the first failure."""
        with contextlib.suppress(RecordsLostError):  # each of them tells for itself
            await self.producer.flush()
        failure: ClientError | KafkaError | None = None
        for place, sequence, delivery in self._sent:
            try:
                receipt = await delivery
            except (ClientError, KafkaError) as error:
                failure = failure or error
                self.book.note(f"{self.name} {sequence} of {place}: {type(error).__name__}: {error}")
                self._tell(e.Unknown(producer=self.name, partition=place, sequence=sequence))
            else:
                offset = None if receipt.offset < 0 else receipt.offset
                self._tell(e.Acknowledged(producer=self.name, partition=place, sequence=sequence, offset=offset))
        self._sent.clear()
        if failure is not None:
            raise failure

    async def _settle_rest(self) -> None:
        """Tell that nothing is known of the records that were left over."""
        for place, sequence, _ in self._sent:
            self._tell(e.Unknown(producer=self.name, partition=place, sequence=sequence))
        self._sent.clear()


def consumed_of(consumer: str, record: ConsumerRecord, transaction: str | None = None) -> e.Consumed:
    """Return a consumer's record as an event."""
    value = record.value or b""
    words = value.split(b" ", 2)
    known = len(words) == 3 and words[1].isdigit() and len(words[1]) < 19
    return e.Consumed(
        consumer=consumer,
        partition=f"{record.topic}-{record.partition}",
        offset=record.offset,
        producer=words[0].decode("ascii", "replace") if known else None,
        sequence=int(words[1]) if known else 0,
        digest=digest_of(value),
        transaction=transaction,
    )


def source_of(record: ConsumerRecord) -> str:
    """Return the place of the record that this one was made of, "topic-partition@offset"."""
    return (record.value or b"").rpartition(b" from ")[2].decode()
