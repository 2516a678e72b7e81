"""Runs a pipeline of three processes that are killed, on brokers that are killed, and counts what came out of it.

The three are members of a group: they read a topic of six partitions, make a record of each record and write those,
with their offsets, in transactions. The input is numbered. Meanwhile workers and brokers are killed by turns (SIGKILL)
and started again. In the end the output, as one who reads committed records sees it, must have a record for each record
of the input, once, and in the order of each partition; and the history of all of them is judged as `barnabas check`
does.

    --client    whose consumer and producer the workers are. The worker of librdkafka speaks the first protocol of
                transactions, in which a late request may end the wrong one (`ends.py`): a deviation of which the
                history says that this may be its cause is counted, and allowed. All others fail.
    --mode      flush.mode of both topics. With page-cache every other strike at a broker cuts the power of its machine.
    --control   workers of this project's client that commit offsets behind the transaction, not in it. Records must
                then come out twice; if none does, this harness is blind, and that is the failure.

Exit status: 0 as it should be, 1 not, 2 this computer cannot do it.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from machines.cache import NotInstalledError
from machines.machines import Machines, MissingError, enter
from machines.modules import Program

from barnabas_broker.cli.commands.check import verdict
from barnabas_broker.history import Summary
from barnabas_clients.admin.client import Admin
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.topic_partition import TopicPartition
from trials.load import HangError
from trials.torture import LAG_MAX, LAG_MAX_MS
from trials.transactions.audits import audit, mismatches, wait_worked_off
from trials.transactions.story import source_of
from trials.transactions.topics import STATE_PARTITIONS, Flow, create_topics
from trials.trial import FAILED, SHOWN_MAX, cannot, leave_evidence, work_folder

from .clients.programs import CLIENTS, SECOND_PROTOCOL, program_of
from .history import Appending, Reading
from .load import Load
from .strikes import Stage, Strikes
from .workers import WORKERS, Workers

FLOW = Flow("pipeline-in", "pipeline-out", "pipeline", 6)
SETTINGS = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "offsets.topic.num.partitions": "4",
    LAG_MAX: str(LAG_MAX_MS),
}


class Result(NamedTuple):
    """What has come of a run. `allowed` of the deviations are those of the first protocol."""

    hung: str
    wrong: list[str]
    allowed: int
    fed: int
    came_out: int
    took_s: float
    epochs: int
    torn: int
    struck: dict[str, int]
    deaths: dict[str, int]
    notes: dict[str, int]
    lives: int
    summary: Summary


def out_of_order(flow: Flow, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> list[str]:
    """Return the records of the output that come behind a later one of the same partition of the input."""
    wrong = []
    for place in flow.outputs:
        last = -1
        for record in found[place]:
            source = source_of(record)
            where, _, offset = source.rpartition("@")
            if where != f"{flow.input}-{place.partition}":
                wrong.append(f"{source} came out in {place}")
            elif int(offset) < last:
                wrong.append(f"{source} came out behind {where}@{last}")
            last = max(last, int(offset))
    return wrong


async def epochs_of(bootstrap: str) -> int:
    """Return the sum of the workers' epochs: in the second protocol each transaction raises one."""
    async with Admin(bootstrap, timeout_s=60.0) as admin:
        return sum(found.producer_epoch for found in (await admin.describe_transactions(WORKERS)).values())


class Run:
    """One run, from the brokers' start to their end."""

    def __init__(self, options: argparse.Namespace, program: Program, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.machines = Machines(
            folder, settings=SETTINGS | dict(item.split("=", 1) for item in options.settings), disk_bytes=1 << 30
        )
        self.told = Appending(folder / "told.jsonl")
        self.reading = Reading(self.told.path, Path(options.history) if options.history else folder / "history.jsonl")
        bootstrap = self.machines.bootstrap
        job: dict[str, Any] = {"bootstrap": bootstrap, **FLOW._asdict(), "history": str(self.told.path)}
        del job["partitions"]
        job |= {"began_ms": self.told.began_ms, **({"careless": True} if options.control else {})}
        self.workers = Workers(program, job, folder)
        self.load = Load(self.told.tell, bootstrap, FLOW, options.records_per_s)
        self.strikes = Strikes(
            Stage(self.machines, self.workers, self.load, self.told, self.reading, FLOW),
            random.Random(options.seed),
            with_power_cuts=options.mode == "page-cache",
        )
        self.hung = ""
        self.took_s = 0.0
        self.epochs = 0
        self.came_out = 0
        self.wrong: list[str] = []
        self.allowed: list[str] = []

    def run(self) -> Result:
        try:
            found = self._work()
        except RuntimeError as error:  # HangError, or a broker that does not start
            self.hung = str(error)
            print(f"HUNG: {self.hung}", file=sys.stderr)
            for machine in self.machines.all:
                print(f"broker {machine.node_id} last said: {machine.last_words()}", file=sys.stderr)
            found = None
        finally:
            self.workers.finish()
            self.load.finish()
            self.machines.mend_links()
            self.machines.stop()
            self.told.close()
        try:
            self.reading.finish()
        except RuntimeError as error:
            self.hung = self.hung or str(error)
        self._judge(found)
        return Result(
            self.hung,
            self.wrong,
            len(self.allowed),
            self.load.fed,
            self.came_out,
            round(self.took_s, 1),
            self.epochs,
            self.reading.torn,
            dict(self.strikes.struck),
            dict(self.workers.deaths),
            dict(Counter(line[:150] for line in self.load.notes)),
            self.workers.lives,
            self.reading.checker.summary(),
        )

    def _work(self) -> Mapping[TopicPartition, list[ConsumerRecord]]:
        options = self.options
        bootstrap = self.machines.bootstrap
        self.reading.start()
        print(f"three brokers ready in {self.machines.start():.2f} s", flush=True)
        asyncio.run(create_topics(bootstrap, FLOW, flush_mode=options.mode))
        self.load.start()
        self.workers.start()
        self._wait_for_all_workers()
        self.took_s = self.strikes.strike(options.kills, options.minutes * 60)
        self.load.stop_feeding()
        self._work_off()
        self.strikes.check()
        self.epochs = asyncio.run(epochs_of(bootstrap))
        self.workers.finish()
        self.load.finish()
        tell = self.told.tell
        asyncio.run(audit(tell, bootstrap, FLOW, "audit-all", committed=False))
        return asyncio.run(audit(tell, bootstrap, FLOW, "audit-committed", committed=True))

    def _work_off(self) -> None:
        """Wait until the input is worked off, for as long as there is any progress.

        Raises:
            HangError: there is none.
        """
        while True:
            before = self.reading.committed.total()
            try:
                asyncio.run(wait_worked_off(self.machines.bootstrap, FLOW))
            except HangError:
                if self.reading.committed.total() == before:
                    raise
                self.strikes.check()
            else:
                return

    def _wait_for_all_workers(self) -> None:
        """Wait until each of them has committed something."""
        self.strikes.wait_until(
            lambda: all(self.reading.committed[name] for name in WORKERS), "every worker to commit a transaction"
        )

    def _judge(self, found: Mapping[TopicPartition, list[ConsumerRecord]] | None) -> None:
        """Sort all deviations into those that are wrong and those that this client's protocol allows."""
        ends = self.reading.ends
        is_first_protocol = self.options.client not in SECOND_PROTOCOL
        for violation in self.reading.checker.violations:
            allowed = is_first_protocol and ends.may_be_late_end(violation)
            (self.allowed if allowed else self.wrong).append(str(violation))
        if found is None:
            return
        self.came_out = sum(len(found[place]) for place in FLOW.outputs)
        for line in mismatches(FLOW, found) + out_of_order(FLOW, found):
            allowed = is_first_protocol and ends.may_be_late_end_of(line)
            (self.allowed if allowed else self.wrong).append(line)
        committed = self.reading.checker.summary().transactions.get("committed", 0)
        speaks_second = self.epochs > committed / 2
        if speaks_second is is_first_protocol:
            self.wrong.append(f"{self.epochs} epochs of {committed} transactions: not the protocol that was meant")


def report(options: argparse.Namespace, result: Result, evidence: Iterable[Path]) -> int:
    """Print what there is to say; return the exit status."""
    for line in result.wrong[: 5 if options.control else SHOWN_MAX]:
        print(line, file=sys.stderr)
    for line, count in [*result.deaths.items(), *result.notes.items()]:
        print(f"note: {count} x {line}")
    counts = ", ".join(f"{name} {count}" for name, count in sorted(result.struck.items()))
    print(
        f"{options.client}, {options.mode}: {result.fed:,} records in, {result.came_out:,} out; {counts}, "
        f"in {result.took_s:.0f} s; {result.lives} lives; {result.epochs} epochs; "
        f"{len(result.wrong)} deviations" + (f", {result.allowed} allowed" if result.allowed else "")
    )
    print(f"{verdict(result.summary)}; transactions: {result.summary.transactions}; {result.torn} torn lines")
    if options.json:
        Path(options.json).write_text(
            json.dumps({**result._asdict(), "summary": result.summary._asdict()}, indent=2) + "\n"
        )
    if options.control:
        twice = [line for line in result.wrong if " times" in line]
        print(f"control: {len(twice)} came out twice, as it must be" if twice else "control: this harness is blind")
        return 0 if twice and not result.hung else FAILED
    failed = bool(result.hung or result.wrong or result.summary.unread)
    if failed:
        print(f"again: scripts/trials/transactions/exactly-once {' '.join(sys.argv[1:])}", file=sys.stderr)
        leave_evidence(*evidence)
    return FAILED if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=CLIENTS, default="barnabas")
    parser.add_argument("--kills", type=int, default=50, help="of workers and brokers together")
    parser.add_argument("--minutes", type=float, default=10.0, help="in which they are spread")
    parser.add_argument("--mode", choices=("fsync", "page-cache"), default="fsync", help="flush.mode of both topics")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records-per-s", type=int, default=200)
    parser.add_argument("--control", action="store_true", help="careless workers: deviations must be seen")
    parser.add_argument("--history", help="leave the history in this file")
    parser.add_argument("--json", help="write the result to this file")
    parser.add_argument("--keep", action="store_true", help="leave the logs of brokers and workers")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    if options.control and options.client != "barnabas":
        parser.error("--control is of this project's client")
    try:
        program = program_of(options.client)
        enter()
    except (MissingError, NotInstalledError) as error:
        return cannot("exactly-once", error)
    with work_folder("barnabas-exactly-once-", keeps=options.keep) as folder:
        run = Run(options, program, folder)
        result = run.run()
        logs = (*folder.glob("machine-*/broker.*"), *folder.glob("w*.log"))
        return report(options, result, (run.reading.whole, *logs))


if __name__ == "__main__":
    sys.exit(main())
