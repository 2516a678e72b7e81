"""Lists while a broker is down: what it alone knows is missing, and everything else is there."""

import json
from collections.abc import Iterator

import pytest

from barnabas_broker.cli.entry import main
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Admin, OffsetAndMetadata, Producer, TopicPartition
from barnabas_clients.cluster.topic_view import PartitionView


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    with RunningCluster(brokers=3) as cluster:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", cluster.bootstrap)
        yield cluster


async def fill(cluster: Cluster) -> int:
    """Make a topic of one replica and one of three with a record in each partition; return who leads the first."""
    async with Admin(cluster.bootstrap) as admin:
        alone = await admin.create_topic("alone", 1, 1)
        await admin.create_topic("shared", 3, 3)
        async with Producer(cluster.bootstrap) as producer:
            for number in range(3):
                await producer.send_and_wait("shared", b"x", partition=number)
        for name, topic in (("behind", "shared"), ("stuck", "alone")):
            await admin.alter_group_offsets(name, {TopicPartition(topic, 0): OffsetAndMetadata(0)})
    return alone.partitions[0].leader_id


def counts_on(view: PartitionView, node_id: int) -> bool:
    """Tell whether a partition has not yet noticed that a broker is gone: it leads, or its leader calls it in sync."""
    return view.leader_id == node_id or (view.leader_id >= 0 and node_id in view.in_sync_replicas)


@pytest.mark.slow
def test_a_broker_that_is_down_costs_its_own_numbers_and_no_others(
    brokers: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = brokers.run(fill)

    async def stop(cluster: Cluster) -> None:
        await cluster.stop(lost)
        async with Admin(cluster.bootstrap) as admin:
            while any(counts_on(view, lost) for one in await admin.list_topics() for view in one.partitions.values()):
                await cluster.leaders_changed(1.0)

    brokers.run(stop, 60.0)
    assert main(["topic", "list", "--exclude-internal", "--json"]) == 0
    told = capsys.readouterr()
    alone, shared = map(json.loads, told.out.splitlines())
    assert (alone["name"], alone["records"], alone["bytes"], alone["without_leader"]) == ("alone", None, None, 1)
    assert (shared["name"], shared["records"], shared["under_replicated"]) == ("shared", 3, 3)
    assert shared["bytes"] > 0
    assert shared["bytes_on_disk"] is None
    assert told.err.startswith(f"barnabas: broker {lost} did not answer, and what only it knows is missing: ")
    assert told.err.count("\n") == 1

    for option, name in (("--unavailable", "alone"), ("--under-replicated", "shared")):
        assert main(["topic", "list", "--exclude-internal", "--names-only", option]) == 0
        assert capsys.readouterr().out == f"{name}\n"

    assert main(["topic", "describe", "alone", "shared"]) == 0
    described = capsys.readouterr().out
    assert described.count(f"not in sync: {lost}") == 3
    assert described.count("no leader") == 1
    assert "1 partition, 1 replica, 1 without a leader" in described

    assert main(["group", "list", "--json"]) == 0
    groups = {row["group_id"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (groups["behind"]["lag"], groups["stuck"]["lag"]) == (1, None)
