"""Starts many groups, then one large group, and kills the coordinator of each.

First 1,000 groups of one member each, all reading one small topic; then one group of 100 members over 200 partitions.
The members are `Consumer`s, many to a process (`trials/groups/worker.py`), each of which commits every few seconds. It
measures how long it takes until every member owns its share and has committed. Then the broker that coordinates the
group (of many groups: most of them) gets SIGKILL. It measures the longest wait of any member for a commit, and how many
groups rebalanced. None should: its members and their partitions are all still there. With `--protocol consumer` the
groups are those of KIP-848, whose coordinator sets all times, and a member that is in another epoch has rebalanced.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

from machines.cluster_handle import ClusterHandle, cluster

from trials.kill_rounds import create_topic, wait_whole

from .rounds import coordinators_of
from .watch import Workers, check_owners
from .worker import Job, Protocol

MANY = "many"
LARGE = "large"
ASK_S = 3.0  # between two commits of a member
SESSION_TIMEOUT_S = 45.0
HEARTBEAT_S = 3.0
SETTLE_LIMIT_S = 300.0
ASSIGNORS: dict[Protocol, str] = {"classic": "cooperative-sticky", "consumer": "uniform"}
Who = tuple[str, str]  # group and member


def start(
    workers: Workers,
    bootstrap: str,
    topic: str,
    members: list[Who],
    processes: int,
    ask_s: float,
    protocol: Protocol = "classic",
) -> float:
    """Start the members in so many processes; return the moment."""
    began = time.monotonic()
    for number in range(processes):
        names = [(name, group) for group, name in members[number::processes]]
        workers.start(
            Job(
                bootstrap=bootstrap,
                topic=topic,
                members=names,
                assignors=[ASSIGNORS[protocol]],
                protocol=protocol,
                session_timeout_s=SESSION_TIMEOUT_S,
                heartbeat_interval_s=HEARTBEAT_S,
                ask_s=ask_s,
            )
        )
    return began


def settle_and_kill(
    brokers: ClusterHandle, workers: Workers, topic: str, partitions: int, members: list[Who], began: float, share: int
) -> tuple[float, float, int]:
    """Wait, kill, wait; return seconds to settle, the longest wait for a commit, and the number of rebalances."""

    def all_own() -> bool:
        return all(len(workers.assignments.get(who, ())) == share for who in members)

    settled_at = workers.wait_until(all_own, f"every member to own {share}", SETTLE_LIMIT_S)
    workers.wait_until(lambda: workers.all_committed_since(settled_at, members), "all commits", SETTLE_LIMIT_S)
    generations = {who: workers.generations[who] for who in members}
    groups = sorted({group for group, _ in members})
    victim, led = Counter(coordinators_of(brokers.bootstrap, groups).values()).most_common(1)[0]
    pid = brokers.pids()[victim]
    killed_at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    back_at = workers.wait_until(
        lambda: workers.all_committed_since(killed_at, members), "every member to commit again", SETTLE_LIMIT_S
    )
    brokers.start()
    wait_whole(brokers, topic, partitions)
    whole_at = time.monotonic()
    workers.wait_until(lambda: workers.all_committed_since(whole_at, members), "commits on the whole", SETTLE_LIMIT_S)
    workers.wait_until(all_own, f"every member to own {share}", SETTLE_LIMIT_S)
    disturbed = {who[0] for who in members if workers.generations[who] != generations[who]}
    waits = [
        line["at"] - max(line["began"], killed_at)
        for line in workers.lines
        if line["what"] == "committed" and killed_at < line["at"] <= back_at
    ]
    print(f"killed broker {victim}, the coordinator of {led} of {len(groups)}")
    return settled_at - began, max(waits), len(disturbed)


def measure(
    brokers: ClusterHandle,
    topic: str,
    partitions: int,
    members: list[Who],
    processes: int,
    share: int,
    ask_s: float,
    protocol: Protocol,
) -> list[str]:
    """Run one of the two parts; print its figures and return all violations."""
    create_topic(brokers, topic, partitions)
    wait_whole(brokers, topic, partitions)
    with Workers() as workers:
        began = start(workers, brokers.bootstrap, topic, members, processes, ask_s, protocol)
        settle_s, longest_s, disturbed = settle_and_kill(brokers, workers, topic, partitions, members, began, share)
    name = f"{len({group for group, _ in members}):,} groups, {len(members):,} members, {partitions} partitions"
    refused = sum(line["what"] in {"refused", "failed"} for line in workers.lines)
    print(
        f"{name}: settled in {settle_s:.1f} s, after the kill the longest wait for a commit was {longest_s:.2f} s; "
        f"{disturbed} groups rebalanced, {refused} calls failed"
    )
    wrong = check_owners(workers.lines)
    if disturbed:
        wrong.append(f"{name}: {disturbed} groups rebalanced though no member had gone")
    return wrong


def many_groups(
    brokers: ClusterHandle, groups: int, processes: int, ask_s: float = ASK_S, protocol: Protocol = "classic"
) -> list[str]:
    members = [(f"group-{number}", f"member-{number}") for number in range(groups)]
    return measure(brokers, MANY, 1, members, processes, 1, ask_s, protocol)


def large_group(
    brokers: ClusterHandle,
    members_count: int,
    partitions: int,
    processes: int,
    ask_s: float = ASK_S,
    protocol: Protocol = "classic",
) -> list[str]:
    assert partitions % members_count == 0
    members = [(LARGE, f"member-{number}") for number in range(members_count)]
    return measure(brokers, LARGE, partitions, members, processes, partitions // members_count, ask_s, protocol)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000, help="groups of one member")
    parser.add_argument("--members", type=int, default=100, help="members of the large group")
    parser.add_argument("--partitions", type=int, default=200, help="of the large group's topic")
    parser.add_argument("--processes", type=int, default=4, help="processes of members")
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic", help="consumer: KIP-848")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    processes, protocol = options.processes, options.protocol
    parts: list[Callable[[ClusterHandle], list[str]]] = []
    if options.groups:
        parts.append(lambda brokers: many_groups(brokers, options.groups, processes, protocol=protocol))
    if options.members:
        members, partitions = options.members, options.partitions
        parts.append(lambda brokers: large_group(brokers, members, partitions, processes, protocol=protocol))
    wrong = []
    for part in parts:
        with cluster(settings=dict(item.split("=", 1) for item in options.settings)) as brokers:
            wrong += part(brokers)
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    print("they settle, and they hold" if not wrong else f"{len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
