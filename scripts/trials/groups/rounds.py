"""Kills the coordinator of a busy group, round after round, and times the members' return.

Four members (`Consumer`, each in a process of its own) share a topic into which records flow at a steady rate, and
commit after every handful. A round kills with SIGKILL the broker that coordinates the group at that moment. A member is
back at work when a commit that it began after the kill has succeeded; a partition is, when a record that was
acknowledged after the kill has been handed out. The pause of a round is the longest of all these.

A second client asks for the committed offsets all the while. The promises that are checked are those of
`trials/groups/watch.py`.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import sys
import threading
import time
from typing import Literal

from machines.cluster_handle import ClusterHandle, cluster

from barnabas_clients.admin.client import Admin
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import KafkaError
from trials.kill_rounds import Load, create_topic, wait_whole

from .watch import Observation, Workers, check_commits, check_owners, check_whole
from .worker import Job

TOPIC = "group-rounds"
GROUP = "busy"
PARTITIONS = 12
RECORD_BYTES = 200
RECORDS_PER_SECOND = 1_000
MEMBERS = 4
SETTLE_S = 1.0  # of undisturbed work before each kill
ROUND_LIMIT_S = 60.0


class Observer(threading.Thread):
    """Asks for the group's committed offsets over and over, with this project's `Admin`."""

    def __init__(self, bootstrap: str, group: str = GROUP) -> None:
        super().__init__(name="observer")
        self._group = group
        self.observations: list[Observation] = []
        self._brokers = bootstrap
        self._stop_asked = threading.Event()

    def run(self) -> None:
        asyncio.run(self._observe())

    async def _observe(self) -> None:
        async with Admin(self._brokers, timeout_s=30) as admin:
            while not self._stop_asked.is_set():
                began = time.monotonic()
                # Without a coordinator there is no answer; the next one must still not be lower.
                with contextlib.suppress(ClientError, KafkaError):
                    found = await admin.group_offsets(self._group, timeout_s=5)
                    self.observations += [Observation(p.partition, o.offset, began) for p, o in found.items()]
                await asyncio.sleep(0.02)

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()


def coordinators_of(bootstrap: str, groups: list[str]) -> dict[str, int]:
    """Return the broker that coordinates each of these groups now."""

    async def ask() -> dict[str, int]:
        async with Admin(bootstrap, timeout_s=60) as admin:
            found = await admin.describe_groups(groups)
            return {group: described.coordinator_id for group, described in found.items()}

    return asyncio.run(ask())


def start_members(
    workers: Workers, bootstrap: str, count: int, assignor: str, protocol: Literal["classic", "consumer"]
) -> list[tuple[str, str]]:
    """Start the group and wait until it works; return its members."""
    members = [(GROUP, f"member-{number + 1}") for number in range(count)]
    for group, name in members:
        workers.start(Job(bootstrap, TOPIC, [(name, group)], [assignor], protocol=protocol))

    def shared() -> bool:
        owned = [workers.assignments.get(who, frozenset()) for who in members]
        return all(owned) and sum(map(len, owned)) == PARTITIONS == len(frozenset().union(*owned))

    workers.wait_until(shared, "the members to share the topic", ROUND_LIMIT_S)
    began = time.monotonic()
    workers.wait_until(lambda: workers.all_committed_since(began, members), "the first commits", ROUND_LIMIT_S)
    return members


def one_round(
    brokers: ClusterHandle, load: Load, workers: Workers, members: list[tuple[str, str]]
) -> tuple[int, float, float]:
    """Kill the coordinator; return it, and the seconds until members and partitions were back at work."""
    victim = coordinators_of(brokers.bootstrap, [GROUP])[GROUP]
    pid = brokers.pids()[victim]
    first_line = len(workers.lines)
    killed_at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    # Records at or above this were acknowledged after the kill.
    acked = list(load.acked)
    read_line = first_line
    back = set[int]()

    def partitions_are_back() -> bool:
        nonlocal read_line
        for line in workers.lines[read_line:]:
            if line["what"] == "handed":
                back.update(int(p) for p, (_, last) in line["handed"].items() if last >= acked[int(p)])
        read_line = len(workers.lines)
        return len(back) == PARTITIONS

    committed_at = workers.wait_until(
        lambda: workers.all_committed_since(killed_at, members), "every member to commit again", ROUND_LIMIT_S
    )
    handed_at = workers.wait_until(partitions_are_back, "every partition to be read again", ROUND_LIMIT_S)
    return victim, committed_at - killed_at, handed_at - killed_at


def rounds(
    brokers: ClusterHandle,
    count: int,
    members_count: int,
    assignor: str,
    records_per_second: int = RECORDS_PER_SECOND,
    protocol: Literal["classic", "consumer"] = "classic",
) -> tuple[list[float], list[str]]:
    """Run the rounds; return their pauses and all violations."""
    create_topic(brokers, TOPIC, PARTITIONS)
    load = Load(brokers.bootstrap, TOPIC, PARTITIONS, records_per_second)
    observer = Observer(brokers.bootstrap)
    pauses: list[float] = []
    with Workers() as workers:
        load.start()
        try:
            members = start_members(workers, brokers.bootstrap, members_count, assignor, protocol)
            observer.start()
            for number in range(count):
                time.sleep(SETTLE_S)
                generations = {workers.generations[who] for who in members}
                victim, commits_s, records_s = one_round(brokers, load, workers, members)
                pauses.append(max(commits_s, records_s))
                took = brokers.start()
                wait_whole(brokers, TOPIC, PARTITIONS)
                held = generations == {workers.generations[who] for who in members}
                print(
                    f"round {number + 1:2}: killed broker {victim}: commits again after {commits_s:.3f} s, "
                    f"records from every partition after {records_s:.3f} s, "
                    f"{'no rebalance' if held else 'a rebalance'}, broker back in {took:.2f} s"
                )
        except SystemExit:
            print(f"the brokers say: {brokers.status()}", file=sys.stderr)
            raise
        finally:
            load.finish()
            if observer.ident is not None:
                observer.finish()
        ends = {partition: count for partition, count in enumerate(load.acked) if count}
        workers.wait_until(lambda: not check_whole(workers.lines, ends)[0], "the last records", ROUND_LIMIT_S)
    missing, again = check_whole(workers.lines, ends)
    wrong = [
        *load.failures,
        *check_owners(workers.lines),
        *check_commits(workers.lines, observer.observations),
        *missing,
    ]
    commits = sum(line["what"] == "committed" for line in workers.lines)
    refused = sum(line["what"] in {"refused", "failed"} for line in workers.lines)
    print(
        f"{sum(load.acked):,} records acknowledged, {again:,} handed out again; {commits:,} commits, "
        f"{refused:,} failed; {len(observer.observations):,} committed offsets seen"
    )
    return pauses, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument(
        "--assignor", help="range, roundrobin, sticky, cooperative-sticky; of the coordinator: uniform, range"
    )
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic", help="consumer: KIP-848")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' data and logs")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    settings = dict(item.split("=", 1) for item in options.settings)
    assignor = options.assignor or ("cooperative-sticky" if options.protocol == "classic" else "uniform")
    with cluster(settings=settings, keep=options.keep) as brokers:
        pauses, wrong = rounds(brokers, options.rounds, options.members, assignor, protocol=options.protocol)
    print(f"{len(pauses)} kills, pause median {statistics.median(pauses):.3f} s, longest {max(pauses):.3f} s")
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    print("one owner for each partition, no commit lost, no record lost" if not wrong else f"{len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
