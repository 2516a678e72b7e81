"""The groups of a run: their topics, their crowds, those who watch them, and what must be so in the end.

When faults are over and nobody comes or goes any more, each group settles: every partition that somebody subscribes to
is used by one of its members, and all are in one epoch. Then all members die at once, and the groups must be empty
when a session is over: nobody stays for ever.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from barnabas_broker.coordinators.groups.consumer.saved import EMPTY
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients import Admin, ClientError, KafkaError
from barnabas_clients.admin.values import FeatureChange
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from sim.cluster.clients.admin import create_topic
from sim.cluster.clients.client import Trouble, WireClient
from sim.cluster.machines.machine import Machine
from sim.cluster.machines.network import Network
from sim.cluster.world import MS, SECOND, World

from .choice import Groups
from .crowd import SESSION_MS, Crowd
from .inside import compare
from .model import Place
from .process import Topics
from .watcher import Watcher

__all__ = ["GroupWork"]

SETTLING_US = 25 * SECOND
"""A group settles within so long: a session ends, a lazy member has given up, a few rounds of heartbeats."""
EMPTYING_US = (3 * SESSION_MS + 5_000) * MS
"""A group is empty within so long: the sessions of those of KIP-848 end, then those of the classic ones that are left,
and another broker that comes to coordinate meanwhile begins them anew.
"""
LOOKING_US = 30 * SECOND
LASTING = "lasting-{}"
PASSING = "passing-{}"
TIMEOUT_MS = 3_000
FEATURE = "group.version"
LAST = PASSING.format("last")


class GroupWork:
    """See the module. `crowds` has one for each group."""

    def __init__(
        self,
        world: World,
        network: Network,
        machines: Mapping[int, Machine],
        groups: Groups,
        new_client: Callable[[], WireClient],
    ) -> None:
        self._world = world
        self._machines = machines
        self._groups = groups
        self._new_client = new_client
        self.topics = Topics(groups.partitions)
        self._is_working = self._comes_and_goes = True
        self._topics_pass = groups.topics_pass
        kinds = list[tuple[str, ...]]()
        kinds += [("consumer",)] * groups.consumer
        kinds += [("classic",)] * groups.classic
        kinds += [("classic", "consumer")] * groups.mixed
        self.crowds = [
            Crowd(
                world,
                network,
                f"{'-'.join(kind)}-{number}",
                kind,
                self.topics,
                new_client,
                members_max=groups.members_max,
                pause_ms=groups.pause_ms,
            )
            for number, kind in enumerate(kinds)
        ]
        self._watchers = list[Watcher]()
        for machine in machines.values():
            machine.on_death = self._on_death

    # The beginning.

    def prepare(self, factor: int, configs: dict[str, str], start_us: int) -> None:
        """Make the lasting topics, and have groups of KIP-848 finalized if this cluster knows them as a feature."""
        done = list[bool]()
        client = self._new_client()
        names = [LASTING.format(number) for number in range(self._groups.topics)]

        async def work() -> None:
            await asyncio.gather(
                *(create_topic(client, name, self._groups.partitions, factor, configs) for name in names)
            )
            while len(self.topics.lasting) < len(names):
                for name in names:
                    await client.refresh(name)
                    if name in client.topic_ids:
                        self.topics.lasting[name] = client.topic_ids[name]
                await client.pause()
            await _finalize(client)
            done.append(True)

        client.start(work())
        assert self._world.run_until(start_us, lambda: bool(done)), "there are no topics for groups"
        self._factor = factor

    def begin(self) -> None:
        for crowd in self.crowds:
            crowd.begin()
            watcher = Watcher(self._new_client(), crowd.model, self.topics, describes="consumer" in crowd.kinds)
            watcher.client.start(watcher.run(lambda: self._is_working))
            self._watchers.append(watcher)
        if self._topics_pass:
            client = self._new_client()
            client.start(self._pass_all(client))

    async def _pass_all(self, client: WireClient) -> None:
        await self._pass(client)
        self._topics_pass = False

    async def _pass(self, client: WireClient) -> None:
        """Make topics that expressions match, and delete them again."""
        number = 0
        while not self._stays():
            name = PASSING.format(number)
            number += 1
            await self._add(client, name)
            await client.pause(300, 1_500)
            if self._stays():
                return
            del self.topics.passing[name]
            while True:
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
                try:
                    code = (await client.ask_anybody(request)).responses[0].error_code
                except Trouble:
                    code = ErrorCode.REQUEST_TIMED_OUT
                if code in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                    break
                assert code in RETRIABLE, f"deletion of {name}: {ErrorCode(code).name}"
                await client.pause(50, 300)
            self._world.counts["group topics passed"] += 1
            await client.pause(100, 800)

    def _stays(self) -> bool:
        return not self._comes_and_goes

    async def _add(self, client: WireClient, name: str) -> None:
        count = client.rng.randrange(1, 4)
        await create_topic(client, name, count, self._factor, {})
        while name not in client.topic_ids:
            await client.refresh(name)
            await client.pause()
        self.topics.passing[name] = client.topic_ids[name], count

    # While it goes on.

    def _on_death(self, machine: Machine) -> None:
        node = machine.node
        hosted = None if node is None else node.partitions.topics.get(OFFSETS_TOPIC)
        leads = hosted is not None and any(one.can_serve for one in hosted.partitions.values())
        if leads and any(one.stay is not None for crowd in self.crowds for one in crowd.living):
            self._world.counts["group coordinators dead"] += 1

    # The end.

    def end(self) -> None:
        """Let everybody be, see the groups settle, and then come to nothing."""
        world = self._world
        self._comes_and_goes = False
        assert world.run_until(world.now_us + LOOKING_US, lambda: not self._topics_pass), "topics come and go for ever"
        for crowd in self.crowds:
            crowd.calm_down()
        began_us = world.now_us
        self._settle("groups do not settle")
        world.counts["group settling ms"] = (world.now_us - began_us) // MS
        if self._groups.topics_pass:
            client = self._new_client()
            client.start(self._add(client, LAST))
            assert world.run_until(world.now_us + LOOKING_US, lambda: LAST in self.topics.passing), "no topic is made"
            self._settle("groups do not take a new topic")
        self._is_working = False
        looks = [watcher.looks for watcher in self._watchers]
        for watcher in self._watchers:
            watcher.client.start(watcher.run(partial(self._has_no_more_than, watcher, looks)))
        looked = world.run_until(world.now_us + LOOKING_US, lambda: not self._lack_looks(looks))
        assert looked, f"positions cannot be looked up: {self._lack_looks(looks)}"
        compare(world, self._machines)
        for crowd in self.crowds:
            crowd.end()
        world.note("world", "all members die")
        emptied = world.run_until(world.now_us + EMPTYING_US, lambda: not self._peopled())
        assert emptied, f"members stay for ever: {self._peopled()}"

    def _settle(self, complaint: str) -> None:
        world = self._world
        assert world.run_until(world.now_us + SETTLING_US, self._is_settled), f"{complaint}: {self.unsettled()}"

    def _has_no_more_than(self, watcher: Watcher, looks: list[int]) -> bool:
        return watcher.looks <= looks[self._watchers.index(watcher)]

    def _lack_looks(self, looks: list[int]) -> list[str]:
        return [one.group for one, before in zip(self._watchers, looks, strict=True) if one.looks <= before]

    def _is_settled(self) -> bool:
        for crowd in self.crowds:
            crowd.keep_somebody()
        return not self.unsettled()

    def unsettled(self) -> str:
        """Say what a group lacks that has not settled."""
        for crowd in self.crowds:
            stays = [(one, one.stay) for one in crowd.living]
            if not stays:
                return f"{crowd.group} has no members"
            epochs = sorted({0 if stay is None else stay.epoch for _, stay in stays})
            if len(epochs) > 1 or 0 in epochs:
                return f"{crowd.group} has members in epochs {epochs}"
            used = [place for _, stay in stays if stay is not None for place in stay.has]
            wanted = set[Place]().union(*(one.wanted for one, _ in stays))
            if sorted(used) != sorted(wanted):
                return f"{crowd.group} uses {len(used)} partitions, of {len(wanted)}"
            unread = [
                one.client.name for one, stay in stays if stay is not None and not self._knows(one.positions, stay.has)
            ]
            if unread:
                return f"{crowd.group} has members without positions: {unread}"
        return ""

    def _knows(self, positions: dict[Place, int], places: set[Place]) -> bool:
        return all(place in positions for place in places if self.topics.name_of(place[0]) is not None)

    def _peopled(self) -> list[str]:
        """Name the groups that still have members, by those who coordinate them."""
        found = list[str]()
        for crowd in self.crowds:
            shards = [
                shard
                for machine in self._machines.values()
                if machine.node is not None
                and not isinstance(shard := machine.node.broker.coordinator.shard_of(crowd.group), ErrorCode)
            ]
            if not shards:
                found.append(f"{crowd.group} has no coordinator")
            for shard in shards:
                saved = shard.consumers.saved(crowd.group)
                if saved is not None and saved.state != EMPTY:
                    found.append(f"{crowd.group} has {sorted(saved.members)}")
                classic = shard.group(crowd.group)
                if classic is not None and classic.group.state is not GroupState.EMPTY:
                    found.append(f"{crowd.group} is {classic.group.state.name}")
        return found


async def _finalize(client: WireClient) -> None:
    """Have groups of KIP-848: a cluster whose first controller does not hear all others in time begins without."""
    servers = [f"{host}:{port}" for host, port in client.brokers.values()]
    while True:
        try:
            async with Admin(servers, timeout_s=3.0) as admin:
                found = await admin.describe_features()
                level = next((one.level for one in found.features if one.name == FEATURE), 1)
                if level < 1:
                    await admin.update_features({FEATURE: 1}, change=FeatureChange.UPGRADE)
                return
        except (ClientError, KafkaError) as error:
            client.world.note(client.name, f"finalizing: {error!r}")
            await client.pause()
