"""Replicas follow the image, also when it changes at an awkward moment."""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from patching import patch_method
from raftlog.log.node import ROOMY, Node

import barnabas_broker.replicas.partitions as broker_partitions
import barnabas_broker.replicas.reviews as broker_reviews
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.replicas.hosted_topic import group_id_of
from barnabas_broker.replicas.partitions import (
    WORK_OF_A_REPLICA,
    WORK_PER_ITERATION,
    Partitions,
)
from barnabas_broker.replicas.waiting_requests import (
    TOLD_AT_ONCE,
    TOLD_CALLBACKS,
    WOKEN_PER_ITERATION,
    WaitingRequests,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import Founders, Image, PartitionPlacement, Topic
from barnabas_metadata_quorum.image.records import NOBODY
from barnabas_metadata_quorum.image.tables import Table, by_last_bytes
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.multiraft.stats import MultiRaftStats
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
        self.stats = MultiRaftStats()
        self.is_holding = False
        self.founded = list[Configuration | None]()
        self.removed = list[GroupId]()

    def hold_elections(self) -> None:
        self.is_holding = True

    def release_elections(self) -> None:
        self.is_holding = False

    def remove_group(self, group_id: GroupId) -> None:
        self.removed.append(group_id)

    def add_group(
        self, group_id: GroupId, log: Any, founding: Configuration | None, _partition: object, *, preferred: bool
    ) -> object:
        """Take part in a group; `founded` is what it, or nobody, said that the group began with."""
        self.founded.append(founding)

        def begin_with(configuration: Configuration, *, stand: bool) -> None:
            self.founded.append(configuration)

        return SimpleNamespace(
            group_id=group_id, configuration=log.configuration, begin_with=begin_with, is_witness=False, failed=None
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
    topics = [Topic(bytes([number]) * 16, f"t{number}", (PartitionPlacement(replicas),), {}) for number in range(count)]
    return image_of(*topics)


def image_of(*topics: Topic) -> Image:
    return Image("test", topics=Table(by_last_bytes, {topic.topic_id: topic for topic in topics}))


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
            await partitions.known_leaders.leaders_changed()


async def test_elections_are_held_while_replicas_are_opened() -> None:
    partitions, multiraft = made()
    partitions.on_image(with_topics(0), with_topics(1))
    assert multiraft.is_holding
    async with asyncio.timeout(5):
        await partitions.known_leaders.leaders_changed()
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
    old = image_of(topic)
    partitions.on_image(Image("test"), old)
    await settled(partitions)
    assert multiraft.founded == [None]
    if has_left:
        moved = with_founder(None)
        partitions.on_image(old, image_of(moved))
        await settled(partitions)
    partitions.on_current()
    assert [configuration.voter_ids for configuration in multiraft.founded[1:] if configuration] == (
        [] if has_left else [{1}]
    )


def with_founder(directory_id: bytes | None) -> Topic:
    founders = None if directory_id is None else Founders((1,), NOBODY, {1: directory_id})
    return Topic(bytes(16), "t", (PartitionPlacement((1,), founders=founders),), {})


class Waiter:
    """A produce that waits for a partition, or a fetch that waits and finds nothing when it is woken."""

    is_closed = False

    def __init__(self, park_again: Callable[["Waiter"], None] | None = None) -> None:
        self.failed = list[ErrorCode]()
        self.woken = 0
        self._park_again = park_again
        self.finished = 0

    def on_committed(self) -> None:
        self.finished += 1

    def on_failed(self, code: ErrorCode) -> None:
        self.failed.append(code)

    def on_woken(self) -> None:
        self.woken += 1
        if self._park_again is not None:
            self._park_again(self)

    def on_error(self, error: Exception) -> None:
        raise error


class Big:
    """A broker with one topic of many partitions, all of them here, and a storage in memory."""

    topic = Topic(bytes([1]) * 16, "t", tuple([PartitionPlacement((1,))] * 100), {})
    successor = Topic(bytes([2]) * 16, "t", tuple([PartitionPlacement((1,))] * 30), {})
    nothing = Image("test")

    def __init__(self, disk: Node) -> None:
        self.storage = disk.storage
        self.partitions, self.multiraft = made(disk.storage)
        self.partitions.on_current()

    @classmethod
    async def made(cls) -> "Big":
        big = cls(await asyncio.to_thread(Node, config=ROOMY))
        big.partitions.on_image(cls.nothing, big.image(cls.topic))
        await settled(big.partitions)
        assert len(list(big.partitions)) == len(cls.topic.partitions)
        return big

    image = staticmethod(image_of)

    def has(self, topic: Topic) -> int:
        """Return how many replicas of a topic the storage has."""
        return sum(self.storage.has_log(group_id_of(topic.topic_id, index)) for index in range(len(topic.partitions)))

    async def steps(self, look: Callable[[], int]) -> list[int]:
        """Return by how much what is looked at went down in each iteration of the loop, until it was zero."""
        steps = list[int]()
        before = look()
        async with asyncio.timeout(5):
            while before:
                await asyncio.sleep(0)
                steps.append(before - look())
                before = look()
        return steps


async def test_a_topic_of_many_partitions_is_taken_apart_in_pieces() -> None:
    big = await Big.made()
    big.partitions.on_image(big.image(big.topic), big.image(big.successor))
    assert big.partitions.find(big.topic.topic_id, 7) is None, "nobody finds it any more"
    assert big.partitions.topics["t"].topic is big.successor
    assert big.multiraft.removed == []
    steps = await big.steps(lambda: big.has(big.topic))
    assert max(steps) == WORK_PER_ITERATION // WORK_OF_A_REPLICA
    assert len(big.multiraft.removed) == len(big.topic.partitions)
    await settled(big.partitions)
    assert big.has(big.successor) == len(list(big.partitions)) == len(big.successor.partitions)
    assert not big.partitions._leaving


async def test_whoever_waits_for_the_leaders_of_many_topics_looks_at_the_first_without_one() -> None:
    partitions, _ = made()
    partitions.on_image(Image("test"), with_topics(100))
    looks = list[bytes]()
    led = Counter[bytes]()

    def count_led(topic_id: bytes) -> int:
        looks.append(topic_id)
        return led[topic_id]

    partitions.known_leaders._announcer.table = cast("Any", SimpleNamespace(count_led=count_led))
    waiting = asyncio.create_task(partitions.known_leaders.wait_for_leaders(list(partitions.topics_by_id), 5))
    await asyncio.sleep(0)
    looks.clear()
    for topic_id in reversed(partitions.topics_by_id):
        assert not waiting.done()
        led[topic_id] = 1
        partitions.known_leaders._changed.fire()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await waiting
    assert len(looks) <= 2 * 100


async def test_topics_that_are_configured_alike_share_their_settings() -> None:
    partitions, _ = made(SimpleNamespace(forget=lambda _: None))
    configs = [{}, {"retention.ms": "1"}, {}, {"retention.ms": "1"}]
    topics = [Topic(bytes([n]) * 16, f"t{n}", (PartitionPlacement((2,)),), one) for n, one in enumerate(configs, 1)]
    partitions.on_image(
        Image("test"), image_of(*topics, Topic(bytes(16), OFFSETS_TOPIC, (PartitionPlacement((2,)),), {}))
    )
    await settled(partitions)
    first, second, third, fourth = (partitions.topics[topic.name].settings for topic in topics)
    assert first is third
    assert second is fourth
    assert (first.retention_ms, second.retention_ms) == (7 * 86_400_000, 1)
    assert partitions.topics[OFFSETS_TOPIC].settings.retention_ms == -1


async def test_a_topic_that_moves_elsewhere_is_taken_apart_in_pieces() -> None:
    big = await Big.made()
    moved = msgspec.structs.replace(big.topic, partitions=tuple([PartitionPlacement((2,))] * 100))
    big.partitions.on_image(big.image(big.topic), big.image(moved))
    assert max(await big.steps(lambda: big.has(big.topic))) == WORK_PER_ITERATION // WORK_OF_A_REPLICA
    assert not list(big.partitions)
    await settled(big.partitions)
    big.partitions.on_image(big.image(moved), big.image(big.topic))
    await settled(big.partitions)
    assert len(list(big.partitions)) == len(big.topic.partitions), "and it may come back"


async def test_what_is_here_of_no_topic_is_looked_at_in_pieces() -> None:
    partitions, _ = made(SimpleNamespace(forget=lambda _: None))
    wide = Topic(bytes([1]) * 16, "t", tuple([PartitionPlacement((2,))] * (3 * WORK_PER_ITERATION)), {})
    partitions.on_image(Image("test"), Big.image(wide))
    turns = 0
    async with asyncio.timeout(5):
        while not partitions.is_reconciled:
            await asyncio.sleep(0)
            turns += 1
    assert turns > 3


async def test_a_topic_that_changes_often_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    big = await Big.made()
    looks = list[int]()
    look = big.partitions._reconcile_one

    async def counted(topic: Topic, index: int, *, is_there: bool) -> bool:
        looks.append(index)
        return await look(topic, index, is_there=is_there)

    patch_method(monkeypatch, big.partitions, "_reconcile_one", counted)
    before = big.image(big.topic)
    configured = big.topic
    for number in range(1, 11):
        configured = msgspec.structs.replace(big.topic, configs={"retention.ms": str(number)})
        big.partitions.on_image(before, before := big.image(configured))
    grown = msgspec.structs.replace(configured, partitions=configured.partitions + (PartitionPlacement((1,)),) * 5)
    big.partitions.on_image(before, big.image(grown))
    await settled(big.partitions)
    assert len(looks) == 100 + 105
    assert len(list(big.partitions)) == 105
    assert {partition.settings for partition in big.partitions} == {big.partitions.topics["t"].settings}


async def test_the_first_partitions_of_a_topic_are_configured_at_once_and_the_others_in_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_partitions, "CHANGED_AT_ONCE", 10)
    big = await Big.made()
    configured = msgspec.structs.replace(big.topic, configs={"min.insync.replicas": "2"})
    big.partitions.on_image(big.image(big.topic), big.image(configured))
    assert [partition.min_insync for partition in big.partitions] == [2] * 10 + [1] * 90
    await settled(big.partitions)
    assert [partition.min_insync for partition in big.partitions] == [2] * 100


async def test_whoever_waits_for_a_topic_that_is_deleted_is_told_also_when_the_broker_stops_before_its_turn() -> None:
    big = await Big.made()
    waiters = [Waiter() for _ in range(3 * TOLD_AT_ONCE)]
    partition = big.partitions.find(big.topic.topic_id, 99)
    assert partition is not None
    for waiter in waiters:
        partition.wait_for(5, waiter)
    big.partitions.on_image(big.image(big.topic), big.nothing)
    await big.partitions.close()
    assert [waiter.failed for waiter in waiters] == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]] * len(waiters)


async def test_many_who_wait_for_appends_are_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    big = await Big.made()
    waiters = [Waiter() for _ in range((TOLD_CALLBACKS + 2) * TOLD_AT_ONCE)]
    pieces = list[int]()
    tell = WaitingRequests._tell_some

    def counted(waiting: WaitingRequests) -> None:
        before = sum(map(len, (waiter.failed for waiter in waiters)))
        tell(waiting)
        pieces.append(sum(map(len, (waiter.failed for waiter in waiters))) - before)

    monkeypatch.setattr(WaitingRequests, "_tell_some", counted)
    big.partitions.fail(waiters[:10], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    big.partitions.fail(waiters[10:], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    steps = await big.steps(lambda: sum(not waiter.failed for waiter in waiters))
    assert pieces == [TOLD_AT_ONCE] * (TOLD_CALLBACKS + 2)
    assert max(steps) == TOLD_CALLBACKS * TOLD_AT_ONCE
    assert {code for waiter in waiters[10:] for code in waiter.failed} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_of_those_whose_appends_commit_in_one_drive_some_are_told_in_it_and_the_others_later_in_order() -> None:
    big = await Big.made()
    waiters = [Waiter() for _ in range(2 * TOLD_AT_ONCE)]
    for first in range(0, len(waiters), 20):
        big.partitions.finish(waiters[first : first + 20])
    assert [waiter.finished for waiter in waiters] == [1] * 40 + [0] * 60
    big.multiraft.stats.drives += 1
    late = Waiter()
    big.partitions.finish([late])
    assert not late.finished, "it overtakes nobody"
    await big.steps(lambda: sum(not waiter.finished for waiter in [*waiters, late]))
    assert {waiter.finished for waiter in [*waiters, late]} == {1}
    big.multiraft.stats.drives += 1
    big.partitions.finish(at_once := [Waiter() for _ in range(TOLD_AT_ONCE)])
    assert {waiter.finished for waiter in at_once} == {1}


async def test_many_fetches_are_woken_in_pieces_and_each_once() -> None:
    big = await Big.made()
    first, second = list(big.partitions)[:2]
    waiters = big.partitions.waiting.fetches
    fetches = [Waiter(lambda one: waiters.park(one, [first, second])) for _ in range(2 * WOKEN_PER_ITERATION + 1)]
    for fetch in fetches:
        waiters.park(fetch, [first, second])
    big.partitions.wake(first)
    await asyncio.sleep(0)
    assert sum(fetch.woken for fetch in fetches) == WOKEN_PER_ITERATION
    big.partitions.wake(first)  # It has moved again, so all are to look, also those who have just done so.
    for _ in range(9):
        await asyncio.sleep(0)
    assert {fetch.woken for fetch in fetches} == {1, 2}
    assert not big.partitions.waiting._woken
    assert len(waiters) == len(fetches)
    big.partitions.wake(second)
    waiters.take_all()
    await asyncio.sleep(0)
    assert not big.partitions.waiting._woken, "nobody waits any more"


async def test_many_partitions_are_reviewed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_reviews, "REVIEWED_PER_ITERATION", 30)
    big = await Big.made()
    reviewed = list[object]()
    monkeypatch.setattr(big.partitions.moves, "review", lambda partition, *_: reviewed.append(partition))
    for partition in big.partitions:
        big.partitions.review_soon(partition)
    timer = big.partitions.reviews._timer
    assert timer is not None
    timer.cancel()
    big.partitions.reviews._review()
    big.partitions.review_soon(next(iter(big.partitions)))  # again, and the timer is quicker than the pieces
    big.partitions.reviews._review()
    steps = await big.steps(lambda: 101 - len(reviewed))
    assert steps == [30, 30, 11]  # and thirty at once
    assert reviewed == [*big.partitions, next(iter(big.partitions))]
    big.partitions.keep_leaders()


async def test_what_is_led_here_is_gone_through_in_slices_when_a_peer_comes_or_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_reviews, "LOOKED_PER_ITERATION", 40)
    big = await Big.made()
    for partition in big.partitions:
        partition.is_leader = True
    big.partitions.on_peer(1, True)
    assert not big.partitions.reviews._waiting
    found = list[int]()
    for _ in range(4):
        await asyncio.sleep(0)
        found.append(len(big.partitions.reviews._waiting))
    assert found == [40, 80, 100, 100]
    await big.partitions.close()
