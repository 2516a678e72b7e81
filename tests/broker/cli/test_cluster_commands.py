"""Looking at real brokers from outside, stopping one of them, and restarting all."""

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from machines import cluster_handle

from barnabas_broker.cli import entry as cli
from barnabas_broker.cli.commands.cluster import restart as cluster_restart
from barnabas_broker.local_cluster import processes, supervisor
from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.notices import Tell
from barnabas_broker.local_cluster.plan import Request

pytestmark = [pytest.mark.process, pytest.mark.slow]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def harmed() -> Iterator[cluster_handle.ClusterHandle]:
    """Three brokers that the tests of this module may stop; each starts them again."""
    with cluster_handle.cluster() as brokers:
        yield brokers


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        status = cli.main([str(word) for word in words])
        return status, *capsys.readouterr()

    return run


def health(run: Run, bootstrap: str, *words: str) -> tuple[int, str]:
    status, out, err = run("cluster", "health", "-b", bootstrap, *words)
    assert err == ""
    return status, out


def test_a_cluster_of_which_a_broker_was_killed_is_degraded_and_then_healthy_again(
    harmed: cluster_handle.ClusterHandle, run: Run
) -> None:
    run("topic", "create", "orders", "--partitions", 6, "--replication-factor", 3, "-b", harmed.bootstrap)
    assert health(run, harmed.bootstrap) == (0, "healthy: 3 brokers, 6 partitions served\n")
    harmed.kill(2)
    files = ClusterFiles.load(harmed.data)
    # A broker that is there says when it has missed the other one, and its leaders that they have a replica too few.
    told = seen_degraded(run, harmed)
    assert told["reasons"] == ["broker 2 is gone", "6 of 6 partitions are served, 6 have a replica too few"]
    assert (told["without_leader"], told["under_replicated"]) == (0, 6)
    assert told["lacking"] == [{"topic": "orders", "partitions": 6, "without_leader": 0, "under_replicated": 6}]
    assert [(broker["broker"], broker["state"]) for broker in told["brokers"]] == [
        (1, "live"),
        (2, "gone"),
        (3, "live"),
    ]
    status, out = health(run, harmed.bootstrap, "--accept", "degraded")
    assert status == 0
    verdict, _, head, row, *_ = out.splitlines()
    assert verdict.startswith("degraded: broker 2 is gone; 6 of 6 partitions are served")
    assert head.split() == ["broker", "state", "for", "address", "rack"]
    assert row.split()[:2] == ["2", "gone"]
    assert health(run, harmed.bootstrap)[0] == 1
    for source in (("--data", harmed.data), ("--config", files.config_file(1))):
        status, out, _ = run("cluster", "status", *source)
        assert status == 0
        assert "degraded: broker 2 is stopped; 6 of 6 partitions are served, 6 have a replica too few\n" in out
        assert "not ready" not in out
    said = cluster_handle.run("cluster", "restart", "--data", harmed.data, "--broker", 2)
    assert said.startswith("restarted broker 2 in "), "one that is down is started only"
    assert health(run, harmed.bootstrap)[0] == 0


def seen_degraded(run: Run, cluster: cluster_handle.ClusterHandle) -> dict[str, Any]:
    """Ask until all that the kill has changed is known."""
    while True:
        told: dict[str, Any] = json.loads(health(run, cluster.bootstrap, "--json")[1])
        if told["under_replicated"] == 6 and told["without_leader"] == 0:
            return told


def test_nobody_at_all_is_down(run: Run) -> None:
    port = cluster_handle.free_port()
    status, out = health(run, f"127.0.0.1:{port}")
    assert (status, out) == (1, f"down: no broker answers (127.0.0.1:{port}: connection refused)\n")
    status, out = health(run, f"127.0.0.1:{port}", "--json")
    assert (status, json.loads(out)["health"]) == (1, "down")
    assert run("cluster", "health", "-b", "no host")[0] == 2
    assert run("cluster", "health", "--accept", "down")[0] == 2


def test_a_port_of_the_brokers_among_themselves_is_no_port_for_clients(
    cluster: cluster_handle.ClusterHandle, run: Run
) -> None:
    status, out = health(run, f"127.0.0.1:{cluster.port + 1000}")
    assert status == 1
    assert "is it a broker's port for clients?" in out


def test_events_of_all_brokers_come_in_order_of_time_to_who_has_the_secret(
    cluster: cluster_handle.ClusterHandle, run: Run
) -> None:
    run("topic", "create", "told", "--partitions", 3, "--replication-factor", 3, "-b", cluster.bootstrap)
    for source in (("--data", cluster.data), ("--config", cluster.data / "broker-2" / "broker.toml")):
        status, out, err = run("cluster", "events", *source, "--json")
        assert (status, err) == (0, "")
        told = [json.loads(line) for line in out.splitlines()]
        assert {event["broker"] for event in told} == {1, 2, 3}
        assert [event["time_ms"] for event in told] == sorted(event["time_ms"] for event in told)
        assert all(event.keys() == {"time_ms", "broker", "kind", "subject", "cause"} for event in told)
    status, out, _ = run("cluster", "events", "--data", cluster.data, "--topic", "told", "--kind", "leader elected")
    assert len(out.splitlines()) == 3
    assert all(": leader elected: " in line and "  told-" in line for line in out.splitlines())
    assert run("cluster", "events", "--data", cluster.data, "--limit", 2, "--since", "1d")[1].count("\n") == 2
    assert run("cluster", "events", "--data", cluster.data, "--topic", "nobody-has-it")[:2] == (0, "")
    run("topic", "delete", "told", "-b", cluster.bootstrap)


def test_who_has_no_secret_or_another_one_is_told_no_events(
    cluster: cluster_handle.ClusterHandle, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    status, out, err = run("cluster", "events", "-b", cluster.bootstrap)
    assert (status, out) == (2, "")
    assert "give --data DIR" in err
    text = (cluster.data / "broker-1" / "broker.toml").read_text()
    secret = ClusterFiles.load(cluster.data).config(1).cluster_secret
    config = tmp_path_factory.mktemp("another") / "broker.toml"
    config.write_text(text.replace(secret, "another"))
    assert run("cluster", "events", "--config", config) == (1, "", "barnabas: the cluster secrets differ\n")
    config.write_text(text.replace(secret, ""))
    status, out, err = run("cluster", "events", "--config", config)
    assert (status, out) == (1, "")
    assert "has no cluster.secret" in err


def test_events_of_the_brokers_that_are_there_are_told_when_one_is_suspended(
    harmed: cluster_handle.ClusterHandle, run: Run
) -> None:
    harmed.signal(2, signal.SIGSTOP)
    try:
        status, out, err = run("cluster", "events", "--data", harmed.data, "--kind", "serving", "--timeout", 1)
    finally:
        pid = ClusterFiles.load(harmed.data).process(2)
        assert pid is not None
        processes.send_signal(pid, signal.SIGCONT)
    brokers = {line.split()[2] for line in out.splitlines()}
    # Whether its silence has been noticed when the question is asked is up to the machine.
    assert brokers == {"1", "3"}
    assert status == int("broker 2 tells nothing" in err)


def test_a_restart_hands_on_what_its_steps_wait_for(
    harmed: cluster_handle.ClusterHandle, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_files: ClusterFiles, _brokers: list[int], _timeout_s: float, _interrupts: object, tell: Tell) -> None:
        tell("waiting for broker 1 to stop")

    def start(_request: Request, _interrupts: object, tell: Tell) -> None:
        tell("waiting for broker 1 to be ready")

    monkeypatch.setattr(cluster_restart, "stop_brokers", stop)
    monkeypatch.setattr(cluster_restart, "start_cluster", start)
    err = run("cluster", "restart", "--data", harmed.data, "--broker", 1)[2]
    assert err == "barnabas: waiting for broker 1 to stop\nbarnabas: waiting for broker 1 to be ready\n"


def test_a_restart_goes_from_broker_to_broker_and_no_further_while_the_cluster_lacks_something(
    harmed: cluster_handle.ClusterHandle, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_restart, "NOTICE_S", 0.0)
    status, out, err = run("cluster", "stop", "--data", harmed.data, "--broker", 3, "--json")
    assert (status, json.loads(out)) == (0, {"stopped": [3], "killed": [], "down": []})
    before = harmed.pids()
    assert before.keys() == {1, 2}
    status, out, err = run("cluster", "restart", "--data", harmed.data, "--broker", 1, "--timeout", 0.2)
    assert (status, out) == (1, "")
    assert "waiting for a healthy cluster before broker 1 is stopped: degraded: broker 3 is stopped" in err
    assert err.splitlines()[-1].endswith("restarted: none; broker 1 is left")
    assert harmed.pids() == before
    assert run("cluster", "stop", "--data", harmed.data, "--broker", 3)[1] == "broker 3 was not running\n"
    harmed.start()
    before = harmed.pids()
    restarted = ("--broker", 3, "--broker", 1, "--json")
    out = cluster_handle.run("cluster", "restart", "--data", harmed.data, *restarted)
    assert [json.loads(line)["broker"] for line in out.splitlines()] == [1, 3]
    after = harmed.pids()
    assert {node_id for node_id in (1, 2, 3) if after[node_id] != before[node_id]} == {1, 3}
    assert health(run, harmed.bootstrap)[0] == 0


def test_a_broker_that_does_not_exist_is_named(harmed: cluster_handle.ClusterHandle, run: Run) -> None:
    for command in ("stop", "restart"):
        status, _, err = run("cluster", command, "--data", harmed.data, "--broker", 4)
        assert status == 2
        assert err == "barnabas: --broker 4: there is no such broker of this cluster; there are 1, 2 and 3\n"


def test_a_broker_of_another_user_is_named_with_its_owner(
    harmed: cluster_handle.ClusterHandle, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> bool:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(supervisor, "send_signal", forbidden)
    monkeypatch.setattr(supervisor, "owner_of", lambda _: "olga")
    pid = harmed.pids()[1]
    status, _, err = run("cluster", "stop", "--data", harmed.data, "--broker", 1)
    assert (status, err) == (1, f"barnabas: process {pid} (broker 1) belongs to olga: stop it as olga\n")
