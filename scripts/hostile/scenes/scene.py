"""A scene is one way to harm a broker. Here are its tools, and the table.

A scene is a function of an `Attack` that returns in words what it did. It runs for some seconds, its chance comes from
the seed and its own name, and everything it has opened is closed when it is over, not before it has been measured.
A broker may answer, refuse or close: a scene takes all of it. The harm is judged beside it (`costs`).
"""

import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from barnabas_clients.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_clients.protocol.registry import Message
from hostile.frames import Address, Wire, batch, connect, frame_of, one_record, send_some, take_some

__all__ = ["SCENES", "Attack", "Pool", "Scene", "at_once", "counted", "produce", "scene"]

THREADS_MAX = 24
COLD_TOPIC = "cold"
COLD_BATCHES = 120
COLD_BATCH_BYTES = 1_000_000
LEADERS_S = 20.0


class Scene(NamedTuple):
    """One row of the table. `kind` is the finding that it repeats ("A3"), or that it resembles."""

    name: str
    kind: str
    about: str
    play: "Callable[[Attack], str]"


SCENES: dict[str, Scene] = {}


def scene(kind: str) -> "Callable[[Callable[[Attack], str]], Callable[[Attack], str]]":
    """Enter a function into the table, by its name and its docstring."""

    def enter(play: "Callable[[Attack], str]") -> "Callable[[Attack], str]":
        name = play.__name__.replace("_", "-")
        assert name not in SCENES
        SCENES[name] = Scene(name, kind, (play.__doc__ or "").strip().splitlines()[0], play)
        return play

    return enter


class Attack:
    """The tools of one scene: the addresses of brokers, chance, time, and its open connections.

    `share` makes all counts smaller: a scene asks `many` how many that is. `topic` is the one that the well-behaved
    client uses; a scene names its own things by `name`, so that no two runs of it meet.
    """

    def __init__(
        self, brokers: Sequence[Address], peers: Sequence[Address], chance: random.Random | None = None, **other: Any
    ) -> None:
        self.brokers = brokers
        self.peers = peers
        self.chance = chance or random.Random(0)
        self.topic: str = other.get("topic", "beside")
        self.share: float = other.get("share", 1.0)
        self.seconds: float = other.get("seconds", 6.0)
        self.name = f"h{self.chance.getrandbits(32):08x}"
        self._opened: list[socket.socket] = []

    def many(self, count: int) -> int:
        return max(1, int(count * self.share))

    def close(self) -> None:
        for one in self._opened:
            one.close()
        self._opened.clear()

    def open(self, address: Address, **options: Any) -> socket.socket:
        """Return a connection that lasts until the scene is over.

        Raises:
            OSError: nobody takes it.
        """
        made: socket.socket = connect(address, **options)
        self._opened.append(made)
        return made

    def open_many(self, count: int, addresses: Sequence[Address] = (), **options: Any) -> list[socket.socket]:
        """Return so many connections, over all brokers in turn; fewer if they are refused."""
        found = []
        addresses = addresses or self.brokers
        for number in range(self.many(count)):
            try:
                found.append(self.open(addresses[number % len(addresses)], **options))
            except OSError:
                if len(found) < number // 2:
                    break  # They are being refused; more would only take long.
        return found

    def pool(self, count: int, addresses: Sequence[Address] = (), *, timeout_s: float = 0.05) -> "Pool":
        """Return so many connections that are made again whenever a broker has closed one."""
        return Pool(self, self.many(count), addresses or self.brokers, timeout_s)

    def wait(self, seconds: float | None = None) -> None:
        time.sleep((self.seconds if seconds is None else seconds) * min(1.0, self.share * 2))

    def turns(self) -> Iterable[int]:
        """Yield 0, 1, 2, ... for as long as the scene lasts."""
        until = time.monotonic() + self.seconds * min(1.0, self.share * 2)
        number = 0
        while time.monotonic() < until:
            yield number
            number += 1

    def at_once(self, calls: Sequence[Callable[[], Any]]) -> Counter[str]:
        """Make all calls at the same time; return the number of each outcome."""
        return at_once(calls)

    def ask_each(self, request: Message, version: int, times: int = 1) -> Counter[str]:
        """Ask every broker for the same, `times` at once on connections of their own; return the outcomes."""
        data = frame_of(request, version)

        def ask(address: Address) -> str:
            with Wire(address) as wire:
                send_some(wire.socket, data)
                return f"answer of {_about(len(wire.receive()))}"

        return self.at_once([partial(ask, address) for address in self.brokers for _ in range(self.many(times))])

    def leaders(self, topic: str) -> dict[int, Address]:
        """Return the leader of each partition, once all of them have one.

        Raises:
            TimeoutError: they never have.
        """
        until = time.monotonic() + LEADERS_S
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        while time.monotonic() < until:
            with Wire(self.brokers[0]) as wire:
                answer = wire.ask(request, 12)
            homes = {one.node_id: (one.host, one.port) for one in answer.brokers}
            found = {part.partition_index: part.leader_id for part in answer.topics[0].partitions}
            if found and set(found.values()) <= set(homes):
                return {index: homes[leader] for index, leader in found.items()}
            time.sleep(0.1)
        raise TimeoutError(f"{topic} has no leaders")

    def create(self, topic: str, partitions: int = 3, factor: int = 3, **configs: str) -> dict[int, Address]:
        """Create a topic, if it is not there, and return its leaders."""
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=factor, configs=settings)
        with Wire(self.brokers[0], 60) as wire:
            code = wire.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0].error_code
        if code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            raise ConnectionError(f"creating {topic}: error {code}")
        return self.leaders(topic)

    def cold(self) -> dict[int, Address]:
        """Return the leaders of a topic that is larger than the memory of brokers; it is made at the first call."""
        leaders = self.create(COLD_TOPIC)
        with Wire(leaders[0]) as wire:
            if wire.ask(produce(COLD_TOPIC, batch(), 0), 9).responses[0].partition_responses[0].base_offset:
                return leaders
        data = batch(body=one_record(COLD_BATCH_BYTES))

        def fill(index: int, address: Address) -> None:
            with Wire(address) as wire:
                for _ in range(max(1, self.many(COLD_BATCHES) // len(leaders))):
                    wire.ask(produce(COLD_TOPIC, data, index), 9)

        self.at_once([partial(fill, index, address) for index, address in leaders.items()])
        return leaders


def at_once(calls: Sequence[Callable[[], Any]]) -> Counter[str]:
    """Make all calls at the same time; return the number of each outcome."""

    def one(call: Callable[[], Any]) -> str:
        try:
            return str(call())
        except TimeoutError:
            return "no answer in time"
        except OSError as error:
            return type(error).__name__

    with ThreadPoolExecutor(min(THREADS_MAX, max(1, len(calls)))) as pool:
        return Counter(pool.map(one, calls))


class Pool:
    """Connections that take turns."""

    def __init__(self, attack: Attack, count: int, addresses: Sequence[Address], timeout_s: float) -> None:
        self._attack = attack
        self._timeout_s = timeout_s
        self._addresses = [addresses[number % len(addresses)] for number in range(count)]
        self._made: list[socket.socket | None] = [None] * count
        self.reopened = -count

    def say(self, turn: int, data: bytes, take: int = 1 << 18) -> int:
        """Send on the connection whose turn it is, and take its answers; return the number of bytes sent."""
        number = turn % len(self._made)
        one = self._made[number]
        try:
            if one is None:
                one = self._attack.open(self._addresses[number], timeout_s=self._timeout_s)
                self._made[number] = one
                self.reopened += 1
        except OSError:
            return 0
        sent = send_some(one, data)
        if sent < len(data):
            one.close()
            self._made[number] = None
        elif take:
            take_some(one, take)
        return sent


def produce(topic: str, records: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """Return a request of one batch."""
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def counted(counts: Counter[str]) -> str:
    """Describe the outcomes and their numbers, the most frequent first."""
    return ", ".join(f"{count} x {what}" for what, count in counts.most_common(4))


def _about(count: int) -> str:
    return f"{count >> 20} MiB" if count >> 20 else f"{count >> 10} KiB" if count >> 10 else f"{count} bytes"
