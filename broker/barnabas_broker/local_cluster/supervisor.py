"""Starts and stops a cluster's brokers on this machine, all at once.

A start first looks for every reason to refuse (directory, ports, settings, owner of the data) and writes and starts
nothing if it finds one. Then all brokers are started together, each with the writing end of a pipe; a broker writes one
line into it, `ready` when it sees every broker of the cluster registered and every partition led, or the reason why it
cannot. The pipe's end without a line means that the broker has died. Nothing is polled and nothing sleeps. If one
fails, those started with it are stopped again.

A broker that was killed a moment ago may still be there, waiting for its disk. It is waited for, and started again.

A broker is its own session and does not get the terminal's Ctrl-C; the command that started it may leave. `broker.pid`
says which process it is (`processes`), so that a stop needs no supervisor to be alive.

Nothing heavy is imported here before the brokers run: on two cores every millisecond of the command is taken from them.
"""

import contextlib
import dataclasses
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.config.sources import PREFIX, variable_of
from barnabas_broker.status.verdict import brokers_named

from .files import ClusterError, ClusterFiles
from .interrupts import Interrupts
from .notices import NOTICE_S, Tell, noticed, silent
from .plan import Request, plan
from .ports import taken
from .processes import ProcessIdentity, identify, is_ending, is_running, owner_of, send_signal, wait_for_exit

__all__ = ["Started", "Stopped", "start_cluster", "stop_brokers"]

# For brokers that were started in vain: they have no leadership to hand over yet.
FAILED_START_STOP_TIMEOUT_S = 3.0
# A killed process is gone when the kernel has freed it; only a disk that hangs makes that last.
KILL_TIMEOUT_S = 10.0
READY_LINE_BYTES_MAX = 4096


class Started(NamedTuple):
    """A cluster that is ready. `children` are the brokers this call started, `running` those it found."""

    files: ClusterFiles
    children: dict[int, "subprocess.Popen[bytes]"]
    running: dict[int, ProcessIdentity]


class Stopped(NamedTuple):
    """How a stop went, by node: ended by themselves, had to be killed, or were down already."""

    stopped: list[int]
    killed: list[int]
    down: list[int]


def start_cluster(request: Request, interrupts: Interrupts | None = None, tell: Tell = silent) -> Started:
    """Start the brokers of a cluster that are down, and return when all is ready.

    `tell` hears which brokers a wait of more than a second is for.

    Raises:
        KeyboardInterrupt: `interrupts` told of a wish to end. Nothing started here still runs.
        BarnabasError: a reason to refuse, or a broker that did not start; one line. Nothing started here still runs.
        OSError: the directory cannot be used.
    """
    files, is_new = plan(request)
    made = _make_directory(request.directory)
    children: dict[int, subprocess.Popen[bytes]] = {}
    readers: dict[int, int] = {}
    log_starts: dict[int, int] = {}
    try:
        with files.lock():
            if is_new and (request.directory / "cluster.json").exists():
                raise ClusterError(f"another start of {request.directory} was faster; try again")
            running = _running(files, files.local_ids)
            _wait_for_the_dying(running, interrupts, tell)
            wanted = files.local_ids if request.only is None else request.only
            down = [node_id for node_id in wanted if node_id not in running]
            _check_unmoved(files, request, running)
            for node_id in down:
                files.check_data(node_id)
            configs = {node_id: files.config(node_id) for node_id in down}
            _check_ports(files, down)
            if request.token is not None and not all(config.cluster_secret for config in configs.values()):
                files = _joined(files, request.token, tell)
                configs = {node_id: files.config(node_id) for node_id in down}
            for config in configs.values():
                config.check_keyed()
            files.write(configs)
            made = None
            try:
                for node_id in down:
                    children[node_id], readers[node_id], log_starts[node_id] = _spawn(files, node_id, request.program)
                _wait_until_ready(files, children, readers, log_starts, request.timeout_s, interrupts, tell)
            except BaseException:
                _stop_children(files, children)
                raise
            finally:
                for reader in readers.values():
                    os.close(reader)
    finally:
        if made is not None:
            # Refused before anything was written: leave no trace.
            with contextlib.suppress(OSError):
                made.rmdir()
    return Started(files, children, running)


def stop_brokers(
    files: ClusterFiles,
    node_ids: Iterable[int],
    timeout_s: float,
    interrupts: Interrupts | None = None,
    tell: Tell = silent,
) -> Stopped:
    """Ask brokers to stop, wait for them, and kill those that have not stopped after `timeout_s` or at an interrupt.

    `tell` hears which brokers a wait of more than a second is for.

    Raises:
        ClusterError: one survived even that, or belongs to another user.
    """
    node_ids = list(node_ids)
    processes = _running(files, node_ids)
    for node_id, process in processes.items():
        try:
            send_signal(process, signal.SIGTERM)
            # A suspended broker hears nothing else before it is woken.
            send_signal(process, signal.SIGCONT)
        except PermissionError as error:
            owner = owner_of(process)
            raise ClusterError(
                f"process {process.pid} (broker {node_id}) belongs to {owner}: stop it as {owner}"
            ) from error
    left = _wait_to_stop(processes, timeout_s, interrupts, tell)
    for process in left:
        send_signal(process, signal.SIGKILL)
    killed = [node_id for node_id, process in processes.items() if process in left]
    with noticed(tell, f"waiting for {_ending(killed)}"):
        stuck = wait_for_exit(left, KILL_TIMEOUT_S)
    for node_id, process in processes.items():
        if process in stuck:
            raise _stuck_error(node_id, process)
        files.forget_process(node_id)
    return Stopped(
        stopped=[node_id for node_id in processes if node_id not in killed],
        killed=killed,
        down=[node_id for node_id in node_ids if node_id not in processes],
    )


def _wait_to_stop(
    processes: Mapping[int, ProcessIdentity], timeout_s: float, interrupts: Interrupts | None, tell: Tell
) -> set[ProcessIdentity]:
    notice_s = min(NOTICE_S, timeout_s)
    notice_at = time.monotonic() + notice_s
    left = wait_for_exit(processes.values(), notice_s, interrupts)
    # A wait that ended earlier was ended by the user, who has had enough.
    if not left or notice_s == timeout_s or time.monotonic() < notice_at:
        return left
    late = sorted(node_id for node_id, process in processes.items() if process in left)
    tell(f"waiting for {brokers_named(late)} to stop; killed when {timeout_s:g} s are over")
    return wait_for_exit(left, timeout_s - notice_s, interrupts)


def _running(files: ClusterFiles, node_ids: Iterable[int]) -> dict[int, ProcessIdentity]:
    """Return the brokers that run, also those that run without a broker.pid, which get one."""
    found = {}
    for node_id in node_ids:
        process = files.process(node_id)
        # Nobody is asked while the port is free, as it is for every broker that is down.
        if process is None and taken(files.ports.host, files.ports.node_port(node_id), datagrams=False):
            from .status import unrecorded  # noqa: PLC0415 - rare, and slow to load

            process = unrecorded(files, node_id)
            if process is not None:
                files.note_process(node_id, process)
        if process is not None:
            found[node_id] = process
    return found


def _wait_for_the_dying(running: dict[int, ProcessIdentity], interrupts: Interrupts | None, tell: Tell) -> None:
    """Take those out of `running` that were killed just now, once they are gone: they count as down."""
    # One of them may have been gone before it was asked whether it is ending.
    dying = {node_id: process for node_id, process in running.items() if is_ending(process) or not is_running(process)}
    deadline = time.monotonic() + KILL_TIMEOUT_S
    with noticed(tell, f"waiting for {_ending(dying)}"):
        left = wait_for_exit(dying.values(), KILL_TIMEOUT_S, interrupts)
    if left and time.monotonic() < deadline:
        raise KeyboardInterrupt
    for node_id, process in dying.items():
        if process in left:
            raise _stuck_error(node_id, process)
        del running[node_id]


def _ending(node_ids: Collection[int]) -> str:
    return f"{brokers_named(sorted(node_ids))} to end after a kill" if node_ids else "nobody"


def _stuck_error(node_id: int, process: ProcessIdentity) -> ClusterError:
    return ClusterError(f"broker {node_id} (process {process.pid}) does not end, not even killed: is a disk hanging?")


def _make_directory(directory: Path) -> Path | None:
    """Return the directory if it had to be made."""
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ClusterError(f"--data {directory} cannot be written to")
    return directory if is_new else None


def _check_unmoved(files: ClusterFiles, request: Request, running: Mapping[int, ProcessIdentity]) -> None:
    """Refuse to change addresses under running brokers."""
    if not running or not (request.directory / "cluster.json").exists():
        return
    known = ClusterFiles.load(request.directory)
    if known.ports != files.ports:
        raise ClusterError(
            f"brokers of {request.directory} run on port {known.ports.port} and node port {known.ports.peer_port} of "
            f"{known.ports.host}; stop the cluster before moving it"
        )


def _joined(files: ClusterFiles, token: str, tell: Tell) -> ClusterFiles:
    from .joining import redeem  # noqa: PLC0415 - only where there is a token

    with noticed(tell, "waiting for the broker that drew the token to hand over the secret"):
        return dataclasses.replace(files, secret=redeem(token, files.cluster_id))


def _check_ports(files: ClusterFiles, node_ids: Iterable[int]) -> None:
    host = files.ports.host
    for node_id in node_ids:
        wanted = [
            (files.ports.client_port(node_id), False, "clients"),
            (files.ports.node_port(node_id), False, "other brokers"),
            (files.ports.node_port(node_id), True, "other brokers"),
        ]
        for port, datagrams, purpose in wanted:
            if why := taken(host, port, datagrams=datagrams):
                kind = "UDP" if datagrams else "TCP"
                ask = _client_neighbour if purpose == "clients" else _neighbour
                neighbour = ask(files, node_id) if why == "in use" else ""
                raise ClusterError(
                    f"{kind} port {port} of {host}, which broker {node_id} needs for {purpose}, is {why}{neighbour}"
                )


def _client_neighbour(files: ClusterFiles, node_id: int) -> str:
    """Say which broker serves clients on a port of ours, if it is one: it tells everybody."""
    from barnabas_clients.protocol.describe_health import DescribeHealthRequest  # noqa: PLC0415 - see `_neighbour`

    from .client_port import ClientPort, ClientPortError  # noqa: PLC0415 - only on the way to an error

    # With our secret, or without any, the other port tells more: the process.
    if neighbour := _neighbour(files, node_id):
        return neighbour
    try:
        with ClientPort(files.ports.host, files.ports.client_port(node_id), 1.0) as port:
            answer = port.ask(DescribeHealthRequest(topics_max=0))
    except ClientPortError:
        return ""
    return f" by broker {answer.node_id} of cluster {answer.cluster_id}"


def _neighbour(files: ClusterFiles, node_id: int) -> str:
    """Say which broker has the ports of ours, if it is one and answers: one without a secret, or with ours."""
    from .status import ask, ask_broker  # noqa: PLC0415 - only on the way to an error

    answer = ask_broker(files, node_id, timeout_s=1.0)
    if isinstance(answer, str):
        answer = ask(files.ports.host, files.ports.node_port(node_id), timeout_s=1.0)
    if isinstance(answer, str):
        return ""
    return f" by broker {answer.get('node_id')} of cluster {answer.get('cluster_id')} (process {answer.get('pid')})"


def _environment(files: ClusterFiles, node_id: int) -> dict[str, str]:
    """Return the environment of a broker, which is to log where its other words go, and to put that file aside.

    Settings of ours are for `broker run`: here one `BARNABAS_LOG_DIR` would be that of all brokers.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    if files.config(node_id).log_file_path:
        return plain
    return plain | {variable_of("log.file.path"): str(files.log_file(node_id))}


def _spawn(files: ClusterFiles, node_id: int, program: tuple[str, ...]) -> tuple["subprocess.Popen[bytes]", int, int]:
    """Start a broker; return it, the end of the pipe to read its line from, and where its log begins."""
    log = files.open_log(node_id)
    reader, writer = os.pipe()
    try:
        log_start = os.lseek(log, 0, os.SEEK_END)
        child = subprocess.Popen(  # noqa: S603 - our own module
            [*program, "--config", str(files.config_file(node_id)), "--ready-fd", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(files, node_id),
            pass_fds=(writer,),
            start_new_session=True,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
        os.close(log)
    try:
        if process := identify(child.pid):
            files.note_process(node_id, process)
    except BaseException:
        # Nothing else knows of it yet, and nothing will.
        os.close(reader)
        child.kill()
        child.wait()
        raise
    return child, reader, log_start


def _wait_until_ready(
    files: ClusterFiles,
    children: Mapping[int, "subprocess.Popen[bytes]"],
    readers: Mapping[int, int],
    log_starts: Mapping[int, int],
    timeout_s: float,
    interrupts: Interrupts | None,
    tell: Tell,
) -> None:
    notice_at: float | None = time.monotonic() + NOTICE_S
    deadline = time.monotonic() + timeout_s
    lines = dict.fromkeys(readers, b"")
    waiting = set(readers)
    with selectors.DefaultSelector() as selector:
        if interrupts is not None:
            selector.register(interrupts, selectors.EVENT_READ, None)
        for node_id, reader in readers.items():
            selector.register(reader, selectors.EVENT_READ, node_id)
        while waiting:
            until = deadline if notice_at is None else min(notice_at, deadline)
            events = selector.select(max(0.0, until - time.monotonic()))
            if notice_at is not None and notice_at <= time.monotonic() < deadline:
                notice_at = None
                tell(f"waiting for {brokers_named(sorted(waiting))} to be ready; trying until {timeout_s:g} s are over")
            if not events and time.monotonic() >= deadline:
                late = ", ".join(map(str, sorted(waiting)))
                said = files.last_log_line(min(waiting), log_starts[min(waiting)])
                raise ClusterError(
                    f"not ready after {timeout_s:g} s: broker {late}" + (f"; last said: {said}" if said else "")
                )
            for key, _ in events:
                node_id = key.data
                if node_id is None:
                    if interrupts is not None and interrupts.asked():
                        raise KeyboardInterrupt
                    continue
                chunk = os.read(key.fd, READY_LINE_BYTES_MAX)
                lines[node_id] += chunk
                text = lines[node_id].partition(b"\n")[0].decode(errors="replace").strip()
                if chunk and b"\n" not in lines[node_id] and len(lines[node_id]) < READY_LINE_BYTES_MAX:
                    continue
                selector.unregister(key.fd)
                waiting.discard(node_id)
                if text != "ready":
                    raise ClusterError(_failure(files, node_id, children[node_id], text, log_starts[node_id]))


def _failure(files: ClusterFiles, node_id: int, child: "subprocess.Popen[bytes]", text: str, log_start: int) -> str:
    """Say why a broker did not become ready: its own word, or else the end of its log."""
    if text:
        return f"broker {node_id} did not start: {text.removeprefix('error:').strip()}"
    try:
        status = child.wait(FAILED_START_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        ending = "closed its readiness pipe and still runs"
    else:
        ending = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    said = files.last_log_line(node_id, log_start)
    return f"broker {node_id} did not start: it {ending}" + (
        f": {said}" if said else f"; see {files.log_file(node_id)}"
    )


def _stop_children(files: ClusterFiles, children: Mapping[int, "subprocess.Popen[bytes]"]) -> None:
    stop_brokers(files, children, FAILED_START_STOP_TIMEOUT_S)
    for node_id, child in children.items():
        child.wait()
        files.forget_process(node_id)
