"""The well-behaved client beside the hostile ones: a producer and a consumer in a group.

It is a process of its own, told by lines on its standard input: `take` prints the events since the last time, as JSON,
and `end` stops the producer, waits for its records to be consumed, prints the same and ends. A *pause* is the longest
time in which no record was acknowledged (acks=all), or none consumed, though the producer never stops offering them.
"""

import asyncio
import json
import sys
import time
from typing import Any

from barnabas_clients import Admin, Consumer, Producer
from barnabas_raftlog.errors import BarnabasError

TOPIC = "beside"
GROUP = "beside"
PARTITIONS = 3
VALUE_BYTES = 200
BOUND_S = 30.0  # for all acknowledged records to be consumed


class Pauses:
    """The moment of the last event, and the longest time between two such moments."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.longest = 0.0
        self.count = 0

    def note(self) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self.last)
        self.last = now
        self.count = self.count + 1

    def take(self) -> tuple[int, float]:
        """Return the number of events and the longest pause, the present one included; begin anew."""
        count = self.count
        longest = max(self.longest, time.monotonic() - self.last)
        self.count = 0
        self.longest = 0.0
        return count, longest


class Client:
    """Both halves, and their fates."""

    def __init__(self, bootstrap: str, per_s: int) -> None:
        self.bootstrap = bootstrap
        self.per_s = per_s
        self.acknowledged = Pauses()
        self.consumed = Pauses()
        self.latency_s = 0.0
        self.errors: list[str] = []
        self.missing: set[bytes] = set()
        self.stopping = asyncio.Event()
        self._has_consumed = asyncio.Event()
        self._sends: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(TOPIC, PARTITIONS, 3)
        async with Producer(self.bootstrap) as producer, self._consumer() as consumer:
            reading = asyncio.create_task(self._consume(consumer))
            # The group has met, and reads, once a first record came back.
            await self._send(producer, b"first")
            await self._all_consumed()
            self.acknowledged = Pauses()
            self.consumed = Pauses()
            print("ready", flush=True)
            await self._produce(producer)
            await self._all_consumed()
            reading.cancel()

    async def _all_consumed(self) -> None:
        """Return when all acknowledged records have been consumed, or too late for that."""
        try:
            async with asyncio.timeout(BOUND_S):
                while self.missing:
                    self._has_consumed.clear()
                    await self._has_consumed.wait()
        except TimeoutError:
            pass

    def _consumer(self) -> Consumer:
        return Consumer(self.bootstrap, topics=[TOPIC], group_id=GROUP, auto_offset_reset="earliest")

    async def _produce(self, producer: Producer) -> None:
        number = 0
        at = time.monotonic()
        while not self.stopping.is_set():
            value = b"%d-" % number + bytes(VALUE_BYTES)
            task = asyncio.create_task(self._send(producer, value))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)
            number = number + 1
            at = at + 1 / self.per_s
            await asyncio.sleep(max(0.0, at - time.monotonic()))
        if self._sends:
            await asyncio.wait(self._sends)

    async def _send(self, producer: Producer, value: bytes) -> None:
        began = time.monotonic()
        self.missing.add(value)
        try:
            await producer.send_and_wait(TOPIC, value)
        except (BarnabasError, OSError) as error:
            self.missing.discard(value)
            self.errors.append(f"produce: {type(error).__name__}: {error}")
            return
        self.latency_s = max(self.latency_s, time.monotonic() - began)
        self.acknowledged.note()

    async def _consume(self, consumer: Consumer) -> None:
        while True:
            try:
                async for record in consumer:
                    self.consumed.note()
                    self.missing.discard(bytes(record.value or b""))
                    self._has_consumed.set()
            except (BarnabasError, OSError) as error:
                self.errors.append(f"consume: {type(error).__name__}: {error}")
                await asyncio.sleep(0.1)

    def take(self) -> dict[str, Any]:
        """Return the events since the last time."""
        (acknowledged, ack_s) = self.acknowledged.take()
        (consumed, consume_s) = self.consumed.take()
        found = {
            "acknowledged": acknowledged,
            "consumed": consumed,
            "pause_s": round(max(ack_s, consume_s), 3),
            "latency_s": round(self.latency_s, 3),
            "errors": self.errors[:20],
            "error_count": len(self.errors),
        }
        self.latency_s = 0.0
        self.errors = []
        return found


async def main(bootstrap: str, per_s: int) -> None:
    client = Client(bootstrap, per_s)
    loop = asyncio.get_running_loop()

    def told() -> None:
        word = sys.stdin.readline().strip()
        if word == "take":
            print(json.dumps(client.take()), flush=True)
        else:
            loop.remove_reader(sys.stdin.fileno())
            client.stopping.set()

    loop.add_reader(sys.stdin.fileno(), told)
    await client.run()
    missing = len(client.missing)
    if missing:
        client.errors.append(f"{missing} acknowledged records were not consumed")
    print(json.dumps(client.take()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
