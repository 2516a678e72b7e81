"""Requests that name a great many things are worked off in pieces from the start."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker import main
from barnabas_broker.coordinators.groups.state_machine.location import partition_for
from barnabas_broker.replicas.compaction import Compaction
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.replicas.retention import Retention
from barnabas_broker.server import context
from barnabas_broker.server.dispatch import ROUTES, Dispatcher
from barnabas_broker.server.handlers import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    fetch,
    find_coordinator,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    storing_offsets,
)
from barnabas_broker.server.handlers.consumer_offsets import Since
from barnabas_broker.timing import slices
from barnabas_broker.timing.pieces import FEW, PIECE, RUN, abandoned, distinct, let_go, sorted_names
from barnabas_clients.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_clients.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_clients.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchRequest, FetchTopic
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_clients.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas_clients.protocol.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderTopic
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_metadata_quorum.controller.commands import CONFIGS_MAX, NewTopic
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS

MANY = 5_000


class Counted(list[Any]):
    """Counts how many of its items were looked at since the last `take`."""

    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            Counted.looked_at += 1
            yield item

    @classmethod
    def take(cls) -> int:
        count, cls.looked_at = cls.looked_at, 0
        return count


def counting(step: Callable[[], object]) -> tuple[Callable[[], None], list[int]]:
    """Return the same step, and where it notes each time how many items of `Counted` it has looked at, or freed."""
    noted: list[int] = []

    def counted() -> None:
        try:
            step()
        finally:
            noted.append(Counted.take())

    return counted, noted


class Broker:
    """Knows nothing and nobody, and coordinates no group."""

    node_id = 1
    cluster_id = "c"

    def __init__(self) -> None:
        self.config = SimpleNamespace(auto_create_topics_enable=False, log_dir="/nowhere")
        self.partitions = SimpleNamespace(topics={}, topics_by_id={}, wall_ms=self.now_ms)
        self.coordinator = self.host = self.runtime = self

    async def certain_shard(self, _: str) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR

    async def find_shard(self, _: str) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR

    def topic(self, *_: Any, **__: Any) -> None:
        return None

    group = topic
    state = None

    def now_ms(self) -> int:
        return 0

    wall_ms = now_ms

    def known_brokers(self) -> list[Any]:
        return []

    brokers = active_shards = known_brokers
    is_loading = False


def longest_stretch(advance: Callable[[], Any]) -> tuple[int, Any]:
    """Return the most items that are looked at between two pauses, and what it returns in the end."""
    Counted.take()
    longest = 0
    while True:
        try:
            advance()
        except StopIteration as end:
            return max(longest, Counted.take()), end.value
        longest = max(longest, Counted.take())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers())))
def test_of_each_key_the_last_item_is_left_where_the_first_was(items: list[tuple[int, int]]) -> None:
    steps = distinct(items, lambda item: item[0])
    found = longest_stretch(lambda: next(steps))[1]
    assert found == list({key: (key, value) for key, value in items}.values())


def test_the_keys_of_distinct_items_are_freed_in_pieces_and_before_they_are_returned() -> None:
    steps = distinct([str(k) for k in range(MANY)], Freed)
    advance, freed = counting(lambda: next(steps))
    _, found = longest_stretch(advance)
    assert len(found) == sum(freed) == MANY
    assert max(freed) <= PIECE
    assert freed[-1] == 0


class Compared(str):
    """A name that counts how often it is compared."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        Counted.looked_at += 1
        return str.__lt__(self, other)


@given(st.lists(st.text(max_size=3)))
def test_names_are_sorted_in_pieces_as_at_once(names: list[str]) -> None:
    steps = sorted_names(names)
    assert list(longest_stretch(lambda: next(steps))[1]) == sorted(names)


@pytest.mark.parametrize("which", ["metadata", "describe_log_dirs"])
def test_the_names_of_all_topics_are_sorted_in_pieces(which: str) -> None:
    broker: Any = Broker()
    broker.image = SimpleNamespace(brokers={})
    broker.where_to_ask = lambda *_: SimpleNamespace(leader_id=-1, epoch=-1, isr=())
    exchange: Any = SimpleNamespace(version=12, listener_name="PLAINTEXT")
    names = [f"t{k * 7919 % MANY:04d}" for k in range(MANY)]
    one = SimpleNamespace(is_witness=False, log=SimpleNamespace(size_bytes=0, log_end_offset=0), high_watermark=0)
    for name in map(Compared, names):
        topic = Topic(bytes(16), name, (PartitionPlacement((1,)),), {})
        broker.partitions.topics[name] = SimpleNamespace(topic=topic, partitions={0: one})
    steps: Generator[None, None, Any]
    if which == "metadata":
        steps = metadata.handle(broker, exchange, MetadataRequest(topics=None))
    else:
        steps = describe_log_dirs.described(broker, DescribeLogDirsRequest(topics=None))
    longest, response = longest_stretch(lambda: next(steps))
    assert 0 < longest <= RUN * RUN.bit_length()
    assert [topic.name for topic in response.topics] == sorted(names)


@pytest.mark.parametrize("names", [[f"n{k}" for k in range(MANY)], ["n"] * MANY], ids=["many", "one"])
@pytest.mark.parametrize("which", ["metadata", "describe_configs", "find_coordinator"])
def test_names_are_looked_at_in_pieces(which: str, names: list[str]) -> None:
    broker: Any = Broker()
    exchange: Any = SimpleNamespace(version=4)
    steps: Generator[None, None, Any]
    if which == "metadata":
        asked = Counted(MetadataRequestTopic(name=name) for name in names)
        steps = metadata.handle(broker, exchange, MetadataRequest(topics=asked))
    elif which == "find_coordinator":
        keys: Any = Counted(names * 3)  # more than are answered
        steps = find_coordinator.handle(broker, exchange, FindCoordinatorRequest(coordinator_keys=keys))
    else:
        resources = Counted(DescribeConfigsResource(resource_type=2, resource_name=name) for name in names)
        steps = describe_configs.handle(broker, exchange, DescribeConfigsRequest(resources=resources))
    longest, response = longest_stretch(lambda: next(steps))
    assert 0 < longest <= PIECE
    if which == "find_coordinator":
        assert [one.error_code for one in response.coordinators] == [ErrorCode.INVALID_REQUEST] * 3 * MANY
    else:
        assert len(response.topics if which == "metadata" else response.results) == len(set(names))


@pytest.mark.parametrize("count", [metadata.PARTITIONS_AWAITED_MAX, metadata.PARTITIONS_AWAITED_MAX + 1])
def test_of_a_topic_with_too_many_partitions_no_leader_is_awaited(count: int) -> None:
    class Wide(Broker):
        image = SimpleNamespace(brokers={})

        def topic(self, *_: Any, **__: Any) -> Any:
            return hosted

        def where_to_ask(self, *_: Any) -> Any:
            Counted.looked_at += 1
            return SimpleNamespace(leader_id=-1, epoch=-1, isr=())

    def looked(*_: Any) -> bool:
        Counted.looked_at += count
        return False

    hosted = SimpleNamespace(topic=Topic(bytes(16), "t", (PartitionPlacement((1,)),) * count, {}))
    broker: Any = Wide()
    broker.partitions.topics = {"t": hosted}
    broker.known_leaders = SimpleNamespace(expects_leader=looked, leadership=lambda *_: None)
    exchange: Any = SimpleNamespace(version=4, listener_name="PLAINTEXT")
    steps: Any = metadata.handle(broker, exchange, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    longest, response = longest_stretch(lambda: next(steps))
    assert [len(topic.partitions) for topic in response.topics] == [count]
    assert (longest <= metadata.PIECE) is (count > metadata.PARTITIONS_AWAITED_MAX)


def test_partitions_of_which_logs_are_described_are_looked_at_in_pieces() -> None:
    topics = Counted(DescribableLogDirTopic(topic=f"t{k}", partitions=(1, 2)) for k in range(MANY))
    broker: Any = Broker()
    steps = describe_log_dirs.described(broker, DescribeLogDirsRequest(topics=topics))
    longest, result = longest_stretch(lambda: next(steps))
    assert 0 < longest <= PIECE
    assert result.topics == []


@pytest.mark.parametrize("names", [[f"n{k}" for k in range(MANY)], ["n"] * MANY], ids=["many", "one"])
@pytest.mark.parametrize("which", ["delete_groups", "describe_groups", "offset_fetch"])
async def test_groups_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch, which: str, names: list[str]) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)  # It is always time to let others do something.
    broker: Any = Broker()
    exchange: Any = SimpleNamespace(version=8)
    asked = Counted(names)
    if which == "delete_groups":
        handled: Any = delete_groups.handle(broker, exchange, DeleteGroupsRequest(groups_names=asked))
    elif which == "describe_groups":
        handled = describe_groups.handle(broker, exchange, DescribeGroupsRequest(groups=asked))
    else:
        groups = Counted(OffsetFetchRequestGroup(group_id=name, topics=None) for name in names)
        handled = offset_fetch.handle(broker, exchange, OffsetFetchRequest(groups=groups))
    longest, response = longest_stretch(lambda: handled.send(None))
    assert 0 < longest <= PIECE
    assert len(response.results if which == "delete_groups" else response.groups) == len(set(names))


async def test_groups_without_a_coordinator_here_are_answered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    broker: Any = Broker()
    exchange: Any = SimpleNamespace(version=8)
    groups = [OffsetFetchRequestGroup(group_id=f"n{k}", topics=None) for k in range(MANY)]
    handled = offset_fetch.handle(broker, exchange, OffsetFetchRequest(groups=groups))
    pauses = 0

    def advance() -> None:
        nonlocal pauses
        handled.send(None)
        pauses += 1

    longest_stretch(advance)
    assert pauses >= 2 * MANY


async def test_a_list_that_grows_is_old_for_the_collector_when_others_have_had_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    rows: list[int] = []
    await slices.Slices().yield_if_due()
    assert any(one is rows for one in gc.get_objects(generation=2))


async def at_once(
    monkeypatch: pytest.MonkeyPatch, handler: Any, request: Any, looks: str = "", is_gone: bool = False
) -> tuple[int, Any]:
    """Return the most that a handler looks at between two pauses, calls of what is named `looks` included."""
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    if looks:
        look = getattr(handler, looks)

        def counted(*args: Any, **named: Any) -> Any:
            Counted.looked_at += 1
            return look(*args, **named)

        monkeypatch.setattr(handler, looks, counted)
    exchange: Any = SimpleNamespace(version=7, is_gone=is_gone)
    broker: Any = Broker()
    handled = handler.handle(broker, exchange, request)
    return longest_stretch(lambda: handled.send(None))


async def test_records_are_deleted_of_each_partition_once_and_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [DeleteRecordsPartition(partition_index=k % (MANY // 2), offset=k) for k in range(MANY)]
    topics = [DeleteRecordsTopic(name="t", partitions=parts)]
    longest, response = await at_once(
        monkeypatch, delete_records, DeleteRecordsRequest(topics=topics, timeout_ms=1), "led_partition"
    )
    assert 0 < longest <= slices.PIECE
    assert [row.partition_index for row in response.topics[0].partitions] == list(range(MANY // 2))


async def test_too_many_topics_are_refused_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Counted(CreatePartitionsTopic(name=f"t{k}", count=2) for k in range(3 * MANY))
    longest, response = await at_once(
        monkeypatch, create_partitions, CreatePartitionsRequest(topics=topics, timeout_ms=1)
    )
    assert 0 < longest <= PIECE
    assert {row.error_code for row in response.results} == {ErrorCode.POLICY_VIOLATION}


async def test_too_many_moves_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [ReassignablePartition(partition_index=k, replicas=(1,)) for k in range(3)]
    topics = Counted(ReassignableTopic(name=f"t{k}", partitions=rows) for k in range(MANY))
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=1)
    longest, response = await at_once(monkeypatch, alter_partition_reassignments, request)
    assert 0 < longest <= slices.PIECE
    assert response.error_code == ErrorCode.POLICY_VIOLATION


async def test_a_partition_whose_offsets_are_asked_for_twice_is_refused_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Counted(ListOffsetsPartition(partition_index=k % (MANY - 1), timestamp=-1) for k in range(MANY))
    topics = [ListOffsetsTopic(name="t", partitions=parts)]
    longest, response = await at_once(monkeypatch, list_offsets, ListOffsetsRequest(topics=topics))
    assert 0 < longest <= PIECE
    codes = [row.error_code for row in response.topics[0].partitions]
    refused = ErrorCode.INVALID_REQUEST
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [refused, *[unknown] * (MANY - 2)]


def test_filters_are_looked_at_in_pieces() -> None:
    broker: Any = Broker()
    exchange: Any = None
    names = Counted(f"state {k}" for k in range(MANY))
    steps = list_groups.handle(broker, exchange, ListGroupsRequest(states_filter=names, types_filter=("CLASSIC",)))
    longest, response = longest_stretch(lambda: next(steps))
    assert 0 < longest <= list_groups.PIECE
    assert response == ListGroupsResponse()


TOPICS_WITHOUT_PARTITIONS: dict[str, Callable[[Any, Any], Generator[None, None, Any]]] = {
    "epochs": lambda broker, exchange: offset_for_leader_epoch.handle(
        broker, exchange, OffsetForLeaderEpochRequest(topics=Counted([OffsetForLeaderTopic(topic="t")] * MANY))
    ),
    "directories": lambda broker, _: describe_log_dirs.described(
        broker, DescribeLogDirsRequest(topics=Counted([DescribableLogDirTopic(topic="t")] * MANY))
    ),
    "produce": lambda broker, exchange: produce._in_steps(
        produce._Produce(broker, exchange, 1), ProduceRequest(topic_data=Counted([TopicProduceData(name="t")] * MANY))
    ),
    "fetch": lambda broker, _: fetch._Look(
        broker, 7, FetchRequest(topics=Counted([FetchTopic(topic="t")] * MANY)), 1_000
    ).run(),
    "commit": lambda broker, exchange: offset_commit._Commit(broker, exchange, OffsetCommitRequest()).run(
        Broker(),  # type: ignore[arg-type]  # a shard that is not active
        Counted([OffsetCommitRequestTopic(name="t")] * MANY),
    ),
}


@pytest.mark.parametrize("what", TOPICS_WITHOUT_PARTITIONS)
def test_topics_of_which_no_partition_is_named_are_gone_through_in_pieces(what: str) -> None:
    broker: Any = Broker()
    broker.config.fetch_max_bytes = 1_000
    exchange: Any = SimpleNamespace(version=7)
    steps = TOPICS_WITHOUT_PARTITIONS[what](broker, exchange)
    assert 0 < longest_stretch(lambda: next(steps))[0] <= storing_offsets.PIECE


@pytest.mark.parametrize("topics", [1, MANY])
def test_positions_of_an_older_epoch_are_looked_at_in_pieces(topics: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker: Any = Broker()
    broker.config.offset_metadata_max_bytes = 10
    exchange: Any = SimpleNamespace(version=9)
    commit = offset_commit._Commit(broker, exchange, OffsetCommitRequest())
    each = MANY // topics
    hosted = SimpleNamespace(topic=SimpleNamespace(topic_id=b"t", partitions=range(each)))
    monkeypatch.setattr(commit, "find", lambda _: hosted)
    rows = Counted(OffsetCommitRequestPartition(partition_index=k) for k in range(each))
    asked = Counted([OffsetCommitRequestTopic(name="t", partitions=rows)] * topics)
    had = {b"t": dict.fromkeys(range(each), 2)}
    for epoch, refusal in ((2, ErrorCode.NONE), (1, ErrorCode.STALE_MEMBER_EPOCH)):
        steps = commit._first_refusal(asked, Since(epoch, had, ErrorCode.STALE_MEMBER_EPOCH))
        longest, found = longest_stretch(partial(next, steps))
        assert 0 < longest <= storing_offsets.PIECE
        assert found is refusal


async def test_what_is_made_of_many_shares_no_callback_with_what_came_before() -> None:
    begun = asyncio.get_running_loop().create_task(slices.made(str, range(slices.PIECE)))
    few = asyncio.get_running_loop().create_task(slices.made(str, range(slices.PIECE - 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert few.done()
    assert not begun.done()
    assert len(await begun) == slices.PIECE


async def test_offsets_are_looked_up_for_nobody_who_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [ListOffsetsTopic(name=f"t{k}", partitions=[ListOffsetsPartition()]) for k in range(MANY)]
    request = ListOffsetsRequest(topics=topics)
    assert await at_once(monkeypatch, list_offsets, request, "_one", is_gone=True) == (1, None)


def test_few_bytes_of_long_names_are_hashed_between_two_pauses_and_once() -> None:
    longest = 32_767
    keys = ["n" * 32_767] * 100

    def partition_of(group_id: str) -> int:
        Counted.looked_at += len(group_id)
        return 7

    broker: Any = Broker()
    broker.partition_of = partition_of
    steps = find_coordinator._indexes(broker, keys, [None] * 100)
    hashed, homes = longest_stretch(lambda: next(steps))
    assert (hashed, homes) == (longest, [7] * 100)
    again = find_coordinator._indexes(broker, keys, [None, *homes[1:]])
    advance, hashed_again = counting(lambda: next(again))
    assert longest_stretch(advance)[1] == homes
    assert sum(hashed_again) == longest


async def test_new_topics_are_waited_for_some_at_a_time() -> None:
    asked: list[int] = []

    class Slow(Broker):
        passed_ms = 0

        async def wait_for_leaders(self, topic_ids: list[bytes], timeout_s: float) -> None:
            asked.append(len(topic_ids))
            self.passed_ms += 1_000
            assert timeout_s == (3_000 - self.passed_ms + 1_000) / 1_000

        def now_ms(self) -> int:
            return self.passed_ms

    broker: Any = Slow()
    broker.known_leaders = broker
    ids = [bytes(16)] * MANY
    step = create_topics.AWAITED_AT_ONCE
    await create_topics.leaders_of(broker, ids[: 2 * step + 1], 3.0)
    assert asked == [step, step, 1]
    asked.clear()
    broker.passed_ms = 0
    await create_topics.leaders_of(broker, ids, 3.0)
    assert asked == [step] * 4, "once more when the time is up, and then no more"


def test_which_partitions_coordinate_the_groups_is_found_in_pieces() -> None:
    broker: Any = Broker()
    broker.partition_of = lambda group_id: partition_for(group_id, 50)
    steps = find_coordinator._indexes(broker, Counted(f"g{k}" for k in range(MANY)), [None] * MANY)
    longest, found = longest_stretch(lambda: next(steps))
    assert 0 < longest <= find_coordinator.PIECE_CHARACTERS // find_coordinator.KEY_CHARACTERS
    assert set(found) == set(range(50))


@pytest.mark.parametrize("incremental", [False, True])
async def test_more_configurations_of_a_topic_than_there_are_go_to_no_controller(
    monkeypatch: pytest.MonkeyPatch, incremental: bool
) -> None:
    assert len(TOPIC_CONFIGS) < CONFIGS_MAX
    names = [f"c{k}" for k in range(CONFIGS_MAX + 1)]
    request: Any
    if incremental:
        steps = [IncrementalAlterableConfig(name=name, value="1") for name in names]
        request = IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsResource(resource_type=2, resource_name="t", configs=steps)]
        )
    else:
        settings = [AlterableConfig(name=name, value="1") for name in names]
        request = AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name="t", configs=settings)]
        )
    _, response = await at_once(monkeypatch, alter_configs, request)
    assert [row.error_code for row in response.responses] == [ErrorCode.INVALID_REQUEST]


async def test_nor_is_a_topic_made_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Controller:
        async def create_topics(self, topics: list[NewTopic], _: float, *, validate_only: bool) -> tuple[()]:
            asked.extend(topic.name for topic in topics)
            return ()

    settings = [CreatableTopicConfig(name=f"c{k}", value="1") for k in range(CONFIGS_MAX + 1)]
    monkeypatch.setattr(Broker, "metadata", Controller(), raising=False)
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        for name, configs in (("many", settings), ("few", settings[1:]))
    ]
    _, response = await at_once(monkeypatch, create_topics, CreateTopicsRequest(topics=topics, timeout_ms=1))
    assert [(row.name, row.error_code) for row in response.topics] == [("many", ErrorCode.INVALID_CONFIG)]
    assert asked == ["few"]


async def test_names_of_topics_that_are_deleted_are_gone_through_once_between_two_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    pauses = [0]
    begun = list[int]()

    class Controller:
        async def delete_topics(self, names: list[str], _: list[bytes], __: float) -> tuple[()]:
            begun.append(pauses[0])
            return ()

    broker: Any = Broker()
    broker.config.delete_topic_enable = True
    broker.metadata = Controller()
    request = DeleteTopicsRequest(topic_names=[f"t{k}" for k in range(MANY)], timeout_ms=1)
    handled: Any = delete_topics.handle(broker, SimpleNamespace(), request)  # type: ignore[arg-type]

    def advance() -> None:
        handled.send(None)
        pauses[0] += 1

    longest_stretch(advance)
    assert begun == [2 * (MANY // PIECE + 4)], "two turns behind each piece of names, and each of four passes"


class Freed(str):
    """A name that counts how many of its kind are gone."""

    __slots__ = ()

    def __del__(self) -> None:
        Counted.looked_at += 1


def wide() -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[DescribeConfigsResult(resource_name=Freed(f"n{k}")) for k in range(MANY)])


def deep() -> DescribeConfigsResponse:
    rows = [DescribeConfigsResourceResult(name=Freed(f"n{k}")) for k in range(MANY)]
    return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=rows)])


def deepest() -> DescribeConfigsResponse:
    rows = [DescribeConfigsSynonym(name=Freed(f"n{k}")) for k in range(MANY)]
    return DescribeConfigsResponse(
        results=[DescribeConfigsResult(configs=[DescribeConfigsResourceResult(synonyms=rows)])]
    )


def both() -> DescribeConfigsResponse:
    results = [
        DescribeConfigsResult(configs=[DescribeConfigsResourceResult(name=Freed("n")) for _ in range(2 * FEW)])
        for _ in range(MANY // FEW // 2)
    ]
    return DescribeConfigsResponse(results=results)


def named() -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=tuple(Freed(f"n{k}") for k in range(MANY)))


def test_names_that_stand_in_no_list_are_freed_in_pieces_too() -> None:
    message = named()
    steps = let_go(message)
    assert 0 < longest_stretch(lambda: next(steps))[0] <= PIECE
    assert message.groups == ()


def freed_by_abandoning(work: Callable[[], Generator[None, None, None]]) -> list[int]:
    """Begin a work and abandon it; return how much was freed between each two pauses."""
    begun = work()
    next(begun)
    steps = abandoned(begun)
    del begun
    Counted.take()
    advance, freed = counting(lambda: next(steps))
    longest_stretch(advance)
    return freed


def test_what_an_abandoned_work_held_is_freed_in_pieces() -> None:
    ended: list[str] = []

    def inside(request: DescribeGroupsRequest) -> Generator[None, None, None]:
        rows = list(request.groups)
        request.groups = ()
        by_name = {name: Freed(name) for name in rows}
        del rows
        try:
            yield
        finally:
            ended.append(f"{len(by_name)} were known")

    def work() -> Generator[None, None, None]:
        known = wide()
        yield from inside(named())
        del known

    freed = freed_by_abandoning(work)
    assert ended == [f"{MANY} were known"]
    assert sum(freed) == 3 * MANY
    assert max(freed) <= PIECE + FEW


@pytest.mark.parametrize("shape", [wide, deep, deepest, both])
def test_what_a_message_held_is_freed_in_pieces(shape: Callable[[], DescribeConfigsResponse]) -> None:
    message = shape()
    steps = let_go(message)
    assert 0 < longest_stretch(lambda: next(steps))[0] <= PIECE + 2 * FEW
    assert message.results == []


@pytest.mark.parametrize("kind", [list, tuple, set])
def test_rows_that_an_abandoned_work_held_in_any_container_are_freed_in_pieces(kind: Callable[[Any], object]) -> None:
    def work() -> Generator[None, None, None]:
        rows = kind(Freed(str(k)) for k in range(MANY))
        configs: list[Any] = [[Freed(str(k))] * (FEW + 1) for k in range(FEW + 1)]
        by_name = {k: DescribeConfigsResult(configs=configs.pop()) for k in range(FEW + 1)}
        yield
        assert not (rows, by_name)

    freed = freed_by_abandoning(work)
    assert sum(freed) == MANY + FEW + 1
    assert max(freed) <= PIECE


def test_what_others_need_of_an_abandoned_work_stays_whole() -> None:
    kept = list(range(MANY))

    def work() -> Generator[None, None, None]:
        mine = {k: [k] for k in range(MANY)}
        theirs = kept
        again = kept
        yield
        assert not (mine, theirs, again)

    begun = work()
    next(begun)
    assert sum(1 for _ in abandoned(begun)) >= MANY // PIECE
    assert kept == list(range(MANY))


def test_an_answer_is_freed_in_pieces_when_it_is_encoded() -> None:
    answered: list[Any] = []
    exchange: Any = SimpleNamespace(
        api_key=32, version=1, correlation_id=1, answer=lambda frame, **_: answered.append(frame)
    )

    def made() -> Generator[None, None, DescribeConfigsResponse]:
        yield
        return wide()

    steps = context._answer_in_steps(exchange, made())
    assert 0 < longest_stretch(lambda: next(steps))[0] <= PIECE + FEW
    assert len(answered) == 1


@pytest.mark.parametrize("kind", [Compaction, Retention])
async def test_replicas_that_are_removed_during_a_round_are_freed_one_by_one(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)

    class Replica:
        settings = None
        topic_name = "t"
        is_witness = False

        def __del__(self) -> None:
            Counted.looked_at += 1

    class Replicas:
        topics_by_id: ClassVar = {b"t": SimpleNamespace(partitions={index: Replica() for index in range(MANY)})}
        __iter__ = Partitions.__iter__

    config = SimpleNamespace(
        log_cleaner_backoff_ms=1, log_cleaner_dedupe_buffer_size=1, log_cleaner_io_max_bytes_per_second=1
    )
    looking = kind(Replicas(), None, None, None, config if kind is Compaction else 1)
    handled = looking.round()
    handled.send(None)
    Replicas.topics_by_id[b"t"].partitions = {}
    Counted.take()
    advance, freed = counting(lambda: handled.send(None))
    longest_stretch(advance)
    assert max(freed) == 1
    assert sum(freed) >= MANY - 1


def test_what_is_left_of_a_request_is_freed_in_a_turn_of_its_own() -> None:
    config = SimpleNamespace(
        unstable_api_versions_enable=False, transaction_two_phase_commit_enable=False, collector=None
    )
    broker: Any = SimpleNamespace(on_fatal=None, config=config)
    exchange: Any = SimpleNamespace()
    ended: list[int] = []

    def parks() -> Generator[None, None, None]:
        rows = wide().results
        yield
        ended.append(len(rows))

    steps = Dispatcher(broker)._finish_in_steps(ROUTES[0], exchange, wide(), parks())
    next(steps)
    Counted.take()
    next(steps)
    assert ended == [MANY]
    assert Counted.take() == MANY, "what the handler held, and not the request, too"
    with pytest.raises(StopIteration):
        next(steps)
    assert Counted.take() == MANY


def test_a_request_is_freed_in_pieces_when_it_is_answered() -> None:
    request = named()
    done: list[object] = []
    exchange: Any = SimpleNamespace(
        api_key=15,
        version=1,
        correlation_id=1,
        answer=lambda _, keeps_frame: done.append(keeps_frame),
        forget_frame=lambda: done.append(request.groups),
    )
    steps = context._answer_in_steps(exchange, context._made(DescribeGroupsResponse()), request)
    assert 0 < longest_stretch(lambda: next(steps))[0] <= PIECE
    assert done == [True, ()], "what was received goes last"


def test_what_a_producer_named_that_has_to_wait_is_let_go() -> None:
    parts = [PartitionProduceData(index=k, records=None) for k in range(MANY)]
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    told: list[object] = []
    parked: Any = SimpleNamespace(
        begin_topic=lambda _: [],
        take=lambda *_: None,
        conclude=lambda _, keeps_frame: told.append(keeps_frame),
        exchange=SimpleNamespace(forget_frame=lambda: told.append(request.topic_data)),
    )
    assert all(step is None for step in produce._in_steps(parked, request))
    assert (request.topic_data, parts) == ([], [])
    assert told == [True, []], "what was received goes last"


COLLECTIONS = """
import gc, sys
looked_at = []
def note(phase, info):
    if phase == "start" and info["generation"] < 2:
        looked_at.append(sum(len(gc.get_objects(number)) for number in range(info["generation"] + 1)))
gc.collect()
gc.callbacks.append(note)
gc.set_threshold(*map(int, sys.argv[1:]))
alive = [[] for _ in range(100_000)]
print(len(looked_at), max(looked_at))
"""


def test_a_collection_of_what_is_young_looks_at_few_objects() -> None:
    """In a process of its own: the brokers of other tests, in threads of this one, make objects too."""
    command = [sys.executable, "-c", COLLECTIONS, *map(str, main.GC_THRESHOLDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    count, most = map(int, done.stdout.split())
    assert count > 10
    assert most <= 15_000
