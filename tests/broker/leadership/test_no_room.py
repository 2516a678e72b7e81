"""A broker hands its leaderships on while its disk is full, and gets them back."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from broker.bad_disks import BadDisk, BadDisks, consumed, kinds, storage_status, until

from barnabas_broker.leadership.no_room import TRANSFERS_PER_TURN, NoRoom
from barnabas_broker.node import Node
from barnabas_clients import Admin, Producer
from barnabas_raftlog.multiraft.multiraft import METADATA_GROUP
from barnabas_raftlog.steps import at_once


class Led:
    """A partition that this node leads unless told otherwise."""

    def __init__(self, *successors: int, can_serve: bool = True, is_handing_over: bool = False) -> None:
        self.successors = successors
        self.can_serve = can_serve
        self.is_handing_over = is_handing_over
        self.transferred: list[int] = []

    def transfer(self, node_id: int) -> None:
        self.transferred.append(node_id)


class World:
    """The broker as `NoRoom` sees it."""

    def __init__(self, *led: Led) -> None:
        self.able = {2, 3}
        self.events: list[str] = []
        self.timers: list[Callable[[], None]] = []
        self.no_room = NoRoom(lambda: led, lambda: self.able, lambda kind, _: self.events.append(kind), self.call_later)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        assert delay_s == 1.0
        self.timers.append(action)

    def pass_second(self) -> None:
        timers, self.timers = self.timers, []
        for action in timers:
            action()


def test_what_is_led_goes_to_the_first_that_is_able() -> None:
    led = [Led(2, 3), Led(3, 2), Led(4, 3), Led(4), Led(), Led(2, can_serve=False), Led(2, is_handing_over=True)]
    world = World(*led)
    world.no_room.on_room("full")
    assert [one.transferred for one in led] == [[]] * 7, "it may be over in a moment"
    world.pass_second()
    assert [one.transferred for one in led] == [[2], [3], [3], [], [], [], []]
    assert world.events == ["no room"]


def test_room_within_a_second_moves_nothing_and_is_no_event() -> None:
    led = Led(2)
    world = World(led)
    world.no_room.on_room("full")
    world.no_room.on_room("")
    world.pass_second()
    assert (led.transferred, world.events, world.timers) == ([], [], [])


def test_it_is_tried_again_every_second_until_there_is_room() -> None:
    led = Led(2)
    world = World(led)
    world.able = set()
    world.no_room.on_room("full")
    world.pass_second()
    world.able = {2}
    world.pass_second()
    world.pass_second()
    assert led.transferred == [2, 2]
    world.no_room.on_room("")
    world.pass_second()
    assert (led.transferred, world.events, world.timers) == ([2, 2], ["no room", "room again"], [])


def test_a_turn_has_a_limit() -> None:
    led = [Led(2) for _ in range(TRANSFERS_PER_TURN + 1)]
    world = World(*led)
    world.no_room.on_room("full")
    world.pass_second()
    assert sum(len(one.transferred) for one in led) == TRANSFERS_PER_TURN


def test_a_broker_that_stops_hands_nothing_on_by_this() -> None:
    led = Led(2)
    world = World(led)
    world.no_room.on_room("full")
    world.no_room.close()
    world.pass_second()
    world.no_room.on_room("full")
    assert (led.transferred, world.timers) == ([], [])


def fill_up(disk: BadDisk) -> None:
    """Let the disk have room for what replaces something, and for nothing else."""
    disk.errors = lambda call, path: (
        errno.ENOSPC if call == "preallocate" or (call == "write" and path.endswith(".log")) else 0
    )


def leads(node: Node) -> int:
    return sum(partition.group.is_leader for partition in node.partitions if partition.topic_name == "t")


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
def test_a_full_disk_under_one_of_three_brokers_stops_no_partition(mode: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(3, tmp_path) as cluster, Producer(cluster.bootstrap, linger_s=0.0) as producer:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("t", partitions=6, replication_factor=3, configs={"flush.mode": mode})
            node = cluster.nodes[1]
            await until(lambda: leads(node) == 2, node)
            for number in range(6):
                await producer.send_and_wait("t", b"%04d" % number, partition=number)
            fill_up(cluster.disks[1])
            # All are acknowledged, although two replicas in six led where nothing can be written.
            for number in range(6, 60):
                await producer.send_and_wait("t", b"%04d" % number, partition=number % 6)
            await until(lambda: leads(node) == 0, node)
            await until(lambda: not node.multiraft.groups[METADATA_GROUP].is_leader, node)
            assert "no room" in kinds(node)
            assert "no room" in storage_status(node)["refusing"]
            # Its turn as preferred leader comes again and again.
            others = [known for known in cluster.nodes.values() if known is not node]
            for known in others:
                assert known.partitions._preferred is not None
                for _ in range(3):
                    known.partitions._preferred._interval_ms = 0
                    at_once(known.partitions._preferred.move())
            for number in range(60, 66):
                await producer.send_and_wait("t", b"%04d" % number, partition=number % 6)
            assert leads(node) == 0
            cluster.disks[1].errors = lambda call, path: 0
            await until(lambda: storage_status(node)["refusing"] == "", node)
            assert "room again" in kinds(node)
            for number in range(66, 72):
                await producer.send_and_wait("t", b"%04d" % number, partition=number % 6)
            await until(lambda: sum(one.high_watermark for one in node.partitions if one.topic_name == "t") == 72, node)

            def is_home() -> bool:
                for known in others:
                    assert known.partitions._preferred is not None
                    at_once(known.partitions._preferred.move())
                return leads(node) == 2

            await until(is_home, node)
            assert sorted(await consumed(cluster.bootstrap, 72)) == [b"%04d" % number for number in range(72)]

    asyncio.run(main())


def test_the_only_replica_goes_on_leading_for_its_consumers_and_refuses_producers(tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(3, tmp_path) as cluster:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("t", partitions=3, replication_factor=1)
            async with Producer(cluster.bootstrap, linger_s=0.0) as producer:
                for number in range(3):
                    await producer.send_and_wait("t", b"%d" % number, partition=number)
                node = cluster.nodes[1]
                partition = next(one for one in node.partitions if one.topic_name == "t")
                term = partition.term
                fill_up(cluster.disks[1])
                await producer.send_and_wait("t", b"3", partition=partition.index)  # The journal has room for it.
                await until(lambda: "no room" in kinds(node), node)
                waiting = await producer.send("t", b"4", partition=partition.index)
                assert sorted(await consumed(cluster.bootstrap, 4)) == [b"0", b"1", b"2", b"3"]
                assert not waiting.done()
                assert (partition.group.is_leader, partition.term) == (True, term)
                cluster.disks[1].errors = lambda call, path: 0
                await waiting
            assert len(await consumed(cluster.bootstrap, 5)) == 5

    asyncio.run(main())
