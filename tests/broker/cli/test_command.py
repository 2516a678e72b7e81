"""The `barnabas` command as users meet it: output, exit status, one line for a mistake."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgpack
import pytest
from machines import cluster_handle

from barnabas_broker.cli import entry as cli
from barnabas_broker.cli import quick_start as cli_start
from barnabas_broker.cli.commands.cluster import start as cluster
from barnabas_broker.cli.parser import app
from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.plan import Request
from barnabas_broker.local_cluster.supervisor import start_cluster, stop_brokers
from barnabas_raftlog.links import admin
from barnabas_raftlog.links.rpc import LinkDownError

STAND_IN = Path(__file__).with_name("stand_in.py")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
# The command with stand-ins for brokers; what it says of long waits, which are the machine's, is left out.
DRIVER = f"""
import functools, sys
from barnabas_broker.cli import entry
from barnabas_broker.cli.commands.cluster import start as cluster
from barnabas_broker.local_cluster import supervisor
from barnabas_broker.local_cluster.plan import Request
supervisor.NOTICE_S = 1000.0
plans, arguments = sys.argv[1].split(), sys.argv[2:]
cluster.Request = functools.partial(Request, program=({sys.executable!r}, {str(STAND_IN)!r}, *plans))
sys.exit(entry.main(arguments))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "cluster"
    yield directory
    if (directory / "cluster.json").exists():
        files = ClusterFiles.load(directory)
        stop_brokers(files, files.node_ids, 0.0)


def with_stand_ins(*arguments: object, plans: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DRIVER, " ".join(plans), *map(str, arguments)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["cluster", "strat"], 2, "No such command 'strat'. Did you mean"),
        (["--verison"], 2, "No such option: --verison"),
        (["cluster", "start"], 2, "Missing option '--data'"),
        (["cluster", "start", "--data", "new", "--brokers", "three"], 2, "Invalid value for '--brokers'"),
        (["cluster", "start", "--data", "new", "--set", "num.partitions"], 2, "write NAME=VALUE"),
        (["cluster", "start", "--data", "new", "--set", "a=1", "--set", "a=2"], 2, "a is given twice"),
        (["cluster", "start", "--data", "new", "--set", "retention=1"], 2, "unknown setting: retention"),
        (["cluster", "start", "--data", "/etc/passwd"], 1, "--data /etc/passwd is not a directory"),
        (["cluster", "start", "--data", "/etc/passwd/x"], 1, "/etc/passwd"),
        (["cluster", "start", "--data", "/proc/nowhere"], 1, "/proc/nowhere"),
        (["cluster", "status", "--data", "/nowhere"], 1, "/nowhere holds no cluster"),
        (["cluster", "stop", "--data", "/nowhere"], 1, "/nowhere holds no cluster"),
        (["topic", "list", "--bootstrap-server", "a:b:c"], 2, "--bootstrap-server: 'a:b:c' is not a valid address"),
        (
            ["topic", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"],
            1,
            "no broker answers at 127.0.0.1:1",
        ),
        (["topic", "create", "t", "--bootstrap-server", "x", "--partitions", "0"], 2, "--partitions must be 1 or more"),
        (
            ["topic", "create", "t", "--bootstrap-server", "x", "--replication-factor", "-3"],
            2,
            "--replication-factor must be from 1 to 32767, or -1 for the cluster's default, not -3",
        ),
    ],
)
def test_a_mistake_is_one_line_on_stderr(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], status: int, complaint: str
) -> None:
    assert cli.main(arguments) == status
    out, err = capsys.readouterr()
    assert complaint in err
    assert err.startswith("barnabas: ")
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("arguments", [[], ["cluster"], ["topic"], ["--help"], ["cluster", "start", "--help"]])
def test_half_a_command_shows_what_there_is(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert cli.main(arguments) == 0
    assert "Usage: barnabas" in capsys.readouterr().out


def test_python_without_assertions_is_refused() -> None:
    command = [sys.executable, "-O", "-m", "barnabas_broker.cli.entry", "--help"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "barnabas: refuses to run under -O: its assertions guard your data\n"


@pytest.mark.slow
def test_help_loads_neither_rich_nor_clients_nor_the_event_loop() -> None:
    code = (
        "import sys; from barnabas_broker.cli.entry import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "typer" in loaded
    assert not {"rich", "asyncio", "uvloop", "msgspec", "msgpack", "barnabas_clients"} & loaded


@pytest.mark.slow
def test_starting_a_cluster_loads_nothing_heavy_before_the_brokers_run() -> None:
    refused = "['cluster', 'start', '--data', '/etc/passwd', '--brokers', '3', '--detach']"
    code = f"import sys; from barnabas_broker.cli import entry; entry.main({refused}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {"typer", "pydantic", "rich", "asyncio", "uvloop", "msgspec", "msgpack", "concurrent", "barnabas_clients"}
    assert not heavy & loaded


def test_a_plain_start_is_read_as_typer_reads_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options are declared twice, for speed; this is what keeps the two alike."""
    heard: list[dict[str, object]] = []

    def hear(*arguments: object, **options: object) -> int:
        names = ("data", "brokers", "port", "peer_port", "host", "settings", "timeout_s")
        heard.append(dict(zip(names, arguments, strict=False)) | options)
        return 0

    monkeypatch.setattr(cluster, "start", hear)
    every = ["--data", "d", "--brokers", "3", "--port=9092", "--peer-port", "1", "--host", "h", "--timeout", "2.5"]
    every += ["--set", "a=1", "--set=b=-2", "--detach"]
    every += ["--brokers-per-host", "auto", "--hosts=a,b", "--cluster-id", "x", "--token", "t"]
    for words in (every, ["--data", "d"], ["--data=d"], ["--data", "d", "--set=a=b=c"]):
        assert app.run(["cluster", "start", *words]) == 0
        assert cli.main(["cluster", "start", *words]) == 0
        assert heard[-2] == heard[-1] == cli_start.read(words)
    capsys.readouterr()
    assert cli.main(["cluster", "start", "--help"]) == 0
    declared = set(re.findall(r"^ +(?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert declared == cli_start.OPTIONS.keys() | cli_start.FLAGS.keys() | {"--help"}


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--help",
        "--data",
        "--data d --brokers",
        "--data d --brokers x",
        "--data d --detach=1",
        "--data d more",
        "--data d --timeout 0",
        "--data d --timeout inf",
        "--data d --timeout nan",
        "--data d --timeout 30s",
        "--data --detach",
        "--datum d",
        "--brokers 3",
    ],
)
def test_what_is_not_plain_is_left_to_typer(words: str) -> None:
    assert cli_start.read(words.split()) is None


@pytest.mark.slow
def test_detached_brokers_outlive_the_command_and_stop_when_told(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = cluster_handle.free_port()
    start = with_stand_ins("cluster", "start", "--data", directory, "--port", port, "--detach")
    out, err = start.communicate()
    assert (start.returncode, err) == (0, "")
    assert re.match(r"cluster \S{22} is ready after [\d.]+ s: 3 brokers started\n", out)
    assert f"bootstrap.servers 127.0.0.1:{port},127.0.0.1:{port + 1},127.0.0.1:{port + 2}\n" in out
    files = ClusterFiles.load(directory)
    assert all(files.process(node_id) for node_id in files.node_ids)
    again = with_stand_ins("cluster", "start", "--data", directory, "--detach")
    assert "is running already: 3 brokers" in again.communicate()[0]
    assert cli.main(["cluster", "stop", "--data", str(directory)]) == 0
    assert capsys.readouterr().out == "stopped 3 brokers\n"
    assert cli.main(["cluster", "stop", "--data", str(directory)]) == 0
    assert capsys.readouterr().out == "brokers 1, 2 and 3 were not running\n"


def wait_for(line: str, start: subprocess.Popen[str]) -> None:
    assert start.stdout is not None
    for text in start.stdout:
        if line in text:
            return
    raise AssertionError(f"ended without saying {line!r}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_in_the_foreground_a_signal_stops_everything(directory: Path, number: signal.Signals) -> None:
    start = with_stand_ins("cluster", "start", "--data", directory, "--port", cluster_handle.free_port())
    wait_for("Ctrl-C stops it", start)
    files = ClusterFiles.load(directory)
    start.send_signal(number)
    out, err = start.communicate()
    assert (start.returncode, err) == (0, "")
    assert "stopped 3 brokers" in out
    assert not any(files.process(node_id) for node_id in files.node_ids)


@pytest.mark.slow
def test_in_the_foreground_a_second_signal_kills(directory: Path) -> None:
    port = cluster_handle.free_port()
    with with_stand_ins("cluster", "start", "--data", directory, "--port", port, plans=["2=deaf"]) as start:
        wait_for("Ctrl-C stops it", start)
        start.send_signal(signal.SIGINT)
        wait_for("once more kills", start)
        start.send_signal(signal.SIGINT)
        wait_for("killed broker", start)
    assert start.returncode == 0


@pytest.mark.slow
def test_a_signal_before_the_cluster_is_ready_stops_what_was_started(directory: Path) -> None:
    port = cluster_handle.free_port()
    with with_stand_ins("cluster", "start", "--data", directory, "--port", port, plans=["2=interrupting"]) as start:
        assert start.stderr is not None
        assert start.stderr.read() == "barnabas: interrupted; what was started is stopped again\n"
    assert start.returncode == 130
    files = ClusterFiles.load(directory)
    assert not any(files.process(node_id) for node_id in files.node_ids)


@pytest.mark.slow
def test_in_the_foreground_brokers_that_end_are_reported(directory: Path) -> None:
    port = cluster_handle.free_port()
    with with_stand_ins("cluster", "start", "--data", directory, "--port", port, "--brokers", 2) as start:
        assert start.stderr is not None
        wait_for("Ctrl-C stops it", start)
        files = ClusterFiles.load(directory)
        for node_id in files.node_ids:
            process = files.process(node_id)
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            assert start.stderr.readline() == (
                f"barnabas: broker {node_id} was killed by signal 9; last said: node {node_id} is ready\n"
            )
        assert start.stderr.read() == "barnabas: no broker is left\n"
    assert start.returncode == 1


def answering(files: ClusterFiles, answers: dict[int, dict[str, object] | Exception]) -> object:
    def ask(host: str, port: int, method: str, body: bytes, timeout_s: float, *, secret: bytes | None) -> bytes:
        node_id = port - files.ports.peer_port + 1
        answer = answers.get(node_id, LinkDownError("refused"))
        if isinstance(answer, Exception):
            raise answer
        packed: bytes = msgpack.packb({"node_id": node_id, "cluster_id": files.cluster_id} | answer)
        return packed

    return ask


@pytest.mark.slow
def test_status_tells_the_living_from_the_dead(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (sys.executable, str(STAND_IN))
    started = start_cluster(Request(directory, brokers=5, port=cluster_handle.free_port(5), program=program))
    files = started.files
    started.children[3].kill()
    started.children[3].wait()
    refused = LinkDownError("refused")
    refused.__cause__ = ConnectionRefusedError()
    fetches = {b"\x01": {"bytes": 9}}
    answers: dict[int, dict[str, object] | Exception] = {
        1: {"state": "running", "leaders": 4, "replicas": 9, "ready": True, "fetches": fetches, "pid": 17},
        2: {"state": "fenced", "leaders": 0, "replicas": 9, "ready": False, "events": ["elected"]},
        4: TimeoutError(),
        5: refused,
    }
    monkeypatch.setattr(admin, "ask", answering(files, answers))
    assert cli.main(["cluster", "status", "--data", str(directory), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [broker["state"] for broker in found["brokers"]] == [
        "running",
        "fenced",
        "stopped",
        "unreachable",
        "starting",
    ]
    assert [broker["pid"] for broker in found["brokers"]][2] is None
    assert (found["ready"], found["bootstrap"]) == (False, files.bootstrap)
    assert found["brokers"][0]["leaders"] == 4
    assert found["brokers"][0]["fetches"] == {"01": {"bytes": 9}}
    assert cli.main(["cluster", "status", "--data", str(directory), "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "unreachable" in out
    assert "node 2 events: elected" in out
    ready: dict[int, dict[str, object] | Exception] = {
        node: {"state": "running", "ready": True} for node in files.node_ids
    }
    monkeypatch.setattr(admin, "ask", answering(files, ready))
    assert cli.main(["cluster", "status", "--data", str(directory), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ready"]
    monkeypatch.setattr(admin, "ask", answering(files, {1: {"cluster_id": "another"}}))
    assert cli.main(["cluster", "status", "--data", str(directory), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["brokers"][0]
    assert (first["state"], first["occupied_by"]) == ("stopped", "node 1 of cluster another")
    for child in started.children.values():
        child.kill()
        child.wait()
