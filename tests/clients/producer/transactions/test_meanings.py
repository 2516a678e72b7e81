"""Every error code of every API has the meaning that Kafka's producer gives it, but for the differences listed."""

import pytest

from barnabas_clients.producer.transactions.meanings import Meaning, deciding, meaning_of, meaning_of_refused_write
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.wire.schema import Message

COORDINATOR_MOVED = "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR"
FENCED = "INVALID_PRODUCER_EPOCH PRODUCER_FENCED"
# What the TransactionManager of Kafka 4 does with each code; the rest is AGAIN if it is retriable, else what "*" says.
KAFKAS: dict[type[Message], dict[Meaning, str]] = {
    FindCoordinatorRequest: {Meaning.ABORTABLE: "GROUP_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE", Meaning.FATAL: "*"},
    InitProducerIdRequest: {
        Meaning.ELSEWHERE: COORDINATOR_MOVED,
        Meaning.FENCED: FENCED,
        Meaning.NOT_INITIALISED: (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE"
        ),
        Meaning.FATAL: "*",
    },
    AddPartitionsToTxnRequest: {
        Meaning.ELSEWHERE: COORDINATOR_MOVED,
        Meaning.FENCED: FENCED,
        Meaning.FATAL: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED INVALID_TXN_STATE",
        Meaning.NEW_EPOCH: "UNKNOWN_PRODUCER_ID",
        Meaning.NO_END: "INVALID_PRODUCER_ID_MAPPING",
        Meaning.ABORTABLE: "*",
    },
    AddOffsetsToTxnRequest: {
        Meaning.ELSEWHERE: COORDINATOR_MOVED,
        Meaning.FENCED: FENCED,
        Meaning.NEW_EPOCH: "UNKNOWN_PRODUCER_ID",
        Meaning.NO_END: "INVALID_PRODUCER_ID_MAPPING",
        Meaning.ABORTABLE: "GROUP_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE",
        Meaning.FATAL: "*",
    },
    TxnOffsetCommitRequest: {
        Meaning.ELSEWHERE: f"{COORDINATOR_MOVED} REQUEST_TIMED_OUT",
        Meaning.FENCED: FENCED,
        Meaning.ABORTABLE: (
            "GROUP_AUTHORIZATION_FAILED FENCED_INSTANCE_ID TRANSACTION_ABORTABLE UNKNOWN_MEMBER_ID ILLEGAL_GENERATION"
        ),
        Meaning.FATAL: "*",
    },
    EndTxnRequest: {
        Meaning.ELSEWHERE: COORDINATOR_MOVED,
        Meaning.FENCED: FENCED,
        Meaning.NEW_EPOCH: "UNKNOWN_PRODUCER_ID",
        Meaning.NO_END: "INVALID_PRODUCER_ID_MAPPING",
        Meaning.ABORTABLE: "TRANSACTION_ABORTABLE",
        Meaning.FATAL: "*",
    },
}
# All of them are fatal for Kafka's producer. See meanings.py for why they are not for ours.
DIFFERENCES: dict[type[Message], dict[Meaning, str]] = {
    TxnOffsetCommitRequest: {
        Meaning.ABORTABLE: (
            "REBALANCE_IN_PROGRESS STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH INVALID_GROUP_ID GROUP_ID_NOT_FOUND"
            " TOPIC_AUTHORIZATION_FAILED OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE"
        ),
        Meaning.NEW_EPOCH: "UNKNOWN_PRODUCER_ID",
        Meaning.NO_END: "INVALID_PRODUCER_ID_MAPPING",
    },
    EndTxnRequest: {Meaning.NO_END: "INVALID_TXN_STATE"},
}
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def listed(rules: dict[Meaning, str], code: ErrorCode) -> Meaning | None:
    return next((meaning for meaning, names in rules.items() if code.name in names.split()), None)


@pytest.mark.parametrize("api", KAFKAS, ids=lambda api: api.__name__)
def test_every_code_means_what_it_means_to_kafkas_producer(api: type[Message]) -> None:
    rules = KAFKAS[api]
    default = next(meaning for meaning, names in rules.items() if names == "*")
    for code in set(ErrorCode) - {ErrorCode.NONE}:
        kafkas = listed(rules, code) or (Meaning.AGAIN if code in RETRIABLE else default)
        ours = listed(DIFFERENCES.get(api, {}), code)
        assert ours is None or kafkas is Meaning.FATAL
        assert meaning_of(api, code) is (ours or kafkas), code.name
    assert meaning_of(api, ErrorCode.NONE) is Meaning.DONE
    assert meaning_of(api, 9999) is default


@pytest.mark.parametrize("is_second", [False, True])
def test_a_refused_write_costs_the_transaction_and_seldom_more(is_second: bool) -> None:
    found = {code: meaning_of_refused_write(code, is_second=is_second) for code in set(ErrorCode) - {ErrorCode.NONE}}
    fatal = {code.name for code, meaning in found.items() if meaning is Meaning.FATAL}
    assert fatal == {
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
    }
    assert found[ErrorCode.PRODUCER_FENCED] is Meaning.FENCED
    assert found[ErrorCode.INVALID_PRODUCER_ID_MAPPING] is Meaning.NO_END
    assert found[ErrorCode.INVALID_PRODUCER_EPOCH] is (Meaning.ABORTABLE if is_second else Meaning.NO_END)
    mostly = Meaning.ABORTABLE if is_second else Meaning.NEW_EPOCH
    for code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.MESSAGE_TOO_LARGE):
        assert found[code] is mostly
    assert meaning_of_refused_write(None, is_second=is_second) is mostly


def test_the_worst_of_several_codes_decides() -> None:
    codes = {P0: 0, P1: ErrorCode.NOT_COORDINATOR, P2: ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert deciding(TxnOffsetCommitRequest, codes) == (P2, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert deciding(TxnOffsetCommitRequest, {P0: 0, P1: 0}) is None
    assert deciding(TxnOffsetCommitRequest, {}) is None


def test_a_partition_that_was_not_tried_says_nothing_beside_the_one_that_is_the_reason() -> None:
    """A topic that the coordinator does not know yet is worth a retry, whatever it says of the others."""
    not_tried = {P0: ErrorCode.OPERATION_NOT_ATTEMPTED, P2: ErrorCode.OPERATION_NOT_ATTEMPTED}
    unknown = {P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert deciding(AddPartitionsToTxnRequest, not_tried | unknown) == (P1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert deciding(AddPartitionsToTxnRequest, not_tried) == (P0, ErrorCode.OPERATION_NOT_ATTEMPTED)
