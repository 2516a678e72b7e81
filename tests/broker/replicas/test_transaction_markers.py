"""Markers for the partitions of one broker, with the log and the shards played by the test."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.partition.test_partition import FakeLog, lead, make
from broker.partition.test_partition_transactions import write

from barnabas_broker.partition.partition import Partition
from barnabas_broker.replicas import transaction_markers
from barnabas_broker.replicas.transaction_markers import VERSION, MarkersHere
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.errors import DiskFullError, StorageBusyError
from barnabas_raftlog.records.markers import EndMarker

PID = 5
OFFSETS = "__consumer_offsets"
NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


class Broker:
    """A broker that leads some partitions of `t`; `shard` notes what it is to end, and answers when the test does."""

    def __init__(self, count: int = 1, **fields: int) -> None:
        self.partitions = {index: make(FakeLog(), **fields)[0] for index in range(count)}
        for partition in self.partitions.values():
            lead(partition)
        self.topics = {"t": self.hosted(self.partitions)}
        self.shard: list[tuple[int, EndMarker, bool, Callable[[ErrorCode], None]]] = []
        self.markers = MarkersHere(
            cast("Any", SimpleNamespace(topics=self.topics)), {OFFSETS: lambda *what: self.shard.append(what)}
        )

    @staticmethod
    def hosted(partitions: dict[int, Partition], count: int | None = None) -> Any:
        count = len(partitions) if count is None else count
        return SimpleNamespace(topic=SimpleNamespace(partitions=[None] * count), partitions=partitions)

    def commit(self, index: int = 0) -> None:
        partition = self.partitions[index]
        partition.on_committed(partition.log.last_index)

    def ends(self, index: int = 0) -> int:
        return self.partitions[index].log.log_end_offset


def marker(
    *places: tuple[str, Sequence[int]],
    epoch: int = 1,
    is_commit: bool = True,
    coordinator_epoch: int = 1,
    version: int = 2,
    pid: int = PID,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=pid,
        producer_epoch=epoch,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in places],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], int]:
    return {
        (one.producer_id, topic.name, row.partition_index): row.error_code
        for one in response.markers
        for topic in one.topics
        for row in topic.partitions
    }


async def begun(broker: Broker, *markers: WritableTxnMarker) -> "asyncio.Task[WriteTxnMarkersResponse]":
    task = asyncio.ensure_future(broker.markers.write(WriteTxnMarkersRequest(markers=list(markers))))
    await asyncio.sleep(0)
    return task


async def code(broker: Broker, one: WritableTxnMarker) -> int:
    """Return the code of a marker for one place, when all is committed."""
    task = await begun(broker, one)
    for index in broker.partitions:
        broker.commit(index)
    ((_, found),) = codes(await task).items()
    return found


async def test_a_request_is_answered_when_the_last_of_its_markers_has_committed() -> None:
    broker = Broker(2)
    for partition in broker.partitions.values():
        write(partition, 0)
        write(partition, 0, pid=6)
    task = await begun(broker, marker(("t", (0, 1))), marker(("t", (1,)), pid=6, is_commit=False), marker())
    broker.commit(0)
    await asyncio.sleep(0)
    assert not task.done()
    assert broker.partitions[1].last_stable_offset == 0
    broker.commit(1)
    assert codes(await task) == {(5, "t", 0): 0, (5, "t", 1): 0, (6, "t", 1): 0}
    assert [partition.last_stable_offset for partition in broker.partitions.values()] == [2, 6]
    assert [one.producer_id for one in broker.partitions[1].aborted_between(0, 6)] == [6]


async def test_each_place_has_a_code_of_its_own() -> None:
    broker = Broker(1)
    broker.topics["elsewhere"] = Broker.hosted({}, 1)
    follower, _ = make(FakeLog())
    follower.on_leadership(1, 2, is_leader=False, confirmed=False)
    broker.topics["followed"] = Broker.hosted({0: follower})
    broker.topics["__transaction_state"] = Broker.hosted({0: broker.partitions[0]})
    task = await begun(
        broker,
        marker(("t", (0, 1, -1)), ("elsewhere", (0,)), ("followed", (0,)), ("nowhere", (0,))),
        marker(("t", (0,)), pid=-1),
        marker(("t", (0,)), pid=7, epoch=-1),
        marker(("__transaction_state", (0,)), pid=8),
    )
    broker.commit()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(await task) == {
        (5, "t", 0): NONE,
        (5, "t", 1): unknown,
        (5, "t", -1): unknown,
        (5, "elsewhere", 0): NOT_LEADER,
        (5, "followed", 0): NOT_LEADER,
        (5, "nowhere", 0): unknown,
        (-1, "t", 0): ErrorCode.INVALID_REQUEST,
        (7, "t", 0): ErrorCode.INVALID_REQUEST,
        (8, "__transaction_state", 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert broker.ends() == 1


async def test_a_marker_that_is_in_the_log_is_waited_for_and_not_written_again() -> None:
    broker = Broker()
    write(broker.partitions[0], 0)
    first = await begun(broker, marker(("t", (0,))))
    again = await begun(broker, marker(("t", (0,))))
    assert not again.done()
    broker.commit()
    assert list(codes(await first).values()) == list(codes(await again).values()) == [NONE]
    assert broker.ends() == 3
    # Committed long ago, it is answered at once.
    assert list(codes(await (await begun(broker, marker(("t", (0,)))))).values()) == [NONE]
    assert broker.ends() == 3


@pytest.mark.parametrize(("version", "expected"), [(2, ErrorCode.INVALID_PRODUCER_EPOCH), (1, NONE), (0, NONE)])
async def test_t5_a_marker_of_version_2_has_a_higher_epoch_than_what_it_ends(version: int, expected: int) -> None:
    broker = Broker()
    write(broker.partitions[0], 0, epoch=1)
    assert await code(broker, marker(("t", (0,)), epoch=1, version=version)) == expected
    assert await code(broker, marker(("t", (0,)), epoch=0, version=version)) == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_t6_a_marker_of_an_earlier_coordinator_is_fenced() -> None:
    broker = Broker()
    assert await code(broker, marker(("t", (0,)), coordinator_epoch=4)) == NONE
    write(broker.partitions[0], 0, epoch=1)
    fenced = marker(("t", (0,)), epoch=2, coordinator_epoch=3)
    assert await code(broker, fenced) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_t14_a_topic_that_was_made_anew_is_found_by_its_name() -> None:
    """Also if it was looked up before, for another transaction: what is gone is written to no more."""
    broker = Broker()
    assert await code(broker, marker(("t", (0,)), pid=8)) == NONE
    write(broker.partitions[0], 0)
    gone, before = broker.partitions[0], broker.ends()
    successor = Broker()
    broker.partitions = successor.partitions
    broker.topics["t"] = Broker.hosted(broker.partitions)
    assert await code(broker, marker(("t", (0,)))) == NONE
    assert broker.ends() == 1
    assert gone.log.log_end_offset == before


async def test_nothing_is_written_while_too_few_replicas_are_in_sync() -> None:
    broker = Broker(min_insync=2)
    broker.partitions[0].isr = (1,)
    assert await code(broker, marker(("t", (0,)))) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.ends() == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StorageBusyError("later"), ErrorCode.REQUEST_TIMED_OUT),
        (DiskFullError("no room"), ErrorCode.KAFKA_STORAGE_ERROR),
        (StorageFailedError("gone"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_a_disk_that_takes_nothing_is_tried_again(error: Exception, expected: int) -> None:
    broker = Broker()

    def refuse(_: object) -> None:
        raise error

    cast("Any", broker.partitions[0].group).propose = refuse
    assert await code(broker, marker(("t", (0,)))) == expected


async def test_a_leader_that_steps_down_does_not_know() -> None:
    broker = Broker()
    task = await begun(broker, marker(("t", (0,))))
    broker.partitions[0].on_leadership(2, 2, is_leader=False, confirmed=False)
    assert list(codes(await task).values()) == [NOT_LEADER]


@pytest.mark.parametrize(
    ("isr", "expected"),
    [((1, 2, 3), ErrorCode.REQUEST_TIMED_OUT), ((1,), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)],
)
async def test_what_does_not_commit_is_given_up(
    monkeypatch: pytest.MonkeyPatch, isr: tuple[int, ...], expected: int
) -> None:
    monkeypatch.setattr(transaction_markers, "WAIT_S", 0)
    broker = Broker(2, min_insync=2)
    for partition in broker.partitions.values():
        partition.isr = (1, 2, 3)
    broker.topics[OFFSETS] = Broker.hosted(broker.partitions)
    task = await begun(broker, marker(("t", (0, 1)), (OFFSETS, (0,))))
    broker.commit(1)
    broker.partitions[0].isr = isr
    assert codes(await task) == {
        (5, "t", 0): expected,
        (5, "t", 1): NONE,
        (5, OFFSETS, 0): ErrorCode.REQUEST_TIMED_OUT,
    }
    broker.commit(0)
    broker.shard[0][3](ErrorCode.NOT_COORDINATOR)
    assert codes(task.result())[5, "t", 0] == expected, "the answer is given"


async def test_cancelled_nobody_waits_any_more() -> None:
    broker = Broker()
    task = await begun(broker, marker(("t", (0,))))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (waiter,) = broker.partitions[0]._waiters.take_all()
    assert waiter.is_closed


async def test_what_a_shard_works_on_is_ended_by_it() -> None:
    broker = Broker()
    broker.topics[OFFSETS] = Broker.hosted(broker.partitions)
    errors = {
        NONE: NONE,
        ErrorCode.NOT_COORDINATOR: NOT_LEADER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: NOT_LEADER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: NOT_LEADER,
        ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
    for said, expected in errors.items():
        task = await begun(broker, marker((OFFSETS, (0,)), version=1))
        assert not task.done()
        (index, end, bumps_epoch, done) = broker.shard.pop()
        assert (index, end, bumps_epoch) == (0, EndMarker(PID, 1, True, 1), False)
        done(said)
        assert list(codes(await task).values()) == [expected]
    assert broker.ends() == 0, "only the shard writes there"


async def test_another_broker_asks_in_the_bytes_of_version_2() -> None:
    broker = Broker()
    request = WriteTxnMarkersRequest(markers=[marker(("t", (0,)))])
    answer = asyncio.ensure_future(broker.markers.answer(2, request.to_bytes(VERSION)))
    await asyncio.sleep(0)
    broker.commit()
    response = WriteTxnMarkersResponse.decode(await answer, VERSION)
    assert codes(response) == {(PID, "t", 0): NONE}


async def test_requests_of_brokers_are_carried_out_in_the_order_in_which_they_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link breaks, and its request is asked again over another: the first must not end the next transaction."""
    monkeypatch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    broker = Broker(2)
    write(broker.partitions[1], 0)
    first = WriteTxnMarkersRequest(markers=[marker(("nowhere", range(50)), ("t", (0, 1)), epoch=0, version=1)])
    again = WriteTxnMarkersRequest(markers=[marker(("t", (1,)), epoch=0, version=1)])
    tasks = [
        asyncio.ensure_future(broker.markers.answer(2, first.to_bytes(VERSION))),
        asyncio.ensure_future(broker.markers.answer(2, again.to_bytes(VERSION))),
        asyncio.ensure_future(broker.markers.write(again)),
    ]
    ends = []
    for _ in range(500):
        await asyncio.sleep(0)
        ends.append((broker.ends(0), broker.ends(1)))
    assert (0, 3) not in ends, "the first request is the first to write"
    assert broker.ends(1) == 3, "the others find that it is there"
    broker.commit(0)
    broker.commit(1)
    await asyncio.gather(*tasks)
    # One that is cancelled lets the next one go.
    stuck = asyncio.ensure_future(broker.markers.write(first))
    behind = asyncio.ensure_future(broker.markers.write(WriteTxnMarkersRequest()))
    await asyncio.sleep(0)
    stuck.cancel()
    await behind


async def test_a_request_that_names_very_many_partitions_lets_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    broker = Broker()
    task = await begun(broker, marker(("nowhere", range(200))))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 200
    assert len(codes(await task)) == 200
