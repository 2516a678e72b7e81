"""`barnabas quorum describe`, `topic elect` and `config --client-metrics` against real brokers."""

import json
from collections.abc import Iterator

import pytest
from broker.cli.conftest import Run
from broker.wire_client import Wire

from barnabas_broker.cli import entry as cli
from barnabas_broker.leadership.known_leaders import KnownLeaders
from barnabas_broker.testing import Cluster, RunningCluster

TOPIC = "elected"


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    settings = {"controller.quorum.voters": "1,2", "auto.leader.rebalance.enable": False}
    with RunningCluster(3, settings=settings) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create(TOPIC, 2, 3)
        wire.close()
        yield running


@pytest.fixture
def barnabas(running: RunningCluster, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object, status: int = 0) -> str:
        assert cli.main([*map(str, words), "-b", running.bootstrap]) == status
        out, err = capsys.readouterr()
        return str(err if status else out)

    return run


def test_the_quorum_is_shown_with_those_that_vote_and_those_that_learn(barnabas: Run) -> None:
    told = json.loads(barnabas("quorum", "describe", "--json"))
    assert [one["node"] for one in told["voters"]] == [1, 2]
    assert [one["node"] for one in told["observers"]] == [3]
    assert told["leader"] in {1, 2}
    assert all(one["end_offset"] >= told["high_watermark"] - 2 for one in told["voters"])
    first, *rows = barnabas("quorum", "describe").splitlines()
    assert first.startswith(f"node {told['leader']} leads, in epoch {told['leader_epoch']}; ")
    assert [row.split()[:2] for row in rows[1:]] == [["1", "yes"], ["2", "yes"], ["3", "no"]]
    assert "s ago" in rows[1]


def test_a_preferred_leader_is_elected(running: RunningCluster, barnabas: Run) -> None:
    nodes = running.cluster.nodes
    placement = nodes[1].partitions.topics[TOPIC].topic.partitions[1]
    first, second = placement.replicas[:2]

    async def heard_by(leaders: KnownLeaders) -> None:
        topic_id = nodes[1].partitions.topics[TOPIC].topic.topic_id
        await leaders.wait_while(lambda: getattr(leaders.leadership(topic_id, 1), "leader_id", -1) != second, 10)

    async def move(_: Cluster) -> None:
        nodes[first].partitions.topics[TOPIC].partitions[1].transfer(second)
        for node in nodes.values():
            await heard_by(node.partitions.known_leaders)

    for words in ([], [TOPIC], [TOPIC, "-p", 1]):
        running.run(move)
        assert barnabas("topic", "elect", *words) == f"{TOPIC}-1 is led by its first replica\n"
    assert barnabas("topic", "elect") == "every partition is led by its first replica already\n"
    assert json.loads(barnabas("topic", "elect", TOPIC, "--json")) == {"moved": [], "refused": []}
    assert "there is no topic 'x'" in barnabas("topic", "elect", "x", status=1)
    assert "name one" in barnabas("topic", "elect", "-p", 1, status=2)


def test_subscriptions_to_metrics_are_set_shown_and_taken_back(barnabas: Run) -> None:
    whose = ("--client-metrics", "producers")
    told = barnabas("config", "set", *whose, "metrics=a,b", "interval.ms=30s", "match=client_id=x.*")
    assert told == "client-metrics producers: metrics=a,b, interval.ms=30000, match=client_id=x.*\n"
    rows = [line.split() for line in barnabas("config", "list", *whose, "--changed").splitlines()]
    assert [row[0] for row in rows[1:]] == ["interval.ms", "match", "metrics"]
    assert {row[-1] for row in rows[1:]} == {"subscription"}
    refused = barnabas("config", "set", *whose, "match=rack=1", status=1)
    assert "Illegal client matching pattern" in refused
    assert "there is no client-metrics configuration 'x'" in barnabas("config", "set", *whose, "x=1", status=1)
    barnabas("config", "unset", *whose, "metrics", "interval.ms", "match")
    assert len(barnabas("config", "list", *whose, "--changed").splitlines()) <= 1
