"""Every command that asks brokers says what it waits for, and ends by its own timeout."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from barnabas_broker.cli import entry as cli
from barnabas_broker.cli.parser.app import app
from barnabas_broker.local_cluster import joining, notices
from barnabas_broker.local_cluster.status import configured_status
from barnabas_clients.cluster import trouble

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
WATCH = "barnabas_broker.cli.commands.watch"
STORED = {"profile set"}
"""Commands whose address is for others."""

ASKING = """
topic create t
topic list
topic describe t
topic alter t --partitions 3
topic observers t
topic delete-records t --all
topic delete t
config list --topic t
config describe --topic t
config set retention.ms=7d --topic t
config unset retention.ms --topic t
group list
group describe g
group reset-offsets g --to-latest
group delete-offsets g --topic t
group delete g
reassign t --brokers 1
reassign --status
reassign --cancel
produce t --file {file}
produce t --file {file} --partition 3
consume t
consume t --group g
consume t --regex
snapshot create month-end t
snapshot list
snapshot show month-end
snapshot delete month-end
txn list
txn describe x
txn producers t 0
txn why t 0
txn find-hanging
txn abort t 0 --start-offset 5
topic elect
topic elect t
quorum describe
cluster unregister 77
features describe
features upgrade transaction.version=2
features downgrade transaction.version=1
bench produce
bench consume
bench latency
cluster health
cluster events --config {config}
""".strip().splitlines()


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """Return the address of somebody who takes connections, in the kernel's queue, and never says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def filled(tmp_path: Path, silent: str) -> Any:
    """Return what fills the places in a command."""
    file = tmp_path / "file"
    file.write_text("a line\n")
    config = tmp_path / "broker.toml"
    config.write_text(
        f'node.id = 1\ncluster.id = "c"\nlog.dir = "d"\nlisteners = "127.0.0.1:9092"\ncluster.secret = "{"s" * 32}"\n'
        f'[cluster.nodes]\n1 = "{silent}"\n'
    )
    return partial(str.format, file=file, config=config)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second that people are not told of be a moment, in which the connection is begun.

    Code that is loaded with the first client would take of the time that the commands are given.
    """
    for engine in ("admin.topics", "admin.groups", "consumer.core", "producer.sender"):
        import_module(f"barnabas_clients.{engine}")
    for module in ("barnabas_broker.cli.waiting", f"{WATCH}.asking", "barnabas_broker.local_cluster.notices"):
        monkeypatch.setattr(f"{module}.NOTICE_S", 0.0)
    monkeypatch.setattr("barnabas_broker.cli.waiting.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(trouble, "LONG_S", 0.02)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("words", ASKING)
def test_a_command_says_whom_it_waits_for_and_ends_by_its_timeout(
    words: str, silent: str, filled: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*shlex.split(filled(words)), "-b", silent, "--timeout", "0.5"]) == 1
    out, err = capsys.readouterr()
    notice = err.splitlines()[0]
    assert "waiting" in notice
    assert silent in notice
    assert notice.endswith("until 0.5 s are over")
    last = (err + out).splitlines()[-1]
    assert "0.5 s" in last
    assert last != notice, "that it has ended is told, too"


def test_every_command_that_takes_an_address_is_in_the_list() -> None:
    known = {name for name in addressed(typer.main.get_command(app), ()) if name not in STORED}
    listed = {max((name for name in known if f"{words} ".startswith(f"{name} ")), key=len) for words in ASKING}
    assert listed == known


def addressed(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    for name, each in getattr(command, "commands", {}).items():
        yield from addressed(each, (*path, name))
    if any("--bootstrap-server" in parameter.opts for parameter in command.params):
        yield " ".join(path)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("words", "ends_with", "notice", "last"),
    [
        ("cluster token --config {config}", 1, "waiting for broker 1", "no broker of this machine keeps a token"),
        ("cluster status --config {config} --json", 0, "waiting for brokers that do not answer yet", "unreachable"),
        (
            "topic give-up-voter t --partition 0 --voter 1 --config {config} --timeout 0.5",
            1,
            "waiting for broker 1; asking until 0.5 s are over",
            "no broker that answers has a replica of t-0",
        ),
    ],
)
def test_so_does_a_command_that_asks_on_the_ports_between_brokers(
    words: str,
    ends_with: int,
    notice: str,
    last: str,
    filled: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "TIMEOUT_S", 0.15)
    monkeypatch.setattr(f"{WATCH}.status.configured_status", partial(configured_status, timeout_s=0.15))
    assert cli.main(shlex.split(filled(words))) == ends_with
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == f"barnabas: {notice}"
    assert last in (err + out).splitlines()[-1]


@pytest.mark.slow
def test_real_processes_say_it_before_their_timeout(silent: str) -> None:
    kinds = ("topic list", "consume t", "cluster health")
    command = [sys.executable, "-m", "barnabas_broker.cli.entry"]
    running = [
        subprocess.Popen(
            [*command, *words.split(), "-b", silent, "--timeout", "1.5"],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in kinds
    ]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "until 1.5 s are over" in err.splitlines()[0]
        assert "1.5 s" in (err + out).splitlines()[-1]


def test_the_second_is_one() -> None:
    assert notices.NOTICE_S == trouble.LONG_S == 1.0
