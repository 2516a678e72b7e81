"""Fetch sessions (KIP-227), over a real socket."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas_broker.partition.partition import Partition
from barnabas_broker.server.handlers import fetch
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Consumer
from barnabas_clients.consumer.fetch_session import PARTITIONS_MIN
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from broker.wire_client import Wire, batch, offsets_of

MANY = 40  # more than are looked at in one piece
Row = tuple[int, int]


class Client:
    """One client with a session of its own, in one version of Fetch."""

    def __init__(self, wire: Wire, topic: str, version: int = 12, topic_id: bytes = b"") -> None:
        self.wire = wire
        self.topic = topic
        self.version = version
        self.topic_id = topic_id if version >= 13 else bytes(16)
        self.session_id = 0
        self.epoch = 0

    def named(self, rows: Sequence[Row], **more: Any) -> FetchTopic:
        asked = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20, **more)
            for number, offset in rows
        ]
        return FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=asked)

    def request(self, rows: Sequence[Row] = (), forgotten: Sequence[int] = (), **more: Any) -> FetchRequest:
        request = FetchRequest(min_bytes=1, session_id=self.session_id, session_epoch=self.epoch, **more)
        if rows:
            request.topics = [self.named(rows)]
        if forgotten:
            gone = ForgottenTopic(topic=self.topic, topic_id=self.topic_id, partitions=list(forgotten))
            request.forgotten_topics_data = [gone]
        return request

    def take(self, response: Any) -> dict[int, Any]:
        """Follow an answer of the session; return its rows by partition, in their order."""
        assert response.error_code == ErrorCode.NONE, response
        self.session_id = response.session_id
        self.epoch += 1
        return {row.partition_index: row for topic in response.responses for row in topic.partitions}

    def ask(self, rows: Sequence[Row] = (), forgotten: Sequence[int] = (), **more: Any) -> dict[int, Any]:
        return self.take(self.wire.ask(self.request(rows, forgotten, **more), self.version))

    def refused(self, rows: Sequence[Row] = (), **more: Any) -> ErrorCode:
        response = self.wire.ask(self.request(rows, **more), self.version)
        assert (response.responses, response.session_id) == ([], 0)
        return ErrorCode(response.error_code)


@pytest.fixture
def two(wire: Wire, topic: str) -> tuple[str, bytes]:
    """A topic of two partitions, and its id."""
    return f"{topic}-two", wire.create(f"{topic}-two", partitions=2)


@pytest.mark.parametrize("version", range(7, 19))
def test_only_what_has_changed_is_answered(wire: Wire, two: tuple[str, bytes], version: int) -> None:
    name, topic_id = two
    client = Client(wire, name, version, topic_id)
    first = client.ask([(0, 0), (1, 0)])
    assert list(first) == [0, 1]
    assert client.session_id > 0
    assert client.ask() == {}
    wire.produce(name, batch(), partition=1)
    told = client.ask()
    assert list(told) == [1]
    assert offsets_of(told[1].records) == [0]
    assert list(client.ask()) == [1], "the client has not said that it went on"
    assert client.ask([(1, 1)]) == {}
    wire.produce(name, batch(), partition=0)
    assert list(client.ask()) == [0]
    assert client.epoch == 6


def test_a_version_without_sessions_opens_none(wire: Wire, topic: str, one_broker: RunningCluster) -> None:
    before = len(one_broker.cluster.nodes[1].broker.fetch_sessions)
    assert wire.ask(Client(wire, topic).request([(0, 0)]), 6).session_id == 0
    assert len(one_broker.cluster.nodes[1].broker.fetch_sessions) == before


def test_what_is_forgotten_is_answered_no_more_and_a_session_without_partitions_ends(
    wire: Wire, two: tuple[str, bytes]
) -> None:
    name, _ = two
    client = Client(wire, name)
    client.ask([(0, 0), (1, 0)])
    assert client.ask(forgotten=[0]) == {}
    for number in (0, 1):
        wire.produce(name, batch(), partition=number)
    assert list(client.ask()) == [1]
    assert sorted(client.ask([(0, 0)])) == [0, 1]
    session_id = client.session_id
    assert client.ask(forgotten=[0, 1]) == {}
    assert client.session_id == 0, "there is no session any more"
    client.session_id = session_id
    assert client.refused() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_one_that_is_named_and_forgotten_at_once_is_forgotten(wire: Wire, two: tuple[str, bytes]) -> None:
    name, _ = two
    client = Client(wire, name)
    client.ask([(0, 0)])
    assert client.ask([(1, 0)], forgotten=[1]) == {}
    wire.produce(name, batch(), partition=1)
    assert client.ask() == {}


def test_partitions_are_told_by_name_or_by_id_with_the_ids_that_were_asked_for(
    wire: Wire, two: tuple[str, bytes]
) -> None:
    name, topic_id = two
    for version in (12, 13):
        client = Client(wire, name, version, topic_id)
        response = wire.ask(client.request([(0, 0)]), version)
        client.take(response)
        told = response.responses[0]
        assert (told.topic, told.topic_id) == ((name, bytes(16)) if version < 13 else ("", topic_id))


def test_sessions_and_epochs_that_are_not_known_are_refused(wire: Wire, two: tuple[str, bytes]) -> None:
    client = Client(wire, *two[:1])
    client.session_id, client.epoch = 77, 1
    assert client.refused([(0, 0)]) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    client.session_id = client.epoch = 0
    client.ask([(0, 0)])
    for epoch in (2, -2, 2**31 - 1):
        client.epoch = epoch
        assert client.refused() == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.epoch = 1
    assert client.ask() == {}, "a refused request takes no epoch"


def test_a_session_of_names_is_not_continued_with_ids_nor_the_other_way_round(
    wire: Wire, two: tuple[str, bytes]
) -> None:
    for version in (12, 13):
        client = Client(wire, two[0], version, two[1])
        client.ask([(0, 0)])
        client.version = 25 - version
        assert client.refused() == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        client.version = version
        assert client.ask() == {}


def test_an_epoch_of_minus_one_or_nought_ends_the_session_that_is_named(wire: Wire, two: tuple[str, bytes]) -> None:
    for epoch in (-1, 0):
        client = Client(wire, two[0])
        client.ask([(0, 0)])
        ended = client.session_id
        client.epoch = epoch
        assert list(client.ask([(0, 0), (1, 0)])) == [0, 1]
        assert bool(client.session_id) == (epoch == 0)
        assert client.session_id != ended
        client.session_id, client.epoch = ended, 1
        assert client.refused() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_told_each_time_and_what_comes_after_it_too(
    wire: Wire, two: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(wire, two[0])
    first = client.ask([(0, 0), (1, 5), (7, 0)])
    codes = {number: ErrorCode(row.error_code) for number, row in first.items()}
    assert codes[1] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert codes[7] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(client.ask()) == [1, 7]
    assert list(client.ask(forgotten=[7])) == [1]
    assert list(client.ask([(1, 0)])) == [1], "the high watermark is news again"
    assert client.ask() == {}
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "can_serve", False)
        unsure = client.ask([(0, 0), (1, 0)])
        assert [row.error_code for row in unsure.values()] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert list(client.ask()) == [0, 1]
    assert client.ask() == {}


def test_another_high_watermark_is_told_without_records(wire: Wire, topic: str) -> None:
    client = Client(wire, topic)
    wire.produce(topic, batch())
    client.ask([(0, 1)])
    wire.produce(topic, batch())
    told = client.ask([(0, 2)])
    assert (told[0].high_watermark, bytes(told[0].records)) == (2, b"")
    assert client.ask() == {}


@pytest.mark.parametrize("count", [3, MANY])
def test_a_long_poll_of_a_session_ends_with_the_first_record(
    wire: Wire, topic: str, one_broker: RunningCluster, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two polls pass first without anything: then the third one is not looked at until the record is there."""
    name = f"{topic}-{count}"
    wire.create(name, partitions=count)
    waiting = Client(Wire(*wire.socket.getpeername()), name)
    waiting.ask([(number, 0) for number in range(count)])
    runs = [0]
    run_rows = fetch._Look.run_rows

    def counted(self: fetch._Look, rows: list[Any], *, is_last: bool) -> Any:
        runs[0] += 1
        return run_rows(self, rows, is_last=is_last)

    monkeypatch.setattr(fetch._Look, "run_rows", counted)
    assert waiting.ask(max_wait_ms=1) == {}
    assert runs == [2], "at its beginning and at its end"
    assert waiting.ask(max_wait_ms=1) == {}
    assert runs == [3], "at its end"
    request = waiting.request(max_wait_ms=30_000)
    waiting.wire.send(request, 12)
    wire.produce(name, batch(), partition=count - 1)
    told = waiting.take(waiting.wire.receive(request, 12))
    assert list(told) == [count - 1]
    assert offsets_of(told[count - 1].records) == [0]
    waiting.wire.close()


def test_a_long_poll_that_was_overtaken_says_so_and_the_one_behind_it_is_woken(
    wire: Wire, two: tuple[str, bytes], one_broker: RunningCluster
) -> None:
    first = Client(Wire(*wire.socket.getpeername()), two[0])
    first.ask([(0, 0), (1, 0)])
    second = Client(Wire(*wire.socket.getpeername()), two[0])
    second.session_id, second.epoch = first.session_id, 2
    waits = first.request(max_wait_ms=500)
    first.wire.send(waits, 12)
    sessions = one_broker.cluster.nodes[1].broker.fetch_sessions
    session = sessions.get(first.session_id)
    assert session is not None

    async def go_on(_: Cluster) -> None:
        await asyncio.sleep(0)

    while session.epoch < 2:
        one_broker.run(go_on)
    behind = second.request(max_wait_ms=30_000)
    second.wire.send(behind, 12)
    overtaken = first.wire.receive(waits, 12)
    assert (overtaken.error_code, overtaken.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    assert overtaken.session_id == first.session_id
    wire.produce(two[0], batch())
    assert list(second.take(second.wire.receive(behind, 12))) == [0]
    first.wire.close()
    second.wire.close()


def test_every_partition_is_the_first_one_in_its_turn(wire: Wire, topic: str) -> None:
    """KIP-74 with sessions: one that has given something goes to the end, though the request names none."""
    name = f"{topic}-fair"
    wire.create(name, partitions=3)
    for number in range(3):
        for _ in range(3):
            wire.produce(name, batch(body_bytes=1_000), partition=number)
    client = Client(wire, name)
    client.ask([(number, 0) for number in range(3)], max_bytes=1)
    positions = {0: 1, 1: 0, 2: 0}
    order = []
    for _ in range(6):
        given = {number: row for number, row in client.ask(list(positions.items()), max_bytes=1).items() if row.records}
        assert len(given) == 1
        (number,) = given
        positions[number] += 1
        order.append(number)
    # The first request, a full one, gave something of 0 and made the order: 0 is the first once more.
    assert order == [0, 1, 2, 0, 1, 2]


def test_a_topic_that_was_made_anew_is_not_the_one_of_the_session(wire: Wire, topic: str) -> None:
    name = f"{topic}-anew"
    topic_id = wire.create(name)
    client = Client(wire, name, 13, topic_id)
    client.ask([(0, 0)])
    delete(wire, name)
    wire.create(name)
    response = wire.ask(client.request(), 13)
    assert response.responses[0].topic_id == topic_id
    assert client.take(response)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_nothing_of_a_session_stays_behind(wire: Wire, topic: str, one_broker: RunningCluster) -> None:
    node = one_broker.cluster.nodes[1]
    sessions, waiters = node.broker.fetch_sessions, node.partitions.waiting.fetches
    before = len(sessions), sessions.size_bytes, len(waiters)
    client = Client(wire, topic)
    client.ask([(0, 0)])
    client.ask(max_wait_ms=1)
    assert len(waiters) == before[2] + 1, "it waits for news between two requests"
    client.epoch = -1
    client.ask([(0, 0)])
    assert (len(sessions), sessions.size_bytes, len(waiters)) == before


async def read_through_the_end_of_its_sessions(wire: Wire, topic: str, one_broker: RunningCluster) -> None:
    """Let our consumer read two records; between them the broker forgets all sessions."""
    host, port = wire.socket.getpeername()
    sessions = one_broker.cluster.nodes[1].broker.fetch_sessions

    async def forget(_: Cluster) -> None:
        for session in list(sessions._sessions.values()):
            sessions.end(session)

    name = f"{topic}-many"
    wire.create(name, partitions=PARTITIONS_MIN)
    consumer = Consumer(f"{host}:{port}", topics=[name], auto_offset_reset="earliest", fetch_max_wait_s=0.02)
    async with consumer:
        for offset in range(2):
            wire.produce(name, batch())
            assert (await anext(consumer)).offset == offset
            one_broker.run(forget)


async def test_our_consumer_reads_in_sessions_and_goes_on_when_they_are_gone(
    wire: Wire, topic: str, one_broker: RunningCluster
) -> None:
    sessions = one_broker.cluster.nodes[1].broker.fetch_sessions
    before = sessions.opened_count
    await read_through_the_end_of_its_sessions(wire, topic, one_broker)
    assert sessions.opened_count >= before + 2


async def test_our_consumer_reads_where_there_is_no_room_for_sessions(
    wire: Wire, topic: str, one_broker: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = one_broker.cluster.nodes[1].broker.fetch_sessions
    monkeypatch.setattr(sessions, "slots_max", 0)
    before = sessions.opened_count
    await read_through_the_end_of_its_sessions(wire, topic, one_broker)
    assert sessions.opened_count == before


def delete(wire: Wire, name: str) -> None:
    answer = wire.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
    assert answer.responses[0].error_code == ErrorCode.NONE
