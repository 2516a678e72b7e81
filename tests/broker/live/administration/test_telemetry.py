"""Clients' metrics end to end: who is asked for what, what comes out at a collector, and what is refused (KIP-714)."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from barnabas_broker.config.collector import Collector
from barnabas_broker.server.telemetry.exporter import WAITING_BYTES_MAX, Exporter
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_clients.protocol.list_config_resources import ListConfigResourcesRequest
from barnabas_clients.protocol.push_telemetry import PushTelemetryRequest
from barnabas_raftlog.records.compression import Compression, compress
from broker.wire_client import Wire

ROW = b"\x0a\x04\x12\x02ab"  # one ResourceMetrics
SUBSCRIPTION = 16
BYTES_MAX = 4_096


class Received(Queue[tuple[str, str, bytes]]):
    """What a collector was sent: path, content type, body."""


@contextmanager
def collector() -> Iterator[tuple[Received, int]]:
    """Run a collector that keeps what it gets; yield that, and its port."""
    queue = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            queue.put((self.path, self.headers["Content-Type"], body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield queue, server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def received() -> Iterator[tuple[Received, int]]:
    with collector() as made:
        yield made


@pytest.fixture(scope="module")
def running(received: tuple[Received, int]) -> Iterator[RunningCluster]:
    settings: dict[str, str | int | bool] = {
        "client.metrics.otlp.endpoint": f"http://127.0.0.1:{received[1]}/v1/metrics",
        "telemetry.max.bytes": BYTES_MAX,
    }
    with RunningCluster(1, settings=settings) as running:
        yield running


@pytest.fixture
def client(running: RunningCluster) -> Iterator[Wire]:
    with closing(Wire("127.0.0.1", running.cluster.nodes[1].port)) as wire:
        yield wire


def configure(wire: Wire, name: str, **configs: str | None) -> ErrorCode:
    rows = [
        IncrementalAlterableConfig(
            name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value
        )
        for key, value in configs.items()
    ]
    resource = IncrementalAlterConfigsResource(resource_type=SUBSCRIPTION, resource_name=name, configs=rows)
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return ErrorCode(answer.error_code)


def described(wire: Wire, name: str) -> dict[str, tuple[str, int]]:
    resource = DescribeConfigsResource(resource_type=SUBSCRIPTION, resource_name=name)
    (answer,) = wire.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert answer.error_code == ErrorCode.NONE
    return {one.name: (one.value, one.config_source) for one in answer.configs}


def subscribed(wire: Wire, instance_id: bytes = bytes(16)) -> Any:
    return wire.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def pushed(wire: Wire, told: Any, metrics: bytes, codec: int = 0, **fields: Any) -> ErrorCode:
    request = PushTelemetryRequest(
        **{
            "client_instance_id": told.client_instance_id,
            "subscription_id": told.subscription_id,
            "compression_type": codec,
            "metrics": metrics,
            **fields,
        }
    )
    return ErrorCode(wire.ask(request, 0).error_code)


@pytest.mark.parametrize("name", ["own", "with spaces, and ünï"])
def test_subscriptions_are_configured_listed_and_forgotten(wire: Wire, name: str) -> None:
    """By every broker, whether it has anywhere to send metrics or not."""
    assert configure(wire, name, interval_ms="1000", metrics="a,b", match="client_id=x.*") == ErrorCode.NONE
    assert described(wire, name) == {"interval.ms": ("1000", 7), "metrics": ("a,b", 7), "match": ("client_id=x.*", 7)}
    for version in range(2):
        rows = wire.ask(ListConfigResourcesRequest(), version).config_resources
        assert (name, SUBSCRIPTION) in {(one.resource_name, one.resource_type) for one in rows}
    assert configure(wire, name, match="client_id=(") == ErrorCode.INVALID_CONFIG
    assert configure(wire, name, interval_ms="99") == ErrorCode.INVALID_REQUEST
    assert configure(wire, name, nothing="1") == ErrorCode.INVALID_REQUEST
    assert configure(wire, "", metrics="a") == ErrorCode.INVALID_REQUEST
    assert configure(wire, name, interval_ms=None, metrics=None, match=None) == ErrorCode.NONE
    assert described(wire, name) == {"interval.ms": ("300000", 5), "metrics": ("", 5), "match": ("", 5)}
    assert wire.ask(ListConfigResourcesRequest(), 0).config_resources == []


def test_metrics_are_offered_to_be_taken_only_where_there_is_a_collector(wire: Wire, client: Wire) -> None:
    for one, offers in ((wire, False), (client, True)):
        keys = {key.api_key for key in one.ask(ApiVersionsRequest(), 0).api_keys}
        assert ({71, 72} <= keys) is offers
        assert bool({71, 72} & keys) is offers


def test_metrics_come_out_at_the_collector_with_the_client_in_them(
    client: Wire, received: tuple[Received, int]
) -> None:
    assert configure(client, "all", metrics="*", interval_ms="100", match="client_id=te.*") == ErrorCode.NONE
    client.ask(ApiVersionsRequest(client_software_name="mine", client_software_version="1.2"), 3)
    for codec in Compression:
        told = subscribed(client)
        assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, ("*",), 100)
        assert told.accepted_compression_types == (4, 3, 1, 2)
        assert (told.telemetry_max_bytes, told.delta_temporality) == (BYTES_MAX, True)
        packed = bytes(compress(codec, ROW * 2)) if codec else ROW * 2
        assert pushed(client, told, packed, codec) == ErrorCode.NONE
        path, kind, body = received[0].get(timeout=10)
        assert (path, kind) == ("/v1/metrics", "application/x-protobuf")
        assert body.count(b"\x12\x02ab") == 2
        properties = ("client_id", "test", "mine", "1.2", "127.0.0.1", str(uuid.UUID(bytes=told.client_instance_id)))
        assert all(body.count(text.encode()) >= 2 for text in properties)


def test_a_client_that_nothing_matches_is_asked_for_nothing(client: Wire) -> None:
    assert configure(client, "all", metrics="*", match="client_id=somebody else") == ErrorCode.NONE
    told = subscribed(client)
    assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, (), 300_000)
    again = subscribed(client, told.client_instance_id)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert again.client_instance_id == bytes(16)
    assert configure(client, "all", match=None) == ErrorCode.NONE
    again = subscribed(client, told.client_instance_id)  # It need not wait when subscriptions have changed.
    assert (again.error_code, again.requested_metrics) == (0, ("*",))
    assert again.subscription_id != told.subscription_id


def test_what_is_wrong_with_a_push_is_said_as_kafka_says_it(client: Wire) -> None:
    assert configure(client, "all", metrics="*", interval_ms="3600000") == ErrorCode.NONE
    bomb = bytes(compress(Compression.ZSTD, bytes(10 << 20)))
    assert len(bomb) < BYTES_MAX
    told: Any = None
    for metrics, fields, code in (
        (ROW, {"client_instance_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        (ROW, {"client_instance_id": bytes(15) + b"\1"}, ErrorCode.INVALID_REQUEST),
        (ROW, {"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        (ROW, {"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(BYTES_MAX + 1), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"garbage", {}, ErrorCode.INVALID_RECORD),
        (b"garbage", {"compression_type": 4}, ErrorCode.INVALID_RECORD),
        (bomb, {"compression_type": 4}, ErrorCode.INVALID_RECORD),
        (b"", {}, ErrorCode.NONE),
    ):
        told = subscribed(client)
        assert pushed(client, told, metrics, **fields) == code, (metrics[:10], fields)
    assert pushed(client, told, ROW) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert pushed(client, told, b"", terminating=True) == ErrorCode.NONE
    assert pushed(client, told, b"", terminating=True) == ErrorCode.INVALID_REQUEST


async def test_a_collector_that_is_not_there_holds_nobody_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[asyncio.Task[None]] = []
    held = asyncio.get_running_loop().create_future()

    async def never(*_: object) -> None:
        await held

    exporter = Exporter(Collector("127.0.0.1", 1, "/"), lambda coroutine: tasks.append(asyncio.create_task(coroutine)))
    exporter.send_soon(b"x")
    await tasks[0]
    assert (exporter.sent, exporter.dropped) == (0, 1)
    monkeypatch.setattr(exporter, "_post", never)
    for _ in range(3):
        exporter.send_soon(bytes(WAITING_BYTES_MAX // 2))
    assert exporter.dropped == 2
    held.set_result(None)
    await tasks[1]
    assert exporter.sent == 2
    assert len(tasks) == 2
    assert len([line for line in caplog.messages if "are dropped" in line]) == 1
