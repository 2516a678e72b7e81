"""The process of a broker: readiness, one clear line on failure, a clean stop."""

import dataclasses
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker import main as broker_main
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.main import GC_THRESHOLDS

pytestmark = pytest.mark.process


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    return BrokerConfig.from_settings(
        {
            "node.id": 1,
            "cluster.id": "main",
            "log.dir": str(tmp_path / "data"),
            "listeners": f"127.0.0.1:{free_port()}",
            "cluster.nodes.1": f"127.0.0.1:{free_port()}",
            "log.journal.file.bytes": 1 << 20,
        }
    )


class Process:
    """One broker process and what it says about being ready."""

    def __init__(self, file: Path, *options: str) -> None:
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "barnabas_broker.main", "--config", str(file), "--ready-fd", str(writer)]
        command += options
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.popen = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.PIPE, text=True, env=env)
        os.close(writer)
        self._lines = os.fdopen(reader)
        if "--token" not in options:
            self.wait()

    def wait(self) -> str:
        """Return what it says when it is ready, or cannot be."""
        self.line = self._lines.readline().strip()
        return self.line

    def end(self) -> tuple[int, str]:
        _, errors = self.popen.communicate(timeout=20)
        self._lines.close()
        return self.popen.returncode, errors


@pytest.fixture
def started(tmp_path: Path, config: BrokerConfig) -> Iterator[Process]:
    file = tmp_path / "broker.toml"
    file.write_text(config.to_toml())
    process = Process(file)
    yield process
    if process.popen.poll() is None:
        process.popen.kill()
        process.end()


def test_it_says_ready_and_stops_cleanly_when_told(started: Process) -> None:
    assert started.line == "ready"
    started.popen.send_signal(signal.SIGTERM)
    status, log = started.end()
    assert status == 0
    assert log.splitlines()[-1].endswith("node 1 has stopped")
    assert "Traceback" not in log


def test_it_does_not_start_where_strangers_would_be_believed(
    started: Process, config: BrokerConfig, tmp_path: Path
) -> None:
    """Not this one: nobody else reaches the loopback. With a secret the other one gets as far as its disk."""
    assert started.line == "ready"
    nodes = {1: "0.0.0.0:1", 2: "192.0.2.1:1"}
    exposed = dataclasses.replace(config, cluster_nodes=nodes, log_dir="/dev/null/data")
    file = tmp_path / "open.toml"
    file.write_text(exposed.to_toml())
    process = Process(file)
    status, errors = process.end()
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "cluster.secret is not set, so anybody who reaches 0.0.0.0:1, 192.0.2.1:1 would be believed" in errors
    assert process.line.startswith(f"error: {file}: cluster.secret is not set")
    file.write_text(exposed.to_toml() + 'cluster.secret = "s"\n')
    assert "cannot use /dev/null/data" in Process(file).end()[1]


@pytest.mark.parametrize("name", ["listeners", "cluster.nodes.1", "log.dir"])
def test_what_is_taken_already_is_one_clear_line(
    started: Process, config: BrokerConfig, tmp_path: Path, name: str
) -> None:
    assert started.line == "ready"
    settings: dict[str, str | int | bool] = {
        "node.id": 1,
        "cluster.id": "main",
        "log.dir": str(tmp_path / "other"),
        "listeners": f"127.0.0.1:{free_port()}",
        "cluster.nodes.1": f"127.0.0.1:{free_port()}",
    }
    taken = {"listeners": config.listeners, "cluster.nodes.1": config.cluster_nodes[1], "log.dir": config.log_dir}
    file = tmp_path / "second.toml"
    file.write_text(BrokerConfig.from_settings(settings | {name: taken[name]}).to_toml())
    second = Process(file)
    status, errors = second.end()
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "node 1 cannot start: " in errors
    assert second.line.startswith("error: node 1 cannot start: ")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"node.idd = 1\n", "unknown setting: node.idd (did you mean node.id?)"),
        (b"\xff" * 600, "not valid TOML: byte 0 is not UTF-8"),
        (b"\0" * 600, "not valid TOML: Invalid statement (at line 1, column 1)"),
        (b'"x\\n\\u001b[2J" = 1', r"unknown setting: x\n\x1b[2J; barnabas broker settings shows all"),
    ],
)
def test_a_bad_configuration_is_one_clear_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    process = Process(file)
    assert process.end() == (1, f"barnabas broker: {file}: {complaint}\n")
    assert process.line.startswith("error: ")


def test_it_refuses_to_run_without_its_assertions(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-m", "barnabas_broker.main", "--config", str(tmp_path / "any")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    assert "refuses to run under -O" in done.stderr


def test_a_broker_joins_with_a_token_of_another_once(config: BrokerConfig, tmp_path: Path) -> None:
    nodes = {1: config.cluster_nodes[1], 2: f"127.0.0.1:{free_port()}", 3: f"127.0.0.1:{free_port()}"}
    common = {"cluster_nodes": nodes, "controller_quorum_voters": "1"}
    files = [tmp_path / f"{node_id}.toml" for node_id in nodes]
    for node_id, path in enumerate(files, 1):
        own = {"node_id": node_id, "listeners": f"127.0.0.1:{free_port()}", "log_dir": str(tmp_path / f"d{node_id}")}
        path.write_text(dataclasses.replace(config, **common, **own).to_toml())  # type: ignore[arg-type]
    shared = "of the first"
    files[0].write_text(files[0].read_text() + f'cluster.secret = "{shared}"\n')
    running: list[Process] = []
    try:
        # It is ready only when all are there, or after a while; nobody waits for that here.
        running.append(Process(files[0], "--token", "not needed where there is a secret"))
        token = until_issued(files[0])
        running.append(Process(files[1], "--token", token))
        assert running[1].wait() == "ready"
        assert BrokerConfig.from_toml(files[1].read_text()).cluster_secret == shared
        assert files[1].stat().st_mode & 0o777 == 0o600
        before = files[2].read_text()
        third = Process(files[2], "--token", token)
        assert "the token was not redeemed by" in third.wait()
        assert third.end()[0] == 1
        assert files[2].read_text() == before
    finally:
        for process in running:
            process.popen.kill()
            process.end()


def until_issued(file: Path) -> str:
    """Ask until the broker listens."""
    command = [sys.executable, "-m", "barnabas_broker.cli.entry", "cluster", "token", "--config", str(file)]
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if not done.returncode:
            assert "valid once, for 600 s, while broker 1 runs" in done.stderr
            assert "of the first" not in done.stdout
            return done.stdout.strip()
        assert "no broker of this machine keeps a token" in done.stderr


def test_the_garbage_collector_never_looks_at_many_objects_in_one_go() -> None:
    young, between, rarely = GC_THRESHOLDS
    assert young * (between + 2) <= 15_000
    assert young * (between + 1) * rarely >= 100_000_000, "to look at all of them takes a second"


def run_broker(*words: str, **variables: str) -> tuple[int, str]:
    """Run `barnabas broker run`, which is not to come up, and return its exit status and what it says."""
    command = [sys.executable, "-m", "barnabas_broker.cli.entry", "broker", "run", *words]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_each_mistake_of_a_start_is_said_once(config: BrokerConfig, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(config.to_toml())
    prefix = "barnabas broker: "
    assert run_broker("--config", "/nope.toml") == (1, f"{prefix}/nope.toml: No such file or directory\n")
    assert run_broker("--confg", "x") == (2, f"{prefix}unrecognized arguments: --confg x (did you mean --config?)\n")
    status, said = run_broker("--config", str(file), BARNABAS_LOG_DIRS="/x")
    assert (status, said) == (
        1,
        f"{prefix}unknown environment variable: BARNABAS_LOG_DIRS (did you mean BARNABAS_LOG_DIR?)\n",
    )
    assert run_broker("--set", "node.id=1", "--token", "t")[1].startswith(f"{prefix}missing settings: cluster.id")


def test_a_broker_comes_up_from_its_environment_and_set_alone(config: BrokerConfig, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "barnabas_broker.main", "--ready-fd", str(writer)]
    command += ["--set", f"listeners=inside://{config.listeners},outside://127.0.0.1:0", "--set", "log.roll.ms=7d"]
    variables = {
        "BARNABAS_NODE_ID": "1",
        "BARNABAS_CLUSTER_ID": "by-variables",
        "BARNABAS_CLUSTER_NODES": f"1@{config.cluster_nodes[1]}",
        "BARNABAS_LOG_DIR": str(tmp_path / "data"),
        "BARNABAS_LISTENERS": "127.0.0.1:1",  # --set counts more
    }
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    process = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.PIPE, text=True, env=env)
    os.close(writer)
    with os.fdopen(reader) as lines:
        assert lines.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f"clients are served on ports {config.listener.port} (inside), " in log


def test_a_broker_logs_to_its_file_in_the_form_that_was_asked_for(config: BrokerConfig, tmp_path: Path) -> None:
    path = tmp_path / "logged.json"
    file = tmp_path / "broker.toml"
    asked = dataclasses.replace(config, log_format="json", log_file_path=str(path), log_level="DEBUG")
    file.write_text(asked.to_toml())
    process = Process(file)
    assert process.line == "ready"
    process.popen.send_signal(signal.SIGTERM)
    assert process.end() == (0, "")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert "serving" in [line.get("event") for line in lines]
    assert lines[-1]["message"] == "node 1 has stopped"


def test_a_log_that_cannot_be_written_is_one_clear_line(config: BrokerConfig, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "broker.log"
    file = tmp_path / "broker.toml"
    file.write_text(dataclasses.replace(config, log_file_path=str(path)).to_toml())
    assert Process(file).end() == (1, f"barnabas broker: {path}: No such file or directory\n")


@pytest.mark.parametrize("lack", ["the walker is missing", ""])
def test_a_broker_says_what_its_installation_lacks_when_it_starts(
    lack: str, config: BrokerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def ran(*_: object) -> int:
        return 0

    monkeypatch.setattr(broker_main, "LACK", lack)
    monkeypatch.setattr(broker_main, "_configuration", lambda _: config)
    monkeypatch.setattr(broker_main, "_run", ran)
    for name in ("log_as_configured", "keep_freed", "_raise_file_limit"):
        monkeypatch.setattr(broker_main, name, lambda *_: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    assert broker_main.main([]) == 0
    told = [(row.levelname, row.getMessage()) for row in caplog.records if row.name == "barnabas_broker.main"]
    assert told == ([("WARNING", lack)] if lack else [])
