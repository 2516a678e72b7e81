"""Compares groups of both protocols: how soon they settle, and how they hold when their coordinator dies.

Its parts, each first with classic groups, then with those of KIP-848, on a fresh cluster of three brokers each time:

- *many*: 1,000 groups of two members over a topic of four partitions, which all start at once;
- *large*: a group of 100 members over 200 partitions;
- *joiner*: a group of three that has settled, and a fourth one that joins: until all four have what they should, and
  the coordinator knows it. Round after round.

- *beats*: heartbeats of a group of KIP-848 that has settled, as many as the broker takes: what one costs.

In the first two the broker that coordinates most of the groups gets SIGKILL when all have settled. It measures the
longest wait of a member for a commit, and how many groups changed their epoch, which none should. The longest of 2,000
waits differs by a third from kill to kill, so both protocols have several turns, and medians are compared.

The members are those of `raw`, all in this process, so they cost the same on both sides.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.measures.idle import cpu_s
from bench.systems import kafka
from machines.cluster_handle import ClusterHandle, cluster

from barnabas_clients.admin.client import Admin
from barnabas_clients.cluster.connection import Connection
from barnabas_clients.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic

from .raw import ClassicMember, ConsumerMember, Member, Place

LIMIT_S = 300.0
LOOK_S = 0.01
ASKED = 200  # groups whose coordinators are looked for
AT_ONCE = 50  # members that start in one turn
COMMIT_S = 1.0
SETTLED_S = 7.0  # after which the heartbeats of a group are those of one that has settled
PROTOCOLS: dict[str, Callable[[Place, str, float], Member]] = {"classic": ClassicMember, "consumer": ConsumerMember}


class Figures(NamedTuple):
    """Seconds; `disturbed` are groups whose epoch rose though nobody had gone."""

    settle_s: float
    hold_s: float
    disturbed: int
    failures: int


async def topic_id_of(bootstrap: str, topic: str) -> bytes:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    connection = await Connection.open(host, int(port), timeout_s=10)
    answer = await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 10)
    await connection.close()
    return bytes(answer.topics[0].topic_id)


async def until(claim: Callable[[], bool], what: str) -> None:
    began_s = time.monotonic()
    while not claim():
        if time.monotonic() - began_s > LIMIT_S:
            raise SystemExit(f"waited {LIMIT_S:.0f} s for {what}")
        await asyncio.sleep(LOOK_S)


class Crowd:
    """The members of some groups, while they run."""

    def __init__(self, place: Place, protocol: str) -> None:
        self.place = place
        self.members: list[Member] = []
        self._make = PROTOCOLS[protocol]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, group: str) -> Member:
        member = self._make(self.place, group, COMMIT_S)
        self.members.append(member)
        self._tasks.append(asyncio.create_task(member.run()))
        return member

    def is_shared(self) -> bool:
        """Whether the members of each group share all partitions evenly, and their coordinator knows it."""
        for task in self._tasks:
            if task.done():
                task.result()
        by_group: dict[str, list[Member]] = {}
        for member in self.members:
            by_group.setdefault(member.group, []).append(member)
        return all(self._is_shared_by(some) for some in by_group.values())

    def _is_shared_by(self, members: Sequence[Member]) -> bool:
        counts = [len(member.owned) for member in members]
        return (
            sum(counts) == self.place.partitions == len(frozenset().union(*(member.owned for member in members)))
            and max(counts) - min(counts) <= 1
            and len({member.epoch for member in members}) == 1
            and all(member.kept_at_s >= member.told_at_s > 0 for member in members)
        )

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def settle_and_kill(brokers: ClusterHandle, place: Place, protocol: str, groups: int, each: int) -> Figures:
    loop = asyncio.get_running_loop()
    crowd = Crowd(place, protocol)
    began_s = loop.time()
    for number in range(groups * each):
        crowd.start(f"group-{number % groups}")
        if not number % AT_ONCE:
            await asyncio.sleep(0)
    await until(crowd.is_shared, "the groups to settle")
    settle_s = max(member.kept_at_s for member in crowd.members) - began_s
    shared_s = loop.time()
    await until(lambda: all(one.committed_at_s > shared_s for one in crowd.members), "commits")
    epochs = [member.epoch for member in crowd.members]
    failures = sum(member.failures for member in crowd.members)
    victim = await coordinator_of_most(brokers, place, [f"group-{number}" for number in range(groups)])
    pid = (await asyncio.to_thread(brokers.pids))[victim]
    killed_s = loop.time()
    os.kill(pid, signal.SIGKILL)
    back: dict[int, float] = {}  # how long each has waited

    def all_are_back() -> bool:
        for number, member in enumerate(crowd.members):
            if number not in back and member.committed_at_s > killed_s:
                back[number] = member.acknowledged_at_s - max(killed_s, member.wanted_at_s)
        return len(back) == len(crowd.members)

    await until(all_are_back, "commits after the kill")
    hold_s = max(back.values())
    await asyncio.to_thread(brokers.start)
    again_s = loop.time()
    await until(lambda: all(one.committed_at_s > again_s for one in crowd.members), "commits on the whole")
    await until(crowd.is_shared, "the groups to be as they were")
    pairs = zip(crowd.members, epochs, strict=True)
    disturbed = {member.group for member, epoch in pairs if member.epoch != epoch}
    failures = sum(member.failures for member in crowd.members) - failures
    await crowd.stop()
    return Figures(settle_s, hold_s, len(disturbed), failures)


async def coordinator_of_most(brokers: ClusterHandle, place: Place, groups: list[str]) -> int:
    addresses = [await place.coordinator_of(group) for group in groups[:ASKED]]
    ports = Counter(address[1] for address in addresses if address is not None)
    return ports.most_common(1)[0][0] - brokers.port + 1


async def joiners(place: Place, protocol: str, rounds: int) -> list[float]:
    """Return for each round the seconds from the fourth member's start until all have and acknowledged their share."""
    loop = asyncio.get_running_loop()
    took_s = []
    for number in range(rounds):
        crowd = Crowd(place, protocol)
        for _ in range(3):
            crowd.start(f"four-{protocol}-{number}-{time.time_ns()}" if not crowd.members else crowd.members[0].group)
        await until(crowd.is_shared, "three members to settle")
        # So that rounds begin at different moments between heartbeats.
        await asyncio.sleep(SETTLED_S + number * 0.37 % 1)
        began_s = loop.time()
        crowd.start(crowd.members[0].group)
        await until(crowd.is_shared, "four members to settle")
        took_s.append(max(member.kept_at_s for member in crowd.members) - began_s)
        await crowd.stop()
    return took_s


async def beats(brokers: ClusterHandle, place: Place, count: int) -> tuple[float, float]:
    """Return how many heartbeats the broker answers in a second, and the processor seconds that one takes."""
    crowd = Crowd(place, "consumer")
    member = crowd.start("beats")
    await until(crowd.is_shared, "the member to settle")
    await crowd.stop()
    assert isinstance(member, ConsumerMember)
    address = await place.coordinator_of("beats")
    assert address is not None
    connection = await Connection.open(*address, timeout_s=10)
    pids = (await asyncio.to_thread(brokers.pids)).values()
    before_s, began_s = sum(map(cpu_s, pids)), time.monotonic()
    request = ConsumerGroupHeartbeatRequest(group_id="beats", member_id=member.member_id, member_epoch=member.epoch)
    left = iter(range(count))

    async def ask() -> None:
        for _ in left:
            answer = await connection.request(request, 30)
            assert not answer.error_code, answer

    await asyncio.gather(*(ask() for _ in range(32)))
    took_s = time.monotonic() - began_s
    used_s = sum(map(cpu_s, pids)) - before_s
    await connection.close()
    return count / took_s, used_s / count


async def placed(bootstrap: str, topic: str, partitions: int) -> Place:
    async with Admin(bootstrap, timeout_s=60) as admin:
        await admin.create_topic(topic, partitions)
    return Place(bootstrap, topic, await topic_id_of(bootstrap, topic), partitions)


def compare_scale(name: str, groups: int, each: int, partitions: int, settings: dict[str, str], turns: int) -> bool:
    """Run one part with both protocols in turn; return whether the newer one was as good, by the medians."""
    found: dict[str, list[Figures]] = {protocol: [] for protocol in PROTOCOLS}
    for protocol in list(PROTOCOLS) * turns:
        with cluster(settings=settings) as brokers:

            async def one(brokers: ClusterHandle = brokers, protocol: str = protocol) -> Figures:
                place = await placed(brokers.bootstrap, "t", partitions)
                return await settle_and_kill(brokers, place, protocol, groups, each)

            figures = asyncio.run(one())
        found[protocol].append(figures)
        print(
            f"{name}, {protocol}: settled in {figures.settle_s:.2f} s; after the kill the longest wait for a commit "
            f"was {figures.hold_s:.2f} s, {figures.disturbed} groups changed, {figures.failures} requests failed",
            flush=True,
        )
    settle, hold = (
        statistics.median(getattr(one, figure) for one in found["consumer"])
        / statistics.median(getattr(one, figure) for one in found["classic"])
        for figure in ("settle_s", "hold_s")
    )
    print(f"{name}: consumer to classic, medians: settling {settle:.2f}, holding {hold:.2f}", flush=True)
    return settle <= 1 and hold <= 1 and not any(one.disturbed for one in found["consumer"])


def compare_joiners(bootstrap: str, rounds: int) -> None:
    for protocol in PROTOCOLS:

        async def one(protocol: str = protocol) -> list[float]:
            return await joiners(await placed(bootstrap, f"four-{protocol}", 4), protocol, rounds)

        took_s = asyncio.run(one())
        median_s = statistics.median(took_s)
        print(f"joiner, {protocol}: {rounds} times, median {median_s:.2f} s, longest {max(took_s):.2f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="many,large,joiner,beats", help="which of these, comma-separated")
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=100, help="of the large group")
    parser.add_argument("--partitions", type=int, default=200, help="of the large group's topic")
    parser.add_argument("--turns", type=int, default=5, help="of many and large; medians count")
    parser.add_argument("--rounds", type=int, default=10, help="of the joiner")
    parser.add_argument("--beats", type=int, default=20_000)
    parser.add_argument("--kafka", action="store_true", help="the joiner at Apache Kafka, too; needs a JDK")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    parts = options.parts.split(",")
    settings = dict(item.split("=", 1) for item in options.settings)
    is_good = True
    if "many" in parts:
        is_good &= compare_scale("many", options.groups, 2, 4, settings, options.turns)
    if "large" in parts:
        is_good &= compare_scale("large", 1, options.members, options.partitions, settings, options.turns)
    if "joiner" in parts:
        with cluster(settings=settings) as brokers:
            compare_joiners(brokers.bootstrap, options.rounds)
    if "beats" in parts:
        with cluster(settings=settings) as brokers:

            async def all_beats() -> tuple[float, float]:
                return await beats(brokers, await placed(brokers.bootstrap, "t", 4), options.beats)

            each_s, used_s = asyncio.run(all_beats())
        print(f"beats: {each_s:,.0f} in a second, {used_s * 1e3:.3f} ms of processors each", flush=True)
    if options.kafka:
        with kafka(synced=False, nodes=1) as peer:
            print("at Apache Kafka:", flush=True)
            compare_joiners(peer.address, options.rounds)
    print("groups of KIP-848 are as good as classic ones" if is_good else "groups of KIP-848 are worse")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
