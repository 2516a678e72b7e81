"""Cuts the power of three real brokers whose disks lose all unwritten bytes.

    --mode fsync       all three machines lose power at the same instant, under load. Nothing acknowledged may be lost.
    --mode page-cache  a follower is suspended while the two others go on; then one of these loses its power and the
                       other crashes, so that only the crashed one's files have all records of that time; the suspended
                       one and the one without memory come back first. Nothing acknowledged may be lost: not by an
                       election among those two either.
    --no-sync          the control: from some moment on, fdatasync and its kin report success and do nothing. A round
                       must then show losses, or brokers that refuse a disk on which synced records are damaged: the
                       kernel may have written some of them by itself. Else this harness is blind: that is the failure.

After each round a reader goes from where the last one ended to the end of every partition, after the last one from the
start. The history is judged by the rules of `barnabas check`; the disks are those of `scripts/machines/machines.py`.

Exit status: 0 as it should be, 1 not, 2 this computer cannot do it.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from machines.machines import MissingError, command, enter

from barnabas_broker.cli.commands.check import verdict

from .load import PARTITIONS, Load, Member, Producing, audit, create_topic, wait_whole
from .trial import FAILED, SHOWN_MAX, Trial, cannot

SETTLE_S = (0.5, 2.0)
# In this time the broker without memory and the one that lagged may make the mistake of electing one of themselves.
TEMPTATION_S = 4.0
REFUSED = "in records that had been synced"  # the words of a broker whose journal has a hole (`log.recovery.startup`)


class Rounds:
    """A cluster, its load, and the steps of a round."""

    def __init__(self, trial: Trial, chance: random.Random, records_per_s: int) -> None:
        self.machines = trial.machines
        self.recorder = trial.recorder
        self.chance = chance
        self.ends = [0] * PARTITIONS
        bootstrap = self.machines.bootstrap
        marked, second = (
            Producing(self.recorder, bootstrap, name, PARTITIONS, records_per_s // 2) for name in ("p1", "p2")
        )
        self.load = Load(self.recorder, marked, second, Member(self.recorder, bootstrap, "m1", 15.0))

    def settle(self) -> None:
        wait_whole(self.machines.bootstrap)
        time.sleep(self.chance.uniform(*SETTLE_S))

    def cut_all(self) -> None:
        everybody = self.machines.others()
        self.recorder.fault("power cut", "all")
        self.machines.lose_power(*everybody)
        self.machines.restore_power(everybody)
        self.machines.start()
        self.recorder.fault_ended("power cut", "all")

    def cut_one_and_crash_another(self) -> None:
        lagging, cut, crashed = self.chance.sample(self.machines.others(), 3)
        self.recorder.fault("power cut and crash", f"{lagging} lags, {cut} loses power, {crashed} crashes")
        self.machines[lagging].signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.3, 3.0))
        self.machines.lose_power(cut)
        self.machines[crashed].kill()
        self.machines[lagging].signal(signal.SIGCONT)
        self.machines.restore_power([cut])
        self.machines[cut].begin_start()
        time.sleep(TEMPTATION_S)
        self.machines[crashed].begin_start()
        self.machines[cut].wait_ready()
        self.machines[crashed].wait_ready()
        self.recorder.fault_ended("power cut and crash", "")

    def audit(self, number: int) -> None:
        self.ends = audit(self.recorder, self.machines.bootstrap, f"audit-{number}", self.ends)

    def lie_about_syncs(self) -> None:
        """Let everything so far be on the disks, so that the cluster survives, and nothing from here on."""
        for machine in self.machines.all:
            command("sync", "--file-system", machine.disk)
            machine.lie_about_syncs()


def run_rounds(options: argparse.Namespace, trial: Trial) -> Iterator[int]:
    """Run all rounds, or end with the first that loses something; yield the number of each that is over.

    Raises:
        RuntimeError: something hung, or a broker did not start.
    """
    machines = trial.machines
    recorder = trial.recorder
    machines.start()
    create_topic(machines.bootstrap, flush_mode=options.mode)
    rounds = Rounds(trial, random.Random(options.seed), options.records_per_s)
    rounds.load.start()
    for number in range(1, options.rounds + 1):
        began = time.monotonic()
        rounds.settle()
        if options.no_sync and number == 1:
            rounds.lie_about_syncs()
            time.sleep(1.0)
        if options.mode == "fsync":
            rounds.cut_all()
        else:
            rounds.cut_one_and_crash_another()
        rounds.load.wait_acknowledged()
        rounds.audit(number)
        yield number
        summary = recorder.checker.summary()
        print(
            f"round {number:3}: {summary.acknowledged:7,} acknowledged so far, {summary.violations} violations; "
            f"{time.monotonic() - began:.1f} s",
            flush=True,
        )
        if summary.violations:
            break
    rounds.load.finish()
    wait_whole(machines.bootstrap)
    audit(recorder, machines.bootstrap, "audit", [0] * PARTITIONS)
    for worker in rounds.load.workers:
        for line in worker.trouble[:5]:
            print(f"note: {line}")


def run(options: argparse.Namespace, folder: Path) -> int:
    trial = Trial(folder, dict(item.split("=", 1) for item in options.settings), options.history)
    done = 0
    with trial.running():
        for number in run_rounds(options, trial):
            done = number
    return judge(options, trial, done)


def judge(options: argparse.Namespace, trial: Trial, done: int) -> int:
    summary = trial.judge(5 if options.no_sync else SHOWN_MAX)
    print(f"{done} rounds, {options.mode}: {verdict(summary)}")
    lost = [violation for violation in trial.recorder.checker.violations if violation.rule.name == "LOST"]
    refusing = [machine.node_id for machine in trial.machines.all if REFUSED in machine.last_words()]
    if options.json:
        answer = {"hung": trial.hung, "rounds": done, "lost": len(lost), "refusing": refusing, **summary._asdict()}
        Path(options.json).write_text(json.dumps(answer, indent=2) + "\n")
    if options.no_sync:
        print(control(len(lost), refusing))
        return 0 if lost or refusing else FAILED
    failed = bool(trial.hung or summary.violations or summary.unread)
    if failed:
        words = f"--rounds {options.rounds} --seed {options.seed} --mode {options.mode}"
        print(f"again: scripts/trials/power-cut {words}", file=sys.stderr)
        trial.leave_evidence()
    return FAILED if failed else 0


def control(lost_count: int, refusing: Sequence[int]) -> str:
    """Say what the control has shown."""
    if refusing:
        return f"control: brokers {refusing} refuse to start without synced records, as it must be"
    if lost_count:
        return f"control: {lost_count} losses seen, as it must be"
    return "control: NO loss seen: this harness is blind"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="about 8 s each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=("fsync", "page-cache"), default="fsync", help="flush.mode of the topic")
    parser.add_argument("--no-sync", action="store_true", help="the control: syncs lie, losses must be seen")
    parser.add_argument("--records-per-s", type=int, default=600)
    parser.add_argument("--history", help="leave the history in this file")
    parser.add_argument("--json", help="write the result to this file")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    try:
        enter()
    except MissingError as error:
        return cannot("power-cut", error)
    with tempfile.TemporaryDirectory(prefix="barnabas-power-cut-") as folder:
        return run(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
