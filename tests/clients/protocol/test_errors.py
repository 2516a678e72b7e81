"""Codes and retriability are Kafka's; every code becomes an exception that says which it was."""

from kio.schema.errors import ErrorCode as KioErrorCode

from barnabas_clients.protocol.error_codes import RETRIABLE, STALE_METADATA, ErrorCode
from barnabas_clients.protocol.errors import KafkaError, NotLeaderOrFollowerError, error_for


def test_codes_are_those_of_kio_and_what_kafka_4_4_added() -> None:
    newer = {
        "GROUP_DELETION_FAILED": 134,
        "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED": 135,
        "CONTROLLER_ID_NOT_REGISTERED": 136,
    }
    older = {code.name.upper(): int(code) for code in KioErrorCode}
    assert {code.name: code.value for code in ErrorCode} == older | newer
    assert {code.value for code in RETRIABLE} == {int(code) for code in KioErrorCode if code.retriable}


def test_stale_metadata_is_always_worth_a_retry() -> None:
    assert STALE_METADATA <= RETRIABLE


def test_every_code_has_an_error() -> None:
    for code in set(ErrorCode) - {ErrorCode.NONE}:
        error = error_for(code, "topic-0")
        assert error.code is code
        assert str(error) == f"{code.name}: topic-0"
        assert error.retriable == (code in RETRIABLE)


def test_no_two_classes_share_a_code() -> None:
    codes = [kind.code for kind in KafkaError.__subclasses__()]
    assert len(codes) == len(set(codes))


def test_common_codes_have_classes_of_their_own() -> None:
    error = error_for(6)
    assert isinstance(error, NotLeaderOrFollowerError)
    assert error.code in STALE_METADATA
    assert str(error) == "NOT_LEADER_OR_FOLLOWER"


def test_a_code_from_the_future_is_an_unknown_server_error() -> None:
    error = error_for(9999, "topic-0")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not error.retriable
    assert str(error) == "UNKNOWN_SERVER_ERROR: error code 9999, topic-0"


def test_of_the_codes_alone_one_is_abortable_and_one_is_fenced() -> None:
    """The others that end a transaction mean one thing from a leader and another from a coordinator."""
    errors = [error_for(code) for code in set(ErrorCode) - {ErrorCode.NONE}]
    assert [error.code for error in errors if error.abortable] == [ErrorCode.TRANSACTION_ABORTABLE]
    assert [error.code for error in errors if error.fenced] == [ErrorCode.PRODUCER_FENCED]
    assert not any(error.retriable for error in errors if error.abortable or error.fenced)


def test_an_error_of_a_record_ends_the_transaction_as_that_of_its_batch_does() -> None:
    error = error_for(ErrorCode.INVALID_RECORD)
    error.record_errors = {1: "no key"}
    error.abortable = True
    assert error.of_record(0).abortable
    assert error.of_record(1).abortable
