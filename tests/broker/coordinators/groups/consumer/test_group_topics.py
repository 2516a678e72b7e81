"""Groups of KIP-848 know which topics exist from the first of them on, and say so as long as they do not."""

import uuid
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.consumer.topics import PIECE
from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.group_topics import GroupTopics
from barnabas_broker.status.events import EventHistory
from barnabas_broker.timing.timers import Timers
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import Image, ImageBuilder
from barnabas_metadata_quorum.image.records import TopicCreated, TopicDeleted

HOSTILE = "(a?){300}a{300}"


class Tasks:
    """Runs what is spawned a turn of the loop at a time."""

    def __init__(self) -> None:
        self.running: list[Coroutine[Any, Any, None]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.running.append(coroutine)

    def finish(self) -> None:
        while self.running:
            finish(self.running.pop(0))


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    async def taken(steps: Any) -> None:
        for _ in steps:
            await Turn()

    monkeypatch.setattr("barnabas_broker.coordinators.groups.group_topics.taken", taken)
    return Tasks()


class Turn:
    def __await__(self) -> Any:
        yield


def finish(coroutine: Coroutine[Any, Any, None]) -> None:
    while turn(coroutine):
        pass


def turn(coroutine: Coroutine[Any, Any, None]) -> bool:
    """Let a task have a turn; tell whether it wants another one."""
    try:
        coroutine.send(None)
    except StopIteration:
        return False
    return True


def id_of(name: str) -> bytes:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes


def image_with(*names: str, before: Image | None = None, gone: tuple[str, ...] = ()) -> Image:
    builder = ImageBuilder(before or Image("c"))
    for name in names:
        builder.apply(TopicCreated(id_of(name), name, ((1,),), {}))
    for name in gone:
        builder.apply(TopicDeleted(id_of(name)))
    return builder.build()


def test_nothing_is_kept_until_a_group_wants_it(tasks: Tasks) -> None:
    topics = GroupTopics(tasks.spawn, Image("c"))
    first = image_with("a", "b")
    topics.take(first)
    topics.take(image_with("d", before=first, gone=("b",)))
    assert (len(topics.known), tasks.running, topics.is_known) == (0, [], False)
    topics.want()
    tasks.finish()
    assert [topics.find(name) is not None for name in "abd"] == [True, False, True]
    assert topics.is_known
    topics.want()
    assert tasks.running == []


def test_it_says_which_image_it_has_taken_in_wholly(tasks: Tasks) -> None:
    topics = GroupTopics(tasks.spawn, Image("c"))
    first = image_with("a")
    topics.take(first)
    topics.want()
    assert topics.seen_version < 0
    tasks.finish()
    assert topics.seen_version == first.version
    second = image_with("b", before=first)
    topics.take(second)
    assert topics.seen_version == first.version
    tasks.finish()
    assert topics.seen_version == second.version
    # In the next one nothing is new to groups.
    third = msgspec.structs.replace(second, version=second.version + 1)
    topics.take(third)
    assert topics.seen_version == third.version


def test_it_does_not_know_until_it_has_taken_everything_in(tasks: Tasks) -> None:
    topics = GroupTopics(tasks.spawn, Image("c"))
    topics.want()
    assert (tasks.running, topics.is_known) == ([], False)
    topics.hold("t.*")
    topics.take(image_with(*(f"t{number}" for number in range(3 * PIECE))))
    (task,) = tasks.running
    turns = 0
    while not topics.is_known:
        assert turn(task)
        turns += 1
    assert turns >= 3
    assert len(topics.known) == 3 * PIECE
    assert not topics.is_ready("t.*")
    finish(task)
    assert topics.is_ready("t.*")


def test_no_topics_at_all_are_known_too(tasks: Tasks) -> None:
    topics = GroupTopics(tasks.spawn, Image("c"))
    topics.want()
    topics.take(Image("c"))
    tasks.finish()
    assert topics.is_known


def test_news_of_topics_do_not_wait_for_a_hostile_expression(tasks: Tasks) -> None:
    topics = GroupTopics(tasks.spawn, Image("c"))
    image = image_with(*("a" * (200 + number) for number in range(20)))
    topics.take(image)
    topics.want()
    topics.hold(HOSTILE)
    (task,) = tasks.running
    while not topics.is_known:
        assert turn(task)
    for number in range(5):
        image = image_with(f"b{number}", before=image)
        topics.take(image)
        turns = 0
        while topics.find(f"b{number}") is None:
            assert turn(task)
            turns += 1
        assert turns <= 2
        assert not topics.is_ready(HOSTILE)


def test_an_image_that_may_be_older_than_this_process_is_not_taken() -> None:
    """A broker that starts with what it knew before may lead before it hears of topics that have come since."""
    metadata = SimpleNamespace(image=image_with("a"), broker_epoch=None)
    settings: dict[str, str | int] = {"node.id": 1, "cluster.id": "c", "log.dir": "/d", "cluster.nodes": "1@a:1"}
    coordinator = GroupCoordinator(
        BrokerConfig.from_settings(settings),
        cast("Any", metadata),
        cast("Any", SimpleNamespace(observers={})),
        EventHistory(lambda: 0),
        cast("Timers", SimpleNamespace()),
        Clocks(lambda: 0, lambda: 0),
        lambda error: None,
    )
    taken: list[Image] = []
    cast("Any", coordinator.topics).take = taken.append
    old = metadata.image
    coordinator.on_image(Image("c"), old)
    metadata.broker_epoch = old.version + 1
    coordinator.on_image(Image("c"), old)
    assert taken == []
    new = image_with("b", "d", before=old)
    coordinator.on_image(old, new)
    assert taken == [new]
