"""`barnabas reassign` and `barnabas topic observers`, as typed, against brokers that carry them out."""

import json
from pathlib import Path

import pytest

from barnabas_broker.cli.parser.app import run
from barnabas_broker.testing import Cluster, RunningCluster

from .moving import arrived, create, in_sync, partition_of


def replicas(brokers: RunningCluster, name: str) -> tuple[int, ...]:
    return brokers.run(lambda cluster: partition_of(cluster, name)).replicas


@pytest.fixture
def bootstrap(six_brokers: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", six_brokers.bootstrap)
    return six_brokers.bootstrap


@pytest.mark.usefixtures("bootstrap")
def test_a_plan_is_shown_saved_carried_out_and_taken_back(
    six_brokers: RunningCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    six_brokers.run(lambda cluster: create(cluster, "planned", 1, 2, 3))
    assert run(["reassign", "planned", "--brokers", "4,5,6"]) == 0
    shown = capsys.readouterr()
    assert "planned-0  1,2,3  4,5,6" in shown.out
    assert "nothing is changed yet" in shown.err
    assert replicas(six_brokers, "planned") == (1, 2, 3)

    plan = tmp_path / "plan.json"
    before = tmp_path / "before.json"
    for target, path in (("4,5,6", plan), ("1,2,3", before)):
        assert run(["reassign", "planned:0", "--brokers", target, "--json"]) == 0
        path.write_text(capsys.readouterr().out)
    assert json.loads(plan.read_text()) == {
        "version": 1,
        "partitions": [{"topic": "planned", "partition": 0, "replicas": [4, 5, 6]}],
    }
    assert run(["reassign", "--plan", str(plan), "--execute"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "done"
    assert replicas(six_brokers, "planned") == (4, 5, 6)
    assert run(["reassign", "--status"]) == 0
    assert capsys.readouterr().out == "no partition is on its way\n"
    assert run(["reassign", "--plan", str(before), "--execute"]) == 0
    assert replicas(six_brokers, "planned") == (1, 2, 3)


@pytest.mark.usefixtures("bootstrap")
def test_what_is_on_its_way_is_listed_and_called_off(
    six_brokers: RunningCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def end(cluster: Cluster) -> None:
        await arrived(cluster, "listed")
        await cluster.start(6)
        await cluster.wait_ready()

    six_brokers.run(lambda cluster: create(cluster, "listed", 1, 2, 3))
    assert run(["reassign", "listed", "--brokers", "1,2,6", "--json"]) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    # Planning needs to know the broker; carrying it out begins, and waits, when that one is away.
    six_brokers.run(lambda cluster: cluster.stop(6))
    assert run(["reassign", "--plan", str(plan), "--execute", "--no-wait"]) == 0
    capsys.readouterr()
    expected = {"topic": "listed", "partition": 0, "target": [1, 2, 6], "adding": [6], "removing": [3]}
    # Any broker may be asked, also one that had not heard of it yet.
    for node in six_brokers.cluster.nodes.values():
        assert run(["reassign", "--status", "listed", "--json", "--bootstrap-server", f"127.0.0.1:{node.port}"]) == 0
        assert json.loads(capsys.readouterr().out) == expected
    assert run(["reassign", "--cancel", "listed"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()[-1]) == ("called off: 1 partition\n", "done")
    assert run(["reassign", "--plan", str(plan), "--execute", "--no-wait"]) == 0
    capsys.readouterr()
    assert run(["reassign", "--cancel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"topic": "listed", "partition": 0, "cancelled": True}
    six_brokers.run(end)
    assert set(replicas(six_brokers, "listed")) == {1, 2, 3}


@pytest.mark.usefixtures("bootstrap")
def test_observers_are_set_shown_and_left_out_of_plans(
    six_brokers: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    six_brokers.run(lambda cluster: create(cluster, "seen", 1, 2))
    for words, said in (
        ([], "seen: observed by nobody"),
        (["--brokers", "4,5"], "seen: observed by 4,5"),
        ([], "seen: observed by 4,5"),
    ):
        assert run(["topic", "observers", "seen", *words]) == 0
        assert capsys.readouterr().out == f"{said}\n"
    six_brokers.run(lambda cluster: in_sync(cluster, "seen", (1, 2, 4, 5)))
    assert run(["reassign", "seen", "--brokers", "1,3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["replicas"] == [1, 3]
    assert run(["topic", "observers", "seen", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "seen", "observers": [4, 5]}
    assert run(["topic", "observers", "seen", "--brokers", ""]) == 0
    assert capsys.readouterr().out == "seen: observed by nobody\n"


@pytest.mark.usefixtures("bootstrap")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["nowhere", "--brokers", "1"], 1, "there is no topic 'nowhere' [UNKNOWN_TOPIC_OR_PARTITION]"),
        (["typd", "--brokers", "1"], 1, "there is no topic 'typd' (did you mean 'typed'?) [UNKNOWN_TOPIC"),
        (["typed", "--brokers", "1,9"], 1, "--brokers: there is no broker 9; there are 1, 2, 3, 4, 5, 6"),
        (["typed", "--brokers", "1,1"], 2, "--brokers '1,1' names a broker twice"),
        (["typed", "--brokers", "one"], 2, "--brokers 'one' is not a list of brokers; write their ids, as in 4,5,6"),
        (["typed:7", "--brokers", "1"], 1, "there is no partition 7 of 'typed': typed has partition 0 only"),
        (["typed:x", "--brokers", "1"], 2, "'typed:x' is not a valid list of partitions"),
        (["typed", "--brokers", "1", "--replication-factor", "2"], 2, "2 replicas do not fit on 1 broker; name more"),
        (["typed"], 2, "say where to: TOPIC... --brokers 4,5,6, or --plan FILE alone"),
        (["--brokers", "1"], 2, "say which topics to move, as TOPIC or TOPIC:0,1"),
        (["--status", "--cancel"], 2, "--execute, --status and --cancel exclude each other"),
        (["--status", "--brokers", "1"], 2, "--status and --cancel take topics and nothing else"),
        (["--plan", "/nowhere/plan.json"], 1, "--plan /nowhere/plan.json: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    six_brokers: RunningCluster, capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    if six_brokers.cluster.nodes[1].metadata.image.topic_named("typed") is None:
        six_brokers.run(lambda cluster: create(cluster, "typed", 1))
    from barnabas_broker.cli.entry import main

    assert main(["reassign", *words]) == status
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
