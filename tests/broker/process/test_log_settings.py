"""The log as it is configured: JSON lines, a file that is put aside, requests where they are wanted."""

import contextlib
import errno
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.wire_client import Wire
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.process import log_lines
from barnabas_broker.process.log_lines import JsonFormatter, LineFormatter, RotatingFile
from barnabas_broker.server import request_log
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.request_log import LINES_PER_SECOND, LINES_PER_TENTH, LoggedExchange, RequestLog
from barnabas_broker.status.events import EventHistory
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.api_versions import ApiVersionsRequest


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[logging.LogRecord]]:
    """What this project logs, at every level."""
    found: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    logger = logging.getLogger("barnabas_broker")
    handler = Kept()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield found
    logger.setLevel(level)
    logger.removeHandler(handler)


def as_json(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert line.isascii()
    found: dict[str, Any] = json.loads(line)
    return found


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 4_000_000_000_999))
@settings(max_examples=50)
def test_a_message_is_one_object_on_one_line(name: str, text: str, at_ms: int) -> None:
    record = logging.LogRecord(name, logging.WARNING, "file", 1, "%s", (text,), None)
    record.created = at_ms / 1000
    record.msecs = float(at_ms % 1000)
    found = as_json(record)
    assert (found["logger"], found["level"], found["message"]) == (name, "WARNING", text)
    assert found["time"].endswith(f".{at_ms % 1000:03d}Z")


def test_a_traceback_stands_in_its_object_and_fields_replace_none_of_ours() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    about = (caught.type, caught.value, caught.tb)
    record = logging.LogRecord("x", logging.ERROR, "file", 1, "failed", (), about)
    record.fields = {"level": "forged", "api": "Fetch v16"}
    found = as_json(record)
    assert found["traceback"].endswith("ZeroDivisionError: integer division or modulo by zero")
    assert (found["level"], found["api"]) == ("ERROR", "Fetch v16")


def test_an_event_has_its_fields_as_json_and_is_one_line_as_text(records: list[logging.LogRecord]) -> None:
    EventHistory(lambda: 7).add("peer silent", "links", "node 3: no fresh datagram")
    (record,) = records
    found = as_json(record)
    assert (found["event"], found["subject"], found["cause"]) == ("peer silent", "links", "node 3: no fresh datagram")
    assert LineFormatter("%(message)s").format(record) == "links: peer silent: node 3: no fresh datagram"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_file_that_has_grown_is_put_aside_and_so_many_are_kept(tmp_path: Path, count: int) -> None:
    file = RotatingFile(tmp_path / "broker.log", 100, count)
    lines = [f"{number:03d} {'x' * 60}" for number in range(12)]
    for line in lines:
        file.handle(logging.LogRecord("x", logging.INFO, "file", 1, line, (), None))
    file.close()
    names = ["broker.log", *(f"broker.log.{number}" for number in range(1, count + 1))]
    assert {one.name for one in tmp_path.iterdir()} == set(names)
    kept = "".join((tmp_path / name).read_text() for name in reversed(names)).splitlines()
    assert kept == lines[len(lines) - 2 * count :] if count else kept == []


def test_standard_error_moves_along_if_it_is_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "broker.log"
    other = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    monkeypatch.setattr(log_lines, "STDERR", other)
    file = RotatingFile(path, 10, 1)
    file.handle(logging.LogRecord("x", logging.INFO, "file", 1, "more than ten bytes", (), None))
    os.write(other, b"last words\n")
    os.close(other)
    file.close()
    assert path.read_text() == "last words\n"
    assert (tmp_path / "broker.log.1").read_text() == "more than ten bytes\n"


def test_a_file_that_cannot_be_put_aside_is_written_on(tmp_path: Path) -> None:
    (tmp_path / "broker.log.1").mkdir()
    (tmp_path / "broker.log.1" / "in the way").touch()
    file = RotatingFile(tmp_path / "broker.log", 10, 1)
    for _ in range(2):
        file.handle(logging.LogRecord("x", logging.INFO, "file", 1, "more than ten bytes", (), None))
    file.close()
    assert (tmp_path / "broker.log").read_text() == "more than ten bytes\n" * 2


def test_a_file_for_whose_successor_there_is_no_room_drives_none_of_the_older_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "more than ten bytes"
    file = RotatingFile(tmp_path / "broker.log", 10, 2)

    def write() -> None:
        file.handle(logging.LogRecord("x", logging.INFO, "file", 1, line, (), None))

    write()
    write()

    def full(_: Path) -> Any:
        raise OSError(errno.ENOSPC, "no room")

    opened = log_lines._opened
    monkeypatch.setattr(log_lines, "_opened", full)
    for _ in range(5):
        write()
    names = ["broker.log", "broker.log.1", "broker.log.2"]
    texts = [(tmp_path / name).read_text() for name in names]
    assert texts == [f"{line}\n" * 5, f"{line}\n", f"{line}\n"]
    monkeypatch.setattr(log_lines, "_opened", opened)
    write()
    file.close()
    assert {one.name for one in tmp_path.iterdir()} == set(names)
    assert (tmp_path / "broker.log.1").read_text() == f"{line}\n" * 6


def test_a_file_that_half_succeeds_to_be_put_aside_drives_older_ones_out_no_faster(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    file = RotatingFile(path, 100, 3)
    (tmp_path / "broker.log.2").write_text("old")
    (tmp_path / "broker.log.3").mkdir()
    (tmp_path / "broker.log.3" / "in the way").touch()
    tries: list[None] = []
    rotate = file._rotate

    def counted() -> None:
        tries.append(None)
        rotate()

    file._rotate = counted  # type: ignore[method-assign]
    for _ in range(30):
        file.handle(logging.LogRecord("x", logging.INFO, "file", 1, "nine byte", (), None))
    file.close()
    assert (len(path.read_text()), len(tries)) == (300, 2)
    assert (tmp_path / "broker.log.2").read_text() == "old"


def test_a_file_that_nobody_keeps_is_freed_by_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[tuple[int, int]] = []
    monkeypatch.setattr(log_lines, "_close_elsewhere", lambda held: freed.append((held, os.fstat(held).st_nlink)))
    file = RotatingFile(tmp_path / "broker.log", 10, 1)
    for _ in range(3):
        file.handle(logging.LogRecord("x", logging.INFO, "file", 1, "more than ten bytes", (), None))
    file.close()
    assert [links for _, links in freed] == [0, 0], "it has no name any more, and is there as long as it is open"
    monkeypatch.undo()
    for held, _ in freed:
        log_lines._close_elsewhere(held)
    for thread in threading.enumerate():
        if thread.name == "old log":
            thread.join()
    for held, _ in freed:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(held)


def test_a_line_for_which_there_is_no_room_is_lost_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    file = RotatingFile(Path("/dev/full"), 10, 1)
    file.handle(logging.LogRecord("x", logging.INFO, "file", 1, "a line", (), None))
    with contextlib.suppress(OSError):
        file.close()
    assert capsys.readouterr().err == ""


def test_a_traceback_is_no_longer_than_somebody_reads() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        raise ValueError("x" * 1_000_000)
    about = (caught.type, caught.value, caught.tb)
    line = JsonFormatter().format(logging.LogRecord("x", logging.ERROR, "file", 1, "failed", (), about))
    assert len(line) < 2 * log_lines.TRACEBACK_CHARACTERS_MAX


def test_what_a_client_is_stands_in_the_log_once_however_often_it_says_so(records: list[logging.LogRecord]) -> None:
    with RunningCluster(1) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        for number in range(5):
            wire.ask(ApiVersionsRequest(client_software_name=f"n{number}", client_software_version="1"), 3)
        wire.close()
    lines = [record.getMessage() for record in records if record.msg == "client %s is %s"]
    assert len(lines) == 1
    assert lines[0].endswith(" is n0 1")


def test_requests_are_logged_with_client_and_time_where_that_is_wanted(records: list[logging.LogRecord]) -> None:
    assert request_log.is_wanted()
    with RunningCluster(1) as running:
        node = running.cluster.nodes[1]
        wire = Wire("127.0.0.1", node.port)
        wire.ask(ApiVersionsRequest(client_software_name="probe", client_software_version="7"), 3)
        wire.close()
    (line,) = [as_json(one) for one in records if one.name == request_log.__name__]
    assert (line["api"], line["client_id"]) == ("ApiVersions v3", "test")
    assert line["client"].startswith("127.0.0.1:")
    assert line["client"].endswith(" (probe 7)")
    assert line["took_ms"] >= 0
    assert "bytes asked" in line["message"]
    said = [one.getMessage() for one in records if one.name.endswith(".connections")]
    assert said[0].endswith(" on PLAINTEXT")
    assert said[-1].endswith(" has ended")


def test_no_exchange_knows_of_the_log_where_nobody_wants_it() -> None:
    with RunningCluster(1) as running:
        assert running.cluster.nodes[1].listener.new_exchange is Exchange


def test_a_second_has_so_many_lines_and_the_next_says_how_many_were_left_out(
    records: list[logging.LogRecord],
) -> None:
    now_ns = [5_000_000_000]
    log = RequestLog(lambda: now_ns[0])
    connection: Any = "a client"
    exchange = LoggedExchange(connection, bytearray(8), log, now_ns[0])
    exchange.api_key, exchange.version, exchange.client_id = 18, 3, "x\nforged"
    for number in range(LINES_PER_SECOND + 3):
        now_ns[0] = 5_000_000_000 + number * 4_000_000
        log.add(exchange, now_ns[0] - 500_000_000, 8, 9)
    assert len(records) == LINES_PER_SECOND
    expected = r"ApiVersions v3 from a client as x\nforged: 8 bytes asked, 9 answered, took 500.0 ms"
    assert records[0].getMessage() == expected
    now_ns[0] = 6_000_000_000
    log.add(exchange, 5_500_000_000, 8, 9)
    assert records[-2].getMessage() == "3 more requests, too many for a line each"


def test_a_callback_that_answers_hundreds_of_requests_writes_few_lines(records: list[logging.LogRecord]) -> None:
    now_ns = [5_000_000_000]
    log = RequestLog(lambda: now_ns[0])
    connection: Any = "a client"
    exchange = LoggedExchange(connection, bytearray(8), log, now_ns[0])
    for _ in range(LINES_PER_SECOND):
        log.add(exchange, now_ns[0], 8, 9)
    assert len(records) == LINES_PER_TENTH
    now_ns[0] += 100_000_000
    log.add(exchange, now_ns[0], 8, 9)
    assert len(records) == LINES_PER_TENTH + 1
