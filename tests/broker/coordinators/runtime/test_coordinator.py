"""A broker has a shard for each partition that it leads, and makes the topic."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from broker.coordinators.runtime.numbers import LOOK_MS, Name, NumberShard, NumberTable, NumberWorld

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import RefusalReason
from barnabas_raftlog.errors import MalformedMessageError

A = Name("a")
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def look(world: NumberWorld) -> NumberShard | ErrorCode:
    found: NumberShard | ErrorCode = world.runtime.shard_at(0)
    return found


class TestTheWayToAShard:
    def test_only_a_leader_that_has_read_everything_answers(self, world: NumberWorld) -> None:
        assert look(world) is NOT_COORDINATOR
        loading = [world.runtime.is_loading]
        world.win()
        assert look(world) is LOADING
        loading.append(world.runtime.is_loading)
        world.breathe(5)
        assert look(world) is world.shard
        assert world.runtime.active_shards() == [world.shard]
        loading.append(world.runtime.is_loading)
        assert loading == [False, True, False]
        world.lose()
        assert look(world) is NOT_COORDINATOR
        assert world.runtime.active_shards() == []

    def test_a_leader_that_is_not_sure_yet_is_loading(self, world: NumberWorld) -> None:
        world.partition.is_leader = True
        assert look(world) is LOADING
        world.partition.is_leader = False

    def test_a_shard_of_a_deleted_topic_serves_nobody(self, world: NumberWorld) -> None:
        world.lead()
        hosted = world.partitions.topics[world.runtime.topic.name]
        partition = hosted.partitions.pop(0)
        assert look(world) is NOT_COORDINATOR
        hosted.partitions[0] = partition

    def test_a_closed_coordinator_has_no_shards(self, world: NumberWorld) -> None:
        world.lead()
        world.runtime.close()
        assert look(world) is NOT_COORDINATOR
        world.lose()
        world.win()
        world.breathe(5)
        assert world.runtime.shards == {}

    def test_a_shard_that_is_being_read_is_waited_for(self, world: NumberWorld) -> None:
        world.win()
        waiting = world.loop.create_task(world.runtime.wait_loaded(lambda: look(world)))
        world.breathe(5)
        assert waiting.result() is world.shard

    def test_not_for_long(self, world: NumberWorld) -> None:
        world.runtime.load_s = 0.0
        world.partition.is_leader = True
        assert world.loop.run_until_complete(world.runtime.wait_loaded(lambda: look(world))) is LOADING
        world.partition.is_leader = False


def test_events_say_what_was_loaded_and_unloaded(world: NumberWorld) -> None:
    world.lose(said=[{A: 1}])
    world.lead()
    world.lose()
    assert world.events == [
        ("coordinator loaded", "__numbers-0", "numbers from 1 records in 0 ms (term 2)"),
        ("coordinator unloaded", "__numbers-0", "numbers (term 2)"),
    ]


def test_a_log_that_cannot_be_read_is_loading_for_ever_and_an_event_says_why(
    world: NumberWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise MalformedMessageError("nobody can have meant that")

    world.lose(said=[{A: 1}])
    with monkeypatch.context() as patch:
        patch.setattr(NumberTable, "take", fail)
        world.win()
        world.breathe(10)
        assert look(world) is LOADING
    assert world.events == [("coordinator cannot load", "__numbers-0", "nobody can have meant that")]
    world.lose()
    assert world.lead().get(A) == 1, "another leader, or this one later, may read it"


def test_upkeep_begins_with_the_first_leadership_and_goes_on_round_by_round(world: NumberWorld) -> None:
    world.advance(3 * LOOK_MS)
    world.breathe(3)
    assert world.looks == 0
    world.lead()
    for expected in (1, 2):
        world.advance(LOOK_MS)
        world.breathe(3)
        assert world.looks == expected
    world.lose()
    world.lead()
    world.advance(LOOK_MS)
    world.breathe(3)
    assert world.looks == 3, "one round at a time, however often this broker leads"


class Metadata:
    """Makes the topic when `may_make` is set, unless it answers with an error."""

    def __init__(self, error: RefusalReason | None = None) -> None:
        self.may_make = asyncio.Event()
        self.error = error
        self.asked: list[Any] = []
        self.world: NumberWorld | None = None

    async def wait_until(self, _: object, __: float) -> Any:
        return SimpleNamespace(topic_named=lambda _: SimpleNamespace(topic_id=b"t"))

    async def create_topics(self, topics: list[Any], _: float) -> list[Any]:
        self.asked += topics
        await self.may_make.wait()
        if self.error is None and self.world is not None:
            self.world.partitions.topics[topics[0].name] = SimpleNamespace(topic=None, partitions={})
        return [SimpleNamespace(error=self.error, message="no")]


@pytest.mark.parametrize("error", [None, RefusalReason.INVALID_REPLICATION_FACTOR])
def test_the_topic_is_made_once_for_all_who_ask_at_the_same_time(error: RefusalReason | None) -> None:
    metadata = Metadata(error)
    world = metadata.world = NumberWorld(metadata)
    world.partitions.topics.clear()

    async def wait_for_leaders(*_: object) -> None:
        pass

    world.partitions.known_leaders = SimpleNamespace(wait_for_leaders=wait_for_leaders)
    asking = [world.loop.create_task(world.runtime.ensure_topic()) for _ in range(2)]
    world.breathe(3)
    assert metadata.asked == [world.runtime.topic]
    metadata.may_make.set()
    world.breathe(10)
    assert [one.result() for one in asking] == [error is None] * 2
    world.close()
