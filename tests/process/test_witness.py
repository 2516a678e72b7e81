"""Two replicas and a witness survive the kill of any one of three real brokers."""

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from machines import cluster_handle
from trials import kill_rounds

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC = kill_rounds.TOPIC
REPLICAS = 2


@pytest.fixture
def own_cluster() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster() as brokers:
        yield brokers


def partitions_of(brokers: cluster_handle.ClusterHandle) -> list[dict[str, Any]]:
    text = cluster_handle.run("topic", "describe", TOPIC, "--json", "--bootstrap-server", brokers.bootstrap)
    found: list[dict[str, Any]] = json.loads(text)["partitions"]
    return found


def test_two_replicas_survive_the_loss_of_each_broker(own_cluster: cluster_handle.ClusterHandle) -> None:
    kill_rounds.create_topic(own_cluster, replicas=REPLICAS)
    for partition in (found := partitions_of(own_cluster)):
        assert len(partition["replicas"]) == REPLICAS
        assert sorted([*partition["replicas"], partition["witness"]]) == [1, 2, 3]
        assert partition["witness"] not in partition["isr"]
    # Six partitions on three brokers: each of them leads some, follows in some, and is the witness of the others.
    roles = [(partition["replicas"][0], partition["replicas"][1], partition["witness"]) for partition in found]
    assert all({role[place] for role in roles} == {1, 2, 3} for place in range(3))
    assert {broker["witnesses"] for broker in own_cluster.status()["brokers"]} == {2}

    load = kill_rounds.Load(own_cluster.bootstrap)
    watermarks = kill_rounds.Watermarks(own_cluster.bootstrap)
    load.start()
    watermarks.start()
    try:
        load.wait_all_acked_after(time.perf_counter())
        for _, pid in sorted(own_cluster.pids().items()):
            os.kill(pid, signal.SIGKILL)
            # Twice: the first acknowledgement may rest on the last work of the dead one.
            for _ in range(2):
                load.wait_all_acked_after(time.perf_counter())
            own_cluster.start()
            kill_rounds.wait_whole(own_cluster, replicas=REPLICAS)
    finally:
        load.finish()
        watermarks.finish()
    assert sum(load.acked) > 0
    assert not load.failures
    assert not watermarks.went_back
    assert not kill_rounds.read_back(own_cluster.bootstrap, load.acked)
