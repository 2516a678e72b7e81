"""The command against real brokers."""

import json
import re

import pytest
from machines import cluster_handle

from barnabas_broker.cli import entry as cli
from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_raftlog.links import admin
from barnabas_raftlog.links.handshake import HandshakeRefusedError

pytestmark = pytest.mark.process


def test_a_topic_from_its_creation_to_its_end(
    cluster: cluster_handle.ClusterHandle, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        assert cli.main(["topic", *arguments, "--bootstrap-server", cluster.bootstrap]) == 0
        return capsys.readouterr().out

    name = "cli-topic"
    assert run("create", name, "--partitions", "4", "--replication-factor", "3") == (
        f"created {name}: 4 partitions, 3 replicas each\n"
    )
    assert name in run("list").split()
    described = json.loads(run("describe", name, "--json"))
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3]
    assert all(partition["leader"] in {1, 2, 3} for partition in described["partitions"])
    assert all((partition["start_offset"], partition["end_offset"]) == (0, 0) for partition in described["partitions"])
    assert re.search(r"^3 +[123] +1 +\d,\d,\d +\d,\d,\d +0 to 0", run("describe", name), re.MULTILINE)
    assert cli.main(["topic", "create", name, "--bootstrap-server", cluster.bootstrap]) == 1
    assert capsys.readouterr().err.startswith(f"barnabas: the topic {name!r} exists already")
    assert run("create", name, "--if-not-exists") == f"{name} exists\n"
    assert run("alter", name, "--config", "retention.ms=5000", "--config", "segment.ms=9") == (
        f"{name}: retention.ms=5000, segment.ms=9\n"
    )
    assert run("alter", name, "--delete-config", "segment.ms", "--partitions", "5") == (
        f"{name}: segment.ms deleted\n{name}: 5 partitions, before 4\n"
    )
    assert "retention.ms=5000" in run("describe", name)
    assert "segment.ms" not in run("describe", name)
    assert cli.main(["topic", "alter", name, "--config", "no.such=1", "--bootstrap-server", cluster.bootstrap]) == 1
    assert capsys.readouterr().err.endswith(" [INVALID_CONFIG]\n")
    assert cli.main(["topic", "alter", name, "--bootstrap-server", cluster.bootstrap]) == 2
    assert "say what to alter" in capsys.readouterr().err
    assert run("delete", name) == f"deleted {name}\n"
    assert name not in run("list").split()
    assert run("delete", name, "--if-exists") == f"{name} does not exist\n"


def test_status_of_a_ready_cluster(cluster: cluster_handle.ClusterHandle) -> None:
    found = cluster.status()
    assert found["ready"]
    assert found["bootstrap"] == cluster.bootstrap
    assert [broker["state"] for broker in found["brokers"]] == ["running"] * 3
    said = {"leaders", "leaders_confirmed", "under_replicated", "replicas", "fetches", "events"}
    assert all(said <= broker.keys() for broker in found["brokers"])
    for broker in found["brokers"]:
        others = {1, 2, 3} - {broker["node_id"]}
        assert {peer["node_id"] for peer in broker["peers"] if peer["live"] and not peer["trouble"]} == others
        assert broker["stats"]["links"]["frames_in"] > 0


def test_a_second_cluster_on_the_same_ports_is_told_who_has_them(
    cluster: cluster_handle.ClusterHandle, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path_factory.mktemp("second") / "cluster"
    secret = ClusterFiles.load(cluster.data).config(1).cluster_secret
    start = ["cluster", "start", "--data", str(elsewhere), "--port", str(cluster.port), "--detach"]
    assert cli.main(start) == 1
    cluster_id = cluster.status()["cluster_id"]
    taken = f"TCP port {cluster.port} of 127.0.0.1, which broker 1 needs for clients, is in use by broker 1 of cluster"
    assert f"{taken} {cluster_id}\n" in capsys.readouterr().err, "the port for clients tells everybody"
    assert cli.main([*start, "--set", f"cluster.secret={secret}"]) == 1
    err = capsys.readouterr().err
    assert f"TCP port {cluster.port} of 127.0.0.1" in err
    assert f"in use by broker 1 of cluster {cluster_id} (process {cluster.pids()[1]})" in err
    assert not elsewhere.exists()


def test_who_has_no_secret_is_told_nothing_by_the_brokers_of_a_new_cluster(
    cluster: cluster_handle.ClusterHandle,
) -> None:
    files = ClusterFiles.load(cluster.data)
    secret = files.config(1).cluster_secret.encode()
    for node_id in files.node_ids:
        address = ("127.0.0.1", files.ports.node_port(node_id))
        for wrong in (None, b"", secret[:-1]):
            with pytest.raises(HandshakeRefusedError, match="secret") as refused:
                admin.ask(*address, "status", secret=wrong)
            assert files.cluster_id not in str(refused.value)
        assert admin.ask(*address, "status", secret=secret)


def test_a_broker_whose_pid_file_is_lost_is_still_found(cluster: cluster_handle.ClusterHandle) -> None:
    pid_file = cluster.data / "broker-2" / "broker.pid"
    before = pid_file.read_text()
    pid_file.unlink()
    assert cluster.status()["ready"]
    cluster.start()
    assert pid_file.read_text() == before
