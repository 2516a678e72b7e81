"""Produce: what is refused and why, what acks mean, and idempotence, over a real socket."""

import gc
import logging
import struct
import time
from typing import Any
from unittest.mock import Mock

import pytest

from barnabas_broker.server.handlers import produce
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.produce import PartitionProduceData, PartitionProduceResponse
from barnabas_raftlog.errors import StorageFailedError
from broker.wire_client import Wire, batch, garbage, offsets_of, produce_request


def test_offsets_are_dense_from_0(wire: Wire, topic: str) -> None:
    assert [wire.produce(topic, batch(count)).base_offset for count in (1, 3, 2)] == [0, 1, 4]
    result = wire.fetch(topic, 0)
    assert result.high_watermark == result.last_stable_offset == 6
    assert offsets_of(result.records) == [0, 1, 4]


def test_an_answered_request_goes_without_a_garbage_collection(wire: Wire, topic: str) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            assert wire.produce(topic, batch()).error_code == ErrorCode.NONE
        left = sum(isinstance(known, produce._Produce) for known in gc.get_objects())
    finally:
        gc.enable()
    assert left < 5, "the last one may be on its way"


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_answered(wire: Wire, topic: str, version: int) -> None:
    topic_id = wire.create(f"{topic}-{version}")
    request = produce_request("" if version >= 13 else f"{topic}-{version}", batch(), topic_id=topic_id)
    response = wire.ask(request, version)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert response.responses[0].partition_responses[0].base_offset == 0


def _damaged(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (_damaged(batch(), 70), ErrorCode.CORRUPT_MESSAGE),
        (_damaged(batch(), 18), ErrorCode.CORRUPT_MESSAGE),
        (_damaged(batch(), 16), ErrorCode.CORRUPT_MESSAGE),  # magic 3
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:30], ErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), ErrorCode.INVALID_RECORD),  # two batches for one partition
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (batch(2, last_offset_delta=5), ErrorCode.INVALID_RECORD),
        (batch(3, body_bytes=20), ErrorCode.INVALID_RECORD),  # a record has seven bytes at least
        (batch(2**31 - 1, body_bytes=20), ErrorCode.INVALID_RECORD),
        (batch((128 << 20) // 7 + 1, attributes=1, body_bytes=20), ErrorCode.INVALID_RECORD),
        (batch(attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (batch(attributes=0x40), ErrorCode.INVALID_RECORD),
        (batch(attributes=-(2**15)), ErrorCode.INVALID_RECORD),
        (batch(timestamp=2**63 - 1), ErrorCode.INVALID_TIMESTAMP),
        (batch(producer_id=-2, epoch=0, sequence=0), ErrorCode.INVALID_RECORD),
        (batch(0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),  # would be a control frame of ours
        (batch(attributes=0x20), ErrorCode.INVALID_RECORD),
        (batch(attributes=0x10, producer_id=1, epoch=0, sequence=0), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (batch(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(body_bytes=1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(producer_id=1, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_appended(
    wire: Wire, topic: str, records: bytes | None, code: ErrorCode
) -> None:
    result = wire.produce(topic, records)
    assert result.error_code == code
    assert result.error_message
    assert wire.produce(topic, batch()).base_offset == 0


def test_zstd_needs_version_7(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch(attributes=4), version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert wire.produce(topic, batch(attributes=4), version=7).error_code == ErrorCode.NONE


def test_a_topic_has_its_own_size_limit(wire: Wire, topic: str) -> None:
    wire.create(f"{topic}-small", max_message_bytes="100")
    assert wire.produce(f"{topic}-small", batch(body_bytes=39)).error_code == ErrorCode.NONE
    assert wire.produce(f"{topic}-small", batch(body_bytes=40)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_unknown_partitions_and_acks_are_refused(wire: Wire, topic: str) -> None:
    assert wire.produce("absent", batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, batch(), partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, batch(), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    response = wire.ask(produce_request("", batch(), topic_id=b"x" * 16), 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("others_bytes", "is_copied"), [(1 << 20, True), (10_000, True), (100, False)])
def test_a_batch_that_is_kept_keeps_no_much_larger_request(
    wire: Wire, topic: str, one_broker: RunningCluster, others_bytes: int, is_copied: bool
) -> None:
    request = produce_request(topic, batch(body_bytes=1_000))
    refused = PartitionProduceData(index=77, records=batch(body_bytes=others_bytes))
    request.topic_data[0].partition_data.append(refused)
    first, second = wire.ask(request, 9).responses[0].partition_responses
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log: Any = one_broker.cluster.nodes[1].partitions.topics[topic].partitions[0].log
    kept = log.tail._frames[-1]
    assert (len(kept.obj) == len(kept)) == is_copied
    assert len(kept.obj) <= 2 * len(kept)
    assert wire.fetch(topic, 0).records == kept


def test_acks_0_is_not_answered(wire: Wire, topic: str) -> None:
    wire.send(produce_request(topic, batch(), acks=0), 9)
    assert wire.produce(topic, batch(), acks=1).base_offset == 1


def test_acks_0_with_an_error_closes_the_connection(wire: Wire, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        wire.send(produce_request(topic, b"garbage", acks=0), 9)
        assert wire.is_closed_by_peer()
    assert "produce with acks=0 failed" in caplog.text


def test_too_few_in_sync_replicas_refuse_acks_all_before_appending(wire: Wire, topic: str) -> None:
    wire.create(f"{topic}-two", min_insync_replicas="2")
    assert wire.produce(f"{topic}-two", batch()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert wire.produce(f"{topic}-two", batch(), acks=1).base_offset == 0


def test_an_operator_hears_once_that_too_few_replicas_are_in_sync(
    one_broker: RunningCluster, wire: Wire, topic: str
) -> None:
    name = f"{topic}-two"
    wire.create(name, min_insync_replicas="2")
    for _ in range(3):
        wire.produce(name, batch())
    events = [event for event in one_broker.cluster.nodes[1].events.to_list() if event["group"] == f"{name}-0"]
    assert [(event["kind"], event["cause"]) for event in events if event["kind"] == "acks=all refused"] == [
        ("acks=all refused", "in sync are [1], min.insync.replicas is 2")
    ]


class TestIdempotence:
    def test_a_repeated_batch_has_its_old_offset(self, wire: Wire, topic: str) -> None:
        first = batch(2, producer_id=7, epoch=0, sequence=0)
        assert wire.produce(topic, first).base_offset == 0
        assert wire.produce(topic, batch(producer_id=7, epoch=0, sequence=2)).base_offset == 2
        assert wire.produce(topic, first).base_offset == 0
        assert wire.fetch(topic, 0).high_watermark == 3

    def test_pipelined_repetition_is_recognised(self, wire: Wire, topic: str) -> None:
        request = produce_request(topic, batch(producer_id=7, epoch=0, sequence=0))
        for _ in range(3):
            wire.send(request, 9)
        results = [wire.receive(request, 9).responses[0].partition_responses[0] for _ in range(3)]
        assert [(r.error_code, r.base_offset) for r in results] == [(0, 0)] * 3

    def test_gaps_are_refused(self, wire: Wire, topic: str) -> None:
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.produce(topic, batch(producer_id=7, epoch=0, sequence=1)).error_code == code
        assert wire.produce(topic, batch(producer_id=7, epoch=0, sequence=0)).error_code == ErrorCode.NONE
        assert wire.produce(topic, batch(producer_id=7, epoch=0, sequence=2)).error_code == code
        assert wire.produce(topic, batch(producer_id=7, epoch=1, sequence=1)).error_code == code

    def test_old_epochs_are_fenced(self, wire: Wire, topic: str) -> None:
        assert wire.produce(topic, batch(producer_id=7, epoch=1, sequence=0)).error_code == ErrorCode.NONE
        result = wire.produce(topic, batch(producer_id=7, epoch=0, sequence=1))
        assert result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_for_a_replica_that_has_failed_is_told_so(
    wire: Wire, topic: str, one_broker: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = one_broker.cluster.nodes[1].partitions.topics[topic].partitions[0]
    with monkeypatch.context() as patched:
        patched.setattr(partition, "is_leader", False)
        patched.setattr(partition.group, "failed", StorageFailedError("a bit has flipped"))
        result = wire.produce(topic, batch())
    assert (result.error_code, result.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "a bit has flipped")


def test_a_client_that_is_gone_leaves_nobody_waiting_for_what_is_not_committed() -> None:
    forgotten: list[object] = []
    partition = Mock(forget=forgotten.append)
    request = produce._Produce(Mock(), Mock(is_answered=False), -1)
    open_one, answered = (produce._Wait(request, partition, PartitionProduceResponse()) for _ in range(2))
    for wait in (open_one, answered):
        request.add(wait)
    request.park(1_000)
    answered.on_committed()
    request._abandon()
    assert forgotten == [open_one]
    assert (open_one.is_closed, request.waits) == (True, [])


def test_garbage_closes_only_its_connection(wire: Wire, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    other = Wire(*wire.socket.getpeername())
    with caplog.at_level(logging.WARNING):
        other.socket.sendall(struct.pack(">ihhih", 40, 0, 9, 1, -1) + b"\xff" * 30)
        assert other.is_closed_by_peer()
    assert "malformed request" in caplog.text
    assert wire.produce(topic, batch()).error_code == ErrorCode.NONE
    other.close()


def test_what_a_batch_may_claim_at_most_is_taken(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch(3, body_bytes=21)).error_code == 0
    wire.create(f"{topic}-trusting", record_validation="none")
    claim = garbage((128 << 20) // 7, attributes=1, body_bytes=20)
    assert wire.produce(f"{topic}-trusting", claim).error_code == 0
    assert wire.produce(topic, claim).error_code == ErrorCode.INVALID_RECORD


def test_a_timestamp_may_be_ahead_by_what_the_topic_says(wire: Wire, topic: str) -> None:
    name = f"{topic}-strict"
    now_ms = int(time.time() * 1000)
    wire.create(name, message_timestamp_after_max_ms="60000")
    for ahead_ms, code in ((30_000, ErrorCode.NONE), (120_000, ErrorCode.INVALID_TIMESTAMP)):
        assert wire.produce(name, batch(timestamp=now_ms + ahead_ms)).error_code == code
        assert wire.produce(topic, batch(timestamp=now_ms + ahead_ms)).error_code == ErrorCode.NONE
