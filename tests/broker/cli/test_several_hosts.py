"""A cluster on three hosts, which are three addresses of this machine. All but the wire between them is real."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from machines import cluster_handle

from barnabas_broker.config.broker import BrokerConfig

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

    def _start(self, host: str, *options: str) -> None:
        words = ["--hosts", ",".join(HOSTS), "--host", host, "--brokers-per-host", "2", "--cluster-id", "three-hosts"]
        words += ["--port", str(self.port), "--detach", *options]
        cluster_handle.run("cluster", "start", "--data", self.directories[host], *words, timeout_s=WAIT_S)

    def start_by_tokens(self) -> None:
        """Start the first with a secret, and the others by what the first has for them while it waits."""
        with ThreadPoolExecutor(len(HOSTS)) as pool:
            starts = [pool.submit(self._start, HOSTS[0], "--set", "cluster.secret=of the first")]
            starts += [pool.submit(self._start, host, "--token", self._token(HOSTS[0])) for host in HOSTS[1:]]
            for done in starts:
                done.result()

    def _token(self, host: str) -> str:
        """Ask until a broker listens there."""
        while True:
            try:
                return cluster_handle.run("cluster", "token", "--data", self.directories[host]).strip()
            except cluster_handle.CommandFailedError as error:
                if not any(reason in str(error) for reason in ("holds no cluster", "refused")):
                    raise

    def configurations(self) -> list[BrokerConfig]:
        paths = [path for known in self.directories.values() for path in known.glob("broker-*/broker.toml")]
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
        return [BrokerConfig.from_toml(path.read_text()) for path in paths]

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


def test_one_host_hands_its_secret_to_the_others_by_tokens(hosts: Hosts) -> None:
    hosts.start_by_tokens()
    assert [config.cluster_secret for config in hosts.configurations()] == ["of the first"] * 6
    assert hosts.states(HOSTS[2]) == ["running"] * 6
