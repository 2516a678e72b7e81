"""Runs load and faults for a long time, and judges whether anything grows.

Memory, file descriptors, threads, tasks and the size of the journal of every broker are sampled every few seconds.
Faults strike once in `--fault-every` seconds; only broker 3 is ever killed, so that two processes live as long as the
run. The topic keeps 4 MiB a partition, so that disks reach a steady state too. At the end each series is judged
(`soak_judge`), and the history as always.

Exit status: 0 all flat and nothing lost, 1 something grew, was lost or hung, 2 this computer cannot do it.
"""

import argparse
import dataclasses
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from machines.machines import PEER_PORT, SECRET, Machine, Machines, MissingError, enter

from barnabas_broker.cli.commands.check import verdict
from barnabas_broker.local_cluster.status import ask
from trials import faults as torture_faults
from trials.load import PARTITIONS, audit, create_topic, log_starts, wait_whole, whole_load
from trials.torture import strike
from trials.trial import FAILED, Trial, cannot

from . import soak_judge

MORTAL = 3
KEEPING = {"retention_bytes": str(4 << 20), "segment_bytes": str(1 << 20)}
# Small, so that the journal is recycled and the cache full within minutes; with the defaults that takes an hour.
SETTINGS = {
    "log.retention.check.interval.ms": "30000",
    "log.journal.file.bytes": str(16 << 20),
    "log.tail.cache.bytes": str(4 << 20),
}
Series = dict[str, dict[int, list[tuple[float, float]]]]


class Sampler(threading.Thread):
    """Looks at every broker at a fixed interval, from outside and through its status."""

    def __init__(self, machines: Machines, every_s: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self.series: Series = defaultdict(lambda: defaultdict(list))
        self.began = time.monotonic()
        self.stopping = threading.Event()
        self._machines = machines
        self._every_s = every_s

    def run(self) -> None:
        while not self.stopping.wait(self._every_s):
            for machine in self._machines.all:
                at = time.monotonic() - self.began
                for metric, value in sample(machine).items():
                    self.series[metric][machine.node_id].append((at, value))

    def finish(self) -> None:
        self.stopping.set()
        self.join(30)


def sample(machine: Machine) -> dict[str, float]:
    """Return the present figures of a broker; none of one that is down."""
    if machine.process is None:
        return {}
    folder = Path("/proc", str(machine.process.pid))
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        found = {
            "rss_bytes": float(status["VmRSS"].split()[0]) * 1024,
            "threads": float(status["Threads"]),
            "file_descriptors": float(sum(1 for _ in (folder / "fd").iterdir())),
            "journal_bytes": float(sum(f.stat().st_blocks * 512 for f in (machine.data / "journal").glob("*"))),
        }
    except (OSError, KeyError, ValueError):
        return {}  # It ended, or its disk did, while we looked.
    answer = ask(machine.address, PEER_PORT, 1.0, SECRET)
    if isinstance(answer, dict):
        found["tasks"] = float(answer["stats"]["tasks"])
    return found


def faults() -> list[torture_faults.Fault]:
    """Return the faults of a soak: all that a process survives, and the kill of one broker."""
    known = torture_faults.BY_NAME

    def kill(scene: torture_faults.Scene) -> list[int]:
        scene.machines[MORTAL].signal(signal.SIGKILL)
        scene.machines[MORTAL].kill()
        return [MORTAL]

    names = ("suspend-leader", "cut-leader-both-ways", "cut-leader-unheard", "cut-one-link", "disk-full", "clock-jump")
    return [dataclasses.replace(known["kill-any"], strike=kill), *(known[name] for name in names)]


def judge(series: Series) -> bool:
    """Print each series' trend; return whether all of them are flat."""
    flat = True
    for metric, lines in series.items():
        title, unit, scale = soak_judge.TITLES[metric]
        for node_id, samples in sorted(lines.items()):
            found = soak_judge.trend(metric, samples)
            if found is None:
                print(f"{title:18} broker {node_id}: {len(samples)} samples are too few to judge")
                continue
            # A broker that is killed begins anew each time: its lines say nothing about a trend.
            counts = node_id != MORTAL
            word = "flat" if found.is_flat else "GROWS" if counts else "grows (it was restarted: does not count)"
            level = found.level / scale
            rise = found.rise / scale
            noise = found.noise / scale
            numbers = f"level {level:8.1f} {unit:3}, rise {rise:+7.2f}, noise {noise:6.2f}"
            print(f"{title:18} broker {node_id}: {numbers}: {word}")
            flat = flat and (found.is_flat or not counts)
    return flat


def run_load(options: argparse.Namespace, trial: Trial, sampler: Sampler, struck: list[float]) -> None:
    """Let load and faults run for as long as asked; fill `struck` with the time of each fault, in seconds.

    Raises:
        RuntimeError: something hung, or a broker did not start.
    """
    chance = random.Random(options.seed)
    machines = trial.machines
    recorder = trial.recorder
    machines.start()
    create_topic(machines.bootstrap, **KEEPING)
    load = whole_load(recorder, machines.bootstrap, options.records_per_s)
    load.start()
    sampler.began = time.monotonic()
    sampler.start()
    end = sampler.began + options.minutes * 60
    for fault in torture_faults.deck(chance, faults(), int(options.minutes * 60 / options.fault_every) + 1):
        load.check_alive()
        left_s = min(options.fault_every, end - time.monotonic())
        time.sleep(max(0.0, left_s))
        if time.monotonic() >= end:
            break
        struck.append(time.monotonic() - sampler.began)
        target, pause = strike(load, machines, fault, chance)
        print(f"{struck[-1] / 60:6.1f} min: {fault.name:22} broker {target:4} {pause.seconds:6.3f} s", flush=True)
    sampler.finish()
    load.finish()
    wait_whole(machines.bootstrap)
    audit(recorder, machines.bootstrap, "audit", log_starts(recorder, machines.bootstrap, PARTITIONS))


def run(options: argparse.Namespace, folder: Path) -> int:
    trial = Trial(folder, SETTINGS)
    sampler = Sampler(trial.machines, options.sample_every)
    struck: list[float] = []
    with trial.running():
        try:
            run_load(options, trial, sampler, struck)
        finally:
            sampler.stopping.set()
    if options.plot:
        Path(options.plot).write_text(soak_judge.plot(sampler.series, struck))
    flat = judge(sampler.series)
    summary = trial.judge()
    print(verdict(summary))
    failed = bool(trial.hung or summary.violations or not flat)
    print("NOT as it should be" if failed else f"flat over {options.minutes:g} minutes")
    if failed:
        trial.leave_evidence()
    return FAILED if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--plot", help="write an SVG to this file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault-every", type=float, default=45.0, metavar="S")
    parser.add_argument("--sample-every", type=float, default=5.0, metavar="S")
    parser.add_argument(
        "--records-per-s",
        type=int,
        default=250,
        help="records a second; the default takes a quarter of a core for all of it",
    )
    options = parser.parse_args()
    try:
        enter()
    except MissingError as error:
        return cannot("soak", error)
    with tempfile.TemporaryDirectory(prefix="barnabas-soak-") as folder:
        return run(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
