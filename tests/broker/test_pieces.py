"""Whoever names a great many things, or one of them as often, is worked off in pieces from the first look on."""

import gc
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker import context, main, time_slices
from barnabas_broker.handlers import (
    delete_groups,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    find_coordinator,
    metadata,
    offset_fetch,
)
from barnabas_broker.pieces import FEW, PIECE, distinct, let_go
from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

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


class Broker:
    """Knows nothing and nobody, and coordinates no group."""

    node_id, cluster_id = 1, "c"

    def __init__(self) -> None:
        self.config = SimpleNamespace(auto_create_topics_enable=False, log_dir="/nowhere")
        self.partitions = SimpleNamespace(topics={}, topics_by_id={})
        self.coordinator = self

    async def find_shard(self, _: str) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR

    def topic(self, *_: Any, **__: Any) -> None:
        return None

    def now_ms(self) -> int:
        return 0

    def known_brokers(self) -> list[Any]:
        return []

    brokers = known_brokers


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


def test_partitions_of_which_logs_are_described_are_looked_at_in_pieces() -> None:
    topics = Counted(DescribableLogDirTopic(topic=f"t{k}", partitions=(1, 2)) for k in range(MANY))
    broker: Any = Broker()
    steps = describe_log_dirs.handle(broker, SimpleNamespace(), DescribeLogDirsRequest(topics=topics))  # type: ignore[arg-type]
    longest, response = longest_stretch(lambda: next(steps))
    assert 0 < longest <= PIECE
    assert response.results[0].topics == []


@pytest.mark.parametrize("names", [[f"n{k}" for k in range(MANY)], ["n"] * MANY], ids=["many", "one"])
@pytest.mark.parametrize("which", ["delete_groups", "describe_groups", "offset_fetch"])
async def test_groups_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch, which: str, names: list[str]) -> None:
    monkeypatch.setattr(time_slices, "SLICE_S", -1.0)  # It is always time to let others do something.
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
    monkeypatch.setattr(time_slices, "SLICE_S", -1.0)
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


def both() -> DescribeConfigsResponse:
    results = [
        DescribeConfigsResult(configs=[DescribeConfigsResourceResult(name=Freed("n")) for _ in range(2 * FEW)])
        for _ in range(MANY // FEW // 2)
    ]
    return DescribeConfigsResponse(results=results)


@pytest.mark.parametrize("shape", [wide, deep, both])
def test_what_a_message_held_is_freed_in_pieces(shape: Callable[[], DescribeConfigsResponse]) -> None:
    message = shape()
    steps = let_go(message)
    assert 0 < longest_stretch(lambda: next(steps))[0] <= PIECE + 2 * FEW
    assert message.results == []


def test_an_answer_is_freed_in_pieces_when_it_is_encoded() -> None:
    answered: list[Any] = []
    exchange: Any = SimpleNamespace(api_key=32, version=1, correlation_id=1, answer=answered.append)

    def made() -> Generator[None, None, DescribeConfigsResponse]:
        yield
        return wide()

    steps = context._answer_in_steps(exchange, made())
    assert 0 < longest_stretch(lambda: next(steps))[0] <= PIECE + FEW
    assert len(answered) == 1


def test_a_collection_of_what_is_young_looks_at_few_objects() -> None:
    looked_at = [0]

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] < 2:
            looked_at.append(sum(len(gc.get_objects(number)) for number in range(info["generation"] + 1)))

    before = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        gc.collect()
        gc.set_threshold(*main.GC_THRESHOLDS)
        alive = [[] for _ in range(100_000)]  # type: ignore[var-annotated]
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
    assert len(alive) == 100_000
    assert len(looked_at) > 10
    assert max(looked_at) <= 35_000
