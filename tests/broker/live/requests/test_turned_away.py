"""Batches behind one that was refused for a passing reason are refused, too."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Admin, Producer
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.log.errors import DiskFullError, StorageBusyError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.messages import Entry
from broker.wire_client import Wire, batch, offsets_of, produce_request

Refuse = Callable[[pytest.MonkeyPatch, Partition], None]


def pipelined(wire: Wire, topic: str, batches: list[bytes]) -> list[tuple[int, int]]:
    """Send all before the first is answered; return error code and base offset of each."""
    requests = [produce_request(topic, one) for one in batches]
    for request in requests:
        wire.send(request, 9)
    rows = [wire.receive(request, 9).responses[0].partition_responses[0] for request in requests]
    return [(row.error_code, row.base_offset) for row in rows]


def once(patched: pytest.MonkeyPatch, partition: Partition, name: str, error: Exception) -> None:
    """Let the next call of this method of the partition's group raise `error`."""
    original = getattr(RaftGroup, name)
    left = [error]

    def call(self: RaftGroup, *arguments: bytearray) -> Entry | None:
        if self is partition.group and left:
            raise left.pop()
        return original(self, *arguments)  # type: ignore[no-any-return]

    patched.setattr(RaftGroup, name, call)


def the_disk_is_busy(patched: pytest.MonkeyPatch, partition: Partition) -> None:
    once(patched, partition, "propose", StorageBusyError("268435457 bytes wait for the disk"))


def the_disk_is_full(patched: pytest.MonkeyPatch, partition: Partition) -> None:
    once(patched, partition, "propose", DiskFullError("no room"))


def the_leadership_is_handed_on(patched: pytest.MonkeyPatch, partition: Partition) -> None:
    once(patched, partition, "check_may_propose", NotLeaderError(2))


def a_replica_is_missing(patched: pytest.MonkeyPatch, partition: Partition) -> None:
    original = vars(Partition)["copies_in_sync"]
    left = [0]

    def copies(self: Partition) -> int:
        return left.pop() if self is partition and left else int(original.__get__(self))

    patched.setattr(Partition, "copies_in_sync", property(copies))


@pytest.mark.parametrize(
    ("refuse", "code"),
    [
        (the_disk_is_busy, ErrorCode.REQUEST_TIMED_OUT),
        (the_disk_is_full, ErrorCode.KAFKA_STORAGE_ERROR),
        (the_leadership_is_handed_on, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (a_replica_is_missing, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_comes_behind_a_refusal_that_passes_is_refused_for_the_same_reason(
    wire: Wire, topic: str, one_broker: RunningCluster, refuse: Refuse, code: ErrorCode
) -> None:
    partition = one_broker.cluster.nodes[1].partitions.topics[topic].partitions[0]
    wire.produce(topic, batch(producer_id=9, epoch=0, sequence=0))
    batches = [batch(producer_id=9, epoch=0, sequence=sequence) for sequence in (1, 2, 3)]
    with pytest.MonkeyPatch.context() as patched:
        refuse(patched, partition)
        assert pipelined(wire, topic, batches) == [(code, -1)] * 3
        # They come again, and whatever comes first, nothing is stored out of order.
        assert pipelined(wire, topic, batches[1:]) == [(code, -1)] * 2
        assert pipelined(wire, topic, batches) == [(0, 1), (0, 2), (0, 3)]
        out_of_order = batch(producer_id=9, epoch=0, sequence=5)
        assert pipelined(wire, topic, [out_of_order]) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert offsets_of(wire.fetch(topic, 0).records) == [0, 1, 2, 3]


def test_what_comes_behind_a_batch_that_is_too_large_is_out_of_order(wire: Wire, topic: str) -> None:
    """It need not come again: whoever sent it may cut it up, or leave it out, and must know of the gap."""
    name = f"{topic}-small"
    wire.create(name, max_message_bytes="200")
    batches = [
        batch(producer_id=9, epoch=0, sequence=0, body_bytes=300),
        batch(producer_id=9, epoch=0, sequence=1),
    ]
    codes = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert pipelined(wire, name, batches) == [(code, -1) for code in codes]


async def test_a_producer_gets_everything_stored_once_and_in_order_past_refusals_of_every_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 400
    refused = 0
    errors = [StorageBusyError("busy"), DiskFullError("full")]
    original = RaftGroup.propose

    def propose(self: RaftGroup, frame: bytearray) -> Entry:
        nonlocal refused
        log = cast("ReplicaLog", self.log)
        offset = log.log_end_offset
        if "refusing" in log.name and offset % 7 == 3 and offset not in seen:
            seen.add(offset)
            refused += 1
            raise errors[refused % 2]
        return original(self, frame)

    seen = set[int]()
    async with Cluster(1) as cluster, asyncio.timeout(60):
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("refusing", 1, 1)
        await cluster.wait_ready()
        monkeypatch.setattr(RaftGroup, "propose", propose)
        async with Producer(cluster.bootstrap, linger_s=0.0, batch_bytes=1_000) as producer:
            deliveries = [await producer.send("refusing", b"%d" % number * 50) for number in range(count)]
            offsets = [(await delivery).offset for delivery in deliveries]
        partition = cluster.nodes[1].partitions.topics["refusing"].partitions[0]
        assert offsets == list(range(count))
        assert (partition.log.log_end_offset, len(partition.producers)) == (count, 1)
        (producer_id,) = partition.producers.producer_ids()
        assert partition.producers.batches(producer_id)[-1].epoch == 0, "nobody was called out of order"
    assert refused > 5
