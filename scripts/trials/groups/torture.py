"""Strikes three real brokers, and members of groups on them, and judges what the members did.

Each broker runs on a machine of its own. Two groups read one topic, into which records flow all the time: a classic one
and one of KIP-848, each with members of this project's consumer, Java's and librdkafka's. A round is a fault: of the
broker that coordinates one of the groups, as often as not, of another one, or of a member, which is killed, stands
still for a second or two sessions, or leaves and comes back. When it is mended, both groups must settle within
`--settle` seconds: each partition is one member's, and every member has committed since.

In the end nothing of this may have happened: a record that no member of a group was handed; a partition that two
members had at the same time, or were handed in one generation or epoch; a committed position that went back.

Exit status: 0 every promise was kept; 1 otherwise; 2 this computer cannot do it.
"""

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from machines.cache import NotInstalledError
from machines.machines import MissingError, enter

from trials import faults as torture_faults
from trials.kill_rounds import Load
from trials.load import PARTITIONS, TOPIC, create_topic, wait_whole
from trials.trial import FAILED, SHOWN_MAX, Trial, cannot, work_folder

from .cast import GROUPS, SESSION_S, Cast, Role
from .members.programs import CLIENTS, program_of
from .rounds import Observer, coordinators_of
from .watch import Workers, check_commits, check_owners, check_spans, check_whole

MEMBER_FAULTS = ("kill-member", "stall-member", "member-leaves")
BROKER_FAULTS = (
    "kill-leader",
    "kill-any",
    "kill-all",
    "suspend-leader",
    "cut-leader-both-ways",
    "cut-off-leader",
    "power-cut-leader",
)
AIMED = 0.75  # of the faults of one broker, so many strike a coordinator
AWAY_S = (0.1, 1.3 * SESSION_S)
WORK_S = 1.0  # of undisturbed work before a fault
START_S = 60.0
SETTINGS = {
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1_000)),
    "group.consumer.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "4",
}


class Stage:
    """The cluster and the groups on it."""

    def __init__(self, trial: Trial, cast: Cast, chance: random.Random, settle_s: float) -> None:
        self._trial = trial
        self._cast = cast
        self._chance = chance
        self._settle_s = settle_s

    def round(self, fault: str) -> tuple[str, float]:
        """Strike and mend; return what was struck, and the seconds until both groups had settled."""
        leaders = wait_whole(self._trial.machines.bootstrap)
        time.sleep(WORK_S)
        target = self._strike_member(fault) if fault in MEMBER_FAULTS else self._strike_broker(fault, leaders)
        return target, self.settled(self._settle_s)

    def _strike_broker(self, name: str, leaders: dict[int, int]) -> str:
        fault = torture_faults.BY_NAME[name]
        chosen = leaders
        if self._chance.random() < AIMED:
            chosen = dict(enumerate(coordinators_of(self._trial.machines.bootstrap, list(GROUPS)).values()))
        scene = torture_faults.Scene(self._trial.machines, self._chance, chosen)
        hold_s = self._chance.uniform(*fault.hold_s)
        began = time.monotonic()
        struck = fault.strike(scene)
        time.sleep(max(0.0, began + hold_s - time.monotonic()))
        fault.mend(scene, struck)
        return f"broker {','.join(map(str, struck))}"

    def _strike_member(self, fault: str) -> str:
        cast = self._cast
        role: Role = self._chance.choice(cast.roles)
        away_s = self._chance.uniform(*AWAY_S)
        if fault == "stall-member":
            away_s = cast.stall(role)
        else:
            (cast.kill if fault == "kill-member" else cast.leave)(role)
            time.sleep(away_s)
            cast.enter(role)
        return f"{role.client} of {role.group}, {away_s:.1f} s"

    def settled(self, limit_s: float) -> float:
        """Wait until each group's members share the topic and have committed since now; return the seconds.

        Raises:
            SystemExit: they have not within the limit.
        """
        workers = self._cast.workers
        began = time.monotonic()

        def is_settled() -> bool:
            for group in GROUPS:
                members = self._cast.members(group)
                owned = [workers.assignments.get(who, frozenset()) for who in members]
                if not all(owned) or not sum(map(len, owned)) == PARTITIONS == len(frozenset().union(*owned)):
                    return False
                if not workers.all_committed_since(began, members):
                    return False
            return True

        return workers.wait_until(is_settled, "both groups to settle", limit_s) - began


def judge(workers: Workers, cast: Cast, observers: dict[str, Observer], ends: dict[int, int]) -> list[str]:
    """Return all broken promises."""
    wrong = check_spans(workers.lines, cast.excused)
    for group, observer in observers.items():
        lines = [line for line in workers.lines if line["group"] == group]
        # One that stood still may hand out what it had; librdkafka does not tell its epoch.
        sure = [
            line
            for line in lines
            if line.get("generation", 0) >= 0
            and not any(begin < line["at"] < end for begin, end in cast.excused.get((group, line["member"]), ()))
        ]
        missing, _ = check_whole(lines, ends)
        wrong += (
            check_owners(sure) + check_commits(lines, observer.observations) + [f"{group}: {one}" for one in missing]
        )
    return wrong


def run(options: argparse.Namespace, faults: list[str], folder: Path) -> int:
    chance = random.Random(options.seed)
    settings = SETTINGS | dict(item.split("=", 1) for item in options.settings)
    trial = Trial(folder, settings)
    wrong: list[str] = []
    times: list[float] = []
    struck: Counter[str] = Counter()
    with trial.running():
        print(f"three brokers ready in {trial.machines.start():.2f} s")
        bootstrap = trial.machines.bootstrap
        create_topic(bootstrap, min_insync_replicas="2")
        wait_whole(bootstrap)
        load = Load(bootstrap, TOPIC, PARTITIONS, options.records_per_s)
        observers = {group: Observer(bootstrap, group) for group in GROUPS}
        with Workers() as workers:
            cast = Cast(workers, bootstrap, TOPIC, chance)
            stage = Stage(trial, cast, chance, options.settle)
            load.start()
            cast.start()
            try:
                print(f"both groups settled after {stage.settled(START_S):.1f} s")
                for observer in observers.values():
                    observer.start()
                for number, fault in enumerate(_dealt(faults, chance, options.rounds)):
                    target, seconds = stage.round(fault)
                    struck[fault] += 1
                    times.append(seconds)
                    print(f"round {number + 1:3}: {fault:22} {target}: settled after {seconds:.1f} s", flush=True)
            except SystemExit as error:
                wrong.append(str(error)[:2_000])
            finally:
                load.finish()
                for observer in observers.values():
                    if observer.ident is not None:
                        observer.finish()
            ends = {partition: count for partition, count in enumerate(load.acked) if count}
            if not wrong:
                workers.wait_until(lambda: _is_read(workers, ends), "the last records", options.settle)
        wrong += load.failures + judge(workers, cast, observers, ends)
        _report(workers, load, observers, struck, times)
    for line in wrong[:SHOWN_MAX]:
        print(line, file=sys.stderr)
    failed = bool(wrong or trial.hung)
    if failed:
        print(f"again: scripts/torture --workload groups {' '.join(sys.argv[1:])}", file=sys.stderr)
        trial.leave_evidence()
    print("every record was handed out, by one owner at a time; no position went back" if not failed else "FAILED")
    return FAILED if failed else 0


def _dealt(faults: list[str], chance: random.Random, count: int) -> list[str]:
    """Return a fault for each round: all of them, in an order that the seed decides, and again."""
    dealt: list[str] = []
    while len(dealt) < count:
        dealt += chance.sample(faults, len(faults))
    return dealt[:count]


def _is_read(workers: Workers, ends: dict[int, int]) -> bool:
    return not any(check_whole([one for one in workers.lines if one["group"] == group], ends)[0] for group in GROUPS)


def _report(
    workers: Workers, load: Load, observers: dict[str, Observer], struck: Counter[str], times: list[float]
) -> None:
    said = Counter((line["group"], line["what"]) for line in workers.lines)
    for group, observer in observers.items():
        counts = ", ".join(f"{what} {count}" for (of, what), count in sorted(said.items()) if of == group)
        print(f"{group}: {counts}; {len(observer.observations)} positions seen")
    print(f"{sum(load.acked)} records acknowledged; struck: {dict(sorted(struck.items()))}")
    if times:
        print(f"settled after a fault: median {statistics.median(times):.1f} s, longest {max(times):.1f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="about 10 s each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", help=f"comma separated, of {', '.join((*MEMBER_FAULTS, *BROKER_FAULTS))}")
    parser.add_argument("--records-per-s", type=int, default=300)
    parser.add_argument("--settle", type=float, default=30.0, help="seconds in which groups settle behind a fault")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' logs and disks")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    faults = options.faults.split(",") if options.faults else [*MEMBER_FAULTS, *BROKER_FAULTS]
    try:
        if unknown := [name for name in faults if name not in {*MEMBER_FAULTS, *torture_faults.BY_NAME}]:
            raise MissingError(f"no such fault: {', '.join(unknown)}")
        for client in CLIENTS:
            program_of(client)
        enter()
    except (MissingError, NotInstalledError) as error:
        return cannot("torture", error)
    with work_folder("barnabas-torture-groups-", keeps=options.keep) as folder:
        return run(options, faults, folder)


if __name__ == "__main__":
    sys.exit(main())
