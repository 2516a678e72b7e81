"""Messages of transactions, byte by byte as Kafka's schemas have them; and what kio has no value for."""

from typing import Any

import pytest

from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas_clients.protocol.describe_producers import (
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersResponse,
    ProducerState,
)
from barnabas_clients.protocol.describe_transactions import DescribedTransaction, DescribeTransactionsResponse
from barnabas_clients.protocol.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_clients.protocol.list_transactions import ListTransactionsRequest
from barnabas_clients.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC_ID = bytes(range(16))
TOPICS = [AddPartitionsToTxnTopic(name="t", partitions=(0, 5))]
OUTCOMES = [
    AddPartitionsToTxnTopicResult(
        name="t",
        results_by_partition=[AddPartitionsToTxnPartitionResult(partition_index=5, partition_error_code=120)],
    )
]
COMMIT = TxnOffsetCommitRequest(
    transactional_id="tx",
    group_id="g",
    producer_id=7,
    producer_epoch=3,
    topics=[
        TxnOffsetCommitRequestTopic(
            name="t",
            topic_id=TOPIC_ID,
            partitions=[TxnOffsetCommitRequestPartition(partition_index=5, committed_offset=9)],
        )
    ],
)
MARKERS = WriteTxnMarkersRequest(
    markers=[
        WritableTxnMarker(
            producer_id=7,
            producer_epoch=4,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=(5,))],
            coordinator_epoch=11,
            transaction_version=2,
        )
    ]
)
PRODUCER = ProducerState(producer_id=7, producer_epoch=3, coordinator_epoch=-1, current_txn_start_offset=9)
ID = "00000000 00000007 0003"  # producer id 7, epoch 3
CASES: list[tuple[Any, int, str]] = [
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=3,
            v3_and_below_topics=TOPICS,
        ),
        0,
        f"0002 7478 {ID} 00000001 0001 74 00000002 00000000 00000005",
    ),
    (
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="tx", producer_id=7, producer_epoch=3, verify_only=True, topics=TOPICS
                )
            ]
        ),
        5,
        f"02 03 7478 {ID} 01 02 02 74 03 00000000 00000005 00 00 00",
    ),
    (
        AddPartitionsToTxnResponse(throttle_time_ms=1, results_by_topic_v3_and_below=OUTCOMES),
        3,
        "00000001 02 02 74 02 00000005 0078 00 00 00",
    ),
    (
        AddPartitionsToTxnResponse(
            error_code=31,
            results_by_transaction=[AddPartitionsToTxnResult(transactional_id="tx", topic_results=OUTCOMES)],
        ),
        4,
        "00000000 001f 02 03 7478 02 02 74 02 00000005 0078 00 00 00 00",
    ),
    (
        AddOffsetsToTxnRequest(transactional_id="tx", producer_id=7, producer_epoch=3, group_id="g"),
        4,
        f"03 7478 {ID} 02 67 00",
    ),
    (AddOffsetsToTxnResponse(error_code=51), 2, "00000000 0033"),
    (
        EndTxnRequest(transactional_id="tx", producer_id=7, producer_epoch=3, committed=True),
        2,
        f"0002 7478 {ID} 01",
    ),
    (EndTxnResponse(), 4, "00000000 0000 00"),
    (EndTxnResponse(error_code=90), 5, "00000000 005a ffffffff ffffffff ffff 00"),
    (MARKERS, 1, "02 00000000 00000007 0004 01 02 02 74 02 00000005 00 0000000b 00 00"),
    (MARKERS, 2, "02 00000000 00000007 0004 01 02 02 74 02 00000005 00 0000000b 02 00 00"),
    (COMMIT, 1, f"0002 7478 0001 67 {ID} 00000001 0001 74 00000001 00000005 00000000 00000009 0000"),
    (COMMIT, 2, f"0002 7478 0001 67 {ID} 00000001 0001 74 00000001 00000005 00000000 00000009 ffffffff 0000"),
    (
        COMMIT,
        5,
        f"03 7478 02 67 {ID} ffffffff 01 00 02 02 74 02 00000005 00000000 00000009 ffffffff 01 00 00 00",
    ),
    (
        COMMIT,
        6,
        f"03 7478 02 67 {ID} ffffffff 01 00 02 {TOPIC_ID.hex()} 02 00000005 00000000 00000009 ffffffff 01 00 00 00",
    ),
    (
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name="t",
                    topic_id=TOPIC_ID,
                    partitions=[TxnOffsetCommitResponsePartition(partition_index=5, error_code=100)],
                )
            ]
        ),
        6,
        f"00000000 02 {TOPIC_ID.hex()} 02 00000005 0064 00 00 00",
    ),
    (
        DescribeProducersResponse(
            topics=[
                DescribedProducersTopic(
                    name="t", partitions=[DescribedProducersPartition(partition_index=5, active_producers=[PRODUCER])]
                )
            ]
        ),
        0,
        (
            "00000000 02 02 74 02 00000005 0000 00 02"
            "00000000 00000007 00000003 ffffffff ffffffff ffffffff ffffffff 00000000 00000009 00 00 00 00"
        ),
    ),
    (
        DescribeTransactionsResponse(
            transaction_states=[
                DescribedTransaction(
                    transactional_id="tx",
                    transaction_state="Empty",
                    transaction_timeout_ms=60_000,
                    transaction_start_time_ms=-1,
                    producer_id=7,
                    producer_epoch=3,
                )
            ]
        ),
        0,
        f"00000000 02 0000 03 7478 06 456d707479 0000ea60 ffffffff ffffffff {ID} 01 00 00",
    ),
    (ListTransactionsRequest(state_filters=("Ongoing",)), 0, "02 08 4f6e676f696e67 01 00"),
    (ListTransactionsRequest(producer_id_filters=(7,)), 2, "01 02 00000000 00000007 ffffffff ffffffff 00 00"),
    (
        InitProducerIdRequest(
            transactional_id="tx", transaction_timeout_ms=60_000, enable_2pc=True, keep_prepared_txn=True
        ),
        6,
        "03 7478 0000ea60 ffffffff ffffffff ffff 01 01 00",
    ),
    (
        InitProducerIdResponse(producer_id=7, producer_epoch=3),
        6,
        f"00000000 0000 {ID} ffffffff ffffffff ffff 00",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "expected"), CASES, ids=lambda case: type(case).__name__ if not isinstance(case, str) else ""
)
def test_bytes_are_those_of_the_schema(message: Any, version: int, expected: str) -> None:
    assert message.to_bytes(version) == bytes.fromhex(expected)


def test_a_transaction_that_is_not_open_has_no_start() -> None:
    found = DescribedTransaction(transactional_id="tx", transaction_state="Empty", transaction_start_time_ms=-1)
    answer = DescribeTransactionsResponse(transaction_states=[found])
    assert DescribeTransactionsResponse.decode(answer.to_bytes(0), 0) == answer
