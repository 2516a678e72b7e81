"""A controller that lost its disk comes back, and counts when another one dies."""

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from machines import cluster_handle
from trials import kill_rounds

pytestmark = [pytest.mark.process, pytest.mark.slow]

LIMIT_S = 60.0


@pytest.fixture
def own_cluster() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster() as brokers:
        yield brokers


def voters(brokers: cluster_handle.ClusterHandle, node_id: int) -> dict[str, str]:
    """Return the controllers and their directories, as this broker knows them."""
    [found] = [broker for broker in brokers.status()["brokers"] if broker["node_id"] == node_id]
    # A broker that does not answer in time tells nothing of it.
    quorum: dict[str, Any] = found.get("quorum", {"voters": {}})
    return dict(quorum["voters"])


def test_a_controller_with_an_empty_disk_votes_again_and_the_cluster_survives_the_loss_of_another(
    own_cluster: cluster_handle.ClusterHandle,
) -> None:
    kill_rounds.create_topic(own_cluster)
    before = voters(own_cluster, 1)
    assert sorted(before) == ["1", "2", "3"]
    assert len(set(before.values())) == 3
    own_cluster.kill(3)
    shutil.rmtree(own_cluster.data / "broker-3" / "data")
    own_cluster.start()
    deadline = time.perf_counter() + LIMIT_S
    while sorted(after := voters(own_cluster, 3)) != ["1", "2", "3"] or after["3"] == before["3"]:
        assert time.perf_counter() < deadline, after
    assert (after["1"], after["2"]) == (before["1"], before["2"])
    assert "controllers 1, 2, 3, led by" in cluster_handle.run("cluster", "status", "--data", own_cluster.data)
    kill_rounds.wait_whole(own_cluster)
    # Two of three are left, and one of them is the new one: without it nobody could create anything.
    own_cluster.kill(1)
    servers = f"127.0.0.1:{own_cluster.port + 1},127.0.0.1:{own_cluster.port + 2}"
    cluster_handle.run("topic", "create", "more", "--partitions", 1, "--bootstrap-server", servers)
    assert "more" in cluster_handle.run("topic", "list", "--bootstrap-server", servers)
