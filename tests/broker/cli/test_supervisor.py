"""Starting and stopping a cluster of processes, with stand-ins for brokers."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machines import cluster_handle

from barnabas_broker.cli.commands.cluster.start import UNKEYED, _summary
from barnabas_broker.config.broker import ConfigError
from barnabas_broker.local_cluster import notices, supervisor
from barnabas_broker.local_cluster.files import ClusterError, ClusterFiles
from barnabas_broker.local_cluster.interrupts import Interrupts
from barnabas_broker.local_cluster.plan import Request, plan
from barnabas_broker.local_cluster.ports import PortError
from barnabas_broker.local_cluster.processes import ProcessIdentity, identify, is_ending, is_running, wait_for_exit
from barnabas_broker.local_cluster.supervisor import Started, start_cluster, stop_brokers
from barnabas_raftlog.errors import BarnabasError

STAND_IN = Path(__file__).with_name("stand_in.py")
WAIT_S = 20.0


TWO_HOSTS = {"hosts": ("127.0.0.1", "192.0.2.1"), "host": "127.0.0.1", "cluster_id": "x"}


class Starter:
    """Starts clusters in one directory and cleans up after them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = cluster_handle.free_port()
        self.children: list[subprocess.Popen[bytes]] = []

    def request(self, *plans: str, **options: Any) -> Request:
        program = (sys.executable, str(STAND_IN), *plans)
        wishes: dict[str, Any] = {"directory": self.directory, "port": self.port, "timeout_s": WAIT_S}
        wishes |= {"program": program, **options}
        return Request(**wishes)

    def start(self, *plans: str, **options: Any) -> Started:
        started = start_cluster(self.request(*plans, **options))
        self.children += started.children.values()
        return started

    def running(self) -> set[int]:
        files = ClusterFiles.load(self.directory)
        return {node_id for node_id in files.node_ids if files.process(node_id)}


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path / "cluster")
    yield starter
    for child in starter.children:
        child.kill()
        child.wait()


def test_brokers_get_no_settings_from_the_environment_but_the_file_to_log_to(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_LOG_DIR", "/one/for/all")
    monkeypatch.setenv("UNTOUCHED", "1")
    files = starter.start().files
    got = supervisor._environment(files, 2)
    assert got["UNTOUCHED"] == "1"
    assert {name: value for name, value in got.items() if name.startswith("BARNABAS_")} == {
        "BARNABAS_LOG_FILE_PATH": str(files.log_file(2))
    }
    with files.config_file(2).open("a") as file:
        file.write('log.file.path = "/elsewhere"\n')
    assert "BARNABAS_LOG_FILE_PATH" not in supervisor._environment(files, 2)
    with pytest.raises(ConfigError, match=r"log\.file\.path is not for --set"):
        starter.start(settings={"log.file.path": "/one/for/all"})


def test_a_cluster_starts_in_a_new_directory_and_stops(starter: Starter) -> None:
    started = starter.start()
    files = started.files
    assert set(started.children) == {1, 2, 3}
    assert starter.running() == {1, 2, 3}
    assert files.bootstrap == ",".join(f"127.0.0.1:{starter.port + k}" for k in range(3))
    assert files.log_file(2).read_text() == "node 2 is ready\n"
    stopped = stop_brokers(files, files.node_ids, WAIT_S)
    assert stopped == ([1, 2, 3], [], [])
    assert starter.running() == set()
    assert stop_brokers(files, files.node_ids, WAIT_S) == ([], [], [1, 2, 3])


def test_a_broker_is_a_session_of_its_own(starter: Starter) -> None:
    """Ctrl-C in the terminal reaches the command only, and the broker outlives it."""
    child = starter.start(brokers=1).children[1]
    assert os.getsid(child.pid) == child.pid


def test_a_second_start_starts_what_is_down(starter: Starter) -> None:
    first = starter.start()
    cluster_id = first.files.cluster_id
    first.children[2].kill()
    first.children[2].wait()
    second = starter.start()
    assert set(second.children) == {2}
    assert set(second.running) == {1, 3}
    assert second.files.cluster_id == cluster_id
    third = starter.start(port=None)
    assert third.children == {}


def test_a_broker_that_is_not_gone_yet_is_waited_for_and_started(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed brokers linger while a disk owes them something. One such was taken for running, and stayed down."""
    gate = starter.start("1=dying-slowly").files.config_file(1).with_name("gate")

    def wait(processes: Iterable[ProcessIdentity], *limits: Any) -> set[ProcessIdentity]:
        gate.write_bytes(b"")
        return wait_for_exit(processes, *limits)

    monkeypatch.setattr("barnabas_broker.local_cluster.supervisor.wait_for_exit", wait)
    again = starter.start()
    assert (set(again.children), set(again.running)) == ({1}, {2, 3})


def test_a_broker_that_goes_while_a_start_looks_is_started(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran when it was counted, and was gone when it was asked whether it was ending: it stayed down."""
    first = starter.start().children[1]

    def go_first(process: ProcessIdentity) -> bool:
        if process.pid == first.pid:
            first.kill()
            first.wait()
        return is_ending(process)

    monkeypatch.setattr(supervisor, "is_ending", go_first)
    again = starter.start()
    assert (set(again.children), set(again.running)) == ({1}, {2, 3})


def test_who_waits_for_a_broker_to_go_may_be_interrupted(starter: Starter) -> None:
    gate = starter.start("1=dying-slowly").files.config_file(1).with_name("gate")
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            start_cluster(starter.request(), interrupts)
    gate.write_bytes(b"")


def test_a_process_that_frees_what_it_has_is_ending() -> None:
    """Until it has: a few milliseconds for what this one took. Whether it is seen before is up to the machine."""
    take = "import mmap; m = mmap.mmap(-1, 1 << 29); m[::4096] = bytes(len(m) // 4096); print(); input()"
    with subprocess.Popen([sys.executable, "-c", take], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = identify(child.pid)
        assert process is not None
        assert not is_ending(process)
        child.kill()
        while is_running(process):
            assert is_ending(process) or not is_running(process)
        assert not is_ending(process)


def test_a_port_for_administrators_is_told_as_such(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ClusterError, match=r"TCP port 80 of .*, is reserved for administrators; take one from 1024 on"):
        start_cluster(starter.request(port=80))


@pytest.mark.slow
def test_a_broker_that_does_not_go_is_named(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = starter.start("1=dying-slowly").files.config_file(1).with_name("gate")
    monkeypatch.setattr(supervisor, "KILL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(notices, "NOTICE_S", 0.0)
    told = list[str]()
    with pytest.raises(ClusterError, match=r"broker 1 \(process .*\) does not end, .*: is a disk hanging"):
        start_cluster(starter.request(), tell=told.append)
    assert told == ["waiting for broker 1 to end after a kill"]
    assert starter.running() == {1, 2, 3}
    gate.write_bytes(b"")


def test_a_recycled_process_id_is_not_mistaken_for_a_broker(starter: Starter) -> None:
    started = starter.start(brokers=1)
    started.children[1].kill()
    started.children[1].wait()
    mine = identify(os.getpid())
    assert mine is not None
    started.files.note_process(1, ProcessIdentity(mine.pid, "another boot:12345"))
    assert started.files.process(1) is None
    assert stop_brokers(started.files, [1], WAIT_S).down == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("2=dying", "broker 2 did not start: it ended with status 1: the disk is on fire"),
        ("2=refusing", "broker 2 did not start: the disk is not mine"),
        ("2=hanging-up", "broker 2 did not start: it closed its readiness pipe and still runs: node 2 is hanging-up"),
    ],
)
def test_one_that_does_not_start_takes_the_others_down(
    starter: Starter, monkeypatch: pytest.MonkeyPatch, plan: str, complaint: str
) -> None:
    monkeypatch.setattr("barnabas_broker.local_cluster.supervisor.FAILED_START_STOP_TIMEOUT_S", 0.5)
    with pytest.raises(ClusterError, match=complaint):
        starter.start(plan)
    assert starter.running() == set()


def test_one_that_does_not_start_leaves_running_ones_alone(starter: Starter) -> None:
    first = starter.start()
    for node_id in (2, 3):
        first.children[node_id].kill()
        first.children[node_id].wait()
    with pytest.raises(ClusterError, match="broker 3 did not start"):
        starter.start("3=dying")
    assert starter.running() == {1}


@pytest.mark.slow
def test_a_start_that_takes_too_long_is_given_up(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time begins when all have said what they have to say, however long their processes take to begin."""
    began_s = list[float]()

    def monotonic() -> float:
        spoken = sum(path.stat().st_size > 0 for path in starter.directory.glob("broker-*/broker.log"))
        if spoken == 3 and not began_s:
            began_s.append(time.monotonic())
        return time.monotonic() - began_s[0] if began_s else 0.0

    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=monotonic))
    with pytest.raises(ClusterError, match=r"not ready after 0\.5 s: broker 1; last said: node 1 is silent"):
        starter.start("1=silent", timeout_s=0.5)
    assert starter.running() == set()


@pytest.mark.slow
def test_one_that_does_not_stop_is_killed(starter: Starter) -> None:
    started = starter.start("3=deaf")
    stopped = stop_brokers(started.files, started.files.node_ids, 0.2)
    assert stopped == ([1, 2], [3], [])
    assert started.children[3].wait() == -signal.SIGKILL


def test_a_long_start_says_which_brokers_it_waits_for(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "NOTICE_S", 0.0)
    told = list[str]()
    starter.children += start_cluster(starter.request(), tell=told.append).children.values()
    assert told == ["waiting for brokers 1, 2 and 3 to be ready; trying until 20 s are over"]


def test_a_long_stop_says_which_brokers_it_waits_for(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    child = starter.start("1=deaf", brokers=1).children[1]
    monkeypatch.setattr(supervisor, "NOTICE_S", 0.0)
    told = list[str]()

    def tell(text: str) -> None:
        told.append(text)
        child.kill()

    assert stop_brokers(ClusterFiles.load(starter.directory), [1], WAIT_S, tell=tell) == ([1], [], [])
    assert told == ["waiting for broker 1 to stop; killed when 20 s are over"]


def test_a_short_wait_is_not_told(starter: Starter) -> None:
    told = list[str]()
    files = starter.start("1=deaf", brokers=1).files
    assert stop_brokers(files, [1], 0.0, tell=told.append).killed == [1]
    assert told == []


def test_a_suspended_broker_stops_cleanly(starter: Starter) -> None:
    started = starter.start(brokers=1)
    started.children[1].send_signal(signal.SIGSTOP)
    assert stop_brokers(started.files, [1], WAIT_S).stopped == [1]


def test_a_broker_that_cannot_be_recorded_does_not_run(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[ProcessIdentity]()

    def note_process(self: ClusterFiles, node_id: int, process: ProcessIdentity) -> None:
        seen.append(process)
        if node_id == 2:
            raise OSError(errno.ENOSPC, "no space left on device")
        note(self, node_id, process)

    note = ClusterFiles.note_process
    monkeypatch.setattr(ClusterFiles, "note_process", note_process)
    with pytest.raises(OSError, match="no space left"):
        starter.start()
    assert len(seen) == 2
    assert not any(map(is_running, seen))


def test_a_failed_start_can_be_repeated(starter: Starter) -> None:
    with pytest.raises(ClusterError):
        starter.start("1=dying")
    assert set(starter.start().children) == {1, 2, 3}


def test_settings_reach_the_brokers_and_are_remembered(starter: Starter) -> None:
    started = starter.start(settings={"num.partitions": "7"}, brokers=1)
    stop_brokers(started.files, [1], WAIT_S)
    again = starter.start(settings={"min.insync.replicas": "2"})
    config = again.files.config(1)
    assert (config.num_partitions, config.min_insync_replicas) == (7, 2)
    assert config.cluster_id == again.files.cluster_id


def modes(files: ClusterFiles) -> set[int]:
    return {files.config_file(node_id).stat().st_mode & 0o777 for node_id in files.node_ids}


def test_a_new_cluster_has_a_secret_that_only_its_owner_can_read(starter: Starter) -> None:
    files = starter.start().files
    (secret,) = {files.config(node_id).cluster_secret for node_id in files.node_ids}
    assert re.fullmatch("[0-9a-f]{64}", secret)
    assert modes(files) == {0o600}
    assert secret not in (starter.directory / "cluster.json").read_text()
    stop_brokers(files, files.node_ids, WAIT_S)
    files.config_file(2).unlink()
    again = starter.start().files
    assert {again.config(node_id).cluster_secret for node_id in again.node_ids} == {secret}
    assert secret in again.config_file(2).read_text()
    assert modes(again) == {0o600}
    assert UNKEYED not in _summary(starter.start(), 0.0, ())


def test_clusters_do_not_share_a_secret(tmp_path: Path) -> None:
    first, second = (plan(Request(tmp_path / name))[0].config(1).cluster_secret for name in ("a", "b"))
    assert first != second


def test_a_cluster_from_before_there_were_secrets_starts_and_says_how_to_get_one(starter: Starter) -> None:
    files = starter.start().files
    stop_brokers(files, files.node_ids, WAIT_S)
    for node_id in files.node_ids:
        lines = files.config_file(node_id).read_text().splitlines(keepends=True)
        files.config_file(node_id).write_text("".join(line for line in lines if "secret" not in line))
    started = starter.start()
    assert {started.files.config(node_id).cluster_secret for node_id in files.node_ids} == {""}
    assert UNKEYED in _summary(started, 0.0, ())
    stop_brokers(files, files.node_ids, WAIT_S)
    started = starter.start(settings={"cluster.secret": "s"})
    assert {started.files.config(node_id).cluster_secret for node_id in files.node_ids} == {"s"}
    assert UNKEYED not in _summary(started, 0.0, ())
    assert (starter.directory / "cluster.json").stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_is_to_have_no_secret_has_none(starter: Starter) -> None:
    started = starter.start(settings={"cluster.secret": ""})
    assert started.files.config(1).cluster_secret == ""
    assert UNKEYED not in _summary(started, 0.0, ())


def test_what_an_operator_wrote_into_a_file_stays(starter: Starter) -> None:
    started = starter.start(brokers=1)
    stop_brokers(started.files, [1], WAIT_S)
    path = started.files.config_file(1)
    edited = path.read_text() + "\n# mine\nbroker.rack = 'r1'\n"
    path.write_text(edited)
    starter.start()
    assert path.read_text() == edited


def test_a_moved_directory_works(starter: Starter, tmp_path: Path) -> None:
    started = starter.start(brokers=1)
    stop_brokers(started.files, [1], WAIT_S)
    starter.directory = starter.directory.rename(tmp_path / "moved")
    again = starter.start()
    assert again.files.cluster_id == started.files.cluster_id
    assert again.files.config(1).log_dir == str(tmp_path / "moved" / "broker-1" / "data")


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"brokers": 0}, ClusterError, "--brokers 0 .* from 1 to 64"),
        ({"brokers": 65}, ClusterError, "--brokers 65 .* from 1 to 64"),
        ({"port": 65_535}, PortError, "need the ports 65535 to 65537"),
        ({"port": 65_000}, PortError, "--peer-port 66000 is out of range"),
        ({"port": 0}, PortError, "--port 0 is out of range"),
        ({"port": 9000, "peer_port": 9002}, PortError, "too close"),
        ({"host": "0.0.0.0"}, ClusterError, "clients are told this address"),  # noqa: S104 - refused
        ({"host": "203.0.113.1"}, PortError, "not an address of this machine"),
        (
            {**TWO_HOSTS, "settings": {"cluster.secret": ""}},
            ConfigError,
            "anybody who reaches 192.0.2.1:[0-9]+ would be",
        ),
        ({"settings": {"num.partitons": "3"}}, ConfigError, "did you mean num.partitions"),
        ({"settings": {"num.partitions": "many"}}, ConfigError, "num.partitions is 'many'"),
        ({"settings": {"node.id": "9"}}, ConfigError, "node.id is not for --set"),
    ],
)
def test_a_wish_that_cannot_work_leaves_no_trace(
    starter: Starter, options: dict[str, Any], error: type[BarnabasError], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        starter.start(**options)
    assert not starter.directory.exists()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use_is_named_before_anything_starts(starter: Starter, kind: socket.SocketKind) -> None:
    port = starter.port + 1 if kind == socket.SOCK_STREAM else starter.port + 1001
    protocol = "TCP" if kind == socket.SOCK_STREAM else "UDP"
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            other.listen()
        with pytest.raises(ClusterError, match=f"{protocol} port {port} of .*, which broker 2 needs .*, is in use"):
            starter.start()
    assert not starter.directory.exists()


def test_a_file_is_no_directory(starter: Starter) -> None:
    starter.directory.write_text("")
    with pytest.raises(ClusterError, match="is not a directory"):
        starter.start()


def test_a_directory_with_other_things_is_refused(starter: Starter) -> None:
    (starter.directory / "photos").mkdir(parents=True)
    with pytest.raises(ClusterError, match="not empty and holds no cluster"):
        starter.start()
    assert [path.name for path in starter.directory.iterdir()] == ["photos"]


def test_the_number_of_brokers_cannot_change(starter: Starter) -> None:
    starter.start(brokers=1)
    with pytest.raises(ClusterError, match="is a cluster of 1 brokers, which --brokers 3 cannot change"):
        starter.start(brokers=3)


def test_running_brokers_cannot_be_moved(starter: Starter) -> None:
    starter.start(brokers=1)
    with pytest.raises(ClusterError, match="stop the cluster before moving it"):
        starter.start(port=starter.port + 10)


@pytest.mark.parametrize("owner", [{"cluster_id": "another", "node_id": 1}, {"node_id": 2}])
def test_data_of_another_cluster_or_node_is_refused(starter: Starter, owner: dict[str, Any]) -> None:
    started = starter.start(brokers=1)
    stop_brokers(started.files, [1], WAIT_S)
    meta = {"cluster_id": started.files.cluster_id, "node_id": 1} | owner
    (started.files.data(1) / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ClusterError, match=r"belongs to node . of cluster .*, not to node 1"):
        starter.start()


def test_a_configuration_of_another_cluster_is_refused(starter: Starter) -> None:
    started = starter.start(brokers=1)
    stop_brokers(started.files, [1], WAIT_S)
    path = started.files.config_file(1)
    path.write_text(path.read_text().replace(started.files.cluster_id, "another"))
    with pytest.raises(ClusterError, match=r"broker\.toml belongs to cluster another"):
        starter.start()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1, "cluster_id": "x"}', '{"format": 2}'])
def test_a_damaged_description_is_refused(starter: Starter, text: str) -> None:
    starter.directory.mkdir()
    (starter.directory / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"is damaged|has format 2"):
        starter.start()


def test_two_starts_at_once_do_not_meet(starter: Starter) -> None:
    started = starter.start(brokers=1)
    with started.files.lock(), pytest.raises(ClusterError, match="another start or stop"):
        starter.start()


def test_a_process_that_has_ended_but_is_not_reaped_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        before = identify(child.pid)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert before is None or not is_running(before)
