"""Measures three idle brokers with many partitions: resident memory and share of a core."""

import argparse
import os
import sys
import time
from pathlib import Path

from machines.cluster_handle import cluster, run
from rich.console import Console
from rich.table import Table

SETTLE_S = 5.0  # elections and the first announcements are over long before


def cpu_s(pid: int) -> float:
    """Return the processor time of a process so far, user and system."""
    return sum(user_and_system_s(pid))


def user_and_system_s(pid: int) -> tuple[float, float]:
    """Return the processor time of a process so far: its own, and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    per_second = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / per_second, int(fields[12]) / per_second


def rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with cluster() as brokers:
        words = ("--partitions", options.partitions, "--replication-factor", 3)
        run("topic", "create", "idle", *words, "--bootstrap-server", brokers.bootstrap)
        pids = brokers.pids()
        time.sleep(SETTLE_S)
        before = {node: cpu_s(pid) for node, pid in pids.items()}
        began = time.monotonic()
        time.sleep(options.seconds)
        took_s = time.monotonic() - began
        table = Table(title=f"three idle brokers, {options.partitions} partitions at RF 3, {took_s:.0f} s")
        for heading in ("broker", "resident memory", "share of a core"):
            table.add_column(heading, justify="right")
        for node, pid in pids.items():
            share = (cpu_s(pid) - before[node]) / took_s
            table.add_row(str(node), f"{rss_mib(pid):.1f} MiB", f"{share:.2%}")
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
