"""The systems that a benchmark compares, each started by the benchmark itself, on loopback, three nodes.

Barnabas, Apache Kafka (KRaft, each node broker and controller, the heap and collector flags of its own start script)
and NATS with JetStream. `synced` asks for every acknowledged write to be on disk first, on all of them the same:
Barnabas `flush.mode=fsync`, Kafka `log.flush.interval.messages=1`, NATS `sync_interval: always`. Without it each runs
with its page-cache durability: Barnabas `flush.mode=page-cache`, the others as they ship.

What a peer needs is fetched once, through Maven or Go, into a cache outside the checkout; `BARNABAS_BENCH_CACHE` moves
it. A peer that cannot be had raises `NotInstalledError`, and the benchmark prints "not measured" for it.
"""

import hashlib
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from cluster_handle import BARNABAS, cluster, free_port

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("BARNABAS_BENCH_CACHE", Path.home() / ".cache" / "barnabas-bench"))
NATS_VERSION = "v2.15.2"
NODES = 3
CODE_FOLDERS = ("raftlog", "clients", "metadata_quorum", "broker")
READY_LIMIT_S = 90.0
KAFKA_FLAGS = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
KAFKA_CLUSTER_ID = "YmFybmFiYXMtYmVuY2gtMQ"  # any 16 bytes, base64 for URLs, as Kafka wants it


class NotInstalledError(RuntimeError):
    """A peer cannot be had on this machine; the message says why."""


class Running(NamedTuple):
    """A system that is up. `pids` are its processes by node id; who was killed is not among them."""

    address: str
    pids: dict[int, int]
    ready_s: float

    def kill(self, node_id: int) -> None:
        os.kill(self.pids.pop(node_id), signal.SIGKILL)


def install_kafka() -> Path:
    """Return the folder with Kafka's jars, its console tools among them, fetching them if need be."""
    jars = CACHE / "kafka-4.3.1"
    if not (jars / "kafka-tools-4.3.1.jar").exists():
        fetch(
            "mvn", "-q", "-B", "-f", HERE / "kafka.pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"
        )
    if shutil.which("java") is None:
        raise NotInstalledError("no java on the PATH")
    return jars


def install_nats() -> tuple[Path, Path]:
    """Return the server and the load generator, building both if need be."""
    source_sum = hashlib.sha256((HERE / "nats_load" / "main.go").read_bytes()).hexdigest()[:12]
    server, load = CACHE / "nats-server", CACHE / f"natsload-{source_sum}"
    if not server.exists():
        fetch("go", "install", f"github.com/nats-io/nats-server/v2@{NATS_VERSION}", env={"GOBIN": str(CACHE)})
    if not load.exists():
        with tempfile.TemporaryDirectory() as copy:  # Go writes go.sum beside the source: not into the checkout.
            source = shutil.copytree(HERE / "nats_load", Path(copy) / "nats_load")
            fetch("go", "mod", "tidy", cwd=source)
            fetch("go", "build", "-o", load, ".", cwd=source)
    return server, load


def fetch(*command: object, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a command that fetches or builds something into the cache; what keeps it from that is `NotInstalledError`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, env=os.environ | (env or {}), cwd=cwd, capture_output=True, text=True, timeout=600, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from error
    if done.returncode:
        raise NotInstalledError((done.stderr or done.stdout).strip().splitlines()[-1])


@contextmanager
def barnabas(*, synced: bool) -> Iterator[Running]:
    """Run three Barnabas brokers: started as a user would to see how soon they are ready, then again as the peers are.

    `cluster start` makes a session for each. Linux gives each session a share of the processor (autogroup), and a load
    of several threads that never rest, as librdkafka's may, kept nodes of other sessions from running for up to 0.2 s.
    """
    with cluster(NODES, {"flush.mode": "fsync" if synced else "page-cache"}) as brokers:
        brokers.stop()
        run = [str(BARNABAS), "broker", "run", "--config"]
        commands = [[*run, str(brokers.data / f"broker-{k + 1}" / "broker.toml")] for k in range(NODES)]
        with _processes(brokers.data.parent, commands) as pids:
            _wait_for(lambda: _brokers_known(brokers.bootstrap) == NODES, "Barnabas")
            yield Running(brokers.bootstrap, pids, brokers.ready_s)


@contextmanager
def barnabas_at(tree: Path, *, synced: bool) -> Iterator[Running]:
    """Run three Barnabas brokers with the code of a checkout, or of a part of its history, in `tree`."""
    with _directory("barnabas-") as home:
        port = free_port()
        commands = []
        for k in range(NODES):
            settings: dict[str, int | str] = {
                "node.id": k + 1,
                "cluster.id": "bench",
                "log.dir": f"{home}/data{k + 1}",
                "listeners": f"127.0.0.1:{port + k}",
                "flush.mode": "fsync" if synced else "page-cache",
            }
            settings |= {f"cluster.nodes.{j + 1}": f"127.0.0.1:{port + 1000 + j}" for j in range(NODES)}
            file = home / f"node{k + 1}.toml"
            # TOML writes numbers and such strings as JSON does.
            file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
            commands.append([sys.executable, "-m", "barnabas_broker.main", "--config", str(file)])
        bootstrap = ",".join(f"127.0.0.1:{port + k}" for k in range(NODES))
        # What stands here comes before the packages that the environment was made of.
        path = os.pathsep.join(str(tree / folder) for folder in CODE_FOLDERS)
        began = time.monotonic()
        with _processes(home, commands, {"PYTHONPATH": path}) as pids:
            _wait_for(lambda: _brokers_known(bootstrap) == NODES, "Barnabas")
            yield Running(bootstrap, pids, time.monotonic() - began)


@contextmanager
def kafka(*, synced: bool) -> Iterator[Running]:
    """Run three Kafka nodes."""
    jars = install_kafka()
    with _directory("kafka-") as home:
        port = free_port()
        voters = ",".join(f"{k + 1}@127.0.0.1:{port + 1000 + k}" for k in range(NODES))
        commands = []
        for k in range(NODES):
            settings = {
                "process.roles": "broker,controller",
                "node.id": k + 1,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{port + k},CONTROLLER://127.0.0.1:{port + 1000 + k}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port + k}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": home / f"data{k + 1}",
                "offsets.topic.replication.factor": NODES,
                "min.insync.replicas": 1,
            }
            if synced:
                settings["log.flush.interval.messages"] = 1
            file = home / f"node{k + 1}.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            java = ["java", *KAFKA_FLAGS, "-cp", f"{jars}/*"]
            formatting = ["kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER_ID, "-c", str(file)]
            subprocess.run([*java, *formatting], check=True, capture_output=True)
            commands.append([*java, "kafka.Kafka", str(file)])
        bootstrap = ",".join(f"127.0.0.1:{port + k}" for k in range(NODES))
        began = time.monotonic()
        with _processes(home, commands) as pids:
            _wait_for(lambda: _brokers_known(bootstrap) == NODES, "Kafka")
            yield Running(bootstrap, pids, time.monotonic() - began)


@contextmanager
def nats(*, synced: bool) -> Iterator[Running]:
    """Run three NATS servers with JetStream."""
    server, _ = install_nats()
    with _directory("nats-") as home:
        port = free_port()
        routes = ", ".join(f'"nats://127.0.0.1:{port + 1000 + k}"' for k in range(NODES))
        commands = []
        for k in range(NODES):
            sync = ", sync_interval: always" if synced else ""
            file = home / f"node{k + 1}.conf"
            file.write_text(
                f'server_name: node{k + 1}\nlisten: "127.0.0.1:{port + k}"\nhttp: "127.0.0.1:{port + 20 + k}"\n'
                f'jetstream {{ store_dir: "{home}/data{k + 1}"{sync} }}\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{port + 1000 + k}", routes: [{routes}] }}\n'
            )
            commands.append([str(server), "-c", str(file)])
        began = time.monotonic()
        with _processes(home, commands) as pids:
            for k in range(NODES):
                _wait_for(partial(_healthy, f"http://127.0.0.1:{port + 20 + k}/healthz"), "NATS")
            urls = ",".join(f"nats://127.0.0.1:{port + k}" for k in range(NODES))
            yield Running(urls, pids, time.monotonic() - began)


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
