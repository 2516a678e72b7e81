"""Feeds the input with numbered records, and looks at output and offsets all the while, with this project's clients."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from machines.background import LoopInBackground

from barnabas_broker.history import Event
from barnabas_broker.history import events as e
from barnabas_clients.admin.client import Admin
from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.errors import ClientError
from barnabas_clients.producer.producer import Delivery, Producer
from barnabas_clients.protocol.errors import KafkaError
from trials.load import digest_of, value_of
from trials.transactions.story import consumed_of
from trials.transactions.topics import Flow

__all__ = ["Load"]

FEEDER = "feeder"
VALUE_BYTES = 120
BURST_S = 0.05
UNDELIVERED_MAX = 20_000
SESSION_S = 20.0
PAUSE_S = 0.2


class Load(LoopInBackground):
    """The clients of this process. Each record of the input is acknowledged once, or the run fails."""

    def __init__(self, tell: Callable[[Event], None], bootstrap: str, flow: Flow, records_per_s: int) -> None:
        super().__init__("load")
        self.fed = 0
        self.notes: list[str] = []
        self._tell = tell
        self._servers = bootstrap
        self._flow = flow
        self._per_burst = max(1, round(records_per_s * BURST_S))
        self._fed_up = asyncio.Event()
        self._over = asyncio.Event()
        self._all_fed = threading.Event()

    def run(self) -> None:
        super().run()
        self._all_fed.set()  # or nothing more will be

    def stop_feeding(self, limit_s: float = 180.0) -> None:
        """End the input, and wait until all of it is acknowledged."""
        self.call(self._fed_up.set)
        if not self._all_fed.wait(limit_s):
            raise RuntimeError("the input is not acknowledged")
        self.check()

    def finish(self, limit_s: float = 60.0) -> None:
        if self.is_alive():
            self.call(self._fed_up.set, self._over.set)
            self.join(limit_s)

    async def live(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed())
            tasks.create_task(self._again("follower", self._follow))
            tasks.create_task(self._again("watcher", self._watch))

    async def _again(self, name: str, life: Callable[[str], Awaitable[None]]) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            try:
                await life(f"{name}.{number}")
            except (ClientError, KafkaError) as error:
                self.notes.append(f"{name}: {type(error).__name__}: {error}")
                await asyncio.sleep(PAUSE_S)

    async def _feed(self) -> None:
        partitions = self._flow.partitions
        waiting: asyncio.Queue[tuple[str, int, Delivery] | None] = asyncio.Queue(UNDELIVERED_MAX)
        async with (
            Producer(self._servers, delivery_timeout_s=600.0, timeout_s=600.0) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(self._settle(waiting))
            while not self._fed_up.is_set():
                for _ in range(self._per_burst):
                    sequence, partition = divmod(self.fed, partitions)
                    place = f"{self._flow.input}-{partition}"
                    value = value_of(FEEDER, sequence, VALUE_BYTES)
                    digest = digest_of(value)
                    self._tell(e.Invoked(producer=FEEDER, partition=place, sequence=sequence, digest=digest))
                    delivery = await producer.send(self._flow.input, value, partition=partition)
                    await waiting.put((place, sequence, delivery))
                    self.fed += 1
                await asyncio.sleep(BURST_S)
            await waiting.put(None)
        self._all_fed.set()

    async def _settle(self, waiting: asyncio.Queue[tuple[str, int, Delivery] | None]) -> None:
        while (sent := await waiting.get()) is not None:
            place, sequence, delivery = sent
            receipt = await delivery
            offset = None if receipt.offset < 0 else receipt.offset
            self._tell(e.Acknowledged(producer=FEEDER, partition=place, sequence=sequence, offset=offset))

    async def _follow(self, name: str) -> None:
        """Read the output as one who reads committed records only, from its start."""
        self._tell(e.DeclaredConsumer(consumer=name, read_committed=True))
        places = self._flow.outputs
        async with Consumer(self._servers, read_committed=True, request_timeout_s=3.0) as consumer:
            await consumer.assign(places)
            for place in places:
                await consumer.seek(place, 0)
                self._tell(e.Positioned(consumer=name, partition=f"{place.topic}-{place.partition}", offset=0))
            while not self._over.is_set():
                for records in (await consumer.get_many(500, 0.5)).values():
                    for record in records:
                        self._tell(consumed_of(name, record))

    async def _watch(self, name: str) -> None:
        """See what the group's offsets are: those of no open transaction, and of none that was aborted."""
        group = self._flow.group
        async with Admin(self._servers, timeout_s=5.0) as admin:
            while not self._over.is_set():
                for place, stored in (await admin.group_offsets(group, stable=False)).items():
                    where = f"{place.topic}-{place.partition}"
                    offset = stored.offset
                    told = e.CommittedFetched(reader=name, group=group, partition=where, offset=offset, stable=False)
                    self._tell(told)
                await asyncio.sleep(PAUSE_S)
