"""Times short commands beside an interpreter that does nothing: what an Enter in a shell costs.

All commands run in turn, round after round, so that a busy machine makes all of them slower alike. What counts is the
ratio to `python -c pass`, because seconds depend on the machine: of the processor times (user and system), and of the
least of each command's rounds. Other processes can only add to that, and they add more to a command that touches more
memory: beside a busy neighbour the ratio of the medians was 10 to 20 % higher. A command that waits for a broker is
judged by the median of the time that passes as well.
"""

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.local_cluster.files import ClusterFiles

BARNABAS = str(Path(sys.executable).with_name("barnabas"))
NOTHING = "python -c pass"
EVERYTHING = "import barnabas_clients as b; [getattr(b, name) for name in b.__all__]"
ONE_OF_EACH = "b.Producer('localhost'); b.Consumer('localhost', topics=['t'], group_id='g'); b.Admin('localhost')"
TOPICS = 12


class Command(NamedTuple):
    """A command, and its limit as a ratio. `waits`: for a broker, so that the time that passes counts too."""

    name: str
    words: Sequence[str]
    limit: float | None = None
    waits: bool = False


class Times(NamedTuple):
    """The least processor time of a command, and the median of the time that passed."""

    processor_s: float
    passed_s: float


def main() -> int:
    """Print the table; 1 if a command takes longer than its limit allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command (15)")
    rounds = parser.parse_args().rounds
    # A developer's own profile, address or path must not change what is measured.
    mine = ("BARNABAS_PROFILE", "BARNABAS_BOOTSTRAP_SERVER", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if name not in mine}
    with tempfile.TemporaryDirectory(prefix="barnabas-cli-") as folder:
        env["BARNABAS_CONFIG"] = f"{folder}/profiles.toml"
        return judged(measured(Path(folder, "cluster"), rounds, env))


def measured(data: Path, rounds: int, env: dict[str, str]) -> dict[Command, Times]:
    """Start a cluster with some topics, and time the commands."""
    port = free_ports(2)
    ports = ("--port", str(port), "--peer-port", str(port + 1))
    run([BARNABAS, "cluster", "start", "--data", str(data), "--brokers", "1", *ports, "--detach"], env)
    try:
        env["BARNABAS_BOOTSTRAP_SERVER"] = ClusterFiles.load(data).bootstrap
        for number in range(TOPICS):
            run([BARNABAS, "topic", "create", f"topic-{number}", "--partitions", "3"], env)
        return timed(rounds, env)
    finally:
        run([BARNABAS, "cluster", "stop", "--data", str(data)], env)


def timed(rounds: int, env: dict[str, str]) -> dict[Command, Times]:
    """Run all commands in turn, once more than counts: the first round fills the caches."""
    commands = (
        Command(NOTHING, (sys.executable, "-c", "pass")),
        Command("import asyncio, msgspec", (sys.executable, "-c", "import asyncio, msgspec")),
        Command("import barnabas_clients, all of it", (sys.executable, "-c", EVERYTHING), 8.0),
        Command("the same, and one client of each kind", (sys.executable, "-c", f"{EVERYTHING}; {ONE_OF_EACH}")),
        Command("barnabas --version", (BARNABAS, "--version"), 10.0),
        Command("barnabas topic list -h", (BARNABAS, "topic", "list", "-h")),
        Command("barnabas topic list", (BARNABAS, "topic", "list"), 25.0, waits=True),
        Command("barnabas topic describe", (BARNABAS, "topic", "describe", "topic-0"), waits=True),
        Command("barnabas group list", (BARNABAS, "group", "list"), waits=True),
    )
    times: dict[Command, list[tuple[float, float]]] = {command: [] for command in commands}
    for _ in range(rounds + 1):
        for command in commands:
            began, spent = time.perf_counter(), processor_s()
            run(command.words, env)
            times[command].append((processor_s() - spent, time.perf_counter() - began))
    return {
        command: Times(min(spent for spent, _ in found[1:]), statistics.median(passed for _, passed in found[1:]))
        for command, found in times.items()
    }


def processor_s() -> float:
    """Return what all commands that have ended took of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(found: dict[Command, Times]) -> int:
    """Print the table and return the exit status."""
    nothing = next(times for command, times in found.items() if command.name == NOTHING)
    is_slow = False
    print(f"{'command':38} {'processor':>10} {'ratio':>7} {'passed':>10} {'ratio':>7} {'limit':>6}")
    for (name, _, limit, waits), (processor, passed) in found.items():
        ratio, passed_ratio = processor / nothing.processor_s, passed / nothing.passed_s
        too_slow = limit is not None and (ratio > limit or (waits and passed_ratio > limit))
        is_slow = is_slow or too_slow
        limit_text = "" if limit is None else f"{limit:g} x"
        print(
            f"{name:38} {processor * 1000:7.1f} ms {ratio:5.1f} x {passed * 1000:7.1f} ms {passed_ratio:5.1f} x"
            f" {limit_text:>6}{'  TOO SLOW' if too_slow else ''}"
        )
    return int(is_slow)


def run(command: Sequence[str], env: dict[str, str]) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that nobody listens on."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            if port + count > 65_535:
                continue
            try:
                for number in range(1, count):
                    socket.create_server(("127.0.0.1", port + number)).close()
            except OSError:
                continue
            return port


if __name__ == "__main__":
    sys.exit(main())
