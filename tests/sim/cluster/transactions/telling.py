"""What the transactional clients of a run tell: names, records, and how a transaction has ended.

Everything goes to the project's history checker, line by line, and a broken rule fails the world. The ledger counts
besides what becomes of transactions, and knows how far the input was worked off.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Literal

from barnabas_broker.history import Checker, Event
from barnabas_broker.history import events as e
from barnabas_clients import ClientError, Delivery, KafkaError, Producer
from barnabas_clients.producer.transaction import Transaction
from sim.cluster.judges.history import Partition
from sim.cluster.world import WALL_MS, World

from .struck import Struck

__all__ = ["Aborting", "Ledger", "Outcome", "Telling", "consumed", "key_of", "name_of", "source_of"]

Outcome = Literal["committed", "aborted", "fenced", "timed_out", "unknown"]


class Aborting(Exception):  # noqa: N818 - it is none
    """The client has changed its mind."""


class Ledger:
    """Tells the history checker, and keeps what the run asks for at its end.

    `worked_until`: behind the last record of each partition of the input that was worked off, as the group was told.
    `level`: of `transaction.version`; with 1 the findings are allowed that `struck` explains.
    `listeners` hear of each event first.
    """

    def __init__(self, world: World, level: int = 2) -> None:
        self.world = world
        self.struck = Struck(world, level)
        self.listeners: list[Callable[[Event], None]] = [self.struck.feed]
        self.worked_until = dict[Partition, int]()
        self._checker = Checker()
        self._judged = self._count = 0

    def tell(self, event: Event) -> None:
        for listen in self.listeners:
            listen(event)
        self._checker.feed(event)
        found = self._checker.violations
        while self._judged < len(found):
            if not self.struck.allows(found[self._judged]):
                self.world.violate(f"the history checker says: {found[self._judged]}")
            self._judged += 1

    def new_name(self, life: str) -> str:
        """Return a name for a transaction that no other has."""
        self._count += 1
        return f"{life}/{self._count}"

    def on_worked_off(self, partition: Partition, end_offset: int) -> None:
        self.worked_until[partition] = max(end_offset, self.worked_until.get(partition, 0))

    def on_outcome(self, outcome: Outcome) -> None:
        self.world.counts[f"transactions {outcome}"] += 1


class Telling:
    """One life of a transactional producer: sends records and tells it.

    `name` is of this life; the numbers of records count on within it, for each partition.
    """

    def __init__(self, ledger: Ledger, producer: Producer, name: str) -> None:
        self.ledger = ledger
        self.producer = producer
        self.name = name
        self._numbers = dict[Partition, int]()
        self._sent = list[tuple[Partition, int, Delivery]]()

    def transaction(self, words: list[Outcome]) -> "ToldTransaction":
        """Begin the next one, as `async with`. `words`: the last says what has befallen it, if it is not committed."""
        return ToldTransaction(self, words)

    def tell_owner(self) -> None:
        """Tell in whose name this life writes now: no other one may have that."""
        conversation = self.producer._conversation  # nobody's business but this check's
        assert conversation is not None
        owner = conversation.machine.owner
        if owner.epoch >= 0:
            subject = f"{owner.transactional_id}, producer {owner.producer_id}"
            self.ledger.tell(e.OwnerSeen(subject=subject, epoch=owner.epoch, owner=self.name))

    async def send(self, transaction: str, partition: Partition, source: str = "", keys: int = 0) -> None:
        """Send the next record to this partition, and tell it. `source` is the place of the one that it is made of.

        `keys`: there are so many, by turns (0: none).
        """
        number = self._numbers.get(partition, 0)
        self._numbers[partition] = number + 1
        place = name_of(partition)
        value = f"{self.name}-{place}<{source}-{number}".encode()
        self.ledger.tell(
            e.Invoked(
                producer=self.name,
                partition=place,
                sequence=number,
                digest=_digest(value),
                transaction=transaction,
            )
        )
        try:
            delivery = await self.producer.send(
                partition[0], value, key=key_of(number, keys), partition=partition[1], timestamp_ms=self._now_ms()
            )
        except BaseException:
            self.ledger.tell(e.Unknown(producer=self.name, partition=place, sequence=number))
            raise
        self._sent.append((partition, number, delivery))

    def _now_ms(self) -> int:
        return WALL_MS + self.ledger.world.now_us // 1_000

    async def settle(self) -> None:
        """Wait for the records of the transaction, and tell their fate; raise the first failure."""
        failure: ClientError | KafkaError | None = None
        sent, self._sent = self._sent, []
        try:
            while sent:
                partition, number, delivery = sent[0]
                try:
                    receipt = await delivery
                except (ClientError, KafkaError) as error:
                    failure = failure or error
                    self._tell_unknown(partition, number)
                else:
                    offset = None if receipt.offset < 0 else receipt.offset
                    place = name_of(partition)
                    self.ledger.tell(
                        e.Acknowledged(producer=self.name, partition=place, sequence=number, offset=offset)
                    )
                del sent[0]
        finally:
            self._sent = sent
        if failure is not None:
            raise failure

    def settle_rest(self) -> None:
        """Tell that nothing is known of the records that were left over."""
        for partition, number, _ in self._sent:
            self._tell_unknown(partition, number)
        self._sent.clear()

    def _tell_unknown(self, partition: Partition, number: int) -> None:
        self.ledger.tell(e.Unknown(producer=self.name, partition=name_of(partition), sequence=number))


class ToldTransaction:
    """One transaction of a `Telling`: ends as the client's, and raises what that raises.

    A class, not a generator: what is left of one when its process is killed comes apart with its task.
    """

    def __init__(self, telling: Telling, words: list[Outcome]) -> None:
        self.name = telling.ledger.new_name(telling.name)
        self._telling = telling
        self._words = words
        self._inner = telling.producer.transaction()
        self._asked = False

    async def __aenter__(self) -> tuple[str, Transaction]:
        self._telling.ledger.tell(e.Begun(transaction=self.name))
        try:
            await self._inner.begin()
        except (ClientError, KafkaError) as error:
            self._finish(error)
            raise
        self._telling.tell_owner()
        return self.name, self._inner

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        telling = self._telling
        try:
            if error is None:
                await telling.settle()
                telling.ledger.tell(e.Ending(transaction=self.name, commit=True))
                self._asked = True
            else:
                self._tell_abort()
            await self._inner.__aexit__(kind, error, None)
        except (ClientError, KafkaError) as failure:
            if not self._asked:
                self._tell_abort()
                await self._inner.__aexit__(type(failure), failure, None)
            self._finish(failure)
            raise
        self._finish(error)

    def _tell_abort(self) -> None:
        self._telling.ledger.tell(e.Ending(transaction=self.name, commit=False))

    def _finish(self, error: BaseException | None) -> None:
        """Tell how it has ended."""
        outcome: Outcome = "unknown"
        if error is None:
            outcome = "committed"
        elif isinstance(error, Aborting):
            outcome = "aborted"
        elif isinstance(error, ClientError | KafkaError) and (not self._asked or error.may_be_done is False):
            outcome = self._words[-1] if self._words else "fenced" if error.fenced else "aborted"
        telling = self._telling
        telling.settle_rest()
        telling.ledger.world.note(telling.name, f"{self.name} is {outcome}: {error!r}")
        telling.ledger.tell(e.Ended(transaction=self.name, outcome=outcome))
        telling.ledger.on_outcome(outcome)


def consumed(
    consumer: str, partition: Partition, offset: int, value: bytes, transaction: str | None = None
) -> e.Consumed:
    """Return a record that a consumer got as an event."""
    producer, _, rest = value.decode().partition("-")
    number = int(rest.rpartition("-")[2])
    return e.Consumed(
        consumer=consumer,
        partition=name_of(partition),
        offset=offset,
        producer=producer,
        sequence=number,
        digest=_digest(value),
        transaction=transaction,
    )


def source_of(value: bytes) -> str:
    """Return the place of the record that this one was made of."""
    return value.decode().rpartition("-")[0].partition("<")[2]


def key_of(number: int, keys: int) -> bytes | None:
    return b"k%d" % (number % keys) if keys else None


def name_of(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _digest(value: bytes) -> str:
    return blake2b(value, digest_size=8).hexdigest()
