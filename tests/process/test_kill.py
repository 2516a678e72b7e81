"""kill -9 under load from a client that nobody here wrote. The long run of the same is `scripts/kill-rounds`."""

from collections.abc import Iterator

import cluster_handle
import kill_rounds
import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def own_cluster() -> Iterator[cluster_handle.Cluster]:
    with cluster_handle.cluster() as brokers:
        yield brokers


def test_nothing_acknowledged_is_lost_doubled_or_reordered_by_kills(own_cluster: cluster_handle.Cluster) -> None:
    kill_rounds.create_topic(own_cluster)
    load, watermarks = kill_rounds.Load(own_cluster.bootstrap), kill_rounds.Watermarks(own_cluster.bootstrap)
    load.start()
    watermarks.start()
    try:
        load.wait_all_acked_after(0)
        kill_rounds.one_at_a_time(own_cluster, load, rounds=3)
        kill_rounds.all_at_once(own_cluster, load, rounds=1)
    finally:
        load.finish()
        watermarks.finish()
    assert sum(load.acked) > 0
    assert not load.failures
    assert not watermarks.went_back
    assert not kill_rounds.read_back(own_cluster.bootstrap, load.acked)
