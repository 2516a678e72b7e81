"""Rounds of faults under load on three real brokers, each on a machine of its own; the history is judged as it grows.

A round: all replicas in sync, a second of load, a fault that the seed chose, a while of it, the mending, all replicas
in sync again. Measured is, from the moment the fault strikes, how long every partition took to acknowledge a record
that was sent after that moment: the slowest partition counts, so this is never less than what any one client waits.

Exit status: 0 nothing lost and nothing hung, 1 otherwise, 2 this computer cannot do what was asked for.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torture_faults
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from torture_load import (
    IMPATIENT,
    TOPIC,
    WAIT_LIMIT_S,
    Following,
    HangError,
    Member,
    Producing,
    Recorder,
    Watching,
    Worker,
    audit,
)
from torture_machines import Machines, MissingError, enter, missing

from barnabas_broker.cli_check import verdict

PARTITIONS = 6
SETTLE_S = 1.0
FAILED, CANNOT = 1, 2


class Load:
    """All clients of one run."""

    def __init__(self, recorder: Recorder, bootstrap: str, records_per_s: int) -> None:
        self.recorder, self.bootstrap = recorder, bootstrap
        self.marked = Producing(recorder, bootstrap, "p1", PARTITIONS, records_per_s // 2)
        self.workers: list[Worker] = [
            self.marked,
            Producing(recorder, bootstrap, "p2", PARTITIONS, records_per_s // 2),
            Following(recorder, bootstrap, PARTITIONS),
            Watching(recorder, bootstrap, PARTITIONS),
            Member(recorder, bootstrap, "m1", 30.0),
            Member(recorder, bootstrap, "m2", 8.0),
        ]

    def start(self) -> None:
        for worker in self.workers:
            worker.start()
        self.marked.mark(time.monotonic())
        self.marked.wait_for_marks()

    def finish(self) -> None:
        for worker in self.workers:
            worker.stopping.set()
        for worker in self.workers:
            worker.finish()

    def trouble(self) -> list[str]:
        return [line for worker in self.workers for line in worker.trouble]

    def check_alive(self) -> None:
        if dead := [worker.name for worker in self.workers if not worker.is_alive()]:
            raise HangError(f"ended before its time: {', '.join(dead)}: {self.trouble()[-3:]}")
        if self.recorder.contradictions:
            raise HangError(f"the load contradicts itself: {self.recorder.contradictions[0]}")


def create_topic(bootstrap: str, **settings: str) -> None:
    """Create the topic; a setting's dots are written as underscores."""
    admin = AdminClient({**IMPATIENT, "bootstrap.servers": bootstrap})
    config = {name.replace("_", "."): value for name, value in settings.items()}
    topic = NewTopic(TOPIC, PARTITIONS, 3, config=config)
    for future in admin.create_topics([topic], operation_timeout=30).values():
        future.result(60)


def wait_whole(bootstrap: str, limit_s: float = WAIT_LIMIT_S) -> dict[int, int]:
    """Wait until every replica of every partition is in sync, as clients see it; return the leaders.

    Raises:
        HangError: they are not within the limit.
    """
    admin = AdminClient({**IMPATIENT, "bootstrap.servers": bootstrap})
    deadline = time.monotonic() + limit_s
    found: dict[int, Any] = {}
    while True:
        try:
            found = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
            if len(found) == PARTITIONS and all(len(p.isrs) == 3 and p.leader > 0 for p in found.values()):
                return {number: p.leader for number, p in found.items()}
        except KafkaException:
            pass  # Whoever was asked is not there, or not yet; the next answer counts.
        if time.monotonic() > deadline:
            state = {number: (p.leader, list(p.isrs)) for number, p in found.items()}
            raise HangError(f"not in sync after {limit_s:.0f} s; leader and in-sync replicas: {state}")
        time.sleep(0.05)


def strike(load: Load, machines: Machines, fault: torture_faults.Fault, chance: random.Random) -> tuple[str, float]:
    """Run one round; return whom it struck and how long the slowest partition took."""
    leaders = wait_whole(load.bootstrap)
    time.sleep(SETTLE_S)
    load.check_alive()
    scene = torture_faults.Scene(machines, chance, leaders)
    hold_s = chance.uniform(*fault.hold_s)
    moment = time.monotonic()
    load.marked.mark(moment)
    load.recorder.fault(fault.name, "")
    struck = fault.strike(scene)
    time.sleep(max(0.0, moment + hold_s - time.monotonic()))
    fault.mend(scene, struck)
    target = ",".join(map(str, struck))
    load.recorder.fault_ended(fault.name, target)
    return target, max(load.marked.wait_for_marks().values())


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * int(share * 100) // 100) - 1)]


def report(pauses: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Print the pauses of each fault, and return them."""
    rows = []
    print(f"{'fault':22} {'rounds':>6} {'median':>8} {'p99':>8} {'longest':>8}  target")
    for fault in torture_faults.FAULTS:
        if values := pauses.get(fault.name):
            p99 = percentile(values, 0.99)
            met = None if fault.target_s is None else p99 <= fault.target_s
            text = "" if met is None else f"p99 <= {fault.target_s} s: {'met' if met else 'MISSED'}"
            middle = statistics.median(values)
            print(f"{fault.name:22} {len(values):6} {middle:8.3f} {p99:8.3f} {max(values):8.3f}  {text}")
            rows.append({"fault": fault.name, "pauses_s": [round(value, 3) for value in values], "target_met": met})
    return rows


def run(options: argparse.Namespace, faults: list[torture_faults.Fault], folder: Path) -> int:
    chance = random.Random(options.seed)
    machines = Machines(folder, settings=dict(item.split("=", 1) for item in options.settings))
    recorder = Recorder(Path(options.history) if options.history else folder / "history.jsonl")
    pauses: dict[str, list[float]] = defaultdict(list)
    hung = ""
    try:
        print(f"three brokers ready in {machines.start():.2f} s")
        create_topic(machines.bootstrap)
        load = Load(recorder, machines.bootstrap, options.records_per_s)
        load.start()
        for number, fault in enumerate(torture_faults.deck(chance, faults, options.rounds), 1):
            began = time.monotonic()
            target, pause = strike(load, machines, fault, chance)
            pauses[fault.name].append(pause)
            wrong = recorder.checker.summary().violations
            print(
                f"round {number:3}: {fault.name:22} broker {target:6} first acknowledged after {pause:6.3f} s; "
                f"round {time.monotonic() - began:5.1f} s" + (f"; {wrong} VIOLATIONS" if wrong else ""),
                flush=True,
            )
            if wrong:
                break  # What comes after would only bury it.
        load.finish()
        wait_whole(load.bootstrap)
        audit(recorder, machines.bootstrap, "audit", [0] * PARTITIONS)
        for line in load.trouble()[:20]:
            print(f"note: {line}")
    except RuntimeError as error:  # HangError, or a broker that does not start
        hung = str(error)
        print(f"HUNG: {hung}", file=sys.stderr)
        for machine in machines.all:
            print(f"broker {machine.node_id} last said: {machine.last_words()}", file=sys.stderr)
    finally:
        machines.mend_links()
        machines.stop()
        recorder.close()
    rows = report(pauses)
    summary = recorder.checker.summary()
    for violation in recorder.checker.violations[:20]:
        print(violation, file=sys.stderr)
    print(verdict(summary))
    if options.json:
        Path(options.json).write_text(
            json.dumps({"hung": hung, "by_fault": rows, **summary._asdict()}, indent=2) + "\n"
        )
    failed = bool(hung or summary.violations or summary.unread)
    if failed:
        print(f"again: scripts/torture --rounds {options.rounds} --seed {options.seed}", file=sys.stderr)
        leave_evidence(folder, recorder.path)
    return FAILED if failed else 0


def leave_evidence(folder: Path, history: Path) -> None:
    """Copy the history and what the brokers logged to a directory that stays, and name it."""
    left = Path(tempfile.mkdtemp(prefix="barnabas-torture-failed-"))
    for file in (history, *folder.glob("machine-*/broker.*")):
        shutil.copy(file, left / f"{file.parent.name}-{file.name}")
    print(f"history and logs: {left}", file=sys.stderr)


def choose(options: argparse.Namespace) -> list[torture_faults.Fault]:
    """Return the faults to choose from; say loudly which are left out because this computer cannot do them."""
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
    options = parser.parse_args()
    try:
        faults = choose(options)
        enter(["links", "disks", "clock and syncs"])
    except MissingError as error:
        print(f"torture: {error}; all that is missing: {missing() or 'nothing'}", file=sys.stderr)
        return CANNOT
    folder = Path(tempfile.mkdtemp(prefix="barnabas-torture-"))
    if options.keep:
        print(f"leaves {folder}")
        return run(options, faults, folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as temporary:
        folder.rmdir()
        return run(options, faults, Path(temporary))


if __name__ == "__main__":
    sys.exit(main())
