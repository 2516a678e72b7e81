"""Strikes three real brokers under load with faults, and judges the history as it grows.

Each broker runs on a machine of its own. A round: all replicas in sync, a second of load, a fault that the seed chose,
a while of it, the mending, all replicas in sync again. It measures, from the moment the fault strikes, how long every
partition took to acknowledge a record that was sent after that moment: the slowest partition counts, so this is never
less than the wait of any one client. The brokers' logs tell where that time went (`times`). Before the first fault,
and after the last, the load runs for twice `replica.lag.time.max.ms` (4 s, unless --set says otherwise) without one.
All the while the in-sync replicas are watched, and the records that are refused for want of them
(`min.insync.replicas` is 2; `in_sync_watch`).

Exit status: 0 nothing lost, nothing hung, and nobody out of sync without a fault; 1 otherwise; 2 this computer cannot
do it. The last lines say whether the times are within the targets. The status does not: that says as much about the
computer.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from machines.cluster_handle import add_link_options, link_settings
from machines.delayed_network import network_lacks
from machines.machines import Machines, MissingError, enter

from barnabas_broker.cli.commands.check import verdict

from . import faults as torture_faults
from .in_sync_watch import InSyncWatch, Steady
from .load import PARTITIONS, Load, audit, create_topic, name_of, wait_whole, whole_load
from .times import LogReader, Pause, medians, percentile, phases_of
from .trial import FAILED, Trial, cannot, work_folder

SETTLE_S = 1.0
LAG_MAX = "replica.lag.time.max.ms"
LAG_MAX_MS = 4_000  # by default 30 s, in which a round would be over before anybody is missed


def strike(
    load: Load,
    machines: Machines,
    fault: torture_faults.Fault,
    chance: random.Random,
    watch: InSyncWatch | None = None,
) -> tuple[str, Pause]:
    """Run one round; return the nodes that it struck, and its cost. `watch` is told of excuses."""
    leaders = wait_whole(machines.bootstrap)
    time.sleep(SETTLE_S)
    load.check_alive()
    scene = torture_faults.Scene(machines, chance, leaders)
    hold_s = chance.uniform(*fault.hold_s)
    logs = LogReader([machine.log for machine in machines.all])
    logs.skip()
    moment = time.monotonic()
    struck_at = time.time()
    load.marked.mark(moment)
    load.recorder.fault(fault.name, "")
    if watch is not None:
        watch.strike(machines.others())  # Its victim is not known before.
    struck = fault.strike(scene)
    if watch is not None and fault.needs != "links":  # otherwise the one that is cut off misses the others
        watch.spare(machines.others(*struck))
    time.sleep(max(0.0, moment + hold_s - time.monotonic()))
    fault.mend(scene, struck)
    if watch is not None:
        watch.mend(machines.others())
    target = ",".join(map(str, struck))
    load.recorder.fault_ended(fault.name, target)
    waits = load.marked.wait_for_marks()
    slowest = max(waits, key=lambda partition: waits[partition])
    name = name_of(slowest)
    seconds = waits[slowest]
    return target, Pause(name, seconds, phases_of(logs.lines(), name, struck_at, seconds))


def report(pauses: dict[str, list[Pause]]) -> list[dict[str, Any]]:
    """Print the cost of each fault, beside its promise; return the rows."""
    rows = []
    print(f"{'seconds':22} {'rounds':>6} {'median':>7} {'p99':>7} {'longest':>7}   median of those with an election")
    for fault in torture_faults.FAULTS:
        if of_fault := pauses.get(fault.name):
            values = [pause.seconds for pause in of_fault]
            p99 = percentile(values, 0.99)
            middle = statistics.median(values)
            way = medians(of_fault)
            print(f"{fault.name:22} {len(values):6} {middle:7.3f} {p99:7.3f} {max(values):7.3f}   {way or ''}".rstrip())
            met = None if fault.promise is None else p99 <= fault.promise.p99_s
            rows.append({"fault": fault.name, "pauses_s": [round(value, 3) for value in values], "target_met": met})
    for promise in torture_faults.PROMISES:
        names = [fault.name for fault in torture_faults.FAULTS if fault.promise is promise]
        if values := [pause.seconds for name in names for pause in pauses.get(name, ())]:
            p99 = percentile(values, 0.99)
            word = "met" if p99 <= promise.p99_s else "MISSED"
            over = sum(value > promise.p99_s for value in values)
            target = f"{over} over the target of {promise.p99_s} s"
            print(f"{promise.what}: p99 {p99:.3f} s of {len(values)} rounds, {target}: {word}")
    return rows


def round_trip_s(options: argparse.Namespace) -> float:
    """Return the longest time of a question from one broker to another, by the links' settings."""
    one_way_ms: float = options.link_delay + options.link_jitter
    return 2 * (one_way_ms + (options.wire_delay or 0.0)) / 1000


def run_rounds(
    options: argparse.Namespace,
    faults: list[torture_faults.Fault],
    trial: Trial,
    pauses: dict[str, list[Pause]],
) -> list[str]:
    """Run all rounds, fill `pauses`, and return replicas out of sync, and refusals for it, without a fault.

    Raises:
        RuntimeError: something hung, or a broker did not start.
    """
    chance = random.Random(options.seed)
    machines = trial.machines
    recorder = trial.recorder
    print(f"three brokers ready in {machines.start():.2f} s")
    create_topic(machines.bootstrap, min_insync_replicas="2")
    wait_whole(machines.bootstrap)
    lag_max_s = int(machines.settings[LAG_MAX]) / 1000
    logs = [one.log for one in machines.all]
    watch = InSyncWatch(machines.bootstrap, logs, machines.pids, lag_max_s, round_trip_s(options))
    load = whole_load(recorder, machines.bootstrap, options.records_per_s)
    steady = Steady(machines.bootstrap)
    load.start()
    steady.start()
    watch.start()
    time.sleep(2 * lag_max_s)
    for number, fault in enumerate(torture_faults.deck(chance, faults, options.rounds), 1):
        began = time.monotonic()
        target, pause = strike(load, machines, fault, chance, watch)
        pauses[fault.name].append(pause)
        wrong = recorder.checker.summary().violations
        print(
            f"round {number:3}: {fault.name:22} broker {target:6} first acknowledged after {pause.seconds:6.3f} s "
            f"({pause.partition}: {pause.phases or 'no election'}); round {time.monotonic() - began:5.1f} s"
            + (f"; {wrong} VIOLATIONS" if wrong else ""),
            flush=True,
        )
        if wrong:
            break  # Further rounds would only bury it.
    else:
        time.sleep(watch.excuses.grace_s + 2 * lag_max_s)
    load.finish()
    steady.finish()
    without_excuse = watch.finish()
    wait_whole(machines.bootstrap)
    audit(recorder, machines.bootstrap, "audit", [0] * PARTITIONS)
    for line in load.trouble()[:20]:
        print(f"note: {line}")
    print(f"{watch.summary()}; without an excuse: {len(without_excuse)}")
    return without_excuse


def run(options: argparse.Namespace, faults: list[torture_faults.Fault], folder: Path) -> int:
    settings = {LAG_MAX: str(LAG_MAX_MS), **link_settings(options.link_delay, options.link_jitter)}
    settings |= dict(item.split("=", 1) for item in options.settings)
    trial = Trial(folder, settings, options.history, options.wire_delay)
    pauses: dict[str, list[Pause]] = defaultdict(list)
    without_excuse: list[str] = []
    with trial.running():
        without_excuse = run_rounds(options, faults, trial, pauses)
    summary = trial.judge()
    for line in without_excuse[:20]:
        print(line, file=sys.stderr)
    print(verdict(summary))
    rows = report(pauses)
    if options.json:
        found = {"hung": trial.hung, "without_excuse": without_excuse, "by_fault": rows, **summary._asdict()}
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
    failed = bool(trial.hung or without_excuse or summary.violations or summary.unread)
    if failed:
        print(f"again: scripts/torture {' '.join(sys.argv[1:])}", file=sys.stderr)
        trial.leave_evidence()
    return FAILED if failed else 0


def choose(options: argparse.Namespace) -> list[torture_faults.Fault]:
    """Return the faults to choose from; raise if one of the names is none."""
    names = options.faults.split(",") if options.faults else list(torture_faults.BY_NAME)
    if unknown := [name for name in names if name not in torture_faults.BY_NAME]:
        raise MissingError(f"no such fault: {', '.join(unknown)}; there are {', '.join(torture_faults.BY_NAME)}")
    return [torture_faults.BY_NAME[name] for name in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=26, help="about 8 s each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", help=f"comma separated, of {', '.join(torture_faults.BY_NAME)}")
    parser.add_argument("--records-per-s", type=int, default=600)
    parser.add_argument("--history", help="leave the history in this file")
    parser.add_argument("--json", help="write the result to this file")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' logs and disks")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    add_link_options(parser)
    parser.add_argument(
        "--wire-delay", type=float, metavar="MS", help="of every packet between machines, one way, unknown to brokers"
    )
    options = parser.parse_args()
    try:
        faults = choose(options)
        if options.wire_delay is not None and (lack := network_lacks()):
            raise MissingError(f"--wire-delay: {lack}")
        enter()
    except MissingError as error:
        return cannot("torture", error)
    with work_folder("barnabas-torture-", keeps=options.keep) as folder:
        return run(options, faults, folder)


if __name__ == "__main__":
    sys.exit(main())
