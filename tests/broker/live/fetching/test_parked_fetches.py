"""Parked fetches are answered when they can be, and looked at no more than necessary."""

import asyncio
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import outcome

from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.waiters import FetchWaiters
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.server.handlers import fetch
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_broker.timing.turns import Work
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from broker.wire_client import Wire, batch

VERSION = 12
ROOM_BYTES = 1 << 30


class Exchange:
    """One fetch; there is room for its answer or there is none."""

    api_key = 1
    version = VERSION
    correlation_id = 7
    size_bytes = 100
    client_id = "test"
    connection = "a client"
    listener_name = "PLAINTEXT"
    is_small = True

    def __init__(self) -> None:
        self.room_bytes = ROOM_BYTES
        self.answers = 0
        self.works: list[Work] = []
        self.turns = SimpleNamespace(begin=self.works.append)
        self.abandon: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None

    @property
    def is_answered(self) -> bool:
        return self.answers > 0

    def hold(self) -> None:
        """Nothing comes behind it."""

    def answer(self, _: Sequence[object]) -> None:
        self.answers += 1

    def await_room(self, call: Callable[[], None]) -> None:
        self.on_room = call

    def forget_room(self) -> None:
        self.on_room = None


class Replica:
    """A partition that this broker leads, with all its batches in memory."""

    term = 1
    follows = False
    not_leading_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    topic_name = "t"
    log_start_offset = 0

    def __init__(self, index: int) -> None:
        self.index = index
        self.is_leader = True
        self.can_serve = True
        self.changes = 0
        self.batches: list[bytes] = []
        self.log = self

    @property
    def log_end_offset(self) -> int:
        return len(self.batches)

    high_watermark = last_stable_offset = log_end_offset

    def read(self, start: int, end: int, bytes_max: int) -> list[bytes]:
        taken = self.batches[start : start + 1]
        for one in self.batches[start + 1 : end]:
            if sum(map(len, taken)) + len(one) > bytes_max:
                break
            taken.append(one)
        return taken

    def bytes_between(self, start: int, end: int) -> int:
        return sum(map(len, self.batches[start:end]))

    def append(self, body_bytes: int) -> int:
        data = len(self.batches).to_bytes(8, "big") + batch(body_bytes=body_bytes)[8:]
        self.batches.append(data)
        return len(data)


class Broker:
    """A broker as a fetch sees it, with `count` partitions of a topic."""

    node_id = 1
    is_stopping = False
    config = SimpleNamespace(fetch_max_bytes=1 << 20)
    image = SimpleNamespace(brokers={})
    fetches = SimpleNamespace(add=lambda *_: None)
    timers = SimpleNamespace(add=lambda *_: object(), cancel=lambda _: None)

    def __init__(self, count: int) -> None:
        self.replicas = [Replica(index) for index in range(count)]
        self.waiters: FetchWaiters[Any, Any] = FetchWaiters()
        self.parked_fetches = self.parked_committed_fetches = self.waiters
        self.looks: list[Exchange] = []

    def topic(self, *_: object, by_id: bool) -> Any:
        partitions = dict(enumerate(self.replicas))
        return SimpleNamespace(partitions=partitions, topic=SimpleNamespace(partitions=self.replicas))

    def leader_of(self, *_: object) -> Any:
        return SimpleNamespace(leader_id=-1, epoch=-1)

    def fetch(self, rows: Sequence[tuple[int, int]], min_bytes: int, max_bytes: int) -> "Fetch":
        return Fetch(self, rows, min_bytes, max_bytes)

    def wake(self, replica: Replica) -> None:
        while self.waiters.is_due(replica):
            some, _ = self.waiters.take(replica, 3)
            for one in some:
                one.on_woken()


class Fetch(fetch._Fetch):
    """Counts how often it is looked at. `rows`: index and `partition_max_bytes`, from the end of what there is."""

    def __init__(self, broker: Broker, rows: Sequence[tuple[int, int]], min_bytes: int, max_bytes: int) -> None:
        partitions = [
            FetchPartition(
                partition=index, fetch_offset=broker.replicas[index].high_watermark, partition_max_bytes=bytes_max
            )
            for index, bytes_max in rows
        ]
        topics = [FetchTopic(topic="t", partitions=partitions)]
        request = FetchRequest(max_wait_ms=1_000, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)
        self.looks = 0
        self.mine = Exchange()
        super().__init__(cast("BrokerContext", broker), cast("Any", self.mine), request)
        self.look()

    def _look(self) -> Generator[None, None, None]:
        self.looks += 1
        return super()._look()

    def could_be_answered(self) -> bool:
        look = fetch._Look(self.broker, VERSION, self.request, self.mine.room_bytes)
        outcome(look.run())
        return self._is_enough(look)


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 800) | st.just(1 << 20)), min_size=1, max_size=5)
FETCHES = st.tuples(ROWS, st.integers(1, 2_000) | st.just(2**31 - 1), st.integers(0, 1_500) | st.just(1 << 20))
APPENDS = st.tuples(st.integers(0, 2), st.integers(20, 300) | st.integers(20, 3_000))
CHANGES = st.tuples(st.sampled_from(["stops to serve", "serves"]), st.integers(0, 2))


@given(st.lists(FETCHES | APPENDS | APPENDS | APPENDS | CHANGES, max_size=50))
@settings(max_examples=200, deadline=None)
def test_whoever_could_be_answered_is_and_the_others_are_seldom_looked_at(actions: list[Any]) -> None:
    broker = Broker(3)
    parked = list[Fetch]()
    changes = 0
    for action in actions:
        if len(action) == 3:
            parked.append(broker.fetch(*action))
        elif isinstance(action[0], str):
            replica = broker.replicas[action[1]]
            replica.can_serve = action[0] == "serves"
            changes += 1
            if broker.waiters.changed(replica):
                broker.wake(replica)
        else:
            replica = broker.replicas[action[0]]
            broker.waiters.gained(replica, replica.append(action[1]))
            broker.wake(replica)
            changes += not replica.can_serve
        for one in parked:
            assert one.mine.answers == 1 or (one in broker.waiters and not one.could_be_answered())
            # Once more for each partition whose limit it has met with.
            rows = len(one.request.topics[0].partitions)
            assert one.looks <= 2 + math.log2(one.request.min_bytes) + rows + changes
    assert {one for one in parked if not one.mine.is_answered} == {*broker.waiters.take_all()}


def test_a_partition_at_its_limit_wakes_nobody_who_lacks_a_byte() -> None:
    broker = Broker(1)
    replica = broker.replicas[0]
    fetches = [broker.fetch([(0, 1)], 82, 1 << 20) for _ in range(100)]
    for _ in range(50):
        broker.waiters.gained(replica, replica.append(20))
        broker.wake(replica)
    assert {one.looks for one in fetches} == {2}  # at first, and with one batch more than it may give
    assert not any(one.mine.is_answered for one in fetches)


def test_what_changes_behind_a_look_of_several_turns_is_looked_at_again() -> None:
    broker = Broker(2 * fetch.PIECE)
    one = broker.fetch([(index, 1 << 20) for index in range(len(broker.replicas))], 1, 1 << 20)
    steps = one.mine.works[0].steps
    next(steps)
    deposed = broker.replicas[0]
    deposed.is_leader = False
    deposed.changes += 1
    assert not broker.waiters.changed(deposed), "nobody is parked yet"
    for _ in steps:
        pass
    assert one.mine.is_answered


@pytest.mark.parametrize(("min_bytes", "looks"), [(81, 2), (82, 1)])
def test_what_is_gained_behind_a_look_of_several_turns_counts(min_bytes: int, looks: int) -> None:
    """Where something comes all the time, one that waits for much would look for ever else."""
    broker = Broker(2 * fetch.PIECE)
    replica = broker.replicas[0]
    one = broker.fetch([(index, 1 << 20) for index in range(len(broker.replicas))], min_bytes, 1 << 20)
    runs = list[fetch._Look]()
    run = fetch._Look.run

    def noted(look: fetch._Look) -> Generator[None, None, None]:
        runs.append(look)
        return run(look)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch._Look, "run", noted)
        steps = one.mine.works[0].steps
        next(steps)
        assert not broker.waiters.gained(replica, replica.append(20))
        for _ in steps:
            pass
    assert len(runs) == looks
    assert one.mine.is_answered == (looks == 2)
    assert broker.waiters.gained(replica, replica.append(20)) == (looks == 1), "the last byte"


def test_what_a_long_fetch_hopes_for_is_found_out_once_before_it_parks(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(2 * fetch.PIECE)
    hopes = fetch._Look.hopes
    found = list[fetch.Hopes]()

    def noted(look: fetch._Look) -> fetch.Hopes:
        found.append(hopes(look))
        return found[-1]

    monkeypatch.setattr(fetch._Look, "hopes", noted)
    rows = [(index, 1 << 20) for index in range(len(broker.replicas))]
    one = broker.fetch(rows, 1_000, 1 << 20)
    for _ in one.mine.works[0].steps:
        pass
    assert one in broker.waiters
    assert len(found) == 1


def test_a_long_answer_is_put_together_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    added = [0]
    seen = [0]

    class Results(list[PartitionData]):
        def __iter__(self) -> Iterator[PartitionData]:
            for one in super().__iter__():
                seen[0] += 1
                yield one

    def note(*_: object) -> None:
        added[0] += 1

    broker = Broker(1)
    count = 3 * fetch.RESULTS_PIECE
    monkeypatch.setattr(broker, "fetches", SimpleNamespace(add=note), raising=False)
    monkeypatch.setattr(broker, "endpoints", lambda *_: [], raising=False)
    look = fetch._Look(cast("Any", broker), fetch.HINTS_SINCE, FetchRequest(), ROOM_BYTES)
    replica = cast("Any", broker.replicas[0])
    asked = FetchPartition()
    broker.replicas[0].append(20)
    look.reads = [(replica, asked, list(broker.replicas[0].batches)) for _ in range(count)]
    look.has_error = True
    look.topics = [FetchableTopicResponse(partitions=Results(PartitionData() for _ in range(count)))]
    steps = look.response_in_steps("test", "PLAINTEXT")
    before = (0, 0)
    for _ in steps:
        assert added[0] - before[0] <= fetch.PIECE
        assert seen[0] - before[1] <= fetch.RESULTS_PIECE
        before = added[0], seen[0]
    assert before == (count, count)


def test_a_partition_that_is_asked_for_twice_counts_twice() -> None:
    broker = Broker(1)
    replica = broker.replicas[0]
    one = broker.fetch([(0, 1 << 20)] * 2, 160, 1 << 20)
    broker.waiters.gained(replica, replica.append(20))
    broker.wake(replica)
    assert one.mine.is_answered


def test_without_room_a_fetch_waits_for_room_and_not_for_bytes() -> None:
    broker = Broker(1)
    replica = broker.replicas[0]
    one = broker.fetch([(0, 1 << 20)], 1, 1 << 20)
    one.mine.room_bytes = -1
    for _ in range(10):
        broker.waiters.gained(replica, replica.append(20))
        broker.wake(replica)
    assert (one.looks, one.mine.answers) == (2, 0)
    one.mine.room_bytes = ROOM_BYTES
    assert one.mine.on_room is not None
    one.mine.on_room()
    assert (one.looks, one.mine.answers, len(broker.waiters)) == (3, 1, 0)
    assert one.mine.on_room is None


def test_four_thousand_that_wait_for_more_than_ever_comes_are_not_looked_at_for_each_append(
    one_broker: RunningCluster, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cost four fifths of a processor once, at 50 records a second."""
    wire.produce(topic, batch())
    rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    request = FetchRequest(max_wait_ms=600_000, min_bytes=2**31 - 1, topics=[FetchTopic(topic=topic, partitions=rows)])
    looks = [0]
    run = fetch._Look.run

    def counted(self: fetch._Look) -> Any:
        looks[0] += 1
        return run(self)

    monkeypatch.setattr(fetch._Look, "run", counted)
    # A broker that this machine lets stand still asks others whether it still leads, and those who wait are woken.
    monkeypatch.setattr(Partition, "can_serve", True)
    monkeypatch.setattr(Partition, "_wake", lambda _: None)
    exchanges = [Exchange() for _ in range(4_000)]

    async def park(cluster: Cluster) -> None:
        for exchange in exchanges:
            fetch._Fetch(cluster.nodes[1].broker, cast("Any", exchange), request).look()
            await asyncio.sleep(0)

    one_broker.run(park)
    assert looks == [4_000]
    for _ in range(50):
        assert wire.produce(topic, batch()).error_code == ErrorCode.NONE
    assert looks == [4_000]
    waiters = one_broker.cluster.nodes[1].partitions.waiting.fetches
    assert len(waiters) == 4_000

    async def give_up(_: Cluster) -> None:
        for exchange in exchanges:
            assert exchange.abandon is not None
            exchange.abandon()

    one_broker.run(give_up)
    assert len(waiters) == 0


@pytest.mark.parametrize(("isolation_level", "is_left_out"), [(0, False), (1, True)])
async def test_what_is_read_from_disk_while_the_log_changes_is_not_for_readers_of_committed_records(
    isolation_level: int, is_left_out: bool
) -> None:
    """The index of aborted transactions may have forgotten by then what the records need."""
    broker = Broker(1)
    replica = broker.replicas[0]
    replica.append(20)
    found = list(replica.batches)

    async def read_cold(*_: int) -> list[bytes]:
        replica.changes += 1  # the start of the log has moved
        return found

    replica.read_cold = read_cold  # type: ignore[attr-defined]
    replica.read = lambda *_: None  # type: ignore[method-assign,assignment]
    replica.aborted_range = lambda *_: None  # type: ignore[attr-defined]
    partitions = [FetchPartition(partition_max_bytes=1 << 20)]
    request = FetchRequest(isolation_level=isolation_level, topics=[FetchTopic(topic="t", partitions=partitions)])
    look = fetch._Look(cast("Any", broker), VERSION, request, ROOM_BYTES)
    outcome(look.run())
    assert len(look.unread) == 1
    await look.read_rest()
    assert look.topics[0].partitions[0].records == (b"" if is_left_out else found)
