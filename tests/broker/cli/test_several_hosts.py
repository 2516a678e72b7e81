"""A cluster on three hosts, which are three addresses of this machine: everything but the wire between them is real."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cluster_handle
import pytest

pytestmark = pytest.mark.process

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
WAIT_S = 60.0


class Hosts:
    """One directory for each host, as if it were that machine's."""

    def __init__(self, directory: Path) -> None:
        self.directories = {host: directory / host for host in HOSTS}
        self.port = cluster_handle.free_port(2)

    def start(self, *hosts: str) -> None:
        """Start these hosts' brokers, all at once: none is ready before a majority of controllers is up."""
        with ThreadPoolExecutor(len(hosts)) as pool:
            for done in [pool.submit(self._start, host) for host in hosts]:
                done.result()

    def _start(self, host: str) -> None:
        words = ["--hosts", ",".join(HOSTS), "--host", host, "--brokers-per-host", "2", "--cluster-id", "three-hosts"]
        words += ["--port", str(self.port), "--detach"]
        cluster_handle.run("cluster", "start", "--data", self.directories[host], *words, timeout_s=WAIT_S)

    def kill(self, host: str) -> None:
        for path in self.directories[host].glob("broker-*/broker.pid"):
            os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)

    def states(self, asked: str) -> list[str]:
        found = json.loads(cluster_handle.run("cluster", "status", "--data", self.directories[asked], "--json"))
        return [broker["state"] for broker in found["brokers"]]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    found = Hosts(tmp_path)
    yield found
    for directory in found.directories.values():
        if (directory / "cluster.json").exists():
            cluster_handle.run("cluster", "stop", "--data", directory)


def test_a_host_falls_with_all_its_brokers_and_nothing_is_lost(hosts: Hosts) -> None:
    hosts.start(*HOSTS)
    there = ("--bootstrap-server", f"{HOSTS[1]}:{hosts.port}")
    cluster_handle.run("topic", "create", "t", *there, "--partitions", 6, "--replication-factor", 3)
    described = json.loads(cluster_handle.run("topic", "describe", "t", *there, "--json"))
    for partition in described["partitions"]:
        # Broker 1 and 4 are on the first host, 2 and 5 on the second, 3 and 6 on the third.
        assert sorted(node % 3 for node in partition["replicas"]) == [0, 1, 2], "one replica on each host"
    lines = "".join(f"record {number}\n" for number in range(300))
    produce = [str(cluster_handle.BARNABAS), "produce", "t", *there]
    subprocess.run(produce, input=lines, text=True, check=True, timeout=WAIT_S, capture_output=True)
    hosts.kill(HOSTS[0])
    words = ("--from-beginning", "--exit-at-end")
    read = cluster_handle.run("consume", "t", *there, *words, timeout_s=WAIT_S)
    assert sorted(read.splitlines()) == sorted(lines.splitlines())
    assert hosts.states(HOSTS[1]) == ["stopped", "running", "running"] * 2
    hosts.start(HOSTS[0])
    assert hosts.states(HOSTS[1]) == ["running"] * 6
    assert hosts.states(HOSTS[0]) == ["running"] * 6
