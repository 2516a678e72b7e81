"""Clients' metrics are answered as by a Kafka that has a plugin for them; without one it does not offer the APIs."""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from bench import systems
from broker.live.administration.test_telemetry import BYTES_MAX, collector, configure, subscribed
from broker.wire_client import Wire
from interop import runtimes
from machines.cache import fetch

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode

from .metrics_talks import ASK, METRICS, PUSH
from .talks import Conversation, Peer, differences, offered_by

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PLUGIN = Path(__file__).parent / "TakesMetrics.java"
LIMIT_S = 20.0
SUBSCRIPTIONS = {"metrics": "a,b", "interval_ms": "3600000", "match": "client_id=te.*"}


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Peer]]:
    """Kafka and we, each with one subscription and a client that it matches."""
    jars = runtimes.kafka_jars()
    if shutil.which("javac") is None:
        runtimes.leave_out("a JDK, 17 or newer: no javac on the PATH")
    classes = tmp_path_factory.mktemp("classes")
    fetch("javac", "-proc:none", "-cp", f"{jars}/*", "-d", classes, PLUGIN)
    limits = {"telemetry.max.bytes": BYTES_MAX}
    with ExitStack() as stack:
        settings = {**limits, "metric.reporters": PLUGIN.stem}
        kafka = stack.enter_context(systems.kafka(synced=False, nodes=1, settings=settings, classes=classes))
        _, port = stack.enter_context(collector())
        endpoint = {"client.metrics.otlp.endpoint": f"http://127.0.0.1:{port}/v1/metrics"}
        barnabas = stack.enter_context(RunningCluster(1, settings={**limits, **endpoint}))
        wires = [stack.enter_context(closing(wire_to(one))) for one in (kafka.address, barnabas.bootstrap)]
        for wire in wires:
            subscribe(wire)
        yield Peer(wires[0], "", bytes(16)), Peer(wires[1], "", bytes(16))


def wire_to(address: str) -> Wire:
    host, port = address.rsplit(":", 1)
    return Wire(host, int(port))


def subscribe(wire: Wire) -> None:
    """Configure what is wanted, and wait until the broker asks for it."""
    assert configure(wire, "both", **SUBSCRIPTIONS) == ErrorCode.NONE
    deadline = time.monotonic() + LIMIT_S
    while not subscribed(wire).requested_metrics:
        assert time.monotonic() < deadline, "nobody is asked for anything"
        time.sleep(0.01)  # between two questions; nothing tells a client


def test_clients_metrics_are_answered_as_in_kafka(peers: tuple[Peer, Peer]) -> None:
    offered = [offered_by(peer.wire) for peer in peers]
    keys = (ASK.api_key, PUSH.api_key)
    assert [[versions.get(key) for key in keys] for versions in offered] == [[range(1), range(1)]] * 2
    found = differences(Conversation("metrics", METRICS), peers, {key: range(1) for key in keys}, 0)
    assert found == [], "\n".join(map(str, found))
