"""The measures of a broker's own loop, and where it tells them."""

import asyncio
import gc
from typing import Any

import pytest

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_raftlog.loop_meter import LONG_NS, USED_NS, LoopMeter
from broker.wire_client import Wire, batch


def test_what_keeps_the_loop_is_measured_and_told(
    wire: Wire, topic: str, one_broker: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = one_broker.cluster.nodes[1]
    names = set[str]()
    whats = set[str]()
    run = node.meter.run

    def watched(name: str, *rest: Any) -> Any:
        names.add(name)
        try:
            return run(name, *rest)
        finally:
            whats.add(node.meter.what)

    monkeypatch.setattr(node.meter, "run", watched)
    wire.produce(topic, batch(3))
    wire.fetch(topic, 3, max_wait_ms=1)
    wire.ask(CreateTopicsRequest(topics=[CreatableTopic(name=f"{topic}-2", num_partitions=1, replication_factor=1)]), 7)
    assert {"read from a client", "Raft drive", "timers", "task: CreateTopics"} <= names
    assert {"Produce", "Fetch", "CreateTopics"} <= whats
    status = one_broker.run(_status)
    assert status["loop"]["callbacks"] > 5
    assert status["loop"]["wall"]["longest_ms"] >= status["loop"]["wall"]["p99_ms"] > 0
    assert status["loop"]["wall"]["in"]


async def _status(cluster: Cluster) -> dict[str, Any]:
    return cluster.nodes[1].status()


def test_a_callback_that_uses_the_processor_for_long_is_an_event(one_broker: RunningCluster) -> None:
    node = one_broker.cluster.nodes[1]
    clock = [0]

    def work() -> None:
        clock[0] += 3 * LONG_NS

    meter = LoopMeter(lambda: clock[0], lambda: clock[0], node._on_long_callback)
    for _ in range(5):
        meter.run("a test", work)
    told = [event["cause"] for event in node.events.to_list() if event["kind"] == "long callback"]
    assert told[-2:] == [
        "a test used 300 ms of the processor in 300 ms",
        "a test used 300 ms of the processor in 300 ms; so did 3 more since the last such event",
    ]


def test_what_is_young_is_put_by_each_time_that_the_loop_has_used_so_much(one_broker: RunningCluster) -> None:
    node = one_broker.cluster.nodes[1]
    clock = [0]
    kept = list[list[int]]()

    def work() -> None:
        clock[0] += USED_NS

    async def use(_: Cluster) -> bool:
        """Tell whether a new object is old once the meter has said so."""
        meter = LoopMeter(lambda: clock[0], lambda: clock[0], None, node._put_by_soon)
        gc.disable()
        try:
            kept.append([1])
            meter.run("a test", work)
            assert not any(one is kept[-1] for one in gc.get_objects(generation=2)), "not in the midst of others"
            await asyncio.sleep(0)
            return any(one is kept[-1] for one in gc.get_objects(generation=2))
        finally:
            gc.enable()

    assert one_broker.run(use)
