"""Of a batch that is refused, each record's delivery says whether it is the one to blame."""

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import InvalidRecordError, InvalidTimestampError, KafkaError, error_for


def refused(code: ErrorCode = ErrorCode.INVALID_RECORD) -> KafkaError:
    error = error_for(code, "t-0: 2 records are refused")
    error.record_errors = {3: "t-0: no key", 5: "t-0: no key either"}
    error.may_be_done = False
    return error


def test_the_record_that_is_named_hears_its_own_reason() -> None:
    error = refused().of_record(5)
    assert isinstance(error, InvalidRecordError)
    assert (error.reason, error.because_of_another) == ("t-0: no key either", False)
    assert "key" in error.hint
    assert error.may_be_done is False
    assert error.record_errors == {3: "t-0: no key", 5: "t-0: no key either"}


def test_the_others_hear_the_first_reason_and_may_be_sent_again() -> None:
    error = refused(ErrorCode.INVALID_TIMESTAMP).of_record(0)
    assert isinstance(error, InvalidTimestampError)
    assert error.because_of_another
    assert error.reason == "another record of its batch was refused: t-0: no key"
    assert error.hint == "send it again, without the record that was refused"


def test_where_no_record_is_named_all_have_the_same_error() -> None:
    error = error_for(ErrorCode.INVALID_RECORD, "t-0: bytes follow the last record")
    assert error.of_record(0) is error.of_record(7) is error
    assert not error.because_of_another
