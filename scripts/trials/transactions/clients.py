"""The clients of `torture --workload txn`: feeders, workers and readers, all of this project, on one event loop.

A *feeder* puts transactions of a few records into the input, over several partitions. A *holder* is one that keeps its
transaction open for a while, until all of them end theirs at once (`rally`): so a fault finds transactions that are
open, and many that are just being ended. A *worker* is a member of a group
that reads the input, committed records only, and puts a record for each into the output in the transaction that stores
its offsets. From time to time one changes its mind and aborts, falls asleep for longer than the transaction may last,
or is taken over: another producer opens with its transactional id in the middle of its transaction, and it goes on as
if nothing had happened. Readers follow both topics: one reads committed records, one all.

A client that fails for good begins another life under another name. A `Cast` says which of them there are; those of a
process that is killed (`mortals.py`) are one feeder or worker alone.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from machines.background import LoopInBackground

from barnabas_broker.history import events as e
from barnabas_clients.admin.client import Admin
from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.errors import ClientError, CommitFailedError
from barnabas_clients.producer.producer import Producer
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import TopicPartition

from .leaders import follow_leaders
from .story import Aborting, Book, Outcome, Telling, consumed_of
from .topics import Flow

__all__ = ["ALL", "FLOW", "GROUP", "INPUT", "OUTPUT", "PARTITIONS", "Cast", "Clients"]

INPUT = "txn-in"
OUTPUT = "txn-out"
GROUP = "txn-work"
PARTITIONS = 4
FLOW = Flow(INPUT, OUTPUT, GROUP, PARTITIONS)
TRANSACTION_TIMEOUT_S = 3.0
SLEEP_S = 5.0  # longer than the timeout and the time between two searches for such transactions
PAUSE_S = 0.05
LIFE_S = (4.0, 15.0)
HELD_S = (0.8, 2.0)  # shorter than the timeout, with room for a computer that is busy


class Cast(NamedTuple):
    """The names of the clients, by what they do; `is_watched`: readers are there, and those who look at offsets."""

    feeders: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    is_watched: bool = False


ALL = Cast(
    feeders=("feed0", "feed1"),
    holders=tuple(f"hold{number}" for number in range(16)),
    workers=("work0", "work1"),
    is_watched=True,
)


class Clients(LoopInBackground):
    """All clients of a run. `stop_feeding` ends the input; `finish` everything. Lives are numbered from `lives` on."""

    def __init__(self, book: Book, bootstrap: str, seed: int, cast: Cast = ALL, lives: int = 0) -> None:
        super().__init__("transactional clients")
        self._cast = cast
        self.book = book
        self._servers = bootstrap
        self._chance = random.Random(seed)
        self._feeding_over = asyncio.Event()
        self._over = asyncio.Event()
        self._rally = asyncio.Event()
        self._lives = lives

    def stop_feeding(self) -> None:
        self.call(self._feeding_over.set)

    def rally(self) -> None:
        """Have every holder end its transaction now."""
        self.call(self._ring)

    def _ring(self) -> None:
        self._rally.set()
        self._rally = asyncio.Event()

    def finish(self, limit_s: float = 60.0) -> None:
        if self.is_alive():
            self.call(self._feeding_over.set, self._over.set)
            self.join(limit_s)

    def check_alive(self) -> None:
        super().check_alive()
        if self.book.recorder.contradictions:
            raise RuntimeError(f"the load contradicts itself: {self.book.recorder.contradictions[0]}")

    async def live(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for who in self._cast.feeders:
                tasks.create_task(self._live(who, partial(self._feed, False), self._feeding_over))
            for who in self._cast.holders:
                tasks.create_task(self._live(who, partial(self._feed, True), self._feeding_over))
            for who in self._cast.workers:
                tasks.create_task(self._live(who, self._be_worker, self._over))
            if self._cast.is_watched:
                for name, committed in (("committed", True), ("all", False)):
                    tasks.create_task(self._live(name, partial(self._follow, committed), self._over))
                tasks.create_task(self._live("watch", self._watch, self._over))
                watching = partial(follow_leaders, self.book, self._servers, self._over)
                tasks.create_task(self._live("leaders", watching, self._over))

    async def _live(self, who: str, life: Callable[[str, str], Awaitable[None]], over: asyncio.Event) -> None:
        """Live one life after another until all is over."""
        while not over.is_set():
            self._lives += 1
            try:
                await life(who, f"{who}.{self._lives}")
            except (ClientError, KafkaError) as error:
                self.book.note(f"{who}.{self._lives}: {type(error).__name__}: {error}")
                await asyncio.sleep(PAUSE_S)

    def _producer(self, transactional_id: str) -> Producer:
        return Producer(
            self._servers,
            transactional_id=transactional_id,
            transaction_timeout_s=TRANSACTION_TIMEOUT_S,
            linger_s=0.0,
            timeout_s=20.0,
            request_timeout_s=3.0,
            delivery_timeout_s=10.0,
        )

    # Misfortunes in the middle of a transaction.

    async def _disturb(self, telling: Telling, words: list[Outcome]) -> None:
        """Let it go on undisturbed, most of the time."""
        what = self._chance.random()
        if what < 0.08:
            raise Aborting
        if what < 0.11:
            words.append("timed_out")
            self.book.seen["slept"] += 1
            await asyncio.sleep(SLEEP_S)
        elif what < 0.15:
            self.book.seen["taken over"] += 1
            words.append("fenced")
            with contextlib.suppress(ClientError, KafkaError):
                async with self._producer(telling.transactional_id):
                    pass

    # Feeders.

    async def _feed(self, holds: bool, who: str, name: str) -> None:
        async with self._producer(who) as producer:
            telling = Telling(self.book, producer, who, name)
            while not self._feeding_over.is_set():
                words: list[Outcome] = []
                try:
                    async with telling.transaction(words) as (transaction, _):
                        for _ in range(self._chance.randint(1, 3 if holds else 6)):
                            await telling.send(transaction, INPUT, self._chance.randrange(PARTITIONS))
                        if holds:
                            await self._hold()
                        await self._disturb(telling, words)
                except Aborting:
                    pass
                except (ClientError, KafkaError) as error:
                    if error.fenced or not error.abortable:
                        return
                await asyncio.sleep(PAUSE_S)

    async def _hold(self) -> None:
        """Wait for the rally, or for a while; the records go meanwhile."""
        rally = self._rally
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rally.wait(), self._chance.uniform(*HELD_S))

    # Workers.

    async def _be_worker(self, who: str, name: str) -> None:
        ends_at = self._loop.time() + self._chance.uniform(*LIFE_S)
        self.book.recorder.tell(e.DeclaredConsumer(consumer=name, read_committed=True))
        starts: dict[TopicPartition, int] = {}
        async with (
            self._producer(who) as producer,
            Consumer(
                self._servers,
                topics=[INPUT],
                group_id=GROUP,
                client_id=name,
                auto_offset_reset="earliest",
                auto_commit=False,
                read_committed=True,
                session_timeout_s=6.0,
                heartbeat_interval_s=0.5,
                request_timeout_s=3.0,
                on_assigned=partial(self._assigned, name, starts),
                on_revoked=partial(self._revoked, starts),
            ) as consumer,
        ):
            telling = Telling(self.book, producer, who, name)
            while not self._over.is_set() and self._loop.time() < ends_at:
                await self._learn_starts(consumer, name, starts)
                if not await self._work_once(consumer, telling, starts):
                    return

    async def _assigned(
        self, name: str, starts: dict[TopicPartition, int], consumer: Consumer, given: frozenset[TopicPartition]
    ) -> None:
        membership = consumer._core.group  # the generation is nobody's business but this check's
        generation = -1 if membership is None else membership.session.generation_id
        for place in given:
            starts.pop(place, None)
        if generation >= 0:
            names = [f"{place.topic}-{place.partition}" for place in given]
            self.book.recorder.tell(e.Assigned(group=GROUP, generation=generation, member=name, partitions=names))

    async def _revoked(self, starts: dict[TopicPartition, int], _: Consumer, taken: frozenset[TopicPartition]) -> None:
        for place in taken:
            starts.pop(place, None)

    async def _learn_starts(self, consumer: Consumer, name: str, starts: dict[TopicPartition, int]) -> None:
        """Ask, and tell, where the group stands in partitions that are new to this member, and go there."""
        tell = self.book.recorder.tell
        if not (new := consumer.assignment - starts.keys()):
            return
        for place in new:
            tell(e.CommittedAsked(reader=name, group=GROUP, partition=f"{place.topic}-{place.partition}"))
        try:
            found = await consumer.committed(*new)
        except (ClientError, KafkaError) as error:
            self.book.note(f"{name}: {type(error).__name__}: {error}")
            await asyncio.sleep(PAUSE_S)
            return
        for place in new & consumer.assignment:
            offset = found[place].offset if place in found else None
            where = f"{place.topic}-{place.partition}"
            tell(e.CommittedFetched(reader=name, group=GROUP, partition=where, offset=offset))
            await consumer.seek(place, offset or 0)
            tell(e.Positioned(consumer=name, partition=where, offset=offset or 0))
            starts[place] = offset or 0

    async def _work_once(self, consumer: Consumer, telling: Telling, starts: dict[TopicPartition, int]) -> bool:
        """Work off what has come in one transaction; return False when this life is over."""
        found = await consumer.get_many(20, 0.3)
        found = {place: records for place, records in found.items() if place in starts}
        if not found:
            return True
        words: list[Outcome] = []
        ends = {place: records[-1].offset + 1 for place, records in found.items()}
        begins = {place: starts[place] for place in found}
        tell = self.book.recorder.tell
        try:
            async with telling.transaction(words) as (name, transaction):
                for place, records in found.items():
                    for record in records:
                        tell(consumed_of(telling.name, record, name))
                        source = f"{place.topic}-{place.partition}@{record.offset}"
                        await telling.send(name, OUTPUT, self._chance.randrange(PARTITIONS), source)
                for place, end in ends.items():
                    where = f"{place.topic}-{place.partition}"
                    tell(e.OffsetSent(transaction=name, group=GROUP, partition=where, start=begins[place], offset=end))
                await transaction.send_offsets(consumer, ends)
                await self._disturb(telling, words)
        except Aborting:
            starts.clear()
            return True
        except (ClientError, KafkaError) as error:
            starts.clear()
            return not error.fenced and (error.abortable or isinstance(error, CommitFailedError))
        for place, end in ends.items():
            if place in starts:
                starts[place] = end
        return True

    # Readers.

    async def _follow(self, committed: bool, who: str, name: str) -> None:
        tell = self.book.recorder.tell
        tell(e.DeclaredConsumer(consumer=name, read_committed=committed))
        places = FLOW.inputs + FLOW.outputs
        async with Consumer(self._servers, read_committed=committed, request_timeout_s=3.0) as consumer:
            await consumer.assign(places)
            for place in places:
                await consumer.seek(place, 0)
                tell(e.Positioned(consumer=name, partition=f"{place.topic}-{place.partition}", offset=0))
            ends_at = self._loop.time() + 20.0
            while not self._over.is_set() and self._loop.time() < ends_at:
                for records in (await consumer.get_many(500, 0.5)).values():
                    for record in records:
                        tell(consumed_of(name, record))

    async def _watch(self, who: str, name: str) -> None:
        """See what the group's offsets are."""
        tell = self.book.recorder.tell
        async with Admin(self._servers, timeout_s=5.0) as admin:
            while not self._over.is_set():
                for place, stored in (await admin.group_offsets(GROUP, stable=False)).items():
                    where = f"{place.topic}-{place.partition}"
                    tell(
                        e.CommittedFetched(
                            reader=name, group=GROUP, partition=where, offset=stored.offset, stable=False
                        )
                    )
                await asyncio.sleep(0.2)
