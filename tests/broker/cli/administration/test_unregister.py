"""`barnabas cluster unregister`: a broker that is away for good is forgotten, and taken in again if it comes."""

import json

import pytest

from barnabas_broker.cli import entry as cli
from barnabas_broker.testing import Cluster, RunningCluster


def test_a_broker_is_forgotten_and_may_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    with RunningCluster(3) as running:

        def unregister(*words: object, status: int = 0) -> str:
            assert cli.main(["cluster", "unregister", "-b", running.bootstrap, *map(str, words)]) == status
            out, err = capsys.readouterr()
            return str(err if status else out)

        async def known(cluster: Cluster) -> set[int]:
            metadata = cluster.nodes[1].metadata
            return set((await metadata.wait_until(lambda image: 3 not in image.brokers, 60)).brokers)

        async def come_back(cluster: Cluster) -> None:
            await cluster.start(3)
            await cluster.wait_ready()

        assert "broker 3 is running; stop it first" in unregister(3, status=1)
        running.run(lambda cluster: cluster.stop(3))
        assert unregister(3) == "broker 3 is forgotten\n"
        assert running.run(known) == {1, 2}
        assert "broker 3 is not registered" in unregister(3, status=1)
        assert "-1 is no node id" in unregister("--", -1, status=2)
        running.run(come_back)
        running.run(lambda cluster: cluster.stop(3))
        assert json.loads(unregister(3, "--json")) == {"broker": 3, "registered": False}
