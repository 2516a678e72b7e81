"""The broker as a process: readiness, one clear line when it cannot start, a clean stop."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.config import BrokerConfig
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

    def __init__(self, file: Path) -> None:
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "barnabas_broker.main", "--config", str(file), "--ready-fd", str(writer)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.popen = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.PIPE, text=True, env=env)
        os.close(writer)
        with os.fdopen(reader) as lines:
            self.line = lines.readline().strip()

    def end(self) -> tuple[int, str]:
        _, errors = self.popen.communicate(timeout=20)
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
        (b'"x\\n\\u001b[2J" = 1', r"unknown setting: x\n\x1b[2J"),
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


def test_the_garbage_collector_never_looks_at_many_objects_in_one_go() -> None:
    young, between, rarely = GC_THRESHOLDS
    assert young * (between + 1) <= 6_000
    assert young * (between + 1) * rarely >= 100_000_000, "to look at all of them takes a second"
