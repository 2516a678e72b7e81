"""A small broker: the real codec, a real socket, and a test's answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import servers

from barnabas_clients.protocol import registry
from barnabas_clients.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Hangup(NamedTuple):
    """In place of an answer: the connection ends when this part of the answer is sent, from 0 to 1."""

    answer: registry.Message | None = None
    part: float = 0.0


Answer = registry.Message | bytes | Hangup
Handler = Callable[[Any], Awaitable[Answer]]


class FakeBroker:
    """Answers the requests of each connection in order. `answers` maps a request class to its handler.

    A handler returns a response, bytes to be sent as they are, or a `Hangup`. `seen` lists (request, version). A class
    in `interrupts` makes the broker hang up when the first bytes of such a request have come, once.
    """

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.host = "127.0.0.1"
        self.port = 0
        self.interrupts: set[type[registry.Message]] = set()
        self.offered = {api.key: (api.versions[0], api.versions[-1]) for api in registry.APIS.values()}
        self.answers: dict[type[registry.Message], Handler] = {ApiVersionsRequest: self.api_versions}
        self.seen: list[tuple[Any, int]] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False

    async def api_versions(self, _: ApiVersionsRequest) -> Answer:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.offered.items()
            ]
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_closed:
            # Accepted in the moment in which it was closed, when nobody knew of it yet.
            writer.transport.abort()
            return
        self.connections.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with (
            contextlib.closing(writer),
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError),
        ):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(2)
                request_type = registry.APIS[int.from_bytes(frame, "big")].request
                if request_type in self.interrupts:
                    self.interrupts.remove(request_type)
                    writer.transport.abort()
                    return
                frame += await reader.readexactly(size - 2)
                header = registry.read_request_header(frame)
                request: Any = request_type.decode(frame, header.api_version, header.body_position)
                self.seen.append((request, header.api_version))
                answer = await self.answers[request_type](request)
                message = answer.answer if isinstance(answer, Hangup) else answer
                if isinstance(message, registry.Message):
                    message = b"".join(
                        registry.encode_response(header.api_key, header.api_version, header.correlation_id, message)
                    )
                if isinstance(answer, Hangup):
                    writer.write((message or b"")[: int(len(message or b"") * answer.part)])
                    return
                writer.write(message or b"")
                await writer.drain()

    def drop_connections(self) -> None:
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()

    async def close(self) -> None:
        """End every connection, and those that are just being accepted; raises what a handler has raised."""
        self.is_closed = True
        self.drop_connections()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks)

    def count(self, request_type: type[registry.Message]) -> int:
        return sum(isinstance(request, request_type) for request, _ in self.seen)


@contextlib.asynccontextmanager
async def serving(*brokers: FakeBroker) -> AsyncIterator[None]:
    """Listen, and leave neither socket nor task behind."""
    listening: list[asyncio.Server] = []
    for broker in brokers:
        broker.is_closed = False
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        broker.port = server.sockets[0].getsockname()[1]
        listening.append(server)
    try:
        yield
    finally:
        for server, broker in zip(listening, brokers, strict=True):
            await servers.end(server)
            await broker.close()


class FakeCluster:
    """Brokers that share one truth: topics with the leader and epoch of each partition.

    A topic in `errors` is answered with that code, as a broker does that has not heard of it; `ids` has topic ids that
    are not made of the name.
    """

    def __init__(self, *brokers: FakeBroker) -> None:
        self.brokers = brokers
        self.topics: dict[str, list[tuple[int, int]]] = {}
        self.errors: dict[str, int] = {}
        self.ids: dict[str, bytes] = {}
        for broker in brokers:
            broker.answers[MetadataRequest] = self.metadata

    async def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        node_ids = [broker.node_id for broker in self.brokers]
        return MetadataResponse(
            cluster_id="c",
            controller_id=self.brokers[0].node_id,
            brokers=[
                MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port)
                for broker in self.brokers
            ],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=self.ids.get(name, name.encode().ljust(16, b".")[:16]),
                    error_code=self.errors.get(name, 0) or (0 if name in self.topics else 3),
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=index,
                            leader_id=leader,
                            leader_epoch=epoch,
                            replica_nodes=node_ids,
                            isr_nodes=node_ids,
                        )
                        for index, (leader, epoch) in enumerate(
                            [] if name in self.errors else self.topics.get(name, [])
                        )
                    ],
                )
                for name in names
            ],
        )
