"""What `barnabas_broker.testing` promises to those who test with it."""

import asyncio
import socket

import pytest

from barnabas_broker.testing import Cluster, RunningCluster


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
