"""Transactional clients of this project: feeders put records in, workers make others of them, exactly once.

A *feeder* puts transactions of a few records into the input, over several partitions. A *worker* is a member of a group
that reads the input, committed records only, and puts a record for each into the output in the transaction that stores
its offsets. From time to time one changes its mind and aborts, sleeps for longer than the transaction may last, or is
taken over: another producer opens with its transactional id in the middle of its transaction, and it goes on as if
nothing had happened. A client that fails for good begins another life under another name.

The sender and its taker-over are two processes; here they share a loop, which makes no difference to brokers.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from barnabas_broker.history import events as e
from barnabas_clients import ClientError, CommitFailedError, Consumer, KafkaError, Producer, TopicPartition
from sim.cluster.clients.client import WireClient
from sim.cluster.judges.history import Partition

from .telling import Aborting, Ledger, Outcome, Telling, consumed, name_of

__all__ = ["GROUP", "SETTLING_S", "Feeder", "Transacting", "Worker"]

GROUP = "exactly-once"
REQUEST_S = 2.0
CALL_S = 6.0
DELIVERY_S = 5.0
SESSION_S = 3.0
SETTLING_S = 3 * CALL_S
"""So long, at most, a client takes to end when nothing hinders it: an end that is under way, an abort, a farewell."""
RECORDS_A_TRANSACTION = 6


class Transacting:
    """What every transactional client here does. `transactional_id` is its own, or shared with none but takers-over."""

    def __init__(self, client: WireClient, ledger: Ledger, partitions: list[Partition], timeout_ms: int) -> None:
        self.client = client
        self.ledger = ledger
        self.partitions = partitions
        self.timeout_ms = timeout_ms
        self.transactional_id = f"id-{client.name}"
        self.is_done = False
        self._lives = self._takers = 0

    async def run(self, goes_on: Callable[[], bool]) -> None:
        """Live one life after another until all is over."""
        while goes_on():
            self._lives += 1
            name = f"{self.client.name}.{self._lives}"
            try:
                await self._live(name, goes_on)
            except (ClientError, KafkaError) as error:
                self.client.world.note(name, f"ends: {error!r}")
                await self.client.pause()
        self.is_done = True

    async def _live(self, name: str, goes_on: Callable[[], bool]) -> None:
        raise NotImplementedError

    def producer(self) -> Producer:
        return Producer(
            self.bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_s=self.timeout_ms / 1_000,
            linger_s=0.0,
            request_timeout_s=REQUEST_S,
            delivery_timeout_s=DELIVERY_S,
            timeout_s=CALL_S,
        )

    @property
    def bootstrap(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self.client.brokers.values()]

    async def disturb(self, words: list[Outcome]) -> None:
        """Let a transaction go on undisturbed, most of the time."""
        what = self.client.rng.random()
        if what < 0.12:
            raise Aborting
        if what < 0.17:
            words.append("timed_out")
            await self.client.pause(self.timeout_ms + 600, self.timeout_ms + 1_500)
        elif what < 0.23:
            words.append("fenced")
            with suppress(ClientError, KafkaError):
                async with self.producer() as producer:
                    self._takers += 1
                    Telling(self.ledger, producer, f"{self.client.name}.taker.{self._takers}").tell_owner()


class Feeder(Transacting):
    """Puts transactions into the input."""

    async def _live(self, name: str, goes_on: Callable[[], bool]) -> None:
        async with self.producer() as producer:
            telling = Telling(self.ledger, producer, name)
            while goes_on():
                words = list[Outcome]()
                try:
                    async with telling.transaction(words) as (transaction, _):
                        await self.fill(telling, transaction)
                        await self.disturb(words)
                except Aborting:
                    pass
                except (ClientError, KafkaError) as error:
                    if error.fenced or not error.abortable:
                        return
                await self.client.pause(20, 200)

    async def fill(self, telling: Telling, transaction: str) -> None:
        """Put records into a transaction."""
        rng = self.client.rng
        for _ in range(rng.randrange(1, RECORDS_A_TRANSACTION)):
            await telling.send(transaction, rng.choice(self.partitions))


class Worker(Transacting):
    """Makes a record of the output of each of the input, and stores in the same transaction how far it has come."""

    def __init__(
        self,
        client: WireClient,
        ledger: Ledger,
        partitions: list[Partition],
        timeout_ms: int,
        topic: str,
    ) -> None:
        super().__init__(client, ledger, partitions, timeout_ms)
        self._topic = topic
        self._starts = dict[TopicPartition, int]()

    async def _live(self, name: str, goes_on: Callable[[], bool]) -> None:
        self.ledger.tell(e.DeclaredConsumer(consumer=name, read_committed=True))
        self._starts.clear()
        rounds = self.client.rng.randrange(20, 80)
        async with self.producer() as producer, self._consumer() as consumer:
            telling = Telling(self.ledger, producer, name)
            while goes_on() and rounds:
                rounds -= 1
                await self._learn_starts(consumer, name)
                if not await self._work_once(consumer, telling):
                    return

    def _consumer(self) -> Consumer:
        return Consumer(
            self.bootstrap,
            topics=[self._topic],
            group_id=GROUP,
            auto_offset_reset="earliest",
            auto_commit=False,
            read_committed=True,
            session_timeout_s=SESSION_S,
            heartbeat_interval_s=0.5,
            max_poll_interval_s=20.0,
            fetch_max_wait_s=0.3,
            request_timeout_s=REQUEST_S,
            timeout_s=CALL_S,
            metadata_max_age_s=5.0,
            on_assigned=self._on_changed,
            on_revoked=self._on_changed,
        )

    async def _on_changed(self, _: Consumer, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._starts.pop(place, None)

    async def _learn_starts(self, consumer: Consumer, name: str) -> None:
        """Ask, and tell, where the group stands in partitions that are new to this member, and go there."""
        new = consumer.assignment - self._starts.keys()
        if not new:
            return
        for place in sorted(new):
            self.ledger.tell(e.CommittedAsked(reader=name, group=GROUP, partition=_where(place)))
        try:
            found = await consumer.committed(*sorted(new))
        except (ClientError, KafkaError) as error:
            self.client.world.note(name, f"where does the group stand: {error!r}")
            await self.client.pause()
            return
        for place in sorted(new & consumer.assignment):
            offset = found[place].offset if place in found else None
            self.ledger.tell(e.CommittedFetched(reader=name, group=GROUP, partition=_where(place), offset=offset))
            await consumer.seek(place, offset or 0)
            self.ledger.tell(e.Positioned(consumer=name, partition=_where(place), offset=offset or 0))
            self.ledger.on_worked_off((place.topic, place.partition), offset or 0)
            self._starts[place] = offset or 0

    async def _work_once(self, consumer: Consumer, telling: Telling) -> bool:
        """Work off what has come in one transaction; return False when this life is over."""
        got = await consumer.get_many(20, 0.3)
        found = {place: got[place] for place in sorted(got) if place in self._starts}
        if not found:
            return True
        words = list[Outcome]()
        ends = {place: records[-1].offset + 1 for place, records in found.items()}
        begins = {place: self._starts[place] for place in found}
        tell = self.ledger.tell
        try:
            async with telling.transaction(words) as (name, transaction):
                for place, records in found.items():
                    for record in records:
                        partition = (place.topic, place.partition)
                        tell(consumed(telling.name, partition, record.offset, record.value or b"", name))
                        output = self.client.rng.choice(self.partitions)
                        await telling.send(name, output, f"{_where(place)}@{record.offset}")
                for place, end in ends.items():
                    sent = partial(e.OffsetSent, transaction=name, group=GROUP, partition=_where(place))
                    tell(sent(start=begins[place], offset=end))
                await transaction.send_offsets(consumer, ends)
                await self.disturb(words)
        except Aborting:
            self._starts.clear()
            return True
        except (ClientError, KafkaError) as error:
            self._starts.clear()
            return not error.fenced and (error.abortable or isinstance(error, CommitFailedError))
        for place, end in ends.items():
            self.ledger.on_worked_off((place.topic, place.partition), end)
            if place in self._starts:
                self._starts[place] = end
        return True


def _where(place: TopicPartition) -> str:
    return name_of((place.topic, place.partition))
