"""Compares Barnabas with Apache Kafka and NATS JetStream: same loads, machine and run.

A round starts each system afresh, one after the other in an order that alternates from round to round, warms it up,
and puts every chosen workload on it. That is done in each durability mode. Printed are medians over the rounds and
their ratios; every single value goes into `samples.json`, with the settings and the commit, and from that file come
the plots (PNG) and the page (`compare.html`), which `--report DIR` makes again.

`--link-delay` and `--wire-delay` name the one-way times, in milliseconds, of the network between the nodes; each of
them makes the modes of durability once more (docs/testing.md). The first is Barnabas' own doing, so the peers are left
out.

A peer that cannot be had is "not measured". If a workload fails on a system, it says so and goes on with the rest.
"""

import argparse
import datetime as dt
import os
import platform
import re
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from machines import held_memory
from machines.cache import NotInstalledError
from machines.delayed_network import DelayedNetwork, MissingError, enter_namespaces, lay_cable, network_lacks
from machines.modules import module_command
from msgspec.structs import replace
from rich.console import Console

from bench import systems
from bench.loads.load import Load, LoadFailedError, Measured, run
from bench.loads.workloads import GROUPS, WORKLOADS, Workload
from bench.report import Header, Sample, Samples, write_report

from .idle import rss_mib, user_and_system_s

START = {"barnabas": systems.barnabas, "kafka": systems.kafka, "nats": systems.nats}
MODES = ("page-cache", "synced")
NODE_IDS = (1, 2, 3)
DELAY_MS_MAX = 10_000
WARM = {  # Kafka's figures keep rising for about a million records: the JVM compiles.
    "barnabas": Load(kind="throughput", records=100_000),
    "kafka": Load(kind="throughput", records=1_000_000),
    "nats": Load(kind="throughput", records=100_000),
}
SETTLE_S = 5.0  # the work of a system right after its start is over


def command_of(system: str, load: Load) -> list[str]:
    if system == "nats":
        return [str(systems.install_nats()[1])]
    return module_command("bench.loads.transactions_load" if load.kind == "transactions" else "bench.loads.kafka_load")


def put_on(system: str, running: systems.Running, load: Load) -> list[Measured]:
    """Run one load on a system that is up, through all its phases."""
    to_it = replace(load, address=running.address)
    return run(command_of(system, load), to_it, user_and_system_s, lambda: running.pids, running.kill)


class Mode(NamedTuple):
    """A durability, and a network between the nodes: None is loopback, which nothing holds back."""

    durability: str
    link_delay_ms: float | None = None
    wire_delay_ms: float | None = None

    @property
    def name(self) -> str:
        """Its name in samples."""
        if self.link_delay_ms is not None:
            return f"{self.durability}, links of {self.link_delay_ms:g} ms"
        if self.wire_delay_ms is not None:
            return f"{self.durability}, wires of {self.wire_delay_ms:g} ms"
        return self.durability


def modes_of(options: argparse.Namespace) -> list[Mode]:
    """Return all combinations that were asked for, in the order in which they are measured."""
    durabilities = options.modes.split(",")
    if options.link_delay is not None:
        return [Mode(one, link_delay_ms=delay_ms) for one in durabilities for delay_ms in options.link_delay]
    if options.wire_delay is not None:
        return [Mode(one, wire_delay_ms=delay_ms) for one in durabilities for delay_ms in options.wire_delay]
    return [Mode(one) for one in durabilities]


class Comparison:
    """One run. Samples are saved after each system, so that an interrupted run is not lost."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options = options
        self.console = console
        chosen = options.groups.split(",")
        wanted = re.compile(options.match)
        self.workloads = [one for one in WORKLOADS if one.group in chosen and wanted.search(one.name)]
        self.missing = set[str]()
        self.failures = 0
        self.samples = Samples(header_of(options), [])

    def run(self) -> None:
        names = self.options.only.split(",")
        for number in range(1, self.options.rounds + 1):
            for mode in modes_of(self.options):
                with network_of(mode):
                    for name in names if number % 2 else reversed(names):
                        if name not in self.missing:
                            self._system(name, mode, number)
                            self.samples.save(self.options.out)

    def _system(self, name: str, how: Mode, number: int) -> None:
        mode = how.name
        is_apart = how.wire_delay_ms is not None
        setup = systems.Setup(self.options.min_insync_replicas, how.link_delay_ms or 0.0, is_apart)
        try:
            with START[name](synced=how.durability == "synced", setup=setup) as running:
                self._note(name, mode, number, "start", Measured("start", {"ready_s": running.ready_s}, 0.0, {}))
                time.sleep(SETTLE_S)
                self._memory(name, mode, number, running, "idle")
                try:
                    put_on(name, running, WARM[name])
                except LoadFailedError as error:
                    self._failed(name, mode, number, "warming up", error)
                    return
                for workload in self.workloads:
                    if name in workload.systems:
                        self._workload(name, mode, number, running, workload)
                        self._memory(name, mode, number, running, workload.name)
        except NotInstalledError as error:
            self.missing.add(name)
            self.console.print(f"{name}: not measured: {error}")

    def _workload(self, name: str, mode: str, number: int, running: systems.Running, workload: Workload) -> None:
        try:
            load = replace(workload.load, in_flight_mib=self.options.in_flight_mib)
            for measured in put_on(name, running, load):
                self._note(name, mode, number, workload.name, measured)
        except LoadFailedError as error:
            self._failed(name, mode, number, workload.name, error)

    def _failed(self, name: str, mode: str, number: int, what: str, error: LoadFailedError) -> None:
        self.failures += 1
        self.console.print(f"round {number}, {mode}: {name}, {what} failed: {error}")

    def _memory(self, name: str, mode: str, number: int, running: systems.Running, after: str) -> None:
        """Note the resident memory of the largest node."""
        largest = max(rss_mib(pid) for pid in running.pids.values())
        self._note(name, mode, number, after, Measured("memory", {"rss_mib": largest}, 0.0, {}))

    def _note(self, name: str, mode: str, number: int, workload: str, measured: Measured) -> None:
        self.samples.rows.append(Sample(system=name, mode=mode, round=number, workload=workload, measured=measured))
        values = ", ".join(f"{metric} {value:,.2f}" for metric, value in measured.metrics.items())
        self.console.print(f"round {number}, {mode}: {name}, {workload}, {measured.phase}: {values}")


def network_of(mode: Mode) -> AbstractContextManager[object]:
    """Return the network that delays the packets between the nodes, to be used around them."""
    return nullcontext() if mode.wire_delay_ms is None else DelayedNetwork(NODE_IDS, mode.wire_delay_ms)


def delays(text: str) -> list[float]:
    """Read `0,1,10`. Raises ValueError, which argparse reports."""
    found = [float(part) for part in text.split(",")]
    if not all(0 <= delay_ms <= DELAY_MS_MAX for delay_ms in found):
        raise ValueError(text)
    return found


def enter_network(names: list[str]) -> None:
    """Go on in namespaces with a machine for each node. Peers are fetched before: there is no way out of them.

    Raises:
        MissingError: this computer has no such networks.
    """
    if lack := network_lacks():
        raise MissingError(lack)
    for name, install in (("kafka", systems.install_kafka), ("nats", systems.install_nats)):
        if name in names:
            with suppress(NotInstalledError):
                install()
    enter_namespaces()
    for node_id in NODE_IDS:
        lay_cable(node_id)


def header_of(options: argparse.Namespace) -> Header:
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return Header(
        commit=git.stdout.strip() or "unknown",
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        machine=f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}",
        versions={"kafka": systems.KAFKA_VERSION, "nats": systems.NATS_VERSION.removeprefix("v")},
        settings={name: str(value) for name, value in sorted(vars(options).items())},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default=",".join(GROUPS), help=f"workloads, of {','.join(GROUPS)}")
    parser.add_argument(
        "--match", default="", help="of those, only workloads whose names have this (a regular expression)"
    )
    parser.add_argument("--only", default="barnabas,kafka,nats", help="systems, comma separated")
    parser.add_argument("--modes", default=",".join(MODES), help="durability modes, comma separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="where samples, plots and page go")
    parser.add_argument("--report", type=Path, metavar="DIR", help="measure nothing: make plots and page of DIR again")
    parser.add_argument("--min-insync-replicas", type=int, default=1, metavar="N", help="replicas that acks=all needs")
    parser.add_argument(
        "--in-flight-mib",
        type=int,
        default=0,
        metavar="N",
        help="MiB that producers have under way at most, without idempotence (default: five idempotent requests for "
        "each broker, as librdkafka sends them, which is little if a round trip takes milliseconds)",
    )
    held_memory.add_option(parser)
    network = parser.add_mutually_exclusive_group()
    for option in ("--link-delay", "--wire-delay"):
        network.add_argument(option, type=delays, metavar="MS[,MS...]", help="delays between nodes, one way; see above")
    options = parser.parse_args()
    if options.link_delay is not None:
        options.only = "barnabas"
    for given, known in ((options.groups, GROUPS), (options.only, START), (options.modes, MODES)):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    console = Console(width=140)
    if options.wire_delay is not None:
        try:
            enter_network(options.only.split(","))
        except MissingError as error:
            parser.error(f"--wire-delay does not work here: {error}")
    if options.report:
        write_report(Samples.load(options.report), options.report, console)
        return 0
    # A run that is ended early leaves no servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    comparison = Comparison(options, console)
    if not comparison.workloads:
        parser.error(f"no workload of these groups has {options.match!r} in its name")
    with held_memory.holding(options.hold_memory):
        comparison.run()
    write_report(comparison.samples, options.out, console)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
