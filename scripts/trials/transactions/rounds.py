"""Strikes three real brokers under transactions with faults, and judges the history as it grows.

Each broker runs on a machine of its own. A round: all replicas in sync, a second
of load, a fault that the seed chose, a while of it, the mending, all replicas in sync again. The clients are those of
`clients.py`: transactions that feed a topic, and workers that consume, transform and produce; two more are processes
that are killed in the middle of their transactions (`mortals.py`). Most faults strike the coordinator of many
transactions that are just being ended (`strikes.py`).

When the rounds are over, the input has to be worked off and every transaction decided; then all is read again, and each
committed record of the input must have made one committed record of the output.

`--at-least N`: also fail if something befell fewer transactions than that. The outcomes: committed, aborted, fenced,
timed_out, prepared (a fault struck the coordinator of a transaction whose end had been asked for, and was not
answered). The faults: transactions that were open when one of that kind struck; and clients that were killed in one.

`--replication-factor 2`: two replicas and a witness, of the data and of the topics of coordinators.

`--mode page-cache`: the topics of data are not synced. Then no fault takes the power of all machines at once, which may
cost what was acknowledged.

Exit status: 0 every promise was kept; 1 otherwise; 2 this computer cannot do it.
"""

import argparse
import asyncio
import dataclasses
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from machines.machines import MissingError, enter

from barnabas_broker.cli.commands.check import verdict
from trials import faults as torture_faults
from trials.load import WAIT_LIMIT_S
from trials.torture import LAG_MAX, LAG_MAX_MS, choose
from trials.trial import FAILED, SHOWN_MAX, Trial, cannot, work_folder

from .audits import audit, mismatches, wait_worked_off
from .clients import FLOW, Clients
from .mortals import KILLED, Mortals
from .story import Book
from .strikes import SETTLE_S, Stage
from .topics import STATE_PARTITIONS, create_topics

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    LAG_MAX: str(LAG_MAX_MS),
}
WITNESSED = {"transaction.state.log.replication.factor": "2", "offsets.topic.replication.factor": "2"}
OUTCOMES = ("committed", "aborted", "fenced", "timed_out", "prepared")


def run_rounds(
    options: argparse.Namespace,
    faults: list[torture_faults.Fault],
    trial: Trial,
    book: Book,
    struck: Counter[str],
    folder: Path,
) -> list[str]:
    """Run all rounds, and return what does not fit between input and output. Fills `struck`, see `--at-least`."""
    chance = random.Random(options.seed)
    machines = trial.machines
    print(f"three brokers ready in {machines.start():.2f} s")
    asyncio.run(create_topics(machines.bootstrap, FLOW, options.replication_factor, flush_mode=options.mode))
    clients = Clients(book, machines.bootstrap, options.seed)
    mortals = [
        Mortals(book, machines.bootstrap, options.seed, who, folder / f"{who}.log")
        for who in ("feed-mortal", "work-mortal")
    ]
    stage = Stage(trial, clients, options.replication_factor, options.limit)
    players: tuple[Clients | Mortals, ...] = (clients, *mortals)
    for one in players:
        one.start()
    try:
        for number, fault in enumerate(torture_faults.deck(chance, faults, options.rounds), 1):
            began = time.monotonic()
            for one in players:
                one.check_alive()
            target, transactions = stage.strike(fault, chance)
            struck[fault.name] += transactions
            found = trial.recorder.checker.summary()
            print(
                f"round {number:3}: {fault.name:22} broker {target:6} round {time.monotonic() - began:5.1f} s; "
                f"{found.transactions}" + (f"; {found.violations} VIOLATIONS" if found.violations else ""),
                flush=True,
            )
            if found.violations:
                break  # Further rounds would only bury it.
        for one in mortals:
            one.finish()
        stage.whole()
        clients.stop_feeding()
        time.sleep(SETTLE_S)
        asyncio.run(wait_worked_off(machines.bootstrap, FLOW, options.limit))
        clients.check_alive()
    finally:
        for one in players:
            one.finish()
    tell = trial.recorder.tell
    asyncio.run(audit(tell, machines.bootstrap, FLOW, "audit-all", committed=False))
    return mismatches(FLOW, asyncio.run(audit(tell, machines.bootstrap, FLOW, "audit-committed", committed=True)))


def seldom(options: argparse.Namespace, seen: Counter[str], faults: list[torture_faults.Fault]) -> list[str]:
    """Return what was to be seen more often."""
    names = [*OUTCOMES, KILLED, *(fault.name for fault in faults)]
    return [f"{name}: {seen[name]}" for name in names if seen[name] < options.at_least]


def run(options: argparse.Namespace, faults: list[torture_faults.Fault], folder: Path) -> int:
    settings = SETTINGS | (WITNESSED if options.replication_factor == 2 else {})
    settings |= dict(item.split("=", 1) for item in options.settings)
    trial = Trial(folder, settings, options.history)
    book = Book(trial.recorder)
    struck: Counter[str] = Counter()
    wrong: list[str] = []
    with trial.running():
        wrong = run_rounds(options, faults, trial, book, struck, folder)
    summary = trial.judge()
    seen = Counter(summary.transactions) + struck + book.seen
    missing = seldom(options, seen, faults) if options.at_least else []
    for line in [*wrong[:SHOWN_MAX], *trial.recorder.contradictions[:1]]:
        print(line, file=sys.stderr)
    for line, count in Counter(line.partition(": ")[2][:150] for line in book.trouble).most_common(SHOWN_MAX):
        print(f"note: {count} x {line}")
    print("seen: " + ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    print(verdict(summary))
    if missing:
        print(f"seen less than {options.at_least} times: {', '.join(missing)}", file=sys.stderr)
    if options.json:
        found = {"hung": trial.hung, "wrong": wrong, "seen": dict(seen), "missing": missing, **summary._asdict()}
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
        Path(options.json).with_suffix(".notes").write_text("\n".join(book.trouble) + "\n")
    failed = bool(
        trial.hung or wrong or trial.recorder.contradictions or summary.violations or summary.unread or missing
    )
    if failed:
        print(f"again: scripts/torture --workload txn {' '.join(sys.argv[1:])}", file=sys.stderr)
        trial.leave_evidence()
    return FAILED if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=26, help="about 8 s each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", help=f"comma separated, of {', '.join(torture_faults.BY_NAME)}")
    parser.add_argument("--at-least", type=int, default=0, metavar="N", help="transactions of each outcome and fault")
    parser.add_argument("--replication-factor", type=int, choices=(2, 3), default=3, help="2: with witnesses")
    parser.add_argument("--mode", choices=("fsync", "page-cache"), default="fsync", help="flush.mode of the data")
    parser.add_argument("--limit", type=float, default=WAIT_LIMIT_S, help="seconds after which something hangs")
    parser.add_argument("--history", help="leave the history in this file")
    parser.add_argument("--json", help="write the result to this file")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' logs and disks")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    try:
        # Of each kind as many: cards are for promises about times.
        faults = [dataclasses.replace(fault, cards=1) for fault in choose(options)]
        if options.mode == "page-cache":
            faults = [fault for fault in faults if fault.name != "power-cut-all"]
        enter()
    except MissingError as error:
        return cannot("torture", error)
    with work_folder("barnabas-torture-txn-", keeps=options.keep) as folder:
        return run(options, faults, folder)


if __name__ == "__main__":
    sys.exit(main())
