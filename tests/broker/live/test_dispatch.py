"""Unexpected errors, answers in memory, and deadlines."""

import asyncio
import inspect
import logging
import threading
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.server import dispatch
from barnabas_broker.server.context import SMALL_BYTES
from barnabas_broker.server.dispatch import PRODUCE
from barnabas_broker.status import events
from barnabas_broker.status.events import EventHistory, FetchCounters, add_range
from barnabas_broker.status.packing import PACKED_AT_ONCE, packed
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.describe_cluster import DescribeClusterRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_raftlog.raft.messages import Fact
from barnabas_raftlog.steps import at_once
from broker.wire_client import Wire, batch, produce_request

METADATA = 3


def _broken(*_: Any) -> Any:
    raise ValueError("nobody thought of this")


async def _broken_later(*_: Any) -> Any:
    raise ValueError("nobody thought of this")


def _impossible(*_: Any) -> Any:
    raise AssertionError("our own mistake")


@pytest.mark.parametrize("handle", [_broken, _broken_later])
def test_an_unexpected_error_is_logged_and_answered(
    wire: Wire, handle: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(dispatch.ROUTES, 60, dispatch.ROUTES[60]._replace(handle=handle))
    response = wire.ask(DescribeClusterRequest(), 0)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "nobody thought of this" in caplog.text


def test_an_error_that_cannot_be_answered_closes_the_connection(
    wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(dispatch.ROUTES, 0, dispatch.ROUTES[0]._replace(handle=_broken))
        wire.send(produce_request(topic, batch(), acks=0), 9)
        assert wire.is_closed_by_peer()
    assert "failed and cannot say so" in caplog.text


def test_what_a_large_request_was_received_as_goes_when_it_is_decoded_unless_records_are_views_of_it(
    wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    for key in (METADATA, PRODUCE):
        handle = dispatch.ROUTES[key].handle

        def noted(broker: Any, exchange: Any, request: Any, handle: Any = handle) -> Any:
            kept.append(exchange.frame is not None)
            return handle(broker, exchange, request)

        monkeypatch.setitem(dispatch.ROUTES, key, dispatch.ROUTES[key]._replace(handle=noted))
    names = [MetadataRequestTopic(name="n" * 200 + str(number)) for number in range(1_000)]
    assert len(wire.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 4).topics) == 1_000
    large = batch(body_bytes=2 * SMALL_BYTES)
    assert wire.produce(topic, large).error_code == ErrorCode.NONE
    assert kept == [False, True]


def test_requests_are_counted_by_version(wire: Wire, one_broker: RunningCluster) -> None:
    dispatcher = one_broker.cluster.nodes[1].dispatcher
    before = dispatcher.counts["DescribeCluster"]
    before_v1 = dispatcher.counts_by_version.get("DescribeCluster v1", 0)
    wire.ask(DescribeClusterRequest(), 0)
    wire.ask(DescribeClusterRequest(), 1)
    assert dispatcher.counts["DescribeCluster"] == before + 2
    assert dispatcher.counts_by_version["DescribeCluster v1"] == before_v1 + 1


def test_a_failed_assertion_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningCluster(1) as running:
        node = running.cluster.nodes[1]
        wire = Wire("127.0.0.1", node.port)
        with monkeypatch.context() as patch:
            patch.setitem(dispatch.ROUTES, 60, dispatch.ROUTES[60]._replace(handle=_impossible))
            wire.send(DescribeClusterRequest(), 0)

            async def failure(_: Cluster) -> BaseException | None:
                await asyncio.wait([node.failure])
                return node.failure.exception()

            assert isinstance(running.run(failure), AssertionError)
        wire.close()


def test_a_request_that_is_cancelled_before_it_began_to_wait_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting: list[Any] = []
    is_over = threading.Event()

    def cancel_all_but(others: set[asyncio.Task[Any]]) -> None:
        for task in asyncio.all_tasks() - others:
            task.add_done_callback(lambda _: is_over.set())
            task.cancel()

    def wait(*_: Any) -> Any:
        asyncio.get_running_loop().call_soon(cancel_all_but, asyncio.all_tasks())
        waiting.append(_broken_later())
        return waiting[0]

    with RunningCluster(1) as running:
        monkeypatch.setitem(dispatch.ROUTES, 60, dispatch.ROUTES[60]._replace(handle=wait))
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.send(DescribeClusterRequest(), 0)
        assert is_over.wait(10)
        wire.close()
    assert inspect.getcoroutinestate(waiting[0]) == inspect.CORO_CLOSED


def test_events_are_bounded_kept_in_order_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    history = EventHistory(lambda: 7)
    with caplog.at_level(logging.INFO):
        for term in range(events.EVENTS_MAX + 5):
            history.add_fact("t-0", Fact("leader elected", term, "votes of [1, 2]"))
    found = history.to_list()
    assert len(found) == events.EVENTS_MAX
    assert found[-1] == {
        "time_ms": 7,
        "kind": "leader elected",
        "group": "t-0",
        "cause": f"votes of [1, 2] (term {events.EVENTS_MAX + 4})",
    }
    assert "t-0: leader elected: votes of [1, 2]" in caplog.text


def test_thousands_of_events_in_a_second_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = [7_000]
    lines = 0
    history = EventHistory(lambda: now_ms[0])
    with caplog.at_level(logging.INFO):
        for number in range(events.LINES_PER_SECOND + 900):
            if not number % 200:
                now_ms[0] += 100
                lines = len(caplog.records)
            history.add("leader elected", "t-0", "votes of [1, 2]")
            assert len(caplog.records) - lines <= events.LINES_PER_TENTH
        assert len(caplog.records) == events.LINES_PER_SECOND
        now_ms[0] += 1_000
        history.add("following", "t-0", "node 2 leads")
    assert [record.getMessage() for record in caplog.records[-2:]] == [
        "leader elected: 900 more, too many for a line each",
        "t-0: following: node 2 leads",
    ]


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.one_of(
            st.integers(-(2**63), 2**63),
            st.binary(max_size=3),
            st.lists(st.integers(0, 9), max_size=4),
            st.just(list(range(2 * PACKED_AT_ONCE + 1))),
            st.just({str(number): [number] for number in range(PACKED_AT_ONCE + 1)}),
        ),
        max_size=4,
    )
)
@settings(max_examples=30, deadline=None)
def test_a_status_is_packed_in_pieces_to_what_it_would_be_at_once(status: dict[str, object]) -> None:
    assert at_once(packed(status)) == msgpack.packb(status)
    entries = sum(2 * len(value) if isinstance(value, dict) else 1 for value in status.values())
    assert len(list(packed(status))) >= entries // PACKED_AT_ONCE


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_ranges_are_the_union_of_what_was_read(reads: list[tuple[int, int]]) -> None:
    ranges: list[list[int]] = []
    covered: set[int] = set()
    for start, size in reads:
        add_range(ranges, start, start + size)
        covered.update(range(start, start + size))
    assert [offset for start, end in ranges for offset in range(start, end)] == sorted(covered)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_counters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "READERS_MAX", 2)
    monkeypatch.setattr(events, "RANGES_MAX", 2)
    counters = FetchCounters()
    for client in ("a", "b", "a", "c"):
        for start in (0, 10, 13):
            counters.add(client, "t", 0, 5, start, start + 1)
    found = {one["client_id"]: one for one in counters.to_list()}
    assert set(found) == {"a", "c"}
    assert found["c"]["ranges"] == [[0, 1], [10, 14]]
    assert found["a"]["requests"] == 6


async def test_timers_call_in_order_and_never_after_cancel() -> None:
    loop = asyncio.get_running_loop()
    called: list[str] = []
    done = asyncio.Event()

    def late() -> None:
        called.append("late")
        done.set()

    timers = Timers(lambda: int(loop.time() * 1000))
    timers.add(30, late)
    timers.cancel(timers.add(1, lambda: called.append("never")))
    timers.add(2, lambda: called.append("early"))
    await done.wait()
    assert called == ["early", "late"]
    timers.close()
