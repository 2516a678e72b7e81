"""Fetch and the offset lookups, over a real socket."""

import asyncio

import pytest

from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire_client import Wire, batch, fetch_request, offsets_of


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_answered(wire: Wire, topic: str, version: int) -> None:
    topic_id = wire.create(f"{topic}-{version}")
    wire.produce(f"{topic}-{version}", batch())
    request = fetch_request("" if version >= 13 else f"{topic}-{version}", 0, topic_id=topic_id)
    response = wire.ask(request, version)
    assert response.session_id == response.error_code == 0
    result = response.responses[0].partitions[0]
    assert (result.error_code, result.high_watermark, result.preferred_read_replica) == (0, 1, -1)
    assert offsets_of(result.records) == [0]


def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch(wire: Wire, topic: str) -> None:
    for _ in range(3):
        wire.produce(topic, batch(5))
    assert offsets_of(wire.fetch(topic, 7).records) == [5, 10]


def test_the_first_batch_comes_whatever_its_size(wire: Wire, topic: str) -> None:
    for size in (5_000, 100, 100):
        wire.produce(topic, batch(body_bytes=size))
    assert offsets_of(wire.fetch(topic, 0, partition_max_bytes=1).records) == [0]
    assert offsets_of(wire.fetch(topic, 1, partition_max_bytes=170).records) == [1]


def test_max_bytes_bounds_the_response_but_not_its_first_batch(wire: Wire, topic: str) -> None:
    names = [f"{topic}-{i}" for i in range(3)]
    for name in names:
        wire.create(name)
        wire.produce(name, batch(body_bytes=1_000))
    topics = [FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1 << 20)]) for name in names]
    response = wire.ask(FetchRequest(max_bytes=10, topics=topics), 12)
    assert [bool(one.partitions[0].records) for one in response.responses] == [True, False, False]
    response = wire.ask(FetchRequest(max_bytes=2_500, topics=topics), 12)
    assert [bool(one.partitions[0].records) for one in response.responses] == [True, True, False]


def test_an_unconfirmed_leader_tells_no_high_watermark(wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may know an older one than its predecessor has told (seed 2139 of the simulator)."""
    wire.produce(topic, batch())
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "can_serve", False)
        result = wire.fetch(topic, 0)
    assert (result.error_code, result.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert not result.records
    assert wire.fetch(topic, 0).high_watermark == 1


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_an_unconfirmed_leader_lists_no_offset_and_says_so_as_the_version_can(
    wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch, version: int, code: ErrorCode
) -> None:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "can_serve", False)
        row = wire.ask(ListOffsetsRequest(topics=[asked]), version).topics[0].partitions[0]
    assert (row.error_code, row.offset) == (code, -1)


def test_offsets_outside_the_log_are_out_of_range(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch())
    assert wire.fetch(topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire.fetch(topic, -1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (wire.fetch(topic, 1).error_code, bytes(wire.fetch(topic, 1).records)) == (0, b"")


def test_a_fetch_waits_for_the_next_batch(wire: Wire, topic: str) -> None:
    waiting = Wire(*wire.socket.getpeername())
    request = fetch_request(topic, 0, max_wait_ms=30_000)
    waiting.send(request, 12)
    wire.produce(topic, batch())
    result = waiting.receive(request, 12).responses[0].partitions[0]
    assert offsets_of(result.records) == [0]
    waiting.close()


def test_min_bytes_is_waited_for(wire: Wire, topic: str) -> None:
    waiting = Wire(*wire.socket.getpeername())
    request = fetch_request(topic, 0, max_wait_ms=30_000, min_bytes=200)
    waiting.send(request, 12)
    for _ in range(3):  # 81 bytes each
        wire.produce(topic, batch())
    result = waiting.receive(request, 12).responses[0].partitions[0]
    assert offsets_of(result.records) == [0, 1, 2]
    waiting.close()


def test_max_wait_ends_in_an_empty_answer(wire: Wire, topic: str) -> None:
    result = wire.fetch(topic, 0, max_wait_ms=1)
    assert (result.error_code, bytes(result.records)) == (0, b"")


def test_a_fetch_behind_a_parked_one_is_answered_after_it(wire: Wire, topic: str) -> None:
    waiting = Wire(*wire.socket.getpeername())
    first = fetch_request(topic, 0, max_wait_ms=30_000)
    second = fetch_request(topic, 1)
    waiting.send(first, 12)
    waiting.send(second, 12)
    wire.produce(topic, batch())
    assert offsets_of(waiting.receive(first, 12).responses[0].partitions[0].records) == [0]
    assert not waiting.receive(second, 12).responses[0].partitions[0].records
    waiting.close()


def test_a_parked_fetch_goes_with_its_connection(wire: Wire, topic: str, one_broker: RunningCluster) -> None:
    waiting = Wire(*wire.socket.getpeername())
    waiters = one_broker.cluster.nodes[1].partitions.waiting.fetches
    before = len(waiters)

    async def go_on(_: Cluster) -> None:
        await asyncio.sleep(0)

    waiting.send(fetch_request(topic, 0, max_wait_ms=600_000), 12)
    while len(waiters) == before:
        one_broker.run(go_on)
    waiting.close()
    while len(waiters) > before:
        one_broker.run(go_on)


def test_deleting_a_topic_answers_its_parked_fetches(wire: Wire, topic: str, one_broker: RunningCluster) -> None:
    waiting = Wire(*wire.socket.getpeername())
    request = fetch_request(topic, 0, max_wait_ms=30_000)
    waiting.send(request, 12)

    async def delete(cluster: Cluster) -> None:
        await cluster.nodes[1].metadata.delete_topics([topic], [], 10)

    one_broker.run(delete)
    result = waiting.receive(request, 12).responses[0].partitions[0]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    waiting.close()


def test_unknown_topics_are_said_by_name_and_by_id(wire: Wire) -> None:
    assert wire.fetch("absent", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = wire.ask(fetch_request("", 0, topic_id=b"y" * 16), 13)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_fenced(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch())
    assert wire.fetch(topic, 0, current_leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert wire.fetch(topic, 0, current_leader_epoch=99).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert wire.fetch(topic, 0, current_leader_epoch=1).error_code == ErrorCode.NONE


def test_an_epoch_that_ended_earlier_here_gets_the_diverging_epoch(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(3))
    result = wire.fetch(topic, 3, last_fetched_epoch=9)
    assert (result.error_code, result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (0, 1, 3)
    assert not result.records
    assert wire.fetch(topic, 3, last_fetched_epoch=1).diverging_epoch.epoch == -1


@pytest.mark.parametrize("version", [12, 16])
def test_outsiders_do_not_fetch_as_replicas(wire: Wire, topic: str, version: int) -> None:
    request = fetch_request(topic, 0)
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=1, replica_epoch=0)
    else:
        request.replica_id = 1
    result = wire.ask(request, version).responses[0].partitions[0]
    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_what_has_left_memory_is_read_from_disk() -> None:
    with RunningCluster(1, settings={"log.tail.cache.bytes": 1 << 20}) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create("cold")
        for _ in range(40):
            wire.produce("cold", batch(body_bytes=100_000))
        offset = 0
        while offset < 40:
            found = offsets_of(wire.fetch("cold", offset, max_wait_ms=100).records)
            assert found[0] == offset
            offset = found[-1] + 1
        assert running.cluster.nodes[1].storage.stats.cold_reads > 0
        # A parked fetch behind it still works: nothing holds the connection back.
        request = fetch_request("cold", 40, max_wait_ms=30_000)
        wire.send(request, 12)
        other = Wire("127.0.0.1", running.cluster.nodes[1].port)
        other.produce("cold", batch())
        assert offsets_of(wire.receive(request, 12).responses[0].partitions[0].records) == [40]
        wire.close()
        other.close()


def test_status_tells_who_fetched_what(wire: Wire, topic: str, one_broker: RunningCluster) -> None:
    for _ in range(3):
        wire.produce(topic, batch(2))
    for offset in (0, 4, 2):
        wire.fetch(topic, offset, partition_max_bytes=1)
    reader = next(one for one in one_broker.cluster.nodes[1].status()["fetches"] if one["topic"] == topic)
    assert (reader["client_id"], reader["requests"], reader["ranges"]) == ("test", 3, [[0, 6]])


def list_offset(wire: Wire, topic: str, timestamp: int, version: int = 11, epoch: int = -1) -> tuple[int, int, int]:
    partition = ListOffsetsPartition(timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    result = wire.ask(request, version).topics[0].partitions[0]
    return result.error_code, result.offset, result.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_answers_every_version(wire: Wire, topic: str, version: int) -> None:
    assert list_offset(wire, topic, -1, version) == (0, 0, -1)


def test_list_offsets_by_name_and_by_time(wire: Wire, topic: str) -> None:
    for timestamp in (1_000, 3_000, 2_000):
        wire.produce(topic, batch(2, timestamp=timestamp))
    assert list_offset(wire, topic, -1) == (0, 6, -1)
    assert list_offset(wire, topic, -2) == (0, 0, -1)
    assert list_offset(wire, topic, -4) == (0, 0, -1)
    assert list_offset(wire, topic, -5) == (0, -1, -1)
    assert list_offset(wire, topic, 9_000) == (0, -1, -1)
    assert list_offset(wire, topic, -7)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(wire, topic, -3, 6)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(wire, topic, -1, epoch=0)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert list_offset(wire, "absent", -1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch(wire: Wire, topic: str, version: int) -> None:
    wire.produce(topic, batch(4))
    for epoch, expected in ((1, (1, 4)), (5, (1, 4)), (0, (-1, -1))):
        asked = OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(leader_epoch=epoch)])
        result = wire.ask(OffsetForLeaderEpochRequest(topics=[asked]), version).topics[0].partitions[0]
        assert result.error_code == ErrorCode.NONE
        assert (result.leader_epoch, result.end_offset) == expected
