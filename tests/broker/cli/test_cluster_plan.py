"""Plans of clusters on one machine and on several, with stand-ins for running brokers."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.config.broker import ConfigError
from barnabas_broker.local_cluster import plan as cluster_plan
from barnabas_broker.local_cluster.files import ClusterError, ClusterFiles
from barnabas_broker.local_cluster.plan import Request, cores, plan
from barnabas_broker.local_cluster.ports import PortError, PortPlan

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def planned(directory: Path, **options: Any) -> ClusterFiles:
    """Plan, and write it down as a start does."""
    files, _ = plan(Request(directory, **options))
    directory.mkdir(exist_ok=True)
    files.write({node_id: files.config(node_id) for node_id in files.local_ids})
    return files


def test_a_broker_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_plan, "cores", lambda: 8)
    files = planned(tmp_path / "c", brokers_per_host="auto", port=9000)
    assert files.node_ids == files.local_ids == range(1, 9)
    assert files.bootstrap == ",".join(f"127.0.0.1:{port}" for port in range(9000, 9008))
    assert files.config(8).voters == (1, 2, 3)
    monkeypatch.setattr(cluster_plan, "cores", lambda: 16)
    again = planned(tmp_path / "c", brokers_per_host="auto")
    assert again.node_ids == range(1, 9), "a cluster keeps its brokers when its machine gets more cores"


@pytest.mark.parametrize(("brokers", "voters"), [("1", (1,)), ("2", (1, 2)), ("3", (1, 2, 3)), ("4", (1, 2, 3))])
def test_on_one_host_three_brokers_have_the_metadata(tmp_path: Path, brokers: str, voters: tuple[int, ...]) -> None:
    assert planned(tmp_path / "c", brokers_per_host=brokers).config(1).voters == voters


@pytest.mark.parametrize(
    ("hosts", "per_host", "voters"),
    [
        (2, "1", (1, 2)),
        (2, "2", (1, 2, 3)),
        (3, "1", (1, 2, 3)),
        (4, "1", (1, 2, 3)),
        (5, "2", (1, 2, 3, 4, 5)),
        (6, "4", (1, 2, 3, 4, 5)),
    ],
)
def test_controllers_are_on_different_hosts(tmp_path: Path, hosts: int, per_host: str, voters: tuple[int, ...]) -> None:
    names = tuple(f"10.0.0.{number}" for number in range(1, hosts + 1))
    files = planned(tmp_path / "c", hosts=names, host=names[0], brokers_per_host=per_host, cluster_id="x")
    assert files.config(1).voters == voters
    assert len({files.ports.host_of(voter) for voter in voters}) == min(hosts, len(voters))


def test_of_several_machines_the_first_draws_the_secret(tmp_path: Path) -> None:
    names = ("10.0.0.1", "10.0.0.2")
    first, second = (plan(Request(tmp_path / host, hosts=names, host=host, cluster_id="x"))[0] for host in names)
    assert re.fullmatch("[0-9a-f]{64}", first.config(1).cluster_secret)
    assert not second.config(2).cluster_secret
    with pytest.raises(ConfigError, match="--token with the token that `barnabas cluster token` prints"):
        second.config(2).check_keyed()
    joining, _ = plan(Request(tmp_path / names[0], hosts=names, host=names[0], cluster_id="x", token="t"))  # noqa: S106
    assert not joining.config(1).cluster_secret, "it is to come with the token"


def test_controllers_that_were_asked_for_are_these(tmp_path: Path) -> None:
    settings = {"controller.quorum.voters": "2,4,6"}
    assert planned(tmp_path / "c", brokers_per_host="6", settings=settings).config(1).voters == (2, 4, 6)


def test_every_machine_plans_the_same_cluster(tmp_path: Path) -> None:
    found = [
        planned(tmp_path / host, hosts=HOSTS, host=host, brokers_per_host="2", cluster_id="one", port=9000)
        for host in HOSTS
    ]
    assert [list(files.local_ids) for files in found] == [[1, 4], [2, 5], [3, 6]]
    assert len({files.bootstrap for files in found}) == 1
    assert len({tuple(files.config(files.local_ids[0]).nodes.items()) for files in found}) == 1
    assert found[1].config(5).listener == ("127.0.0.2", 9001)
    assert found[1].config(5).nodes[6] == ("127.0.0.3", 10001)
    for files, host in zip(found, HOSTS, strict=True):
        assert ClusterFiles.load(tmp_path / host) == files
        again, is_new = plan(Request(tmp_path / host))
        assert (again, is_new) == (files, False)
        assert plan(Request(tmp_path / host, hosts=HOSTS, host=host, cluster_id="one"))[0] == files
        assert not files.config(files.local_ids[0]).cluster_secret, "they could not have agreed on one"


def test_a_cluster_moves_to_other_addresses(tmp_path: Path) -> None:
    planned(tmp_path / "c", hosts=HOSTS, host=HOSTS[1], cluster_id="one", brokers_per_host="2", port=9000)
    moved = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    files = planned(tmp_path / "c", hosts=moved, port=9100)
    assert files.ports == PortPlan("10.0.0.2", 9100, 10100, 6, moved)
    with pytest.raises(ClusterError, match=r"has the brokers of host 2 of --hosts, which is not 10\.0\.0\.3"):
        plan(Request(tmp_path / "c", hosts=moved, host="10.0.0.3"))


def test_a_version_that_knows_one_host_refuses_a_cluster_on_several(tmp_path: Path) -> None:
    planned(tmp_path / "one", brokers_per_host="2")
    planned(tmp_path / "three", hosts=HOSTS, host=HOSTS[0], cluster_id="x")
    formats = [json.loads((tmp_path / name / "cluster.json").read_text())["format"] for name in ("one", "three")]
    assert formats == [1, 2]


def test_a_description_without_its_own_host_is_damaged(tmp_path: Path) -> None:
    planned(tmp_path / "c", hosts=HOSTS, host=HOSTS[0], cluster_id="x")
    path = tmp_path / "c" / "cluster.json"
    path.write_text(path.read_text().replace('"host": "127.0.0.1"', '"host": "127.0.0.9"'))
    with pytest.raises(ClusterError, match=r"is damaged: host 127\.0\.0\.9 is not one of its hosts"):
        ClusterFiles.load(tmp_path / "c")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"brokers_per_host": "0"}, "--brokers-per-host 0 is out of range: it must be auto, or from 1 to 64"),
        ({"brokers_per_host": "many"}, "--brokers-per-host many is out of range"),
        ({"brokers_per_host": "-1"}, "--brokers-per-host -1 is out of range"),
        ({"brokers_per_host": "22", "hosts": HOSTS, "host": HOSTS[0], "cluster_id": "x"}, "auto, or from 1 to 21"),
        ({"brokers_per_host": "2", "brokers": 2}, "take --brokers-per-host instead"),
        ({"hosts": HOSTS, "host": HOSTS[0], "brokers": 3, "cluster_id": "x"}, "take --brokers-per-host instead"),
        ({"hosts": HOSTS, "host": HOSTS[0]}, "must agree on a cluster id: give all of them --cluster-id [^ ]{22}$"),
        ({"hosts": HOSTS, "cluster_id": "x"}, "give each of them --host with its own address"),
        ({"hosts": HOSTS, "host": "127.0.0.9", "cluster_id": "x"}, "--host 127.0.0.9 is not among --hosts 127.0.0.1,"),
        ({"hosts": (*HOSTS, HOSTS[0]), "host": HOSTS[0], "cluster_id": "x"}, "names a host twice"),
        ({"hosts": ("0.0.0.0", "b"), "host": "b", "cluster_id": "x"}, "clients are told this address"),  # noqa: S104
        ({"hosts": ("a", ""), "host": "a", "cluster_id": "x"}, "host '' cannot be used"),
        (
            {"hosts": HOSTS, "host": HOSTS[0], "cluster_id": "x", "brokers_per_host": "auto"},
            r"auto counts the cores of this machine \(\d+\), which the other --hosts cannot know",
        ),
        ({"brokers_per_host": "2", "settings": {"controller.quorum.voters": "3"}}, "names 3, which cluster.nodes"),
    ],
)
def test_a_wish_that_cannot_work_is_refused(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        plan(Request(tmp_path / "c", **options))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"brokers_per_host": "3"}, "is a cluster of 2 brokers on each host, which --brokers-per-host 3 cannot change"),
        ({"hosts": HOSTS[:2]}, "is a cluster on 3 hosts, which --hosts with 2 cannot change"),
        ({"cluster_id": "another"}, "belongs to cluster one, not to another"),
        ({"host": "127.0.0.3"}, "has the brokers of host 1 of --hosts, which is not 127.0.0.3"),
        ({"host": "10.0.0.1"}, "--host 10.0.0.1 is not among --hosts"),
    ],
)
def test_what_a_cluster_is_cannot_be_changed(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    planned(tmp_path / "c", hosts=HOSTS, host=HOSTS[0], brokers_per_host="2", cluster_id="one")
    with pytest.raises(ClusterError, match=complaint):
        plan(Request(tmp_path / "c", **options))


def three_hosts(port: int, peer_port: int) -> PortPlan:
    return PortPlan(host="a", port=port, peer_port=peer_port, brokers=6, hosts=("a", "b", "c"))


def test_ports_are_counted_for_each_host() -> None:
    three_hosts(65_534, 60_000).check()
    with pytest.raises(PortError, match="2 brokers need the ports 65535 to 65536"):
        three_hosts(65_535, 60_000).check()
    with pytest.raises(PortError, match="too close: 2 brokers need 2 ports from each"):
        three_hosts(9000, 9001).check()


@pytest.mark.parametrize(
    ("text", "count"),
    [("max 100000\n", 6), ("150000 100000\n", 2), ("20000 100000\n", 1), ("900000 100000\n", 6), ("", 6), ("x y\n", 6)],
)
def test_cores_are_those_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    limit = tmp_path / "cpu.max"
    limit.write_text(text)
    assert cores(limit) == count


def test_cores_without_a_control_group_are_those_it_may_run_on(tmp_path: Path) -> None:
    assert cores(tmp_path / "none") == len(os.sched_getaffinity(0))
