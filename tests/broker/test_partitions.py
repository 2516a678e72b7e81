"""What becomes of the image here, when it changes at an awkward moment."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from raftlog.log.node import Node

from barnabas_broker.config import BrokerConfig
from barnabas_broker.hosted_topic import group_id_of
from barnabas_broker.partitions import Partitions
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image import Founders, Image, Partition, Topic
from barnabas_metadata_quorum.records import NOBODY
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import GroupId


class Announcer:
    def __init__(self) -> None:
        self.table = dict[object, object]()

    def subscribe(self, _: object) -> None:
        """Nobody announces anything."""


class Multiraft:
    """Elections are held while something is being opened."""

    def __init__(self) -> None:
        self.is_holding = False
        self.founded = list[Configuration | None]()

    def hold_elections(self) -> None:
        self.is_holding = True

    def release_elections(self) -> None:
        self.is_holding = False

    def add_group(
        self, group_id: GroupId, log: Any, founding: Configuration | None, _partition: object, *, preferred: bool
    ) -> object:
        """Take part in a group; `founded` is what it, or nobody, said that the group began with."""
        self.founded.append(founding)

        def begin_with(configuration: Configuration, *, stand: bool) -> None:
            self.founded.append(configuration)

        return SimpleNamespace(
            group_id=group_id, configuration=log.configuration, begin_with=begin_with, is_witness=False
        )


class Storage:
    """A disk with nothing on it, which makes no logs either, but remembers who asked for one."""

    def __init__(self) -> None:
        self.asked = list[str]()

    def has_log(self, _: object) -> bool:
        return False

    def unopened(self, _is_expected: object) -> list[object]:
        return []

    def left_behind(self) -> list[object]:
        return []

    def open_log(self, _group: object, name: str, _mode: str, **_: object) -> object:
        self.asked.append(name)
        raise StorageFailedError("there is no disk")


def made(storage: object = None) -> tuple[Partitions, Multiraft]:
    multiraft = Multiraft()
    config = BrokerConfig(
        node_id=1, cluster_id="test", cluster_nodes={1: "127.0.0.1:1"}, log_dir="nowhere"
    )  # All topics are elsewhere, so nothing is opened.
    clocks = Clocks(lambda: 0, lambda: 0)
    links = SimpleNamespace(is_live=lambda _: True, busy_peers=set[int]())
    parts = (config, storage, multiraft, Announcer(), clocks, links, None, lambda *_: None, lambda _: None)
    return Partitions(*cast("Any", parts)), multiraft


def with_topics(count: int, replicas: tuple[int, ...] = (2, 3)) -> Image:
    topics = [Topic(bytes([number]) * 16, f"t{number}", (Partition(replicas),), {}) for number in range(count)]
    return Image("test", topics={topic.topic_id: topic for topic in topics})


async def test_a_change_in_the_moment_that_the_last_one_is_done_is_not_forgotten() -> None:
    partitions, _ = made()
    partitions.on_image(with_topics(0), with_topics(1))
    task = partitions._reconciling
    assert task is not None
    await asyncio.sleep(0)
    assert task.done()
    assert partitions._reconciling is task, "the moment: nobody has heard yet that it is done"
    partitions.on_image(with_topics(1), with_topics(2))
    async with asyncio.timeout(5):
        while not partitions.is_reconciled:
            await partitions.leaders_changed()


async def test_elections_are_held_while_replicas_are_opened() -> None:
    partitions, multiraft = made()
    partitions.on_image(with_topics(0), with_topics(1))
    assert multiraft.is_holding
    async with asyncio.timeout(5):
        await partitions.leaders_changed()
    assert partitions.is_reconciled
    assert not multiraft.is_holding


async def settled(partitions: Partitions) -> None:
    async with asyncio.timeout(5):
        while (task := partitions._reconciling) is not None:
            await asyncio.wait([task])
            await asyncio.sleep(0)


async def test_a_replica_that_is_not_there_is_not_made_for_an_image_that_may_be_old() -> None:
    """Two nodes that had deleted a topic were killed, forgot for a moment that they had, and elected who had not."""
    storage = Storage()
    partitions, _ = made(storage)
    partitions.on_image(with_topics(0), with_topics(2, (1, 2)))
    await settled(partitions)
    assert (storage.asked, partitions.is_reconciled) == ([], False)
    partitions.on_image(with_topics(2, (1, 2)), with_topics(1, (1, 2)))  # one of them is deleted, again
    await settled(partitions)
    partitions.on_current()
    await settled(partitions)
    assert ([name[:2] for name in storage.asked], partitions.is_reconciled) == (["t0"], True)
    partitions.on_image(with_topics(1, (1, 2)), with_topics(2, (1, 2)))
    await settled(partitions)
    assert [name[:2] for name in storage.asked] == ["t0", "t1"], "what is new now is made at once"


async def test_leaderships_are_looked_at_again_when_a_broker_that_was_live_is_fenced_no_more() -> None:
    partitions, _ = made()
    partitions.on_image(Image("test", brokers={}), Image("test", brokers={}))  # nobody's link has changed
    assert partitions._preferred is not None
    assert partitions._preferred._timer is not None
    partitions.keep_leaders()


@pytest.mark.parametrize("has_left", [False, True])
async def test_who_founded_a_group_is_not_known_from_an_image_that_may_be_old(has_left: bool) -> None:
    """A broker that had been the only voter, and had left, elected itself with an empty log by the image of before."""
    disk = await asyncio.to_thread(Node)
    topic = with_founder(disk.storage.directory_id)
    disk.storage.open_log(group_id_of(topic.topic_id, 0), f"t-0-{topic.topic_id.hex()[:8]}", "fsync")
    await asyncio.to_thread(disk.work)
    disk = await asyncio.to_thread(disk.killed)
    partitions, multiraft = made(disk.storage)
    old = Image("test", topics={topic.topic_id: topic})
    partitions.on_image(Image("test"), old)
    await settled(partitions)
    assert multiraft.founded == [None]
    if has_left:
        moved = with_founder(None)
        partitions.on_image(old, Image("test", topics={topic.topic_id: moved}))
        await settled(partitions)
    partitions.on_current()
    assert [configuration.voter_ids for configuration in multiraft.founded[1:] if configuration] == (
        [] if has_left else [{1}]
    )


def with_founder(directory_id: bytes | None) -> Topic:
    founders = None if directory_id is None else Founders((1,), NOBODY, {1: directory_id})
    return Topic(bytes(16), "t", (Partition((1,), founders=founders),), {})
