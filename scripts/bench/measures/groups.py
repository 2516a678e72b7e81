"""Measures thousands of partitions on three brokers: idle costs, and leaders after faults.

Three real broker processes, one step after the other: created, idle, one suspended for three seconds, one killed and
started again, all stopped and started, all killed and started. A partition counts as led when its leader may answer
reads, that is when a majority has confirmed it; brokers are asked over their status RPC, ten times a second, which
itself costs each of them a few milliseconds a time. `elections` are leaderships won, summed over all brokers, since
the step began.

Times are those of the wall, beside the processor time that the brokers took meanwhile: on a machine that is busy with
something else the first are a user's times and only the second are the cost.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from machines.cluster_handle import ClusterHandle, cluster
from rich.console import Console
from rich.table import Table

from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.status import ask_broker

from .idle import cpu_s, rss_mib

POLL_S = 0.1
LIMIT_S = 300.0
NODES = (1, 2, 3)
Status = dict[str, Any]


class Bench:
    """One cluster and the table of its figures. Steps are methods, in the order in which `main` calls them."""

    def __init__(self, brokers: ClusterHandle, options: argparse.Namespace) -> None:
        self.brokers = brokers
        self.options = options
        self.files = ClusterFiles.load(brokers.data)
        self.table = Table(title=f"{options.partitions} partitions at RF 3 on three brokers")
        for heading in ("step", "seconds", "CPU s of each broker", "what else"):
            self.table.add_column(heading)

    def pids(self) -> dict[int, int]:
        return {node_id: process.pid for node_id in NODES if (process := self.files.process(node_id))}

    def statuses(self, *nodes: int) -> dict[int, Status]:
        """Return the status of each of these brokers; those that do not answer are left out."""
        found: dict[int, Status] = {}
        for node_id in nodes or NODES:
            answer = ask_broker(self.files, node_id, 30.0)
            if isinstance(answer, dict):
                found[node_id] = answer
        return found

    def until(self, claim: Callable[[dict[int, Status]], bool], *nodes: int) -> tuple[float, dict[int, Status]]:
        """Ask these brokers until `claim` is true of their answers; return the seconds that took, and the answers."""
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            found = self.statuses(*nodes)
            if len(found) == len(nodes or NODES) and claim(found):
                return time.monotonic() - began, found
            if time.monotonic() - began > LIMIT_S:
                left = {
                    node_id: {k: v for k, v in status.items() if k != "events"} for node_id, status in found.items()
                }
                raise SystemExit(f"not after {LIMIT_S:.0f} s; {left}")
            time.sleep(max(0.0, asked + POLL_S - time.monotonic()))

    def all_led(self, found: dict[int, Status]) -> bool:
        return bool(sum(status["leaders_confirmed"] for status in found.values()) >= self.options.partitions)

    def all_well(self, found: dict[int, Status]) -> bool:
        """Led, with every replica in sync."""
        return (
            self.all_led(found)
            and all(status["ready"] for status in found.values())
            and not sum(status["under_replicated"] for status in found.values())
        )

    def asleep(self, found: dict[int, Status]) -> bool:
        return self.all_well(found) and not sum(status["stats"]["raft"]["groups_awake"] for status in found.values())

    def row(self, step: str, seconds: float, before: dict[int, float], *notes: str) -> None:
        """Add a line. `before`: processor time when the step began, of those processes that still run."""
        used = [f"{cpu_s(pid) - before.get(pid, 0.0):.1f}" for _, pid in sorted(self.pids().items())]
        self.table.add_row(step, f"{seconds:.2f}", ", ".join(used), "; ".join(notes))
        print(f"{step}: {seconds:.2f} s, CPU {', '.join(used)}; {'; '.join(notes)}", flush=True)

    def cpu(self) -> dict[int, float]:
        return {pid: cpu_s(pid) for pid in self.pids().values()}

    @contextmanager
    def elections(self, *nodes: int) -> Iterator[Callable[[], str]]:
        """Count the elections won, and the messages sent, by these brokers, none of which may end meanwhile."""
        before = self.statuses(*nodes)

        def counted() -> str:
            after = self.statuses(*nodes)
            names = ("elections_won", "messages_out")
            won, sent = (
                sum(after[k]["stats"]["raft"][name] - before[k]["stats"]["raft"][name] for k in after) for name in names
            )
            return f"{won} elections, {sent} messages"

        yield counted

    # The steps.

    def baseline(self) -> None:
        time.sleep(3)
        before = self.cpu()
        began = time.monotonic()
        time.sleep(10)
        took_s = time.monotonic() - began
        self.empty_mib = {node_id: rss_mib(pid) for node_id, pid in self.pids().items()}
        self.empty_share = {pid: (cpu_s(pid) - at) / took_s for pid, at in before.items()}
        sizes = ", ".join(f"{mib:.1f}" for mib in self.empty_mib.values())
        shares = ", ".join(f"{share:.2%}" for share in self.empty_share.values())
        self.row("no partitions", took_s, before, f"{sizes} MiB", f"{shares} of a core")

    def create(self) -> None:
        options = self.options
        admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap, "log_level": 0})
        each, more = divmod(options.partitions, options.topics)
        topics = [NewTopic(f"idle-{number:05d}", each + (number < more), 3) for number in range(options.topics)]
        before = self.cpu()
        began = time.monotonic()
        slowest_s = 0.0
        calls = range(0, len(topics), options.per_call)
        for first in calls:
            asked = time.monotonic()
            part = topics[first : first + options.per_call]
            for future in admin.create_topics(part, operation_timeout=60, request_timeout=120).values():
                future.result(130)
            slowest_s = max(slowest_s, time.monotonic() - asked)
        answered_s = time.monotonic() - began
        self.until(self.all_led)
        led_s = time.monotonic() - began
        notes = f"{options.topics} topics in {len(calls)} calls, answered after {answered_s:.2f} s"
        self.row("create, all led", led_s, before, notes, f"slowest call {slowest_s:.2f} s")
        self.settle("create")

    def settle(self, after: str) -> None:
        before = self.cpu()
        seconds, _ = self.until(self.asleep)
        self.row(f"{after}: all asleep", seconds, before)

    def memory(self, step: str) -> None:
        sizes = {node_id: rss_mib(pid) for node_id, pid in self.pids().items()}
        each = [(sizes[k] - self.empty_mib[k]) * 1024 / self.options.partitions for k in sizes]
        total, replica = (", ".join(f"{size:.1f}" for size in some) for some in (sizes.values(), each))
        self.row(f"{step}: memory", 0, self.cpu(), f"{total} MiB", f"{replica} KiB a replica")

    def idle(self) -> None:
        with self.elections() as counted:
            before = self.cpu()
            began = time.monotonic()
            time.sleep(self.options.seconds)
            took_s = time.monotonic() - began
            shares = ", ".join(f"{(cpu_s(pid) - at) / took_s:.2%}" for pid, at in before.items())
            self.row("idle", took_s, before, f"{shares} of a core", counted())

    def suspend(self, node_id: int) -> None:
        with self.elections() as counted:
            before = self.cpu()
            os.kill(self.pids()[node_id], signal.SIGSTOP)
            time.sleep(3.0)
            others = [k for k in NODES if k != node_id]
            during = self.statuses(*others)
            led = sum(status["leaders_confirmed"] for status in during.values())
            os.kill(self.pids()[node_id], signal.SIGCONT)
            seconds, _ = self.until(self.all_well)
            moved = f"{led} led by the other two after 3 s"
            self.row("one suspended for 3 s: all well", seconds, before, moved, counted())
        self.settle("suspended")

    def kill_one(self, node_id: int) -> None:
        others = [k for k in NODES if k != node_id]
        with self.elections(*others) as counted:
            before = self.cpu()
            self.brokers.kill(node_id)
            seconds, _ = self.until(self.all_led, *others)
            self.row("one killed: all led", seconds, before, counted())

    def start_one(self) -> None:
        before = self.cpu()
        began = time.monotonic()
        ready_s = self.brokers.start(LIMIT_S)
        self.until(self.all_well)
        self.row("it started again: all well", time.monotonic() - began, before, f"ready after {ready_s:.2f} s")
        self.settle("started again")

    def stop(self) -> None:
        # Their processor time while they stopped is gone with them.
        began = time.monotonic()
        self.brokers.stop(LIMIT_S)
        self.row("clean stop of all", time.monotonic() - began, {})

    def start(self, step: str) -> None:
        began = time.monotonic()
        ready_s = self.brokers.start(LIMIT_S)
        self.until(self.all_led)
        self.row(f"{step}: all led", time.monotonic() - began, {}, f"ready after {ready_s:.2f} s")
        self.settle(step)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100, help="topics that the partitions are spread over")
    parser.add_argument("--per-call", type=int, default=10, help="topics in one CreateTopics request")
    parser.add_argument("--seconds", type=float, default=60, help="time of doing nothing")
    parser.add_argument("--steps", default="idle,suspend,kill,restart,crash", help="which of these, comma-separated")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    options = parser.parse_args()
    steps = options.steps.split(",")
    load = os.getloadavg()
    with cluster(keep=options.keep) as brokers:
        bench = Bench(brokers, options)
        bench.baseline()
        bench.create()
        bench.memory("created")
        if "idle" in steps:
            bench.idle()
        if "suspend" in steps:
            bench.suspend(2)
        if "kill" in steps:
            bench.kill_one(1)
            bench.start_one()
        if "restart" in steps:
            bench.stop()
            bench.start("cold start")
            bench.memory("cold start")
        if "crash" in steps:
            brokers.kill(*NODES)
            bench.start("all killed, start")
            bench.memory("all killed")
        bench.stop()
    Console().print(bench.table)
    print(f"load of the machine before and after: {load[0]:.1f}, {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
