"""Times short commands beside an interpreter that does nothing: what an Enter in a shell costs.

All commands run in turn, round after round, so that a busy machine makes all of them slower alike. What counts is the
ratio of the medians to that of `python -c pass`, because seconds depend on the machine.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from barnabas_broker.local_cluster.files import ClusterFiles

BARNABAS = str(Path(sys.executable).with_name("barnabas"))
NOTHING = "python -c pass"
EVERYTHING = "import barnabas_clients as b; [getattr(b, name) for name in b.__all__]"
ONE_OF_EACH = "b.Producer('localhost'); b.Consumer('localhost', topics=['t'], group_id='g'); b.Admin('localhost')"
TOPICS = 12


def main() -> int:
    """Print the table; 1 if a command takes longer than its limit allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command (15)")
    rounds = parser.parse_args().rounds
    # A developer's own profile or address must not change what is measured.
    mine = ("BARNABAS_PROFILE", "BARNABAS_BOOTSTRAP_SERVER", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if name not in mine}
    with tempfile.TemporaryDirectory(prefix="barnabas-cli-") as folder:
        env["BARNABAS_CONFIG"] = f"{folder}/profiles.toml"
        return judged(measured(Path(folder, "cluster"), rounds, env))


def measured(data: Path, rounds: int, env: dict[str, str]) -> list[tuple[str, float, float | None]]:
    """Return each command's name, the median of its times in s, and its limit as a ratio."""
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


def timed(rounds: int, env: dict[str, str]) -> list[tuple[str, float, float | None]]:
    """Run all commands in turn, once more than counts: the first round fills the caches."""
    commands: list[tuple[str, Sequence[str], float | None]] = [
        (NOTHING, [sys.executable, "-c", "pass"], None),
        ("import barnabas_clients, all of it", [sys.executable, "-c", EVERYTHING], 8.0),
        ("the same, and a client of each kind", [sys.executable, "-c", f"{EVERYTHING}; {ONE_OF_EACH}"], None),
        ("barnabas --version", [BARNABAS, "--version"], 10.0),
        ("barnabas topic list -h", [BARNABAS, "topic", "list", "-h"], None),
        ("barnabas topic list", [BARNABAS, "topic", "list"], 25.0),
        ("barnabas topic describe", [BARNABAS, "topic", "describe", "topic-0"], None),
        ("barnabas group list", [BARNABAS, "group", "list"], None),
    ]
    times: dict[str, list[float]] = {name: [] for name, _, _ in commands}
    for _ in range(rounds + 1):
        for name, command, _ in commands:
            began = time.perf_counter()
            run(command, env)
            times[name].append(time.perf_counter() - began)
    return [(name, statistics.median(times[name][1:]), limit) for name, _, limit in commands]


def judged(found: list[tuple[str, float, float | None]]) -> int:
    """Print the table and return the exit status."""
    nothing_s = next(median_s for name, median_s, _ in found if name == NOTHING)
    is_slow = False
    print(f"{'command':36} {'median':>9} {'ratio':>7} {'limit':>6}")
    for name, median_s, limit in found:
        ratio = median_s / nothing_s
        too_slow = limit is not None and ratio > limit
        is_slow = is_slow or too_slow
        limit_text = "" if limit is None else f"{limit:g} x"
        print(f"{name:36} {median_s * 1000:6.1f} ms {ratio:5.1f} x {limit_text:>6}{'  TOO SLOW' if too_slow else ''}")
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
