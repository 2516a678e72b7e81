"""Every exported error says what went wrong, what to do, whether it may have happened, and whether to try again."""

import re
from pathlib import Path

import pytest

import barnabas_clients
from barnabas_clients import (
    BarnabasError,
    ClientError,
    ConnectionLostError,
    CorruptRecordsError,
    DeadlineExceededError,
    ErrorCode,
    KafkaError,
    LogTruncatedError,
    NoOffsetError,
    NotAssignedError,
    RecordsLostError,
    TopicAlreadyExistsError,
    TopicPartition,
)
from barnabas_clients.protocol.errors import error_for
from barnabas_clients.protocol.hints import HINTS, IN_DOUBT

ROOT = Path(__file__).parents[2]
T0 = TopicPartition("t", 0)
EXPORTED = [
    kind
    for name in barnabas_clients.__all__
    if isinstance(kind := getattr(barnabas_clients, name), type) and issubclass(kind, Exception)
]
MADE: dict[type[Exception], BarnabasError] = {
    ConnectionLostError: ConnectionLostError("b1:9092", "connection refused"),
    CorruptRecordsError: CorruptRecordsError(T0, 5, 6, "checksum"),
    LogTruncatedError: LogTruncatedError(T0, 5, 3),
    NoOffsetError: NoOffsetError(T0),
    NotAssignedError: NotAssignedError(T0),
    RecordsLostError: RecordsLostError(2, None),
}
BASES = {BarnabasError, ClientError, KafkaError}


def made(kind: type[Exception]) -> BarnabasError:
    found = MADE.get(kind) or kind("some words")
    assert isinstance(found, BarnabasError)
    return found


@pytest.mark.parametrize("kind", EXPORTED)
def test_every_error_explains_itself(kind: type[Exception]) -> None:
    error = made(kind)
    assert error.reason
    assert error.reason in str(error)
    assert error.retriable in {True, False}
    assert error.may_be_done in {True, False, None}
    assert error.hint or kind in BASES
    assert "\n" not in str(error) + error.hint + error.reason


@pytest.mark.parametrize("code", set(ErrorCode) - {ErrorCode.NONE})
def test_an_error_with_a_code_has_its_hint(code: ErrorCode) -> None:
    error = error_for(code, "t")
    assert (error.reason, error.hint) == ("t", HINTS.get(code, ""))
    assert error.may_be_done is (None if code in IN_DOUBT else False)
    assert error_for(code).reason


def test_examples() -> None:
    error = TopicAlreadyExistsError("orders")
    assert (str(error), error.reason) == ("TOPIC_ALREADY_EXISTS: orders", "orders")
    assert error.hint == "use another name, or the topic that is there"
    assert TopicAlreadyExistsError().reason == "topic already exists"
    lost = ConnectionLostError("b1:9092", "connection refused")
    assert (str(lost), lost.reason) == ("connection to b1:9092: connection refused", "connection refused")


def test_lost_records_may_be_written_if_the_first_of_them_may() -> None:
    assert RecordsLostError(2, DeadlineExceededError("late", may_be_done=True)).may_be_done is True
    assert RecordsLostError(2, DeadlineExceededError("late")).may_be_done is False


@pytest.mark.slow
def test_the_example_in_the_documents_prints_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "client-errors.md").read_text()
    source, output = re.findall(r"^```(?:python|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(source, "docs/client-errors.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page
    assert capsys.readouterr().out == output


def test_the_table_in_the_documents_has_every_exported_error_and_no_other() -> None:
    page = (ROOT / "docs" / "client-errors.md").read_text()
    rows = re.findall(r"^\| `(\w+Error)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(kind.__name__ for kind in EXPORTED)
