"""`barnabas quorum describe`, `topic elect` and `config --client-metrics` against real brokers."""

import json
from collections.abc import Iterator

import pytest
from broker.cli.conftest import Run
from broker.live.administration.leading import lead
from broker.wire_client import Wire

from barnabas_broker.cli import entry as cli
from barnabas_broker.testing import RunningCluster

TOPIC = "elected"


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    settings: dict[str, str | int | bool] = {"controller.quorum.voters": "1,2", "auto.leader.rebalance.enable": False}
    with RunningCluster(3, settings=settings) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create(TOPIC, 2, 3)
        wire.close()
        yield running


@pytest.fixture
def barnabas(running: RunningCluster, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object, status: int = 0) -> str:
        where = () if "-b" in words else ("-b", running.bootstrap)
        assert cli.main([*map(str, words), *where]) == status
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
    other, moved = running.cluster.nodes[1].partitions.topics[TOPIC].topic.partitions
    running.run(lambda cluster: lead(cluster, TOPIC, 0, other.replicas[0]))
    for words in ([], [TOPIC], [TOPIC, "-p", 1]):
        running.run(lambda cluster: lead(cluster, TOPIC, 1, moved.replicas[1]))
        assert barnabas("topic", "elect", *words) == f"{TOPIC}-1 is led by its first replica\n"
    assert barnabas("topic", "elect") == "every partition is led by its first replica already\n"
    assert json.loads(barnabas("topic", "elect", TOPIC, "--json")) == {"moved": [], "refused": []}
    assert "there is no topic 'x'" in barnabas("topic", "elect", "x", status=1)
    assert "name one" in barnabas("topic", "elect", "-p", 1, status=2)


def test_subscriptions_to_metrics_are_set_shown_and_taken_back(running: RunningCluster, barnabas: Run) -> None:
    # Of one broker each time: the others hear of a change in a moment.
    whose = ("--client-metrics", "producers", "-b", f"127.0.0.1:{running.cluster.nodes[1].port}")
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
