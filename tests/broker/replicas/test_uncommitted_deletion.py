"""Records that are on their way to a majority are deleted when they have got there."""

from collections.abc import Iterator

import pytest
from broker.live.test_three_brokers import Wires
from broker.partition.test_uncommitted_tail import fetched, uncommitted

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_clients.protocol.error_codes import ErrorCode


@pytest.fixture
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3) as cluster:
        yield cluster


def deletion(topic: str, offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    topics = [DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(offset=offset)])]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def test_records_are_deleted_up_to_the_end_of_the_log_once_they_are_committed(brokers: RunningCluster) -> None:
    """Behind a produce with acks=1 a client knows of records that are not committed yet."""
    wires = Wires(brokers)
    with uncommitted(brokers, wires, "deleted", batches=4, body_bytes=20) as tail:
        for offset, timeout_ms, code in (
            (tail.end + 1, 30_000, ErrorCode.OFFSET_OUT_OF_RANGE),
            (tail.end, 1, ErrorCode.REQUEST_TIMED_OUT),
        ):
            row = tail.leader.ask(deletion(tail.topic, offset, timeout_ms), 2).topics[0].partitions[0]
            assert (row.error_code, row.low_watermark) == (code, -1)
        waiting = deletion(tail.topic, tail.end - 1, 30_000)
        tail.leader.send(waiting, 2)
    row = tail.leader.receive(waiting, 2).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (ErrorCode.NONE, tail.end - 1)
    assert fetched(tail.leader, tail.topic, tail.end - 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(tail.leader, tail.topic, tail.end - 1).error_code == ErrorCode.NONE
    wires.close()
