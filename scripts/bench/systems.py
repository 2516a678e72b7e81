"""Starts the systems that a benchmark compares: three nodes each, on loopback or apart.

Barnabas, Apache Kafka (KRaft, each node broker and controller, the heap and collector flags of its own start script)
and NATS with JetStream. `synced` asks for every acknowledged write to be on disk first, on all of them the same:
Barnabas `flush.mode=fsync`, Kafka `log.flush.interval.messages=1`, NATS `sync_interval: always`. Without it each runs
with its page-cache durability: Barnabas `flush.mode=page-cache`, the others as they ship.

Peers are fetched once, through Maven or Go, into the cache (`machines/cache.py`). A peer that cannot be had raises
`NotInstalledError`, and the benchmark prints "not measured" for it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from machines.cache import go_install, go_program, kept
from machines.cluster_handle import BARNABAS, cluster, free_port, link_settings
from machines.delayed_network import address_of, namespace_of
from machines.java import copy_jars, jars

HERE = Path(__file__).resolve().parent
POMS = HERE / "maven"
KAFKA_VERSION = "4.4.0"
NATS_VERSION = "v2.15.2"
NODES = 3
CODE_FOLDERS = ("raftlog", "clients", "metadata_quorum", "broker")
READY_LIMIT_S = 90.0
KAFKA_FLAGS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
KAFKA_CLUSTER_ID = "YmFybmFiYXMtYmVuY2gtMQ"  # any 16 bytes, base64 for URLs, as Kafka wants it


class Setup(NamedTuple):
    """The settings of systems beyond their defaults, and the place of their nodes.

    Attributes:
        min_insync: Replicas that acks=all needs; NATS always asks a majority.
        link_delay_ms: The one-way delay between Barnabas' brokers. The peers have no such setting.
        is_apart: Each node runs on a machine of `delayed_network`, which the caller has made.
    """

    min_insync: int = 1
    link_delay_ms: float = 0.0
    is_apart: bool = False

    def host(self, node: int) -> str:
        """Return the address of node 0, 1 or 2."""
        return address_of(node + 1) if self.is_apart else "127.0.0.1"

    def command(self, node: int, words: list[str]) -> list[str]:
        return ["ip", "netns", "exec", namespace_of(node + 1), *words] if self.is_apart else words

    def addresses(self, port: int, scheme: str = "", nodes: int = NODES) -> str:
        return ",".join(f"{scheme}{self.host(k)}:{port + k}" for k in range(nodes))


ALONE = Setup()


class Running(NamedTuple):
    """A system that is up. `pids` are its processes by node id, without those that were killed."""

    address: str
    pids: dict[int, int]
    ready_s: float

    def kill(self, node_id: int) -> None:
        os.kill(self.pids.pop(node_id), signal.SIGKILL)


def install_kafka() -> Path:
    """Return the folder with Kafka's jars, its console tools among them, fetching them if need be."""
    return _kafka_jars("kafka")


def install_streams() -> Path:
    """Return the folder with Kafka Streams and the jars that it needs, fetching them if need be."""
    return _kafka_jars("streams")


def _kafka_jars(pom: str) -> Path:
    return jars(f"{pom}-{KAFKA_VERSION}", POMS / f"{pom}.pom.xml", f"-Dkafka.version={KAFKA_VERSION}")


def install_spark_kafka(spark_version: str) -> list[Path]:
    """Return the jars that Spark's Kafka connector needs beside Spark's own, fetching them if need be."""
    # What else the connector names is among Spark's jars already, in the versions that Spark has chosen.
    wanted = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"

    def fetch_jars(to: Path) -> None:
        copy_jars(
            POMS / "spark-kafka.pom.xml", to, f"-Dspark.version={spark_version}", f"-DincludeArtifactIds={wanted}"
        )

    return sorted(kept(f"spark-kafka-{spark_version}", fetch_jars).glob("*.jar"))


def install_nats() -> tuple[Path, Path]:
    """Return the server and the load generator, building both if need be."""
    server = go_install("github.com/nats-io/nats-server/v2", NATS_VERSION)
    return server, go_program("natsload", HERE / "loads" / "nats_load")


@contextmanager
def barnabas(*, synced: bool, setup: Setup = ALONE) -> Iterator[Running]:
    """Run three Barnabas brokers: started as a user would to see how soon they are ready, then again as the peers are.

    `cluster start` makes a session for each. Linux gives each session a share of the processor (autogroup), and a load
    of several threads that never rest, as librdkafka's may, kept nodes of other sessions from running for up to 0.2 s.
    """
    if setup.is_apart:
        with _barnabas_from_files(synced=synced, setup=setup) as running:
            yield running
        return
    with cluster(NODES, _barnabas_settings(synced=synced, setup=setup)) as brokers:
        brokers.stop()
        run = [str(BARNABAS), "broker", "run", "--config"]
        commands = [[*run, str(brokers.data / f"broker-{k + 1}" / "broker.toml")] for k in range(NODES)]
        with _processes(brokers.data.parent, commands) as pids:
            _wait_for(lambda: _brokers_known(brokers.bootstrap) == NODES, "Barnabas")
            yield Running(brokers.bootstrap, pids, brokers.ready_s)


@contextmanager
def barnabas_at(tree: Path, *, synced: bool) -> Iterator[Running]:
    """Run three Barnabas brokers with the code of a checkout, or of a part of its history, in `tree`."""
    # These folders come before the packages that the environment was made of.
    path = os.pathsep.join(str(tree / folder) for folder in CODE_FOLDERS)
    with _barnabas_from_files(synced=synced, environment={"PYTHONPATH": path}) as running:
        yield running


def _barnabas_settings(*, synced: bool, setup: Setup) -> dict[str, str]:
    return {
        "flush.mode": "fsync" if synced else "page-cache",
        **({"min.insync.replicas": str(setup.min_insync)} if setup.min_insync > 1 else {}),
        **link_settings(setup.link_delay_ms),
    }


@contextmanager
def _barnabas_from_files(
    *, synced: bool, setup: Setup = ALONE, environment: dict[str, str] | None = None
) -> Iterator[Running]:
    with _directory("barnabas-") as home:
        port = free_port()
        commands = []
        for k in range(NODES):
            settings: dict[str, int | str] = {
                "node.id": k + 1,
                "cluster.id": "bench",
                "cluster.secret": "bench",
                "log.dir": f"{home}/data{k + 1}",
                "listeners": f"{setup.host(k)}:{port + k}",
            }
            settings |= {name: _number(value) for name, value in _barnabas_settings(synced=synced, setup=setup).items()}
            settings |= {f"cluster.nodes.{j + 1}": f"{setup.host(j)}:{port + 1000 + j}" for j in range(NODES)}
            file = home / f"node{k + 1}.toml"
            # TOML writes numbers and such strings as JSON does.
            file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
            words = [sys.executable, "-m", "barnabas_broker.main", "--config", str(file)]
            commands.append(setup.command(k, words))
        bootstrap = setup.addresses(port)
        began = time.monotonic()
        with _processes(home, commands, environment) as pids:
            _wait_for(lambda: _brokers_known(bootstrap) == NODES, "Barnabas")
            yield Running(bootstrap, pids, time.monotonic() - began)


def _number(value: str) -> int | str:
    return int(value) if value.isdecimal() else value


@contextmanager
def kafka(
    *,
    synced: bool,
    setup: Setup = ALONE,
    nodes: int = NODES,
    settings: Mapping[str, object] | None = None,
    classes: Path | None = None,
) -> Iterator[Running]:
    """Run three Kafka nodes; fewer, or with more `settings` or `classes` (a folder), for what is no benchmark."""
    jars = install_kafka()
    with _directory("kafka-") as home:
        port = free_port()
        voters = ",".join(f"{k + 1}@{setup.host(k)}:{port + 1000 + k}" for k in range(nodes))
        commands = []
        for k in range(nodes):
            properties = {
                "process.roles": "broker,controller",
                "node.id": k + 1,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{setup.host(k)}:{port + k},CONTROLLER://{setup.host(k)}:{port + 1000 + k}",
                "advertised.listeners": f"PLAINTEXT://{setup.host(k)}:{port + k}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": home / f"data{k + 1}",
                "offsets.topic.replication.factor": nodes,
                "transaction.state.log.replication.factor": nodes,
                "transaction.state.log.min.isr": min(nodes, 2),
                "min.insync.replicas": setup.min_insync,
                **(settings or {}),
            }
            if synced:
                properties["log.flush.interval.messages"] = 1
            file = home / f"node{k + 1}.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            java = ["java", *KAFKA_FLAGS, "-cp", f"{jars}/*:{classes}" if classes else f"{jars}/*"]
            formatting = ["kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER_ID, "-c", str(file)]
            subprocess.run([*java, *formatting], check=True, capture_output=True)
            commands.append(setup.command(k, [*java, "kafka.Kafka", str(file)]))
        bootstrap = setup.addresses(port, nodes=nodes)
        began = time.monotonic()
        with _processes(home, commands) as pids:
            _wait_for(lambda: _brokers_known(bootstrap) == nodes, "Kafka")
            yield Running(bootstrap, pids, time.monotonic() - began)


@contextmanager
def nats(*, synced: bool, setup: Setup = ALONE) -> Iterator[Running]:
    """Run three NATS servers with JetStream."""
    server, _ = install_nats()
    with _directory("nats-") as home:
        port = free_port()
        routes = ", ".join(f'"nats://{setup.host(k)}:{port + 1000 + k}"' for k in range(NODES))
        commands = []
        for k in range(NODES):
            sync = ", sync_interval: always" if synced else ""
            file = home / f"node{k + 1}.conf"
            file.write_text(
                f'server_name: node{k + 1}\nlisten: "{setup.host(k)}:{port + k}"\n'
                f'http: "{setup.host(k)}:{port + 20 + k}"\n'
                f'jetstream {{ store_dir: "{home}/data{k + 1}"{sync} }}\n'
                f'cluster {{ name: bench, listen: "{setup.host(k)}:{port + 1000 + k}", routes: [{routes}] }}\n'
            )
            commands.append(setup.command(k, [str(server), "-c", str(file)]))
        began = time.monotonic()
        with _processes(home, commands) as pids:
            for k in range(NODES):
                _wait_for(partial(_healthy, f"http://{setup.host(k)}:{port + 20 + k}/healthz"), "NATS")
            yield Running(setup.addresses(port, "nats://"), pids, time.monotonic() - began)


@contextmanager
def _directory(prefix: str) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _processes(
    home: Path, commands: list[list[str]], variables: dict[str, str] | None = None
) -> Iterator[dict[int, int]]:
    """Run one process a command, nodes 1, 2, ...; yields their ids."""
    environment = os.environ | (variables or {})
    with (home / "out.log").open("wb") as out:
        running = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
            for command in commands
        ]
        try:
            yield {node_id: process.pid for node_id, process in enumerate(running, 1)}
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _wait_for(condition: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} was not ready after {READY_LIMIT_S:.0f} s")
        time.sleep(0.1)


def _brokers_known(bootstrap: str) -> int:
    try:
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 2000})
        return len(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return 0


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310 - the address is ours, on loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
