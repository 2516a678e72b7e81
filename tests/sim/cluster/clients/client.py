"""A client of Kafka's protocol, one request at a time, over the project's own connections.

It decides for itself about requests and answers, which the real producer and consumer rightly hide. Its loop runs on a
host of its own, so that links between clients and brokers can be cut too.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from barnabas_clients.cluster.connection import Connection
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.registry import Message
from barnabas_raftlog.errors import BarnabasError
from sim.cluster.machines.loop import Clock, VirtualLoop
from sim.cluster.machines.network import Address, Network
from sim.cluster.world import World

__all__ = ["EARLIEST", "Trouble", "WireClient"]

REQUEST_S = 4.0
EARLIEST = -2  # stands for the beginning of a log


class Trouble(Exception):  # noqa: N818 - it is nothing wrong
    """No answer, or one that says to try again. Whether the request was carried out is not known.

    `node_id` and `opened_us`: the broker whose connection brought no answer, and when it was opened; 0: there was an
    answer, or no connection.
    """

    def __init__(self, text: str, node_id: int = 0, opened_us: int = 0) -> None:
        super().__init__(text)
        self.node_id = node_id
        self.opened_us = opened_us


class WireClient:
    """Connections to brokers, and the known leaders of partitions."""

    def __init__(self, world: World, network: Network, name: str, brokers: dict[int, Address]) -> None:
        self.world = world
        self.name = name
        self.brokers = brokers
        self.rng = world.chance(name)
        self.loop = VirtualLoop(world, network, name, Clock(world), self._on_bug)
        self.leaders = dict[tuple[str, int], tuple[int, int]]()  # (leader, epoch)
        self.topic_ids = dict[str, bytes]()
        self._connections = dict[int, Connection]()
        self._opened_us = dict[Connection, int]()
        self._opening = dict[int, asyncio.Lock]()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.world.waiting[work] = None

        def begin() -> None:
            del self.world.waiting[work]
            self.loop.create_task(work).add_done_callback(self._on_done)

        self.loop.arrive(begin)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.fail(error)

    def _on_bug(self, context: dict[str, Any]) -> None:
        self.world.fail(context.get("exception") or AssertionError(context.get("message")))

    async def ask(
        self, node_id: int, request: Message, timeout_s: float = REQUEST_S, versions: range | None = None
    ) -> Any:
        """Ask one broker. `versions`: those that say what is meant; None: all do.

        Raises:
            Trouble: no answer.
        """
        connection = None
        try:
            connection = await self._connected(node_id, timeout_s)
            return await connection.request(request, timeout_s, versions)
        except BarnabasError as error:
            raise self._drop(node_id, connection, f"{type(request).__name__} to {node_id}: {error}") from error

    async def post(self, node_id: int, request: Message, timeout_s: float = REQUEST_S) -> None:
        """Send a request that is not answered.

        Raises:
            Trouble: it was not sent.
        """
        connection = None
        try:
            connection = await self._connected(node_id, timeout_s)
            await connection.room(timeout_s)
            connection.post(request)
        except BarnabasError as error:
            raise self._drop(node_id, connection, f"{type(request).__name__} to {node_id}: {error}") from error

    async def _connected(self, node_id: int, timeout_s: float) -> Connection:
        """Return the connection to a broker; of several callers that want one at a time the first opens it."""
        async with self._opening.setdefault(node_id, asyncio.Lock()):
            connection = self._connections.get(node_id)
            if connection is None or not connection.is_open:
                host, port = self.brokers[node_id]
                connection = self._connections[node_id] = await Connection.open(host, port, timeout_s=timeout_s)
                self._opened_us = {
                    kept: self._opened_us.get(kept, self.world.now_us) for kept in self._connections.values()
                }
            return connection

    def _drop(self, node_id: int, connection: Connection | None, text: str) -> Trouble:
        """Let go of a connection that brought no answer, and return the trouble to report."""
        if connection is None:
            return Trouble(text)
        connection.abandon()
        if self._connections.get(node_id) is connection:
            del self._connections[node_id]
        return Trouble(text, node_id, self._opened_us.get(connection, 0))

    async def ask_anybody(self, request: Message, timeout_s: float = REQUEST_S) -> Any:
        return await self.ask(self.rng.choice(sorted(self.brokers)), request, timeout_s)

    async def refresh(self, topic: str) -> None:
        """Ask any broker who leads; without an answer, keep the leaders known before."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        try:
            answer = await self.ask_anybody(request, 2.0)
        except Trouble:
            return
        for found in answer.topics:
            if found.error_code == ErrorCode.NONE:
                self.topic_ids[topic] = found.topic_id
            for partition in found.partitions:
                key = (topic, partition.partition_index)
                if partition.leader_id < 0:
                    self.leaders.pop(key, None)
                elif partition.leader_epoch >= self.leaders.get(key, (0, -1))[1]:
                    self.leaders[key] = (partition.leader_id, partition.leader_epoch)

    async def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (leader, epoch).

        Raises:
            Trouble: nobody is known to lead.
        """
        if (topic, partition) not in self.leaders or topic not in self.topic_ids:
            await self.refresh(topic)
        leader = self.leaders.get((topic, partition))
        if leader is None or topic not in self.topic_ids:
            raise Trouble(f"nobody leads {topic}-{partition}")
        return leader

    async def offset_of(self, topic: str, partition: int, timestamp: int) -> ListOffsetsPartitionResponse:
        """Ask the leader for an offset by its time, or for an end of the log by what stands for it.

        Raises:
            Trouble: nobody is known to lead, no answer, or an error that passes.
        """
        leader, epoch = await self.leader_of(topic, partition)
        wanted = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        told: ListOffsetsPartitionResponse = (await self.ask(leader, request)).topics[0].partitions[0]
        if told.error_code != ErrorCode.NONE:
            code = ErrorCode(told.error_code)
            assert code in RETRIABLE, f"offset of {topic}-{partition} at {timestamp}: {code.name}"
            raise Trouble(code.name)
        return told

    def forget_leader(self, topic: str, partition: int) -> None:
        self.leaders.pop((topic, partition), None)

    async def pause(self, least_ms: int = 10, most_ms: int = 100) -> None:
        await asyncio.sleep(self.rng.randrange(least_ms, most_ms) / 1000)
