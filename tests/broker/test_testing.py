"""The promises of `barnabas_broker.testing` to its users."""

import asyncio
import socket

import pytest

from barnabas_broker.testing import Cluster, RunningCluster, Ways
from barnabas_raftlog.links.link_delay import LinkDelay


async def test_the_ports_of_a_stopped_broker_stay_its_own() -> None:
    async with Cluster(1) as cluster:
        config = cluster.configs[1]
        await cluster.stop(1)
        for port in (config.listener.port, config.nodes[1].port):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
        await cluster.start(1)
        await cluster.wait_ready()


def test_what_does_not_end_in_time_is_cancelled_and_says_where_it_waited() -> None:
    ended = []

    async def wait_for_ever(cluster: Cluster) -> None:
        try:
            await cluster.nodes[1].metadata.wait_until(lambda _: False, 60.0)
        finally:
            ended.append(asyncio.current_task())

    async def fail(_: Cluster) -> None:
        raise TimeoutError("its own")

    async def look(_: Cluster) -> int:
        return len(ended)

    with RunningCluster(1) as cluster:
        with pytest.raises(TimeoutError, match=r"(?s)not done in 0.1 s.*MetadataService.wait_until.*broker 1: running"):
            cluster.run(wait_for_ever, 0.1)
        assert cluster.run(look) == 1
        with pytest.raises(TimeoutError, match=r"^its own$"):
            cluster.run(fail)


@pytest.mark.parametrize(
    ("ways", "jitter_ms", "wanted"),
    [
        (0, 0, [None, None]),
        (2.5, 0.5, [LinkDelay(2.5, 0.5)] * 2),
        ({(1, 2): 3.0}, 0, [LinkDelay(0.0, 0, {2: 3.0}), None]),
    ],
)
async def test_what_goes_between_brokers_takes_as_long_as_it_is_told_to(
    ways: Ways, jitter_ms: float, wanted: list[LinkDelay | None]
) -> None:
    async with Cluster(2, link_delay_ms=ways, link_jitter_ms=jitter_ms) as cluster:
        assert [cluster.nodes[node_id].links.delay for node_id in (1, 2)] == wanted
        assert cluster.nodes[1].is_ready


async def test_a_broker_reads_the_delay_from_its_settings() -> None:
    settings = {"test.link.delay.us": 1_500, "test.link.jitter.us": 300}
    async with Cluster(1, settings=settings) as cluster:
        assert cluster.nodes[1].links.delay == LinkDelay(1.5, 0.3)


@pytest.mark.parametrize("ways", [-1.0, {(1, 2): 10_001.0}])
def test_a_delay_out_of_range_is_refused(ways: Ways) -> None:
    with pytest.raises(ValueError, match="a link delay of"):
        RunningCluster(2, link_delay_ms=ways)
