"""Kills brokers under the load of a foreign client. The long run is `scripts/trials/kill-rounds`."""

from collections.abc import Iterator

import pytest
from machines import cluster_handle
from trials import kill_rounds
from trials.in_sync_watch import InSyncWatch

pytestmark = [pytest.mark.process, pytest.mark.slow]

LAG_MAX_S = 10


@pytest.fixture(params=[0, 20], ids=["loopback", "20 ms one way"])
def own_cluster(request: pytest.FixtureRequest) -> Iterator[cluster_handle.ClusterHandle]:
    settings = {kill_rounds.LAG_MAX: str(LAG_MAX_S * 1000), **cluster_handle.link_settings(request.param)}
    with cluster_handle.cluster(settings=settings) as brokers:
        yield brokers


def test_nothing_acknowledged_is_lost_doubled_or_reordered_by_kills(own_cluster: cluster_handle.ClusterHandle) -> None:
    kill_rounds.create_topic(own_cluster)
    kill_rounds.wait_whole(own_cluster)
    load = kill_rounds.Load(own_cluster.bootstrap)
    watermarks = kill_rounds.Watermarks(own_cluster.bootstrap)
    logs, pids = own_cluster.logs, own_cluster.running_pids
    watch = InSyncWatch(own_cluster.bootstrap, logs, pids, LAG_MAX_S, round_trip_s=0.04)
    threads = (load, watermarks, watch)
    for thread in threads:
        thread.start()
    try:
        load.wait_all_acked_after(0)
        kill_rounds.one_at_a_time(own_cluster, load, watch, rounds=3)
        kill_rounds.all_at_once(own_cluster, load, watch, rounds=1)
    finally:
        load.finish()
        watermarks.finish()
        without_excuse = watch.finish()
    assert sum(load.acked) > 0
    assert not load.failures
    assert not watermarks.went_back
    assert not without_excuse
    assert not kill_rounds.read_back(own_cluster.bootstrap, load.acked)
