"""Drives a real cluster through the `barnabas` command, as a user would. Demo, trials and benchmarks share it."""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BARNABAS = Path(sys.executable).with_name("barnabas")
LOG_LINES_SHOWN = 40
BROKER_PORT_SPACING = 1000  # a broker's node-to-node port lies this far above its client port


class CommandFailedError(RuntimeError):
    """The command exited with an error; the message is what it printed."""


def run(*arguments: object, timeout_s: float = 60) -> str:
    """Run one `barnabas` command and return its standard output."""
    command = [str(BARNABAS), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise CommandFailedError(f"barnabas {' '.join(map(str, arguments[:2]))}: {done.stderr.strip()}")
    return done.stdout


def free_port(count: int = 3, among: Iterable[int] = ()) -> int:
    """Return a port P such that P..P+count-1, and the node-to-node ports above them, are free on loopback now.

    P is one of `among`, if that has any. Workers of one test run, which may look at the same moment, share no P.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    for port in among or range(20_000 + os.getpid() % 100 * 100 + worker % 2 * 50, 60_000, 100):
        wanted = [*range(port, port + count), *range(port + BROKER_PORT_SPACING, port + BROKER_PORT_SPACING + count)]
        if all(_is_free(number) for number in wanted):
            return port
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as stream, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        try:
            stream.bind(("127.0.0.1", port))
            datagram.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def add_link_options(parser: argparse.ArgumentParser) -> None:
    """Add `--link-delay` and `--link-jitter`, which `link_settings` turns into settings of a broker."""
    parser.add_argument(
        "--link-delay", type=float, default=0.0, metavar="MS", help="of what brokers send each other, one way"
    )
    parser.add_argument(
        "--link-jitter", type=float, default=0.0, metavar="MS", help="up to so much longer, drawn for each write"
    )


def link_settings(delay_ms: float, jitter_ms: float = 0.0) -> dict[str, str]:
    """Return the settings of brokers between which everything takes so long; none at all if it takes no time."""
    times = {"test.link.delay.us": round(delay_ms * 1000), "test.link.jitter.us": round(jitter_ms * 1000)}
    return {name: str(value) for name, value in times.items() if value}


class ClusterHandle:
    """A cluster of broker processes in `data`. Nodes count from 1."""

    def __init__(self, data: Path, port: int, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.port = port
        self.brokers = brokers
        self.settings = dict(settings or {})
        self.ready_s = 0.0
        self.keeps_files = False  # when all is over

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + k}" for k in range(self.brokers))

    def start(self, timeout_s: float = 60.0) -> float:
        """Start the brokers that are down, wait until all are ready, and return the seconds that it took."""
        began = time.perf_counter()
        words = [word for item in self.settings.items() for word in ("--set", "=".join(item))]
        words += ["--brokers", str(self.brokers), "--port", str(self.port), "--detach", "--timeout", str(timeout_s)]
        try:
            run("cluster", "start", "--data", self.data, *words, timeout_s=timeout_s + 10)
        except CommandFailedError as error:
            raise CommandFailedError("\n".join([str(error), *self._ends_of_logs()])) from error
        self.ready_s = time.perf_counter() - began
        return self.ready_s

    def _ends_of_logs(self) -> list[str]:
        """Return the last lines of every broker's log: the files are gone when somebody asks why a start failed."""
        lines = []
        for log in self.logs:
            lines.append(f"end of {log.parent.name}/{log.name}:")
            if log.exists():
                lines += log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return lines

    @property
    def logs(self) -> list[Path]:
        """The logs of the brokers, as long as their directories are there."""
        return [self.data / f"broker-{k + 1}" / "broker.log" for k in range(self.brokers)]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run("cluster", "status", "--data", self.data, "--json"))
        return found

    def pids(self) -> dict[int, int]:
        return {broker["node_id"]: broker["pid"] for broker in self.status()["brokers"] if broker["pid"]}

    def running_pids(self) -> list[int]:
        """Return the processes of the brokers that were started and not stopped, without asking anybody."""
        found = []
        for log in self.logs:
            with suppress(FileNotFoundError):
                found.append(int(json.loads((log.parent / "broker.pid").read_text())["pid"]))
        return found

    def signal(self, node_id: int, number: signal.Signals) -> None:
        os.kill(self.pids()[node_id], number)

    def kill(self, *node_ids: int) -> None:
        """SIGKILL these brokers, all in the same instant as far as one process can."""
        pids = self.pids()
        for node_id in node_ids:
            os.kill(pids[node_id], signal.SIGKILL)

    def stop(self, timeout_s: float = 15.0) -> str:
        """Stop all brokers, those that take longer than `timeout_s` with SIGKILL; return the command's output."""
        return run("cluster", "stop", "--data", self.data, "--timeout", timeout_s, timeout_s=timeout_s + 30)


@contextmanager
def cluster(
    brokers: int = 3, settings: Mapping[str, str] | None = None, *, keep: bool = False
) -> Iterator[ClusterHandle]:
    """Start a cluster in a temporary directory, and leave neither process nor file behind; `keep` leaves the files."""
    data = Path(tempfile.mkdtemp(prefix="barnabas-"))
    handle = ClusterHandle(data / "cluster", free_port(brokers), brokers, settings)
    handle.keeps_files = keep
    try:
        handle.start()
        yield handle
    finally:
        try:
            if handle.data.exists():
                handle.stop()
        finally:
            if handle.keeps_files:
                print(f"left in {data}")
            else:
                shutil.rmtree(data, ignore_errors=True)
