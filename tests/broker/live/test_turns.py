"""Long requests take turns: same answers, no overtaking on one connection, only between connections."""

import asyncio
import gc
import itertools
import threading
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from barnabas_broker.server import dispatch
from barnabas_broker.testing import RunningCluster
from barnabas_broker.timing import turns
from barnabas_broker.timing.pieces import PIECE
from barnabas_broker.timing.turns import ACTIVE_MAX, LARGE_MAX, SLICE_S, Turns, Work
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_raftlog.loop_meter import LONG_NS, LoopMeter
from broker.wire_client import Wire, batch, offsets_of

NAMES = 20_000
PARTITIONS = 300


class _Exchange:
    """Counts its holds."""

    def __init__(self, *, is_small: bool = True) -> None:
        self.holds = self.slices = 0
        self.is_gone = self.has_forgotten = False
        self.is_small = is_small

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def note_slice(self) -> None:
        self.slices += 1

    def forget_frame(self) -> None:
        self.has_forgotten = True


class _Scene:
    """Works whose every step takes a third of a slice; what they did, in its order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turns = Turns(lambda: self.now_s)
        self.done: list[str] = []
        self.failures: list[str] = []

    def begin(
        self, name: str, steps: int, *, raises: bool = False, is_produce: bool = False, is_small: bool = True
    ) -> _Exchange:
        exchange = _Exchange(is_small=is_small)

        def work() -> Generator[None, None, None]:
            try:
                for _ in range(steps):
                    self.done.append(name)
                    self.now_s += SLICE_S / 3
                    yield
                if raises:
                    raise ValueError(name)
            finally:
                self.done.append(name.upper())

        self.turns.begin(Work(exchange, work(), lambda error: self.failures.append(str(error)), is_produce=is_produce))
        return exchange

    @property
    def story(self) -> str:
        return "".join(self.done)


async def _idle() -> None:
    """Let the loop turn more often than anything here needs."""
    for _ in range(200):
        await asyncio.sleep(0)


def run(act: Coroutine[Any, Any, None]) -> None:
    asyncio.run(act)


def test_what_is_short_is_done_at_once_and_holds_nothing() -> None:
    scene = _Scene()
    assert scene.begin("a", 2).holds == 0
    assert (scene.story, len(scene.turns), scene.turns.slices) == ("aaA", 0, 0)


def test_who_has_waited_longest_has_the_next_slice() -> None:
    scene = _Scene()

    async def act() -> None:
        first = scene.begin("a", 7)
        second = scene.begin("b", 5)
        assert (first.holds, second.holds) == (1, 1)
        asyncio.get_running_loop().call_soon(lambda: scene.done.append("-"))
        await _idle()
        assert (first.holds, second.holds) == (0, 0)

    run(act())
    assert scene.story == "aaabbb" + "aaa" + "-" + "bbB" + "aA"
    assert scene.turns.slices == 3


def test_whose_client_has_had_fewer_slices_goes_first() -> None:
    scene = _Scene()

    async def act() -> None:
        scene.begin("a", 7).slices += 5
        scene.begin("b", 7)
        await _idle()

    run(act())
    assert scene.story == "aaabbb" + "bbbbB" + "aaaaA"


def test_what_a_producer_sent_lets_nobody_go_first() -> None:
    scene = _Scene()
    kept = _Exchange()
    kept.slices = 50

    def work() -> Generator[None, None, None]:
        for _ in range(7):
            scene.done.append("p")
            scene.now_s += SLICE_S / 3
            yield

    async def act() -> None:
        scene.begin("a", 7)
        scene.turns.begin(Work(kept, work(), lambda _: None, is_produce=True))
        await _idle()

    run(act())
    assert scene.story == "aaappp" + "pppp" + "aaaaA"
    assert kept.slices == 50


def test_a_list_that_grows_is_old_for_the_collector_soon_after_the_first_slice() -> None:
    scene = _Scene()
    rows = list[int]()
    kept = _Exchange()

    def work() -> Generator[None, None, None]:
        for number in range(9):
            rows.append(number)
            scene.now_s += SLICE_S / 3
            yield

    async def act() -> None:
        scene.turns.begin(Work(kept, work(), lambda _: None))
        assert len(rows) == 3
        await asyncio.sleep(0)
        assert any(one is rows for one in gc.get_objects(generation=2)), "it is not looked at again while it grows"
        await _idle()

    run(act())
    assert len(rows) == 9


def test_a_turn_is_measured_by_the_name_of_its_work() -> None:
    now_ns = [0]
    told = list[str]()
    meter = LoopMeter(lambda: now_ns[0], lambda: now_ns[0], lambda what, *_: told.append(what))

    def work() -> Generator[None, None, None]:
        yield
        now_ns[0] += LONG_NS + 1
        yield

    async def act() -> None:
        turns = Turns(lambda: float(next(seconds)), meter)
        turns.begin(Work(_Exchange(), work(), lambda _: None, name="Metadata"))
        await _idle()

    seconds = itertools.count()  # every look at the clock finds that a slice has gone by
    run(act())
    assert told == ["turn: Metadata"]


def test_of_one_whose_client_has_gone_nothing_more_is_done_unless_it_is_a_produce() -> None:
    scene = _Scene()

    async def act() -> None:
        for name, is_produce in (("a", False), ("b", True)):
            scene.begin(name, 4, is_produce=is_produce).is_gone = True
        await _idle()

    run(act())
    assert scene.story == "aaabbb" + "bB" + "A"


def test_what_it_held_is_freed_in_slices_when_its_client_has_gone() -> None:
    scene = _Scene()
    kept = _Exchange()
    freed = list[int]()

    class Row:
        def __del__(self) -> None:
            assert not kept.has_forgotten, "what was received goes last"
            freed.append(scene.turns.slices)
            scene.now_s += SLICE_S / PIECE

    def work() -> Generator[None, None, None]:
        rows = [Row() for _ in range(12 * PIECE)]
        scene.now_s += SLICE_S
        yield
        rows.clear()

    async def act() -> None:
        scene.turns.begin(Work(kept, work(), lambda _: None))
        kept.is_gone = True
        await _idle()

    run(act())
    assert len(freed) == 12 * PIECE
    assert len(set(freed)) >= 3
    assert kept.holds == 0
    assert kept.has_forgotten


def test_works_beyond_the_limit_wait_untouched_and_those_of_small_requests_go_first() -> None:
    scene = _Scene()

    async def act() -> None:
        for _ in range(ACTIVE_MAX):
            scene.begin("a", 8)
        large = scene.begin("l", 1, is_small=False)
        small = scene.begin("s", 1)
        assert (large.holds, small.holds) == (1, 1)
        assert not {"l", "s"} & {*scene.story}
        await _idle()
        assert (large.holds, small.holds) == (0, 0)

    run(act())
    assert scene.story.index("A") < scene.story.index("s") < scene.story.index("l")


def test_few_large_requests_are_worked_off_at_a_time() -> None:
    scene = _Scene()

    async def act() -> None:
        exchanges = [scene.begin(name, 8, is_small=False) for name in "abcdef"]
        assert {*scene.story} == {*"abcd"}
        scene.begin("s", 1)
        assert "S" in scene.story
        await _idle()
        assert [exchange.holds for exchange in exchanges] == [0] * 6

    assert LARGE_MAX == 4
    run(act())
    ends = [scene.story.index(name) for name in "ABCDEF"]
    assert ends == sorted(ends)
    assert scene.story.index("e") > scene.story.index("A")


def test_a_failure_is_told_and_holds_up_nobody() -> None:
    scene = _Scene()

    async def act() -> None:
        failing = scene.begin("a", 4, raises=True)
        scene.begin("b", 4)
        await _idle()
        assert failing.holds == 0

    run(act())
    assert (scene.failures, scene.story) == (["a"], "aaabbb" + "aA" + "bB")


def test_the_first_steps_fail_to_whoever_begins() -> None:
    scene = _Scene()
    with pytest.raises(ValueError, match="a"):
        scene.begin("a", 1, raises=True)
    assert (scene.failures, len(scene.turns)) == ([], 0)


def slices(cluster: RunningCluster) -> int:
    return cluster.cluster.nodes[1].listener.turns.slices


def unknown_topics(count: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def test_a_long_request_is_answered_in_its_order_on_its_connection(one_broker: RunningCluster, wire: Wire) -> None:
    before = slices(one_broker)
    long = unknown_topics(NAMES)
    short = ApiVersionsRequest()
    wire.send(long, 12)
    wire.send(short, 0)
    rows = wire.receive(long, 12).topics
    assert [row.name for row in rows] == [topic.name for topic in long.topics or ()]
    assert {row.error_code for row in rows} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert wire.receive(short, 0).api_keys
    assert slices(one_broker) > before


def test_another_connection_is_answered_while_a_long_request_is_served(
    one_broker: RunningCluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The long one does not come to its end before the others were answered: it would wait for them for ever."""
    are_answered = threading.Event()
    route = dispatch.ROUTES[MetadataRequest.api_key]

    def handle(*asked: Any) -> Generator[None, None, Any]:
        while not are_answered.is_set():
            yield
        return (yield from route.handle(*asked))  # type: ignore[misc]

    monkeypatch.setattr(turns, "SLICE_S", 0.0)  # This thread and the brokers' share an interpreter.
    monkeypatch.setitem(dispatch.ROUTES, route.key, route._replace(handle=handle))
    other = Wire("127.0.0.1", one_broker.cluster.nodes[1].port)
    long = unknown_topics(NAMES)
    try:
        wire.send(long, 12)
        for _ in range(3):
            assert other.ask(ApiVersionsRequest(), 0).api_keys
    finally:
        are_answered.set()
        other.close()
    assert len(wire.receive(long, 12).topics) == NAMES


def test_a_request_that_names_too_much_closes_its_connection_and_says_why(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.send(unknown_topics(100_001), 12)
    assert wire.is_closed_by_peer()
    assert "MetadataRequest v12: MetadataRequest.topics: 100001 elements are more than" in caplog.text


def test_as_much_as_is_allowed_is_answered(wire: Wire) -> None:
    wire.socket.settimeout(60)
    assert len(wire.ask(unknown_topics(100_000), 12).topics) == 100_000


def test_a_topic_and_a_resource_that_are_named_twice_are_answered_once(wire: Wire, topic: str) -> None:
    named = MetadataRequest(topics=[MetadataRequestTopic(name=topic)] * 3, allow_auto_topic_creation=False)
    assert [row.name for row in wire.ask(named, 12).topics] == [topic]
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic)
    assert len(wire.ask(DescribeConfigsRequest(resources=[resource] * 3), 4).results) == 1


def test_batches_for_many_partitions_are_all_stored(wire: Wire, topic: str) -> None:
    name = f"{topic}-many"
    wire.create(name, PARTITIONS)
    data = [PartitionProduceData(index=index, records=batch(index % 3 + 1)) for index in range(PARTITIONS)]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=name, partition_data=data)])
    results = wire.ask(request, 9).responses[0].partition_responses
    assert [(one.index, one.error_code, one.base_offset) for one in results] == [(k, 0, 0) for k in range(PARTITIONS)]
    found = wire.ask(fetch_all(name), 12).responses[0].partitions
    assert [one.high_watermark for one in found] == [index % 3 + 1 for index in range(PARTITIONS)]
    assert all(offsets_of(one.records) == [0] for one in found)


def fetch_all(name: str, max_wait_ms: int = 0) -> FetchRequest:
    rows = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(PARTITIONS)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=name, partitions=rows)])


@pytest.mark.parametrize("index", [0, PARTITIONS - 1])
def test_a_fetch_of_many_partitions_waits_for_any_of_them(
    one_broker: RunningCluster, wire: Wire, topic: str, index: int
) -> None:
    name = f"{topic}-many"
    wire.create(name, PARTITIONS)
    waiting = fetch_all(name, max_wait_ms=30_000)
    wire.send(waiting, 12)
    other = Wire("127.0.0.1", one_broker.cluster.nodes[1].port)
    try:
        assert other.produce(name, batch(), partition=index).error_code == 0
    finally:
        other.close()
    assert wire.receive(waiting, 12).responses[0].partitions[index].high_watermark == 1
