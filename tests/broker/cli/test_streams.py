"""`barnabas produce` and `barnabas consume` against real brokers, in pipelines and by hand."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from .conftest import Run

pytestmark = pytest.mark.process

WAIT_S = 30.0
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(bootstrap: str) -> Iterator[Start]:
    """Start the command as a process; what is left of them at the end is killed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "BARNABAS_BOOTSTRAP_SERVER": bootstrap}
    started: list[subprocess.Popen[bytes]] = []

    def run(
        *arguments: object, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE
    ) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "barnabas_broker.cli.entry", *map(str, arguments)]
        started.append(
            subprocess.Popen(command, env=environment, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=False)
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    """Return what puts bytes into a file."""

    def write(content: bytes) -> Path:
        path = tmp_path / "input"
        path.write_bytes(content)
        return path

    return write


def lines(stream: IO[bytes] | None, count: int) -> list[bytes]:
    assert stream is not None
    return [stream.readline() for _ in range(count)]


Write = Callable[[bytes], Path]


def test_json_round_trips_through_two_topics(barnabas: Run, topic: str, write: Write) -> None:
    records: list[dict[str, Any]] = [
        {"key": "k", "value": "v", "headers": [["h", "x"], ["h", None], ["b", {"base64": "/w=="}]]},
        {"key": None, "value": None, "headers": []},
        {"key": {"base64": "/wA="}, "value": {"base64": "gA=="}, "headers": []},
        {"key": "", "value": "", "headers": []},
        {"key": "ключ", "value": 'a "quoted"\nline\u2028\x00', "headers": []},
    ]
    given = "".join(json.dumps(record | {"timestamp_ms": 5000 + i}) + "\n" for i, record in enumerate(records))
    both = ("--format", "json")
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        path = write(given.encode())
        barnabas("produce", topic, *both, "--partition", 0, "--file", path, "--compression", compression)
    out = barnabas("consume", topic, *both, "--from-beginning", "--exit-at-end")
    found = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [{"key": row["key"], "value": row["value"], "headers": row["headers"]} for row in found] == records * 5
    assert [(row["topic"], row["partition"], row["offset"], row["timestamp_ms"]) for row in found] == [
        (topic, 0, i, 5000 + i % 5) for i in range(25)
    ]
    # Written records can be read again, with their origin.
    barnabas("produce", topic, *both, "--keep-partitions", "--file", write(out.encode()))
    again = barnabas("consume", topic, *both, "--partition", 0, "--offset", 25, "--exit-at-end")
    assert [json.loads(line) | {"offset": i} for i, line in enumerate(again.split("\n")[:-1])] == found


def test_raw_lines_with_keys_headers_and_nulls(barnabas: Run, topic: str, write: Write) -> None:
    raw = ("--key-separator", r"\t", "--null", "NULL")
    path = write(b"a\tone\tmore\nNULL\tNULL\n\t\nb\tno newline at the end")
    barnabas("produce", topic, *raw, "--partition", 1, "--header", "from=test", "--file", path)
    read = ("consume", topic, "--from-beginning", "--exit-at-end")
    assert barnabas(*read) == "one\tmore\n\n\nno newline at the end\n"
    assert barnabas(*read, *raw, "--headers") == "".join(
        f"from:test\t{line}\n" for line in ("a\tone\tmore", "NULL\tNULL", "\t", "b\tno newline at the end")
    )
    form = "{topic}-{partition}@{offset} {key}={value} {{{headers}}}"
    assert barnabas(*read, "--format", form, "--max-records", 1) == f"{topic}-1@0 a=one\tmore {{from:test}}\n"


HOSTILE = b"a\tb\x1b[2J\x07\xff"


def on_terminal(start: Start, *words: object) -> tuple[bytes, bytes]:
    """Run a command whose output is a terminal; return what that is shown, and what is complained about."""
    keyboard, screen = pty.openpty()
    tty.setraw(screen)  # Or it would put a carriage return before each newline.
    command = start(*words, stdout=screen)
    os.close(screen)
    shown = b""
    # A terminal that nobody has open any more is an error to read, not an end.
    with contextlib.suppress(OSError), os.fdopen(keyboard, "rb", buffering=0) as terminal:
        while block := terminal.read(65_536):
            shown += block
    assert command.wait(WAIT_S) == 0
    assert command.stderr is not None
    return shown, command.stderr.read()


def test_a_terminal_is_shown_escapes_and_a_pipe_gets_every_byte(
    barnabas: Run, topic: str, write: Write, start: Start
) -> None:
    barnabas("produce", topic, "--key-separator", "=", "--partition", 0, "--file", write(HOSTILE + b"=" + HOSTILE))
    read = ("consume", topic, "--key-separator", "=", "--from-beginning", "--exit-at-end")
    seen = rb"a\tb\x1b[2J\x07\xff=a\tb\x1b[2J\x07\xff" + b"\n"
    bytes_ = HOSTILE + b"=" + HOSTILE + b"\n"
    assert on_terminal(start, *read) == (seen, b"")
    assert on_terminal(start, *read, "--no-escape") == (bytes_, b"")
    assert start(*read).communicate(timeout=WAIT_S) == (bytes_, b"")
    assert start(*read, "--escape").communicate(timeout=WAIT_S) == (seen, b"")


def test_reading_starts_where_it_is_told_to(barnabas: Run, topic: str, write: Write) -> None:
    given = [json.dumps({"value": str(i), "timestamp_ms": 1_700_000_000_000 + 1000 * i}) for i in range(10)]
    path = write("\n".join(given).encode())
    barnabas("produce", topic, "--format", "json", "--partition", 0, "--file", path)

    def values(*words: object) -> list[int]:
        return [int(line) for line in barnabas("consume", topic, *words, "--exit-at-end").split()]

    assert values("--from-beginning") == list(range(10))
    assert values() == []
    assert values("--from-time", "2023-11-14T22:13:27Z") == [7, 8, 9]
    assert values("--from-time", "1700000008001") == [9]
    assert values("--from-time", "1s") == []
    assert values("--offset", 4, "--partition", 0) == [4, 5, 6, 7, 8, 9]
    assert values("--offset", -2) == [8, 9]
    assert values("--partition", 1, "--from-beginning") == []
    assert values("--from-beginning", "--max-records", 3) == [0, 1, 2]
    assert barnabas("consume", topic, "--idle-exit", 0.1) == ""
    assert values("-p", 0, "-o", "3:5") == [3, 4]
    assert values("-o", "-3:-1") == [7, 8]
    assert values("-o", "+8", "-n", 1) == [8]
    assert values("-o", "@1700000002000:3s") == [2, 3, 4]
    assert values("-o", "@:@1700000001000") == [0]
    assert barnabas("consume", topic, "-o", ":end", "--idle-exit", "500ms").split() == [str(i) for i in range(10)]
    complaint = barnabas("consume", topic, "--partition", 0, "--offset", 11, status=1)
    assert f"{topic}-0 has the offsets from 0 to 10" in complaint


def test_a_group_goes_on_where_it_was(barnabas: Run, topic: str, group: str, write: Write) -> None:
    path = write(b"".join(b"%d\n" % i for i in range(10)))
    barnabas("produce", topic, "--partition", 0, "--file", path)
    member = ("consume", topic, "--group", group, "--from-beginning")
    assert barnabas(*member, "--max-records", 4).split() == ["0", "1", "2", "3"]
    assert barnabas(*member, "--max-records", 1).split() == ["4"]
    assert barnabas(*member, "--exit-at-end").split() == ["5", "6", "7", "8", "9"]
    found = json.loads(barnabas("group", "describe", group, "--json"))
    assert [(row["partition"], row["committed_offset"], row["lag"]) for row in found["partitions"]] == [
        (0, 10, 0),
        (1, 0, 0),
    ]
    barnabas("group", "reset-offsets", group, "--shift-by", -2, "--execute")
    assert barnabas(*member, "--exit-at-end").split() == ["8", "9"]
    barnabas("group", "delete", group)


def test_a_signal_ends_a_member_and_commits_what_it_wrote(
    barnabas: Run, topic: str, group: str, write: Write, start: Start
) -> None:
    barnabas("produce", topic, "--partition", 0, "--file", write(b"a\nb\nc\n"))
    member = start("consume", topic, "--group", group, "--from-beginning")
    assert lines(member.stdout, 3) == [b"a\n", b"b\n", b"c\n"]
    seen = json.loads(barnabas("group", "describe", group, "--json"))
    assert seen["state"] == "Stable"
    assert [(row["client_id"], len(row["assignment"])) for row in seen["members"]] == [("barnabas-cli", 2)]
    complaint = barnabas("group", "reset-offsets", group, "--to-latest", "--execute", status=1)
    assert f"the group {group!r} has members" in complaint
    assert complaint.endswith("[NON_EMPTY_GROUP]\n")
    assert "NON_EMPTY_GROUP" in barnabas("group", "delete", group, status=1)
    member.send_signal(signal.SIGINT)
    out, err = member.communicate(timeout=WAIT_S)
    assert (member.returncode, out, err) == (130, b"", b"")
    found = json.loads(barnabas("group", "describe", group, "--json"))
    assert (found["state"], found["members"]) == ("Empty", [])
    assert [row["committed_offset"] for row in found["partitions"]] == [3, 0]


def test_whoever_reads_the_output_may_leave(barnabas: Run, topic: str, write: Write, start: Start) -> None:
    """As `| head -1` does: while there is more to come, and while there is not."""
    barnabas("produce", topic, "--partition", 0, "--file", write(b"a\n" * 3))
    quiet = start("consume", topic, "--from-beginning")
    assert lines(quiet.stdout, 3) == [b"a\n"] * 3
    assert quiet.stdout is not None
    quiet.stdout.close()
    assert quiet.wait(WAIT_S) == 0
    assert quiet.stderr is not None
    assert quiet.stderr.read() == b""

    barnabas("produce", topic, "--partition", 1, "--file", write(b"b" * 999 + b"\n" + b"c\n" * 20_000))
    busy = start("consume", topic, "--partition", 1, "--from-beginning")
    lines(busy.stdout, 1)
    assert busy.stdout is not None
    busy.stdout.close()
    status = busy.wait(WAIT_S)
    assert busy.stderr is not None
    assert (status, busy.stderr.read()) == (0, b"")


@pytest.mark.parametrize("words", ["consume {topic} --from-beginning", "topic describe {topic}", "consume --help"])
def test_a_write_that_nobody_reads_ends_it_without_a_word(
    barnabas: Run, topic: str, write: Write, start: Start, words: str
) -> None:
    """A socket is not watched as a pipe is, so here it is always the write that fails."""
    barnabas("produce", topic, "--partition", 0, "--file", write(b"a\n"))
    output, reader = socket.socketpair()
    reader.close()
    with output:
        command = start(*words.format(topic=topic).split(), stdout=output.fileno())
    status = command.wait(WAIT_S)
    assert command.stderr is not None
    assert (status, command.stderr.read()) == (0, b"")


def test_records_flow_while_the_input_is_open(barnabas: Run, topic: str, start: Start) -> None:
    writer = start("produce", topic, "--partition", 0, stdin=subprocess.PIPE)
    assert writer.stdin is not None
    for number, line in enumerate((b"first\n", b"second\n", b"unfinished")):
        writer.stdin.write(line)
        writer.stdin.flush()
        if line.endswith(b"\n"):
            read = ("consume", topic, "--partition", 0, "--offset", number, "--max-records", 1)
            # The offset exists only once the record before it is there, and that has just been seen.
            assert barnabas(*read).encode() == line
    writer.send_signal(signal.SIGTERM)
    # Its input stays open until it has ended, or the end of that would race with the signal.
    assert writer.wait(WAIT_S) == 130
    assert writer.stderr is not None
    assert writer.stderr.read() == b"barnabas: interrupted; 2 records were delivered\n"
    assert barnabas("consume", topic, "--from-beginning", "--exit-at-end") == "first\nsecond\n"


def test_a_bad_line_ends_it_and_what_came_before_is_delivered(barnabas: Run, topic: str, write: Write) -> None:
    path = write(b'{"value":"a"}\n\n{"value":"b"}\n{"vlaue":"c"}\n{"value":"d"}\n')
    run = ("produce", topic, "--format", "json", "--partition", 0, "--file", path)
    assert barnabas(*run, status=1) == "barnabas: line 4: Object contains unknown field `vlaue`\n"
    assert barnabas("consume", topic, "--from-beginning", "--exit-at-end") == "a\nb\n"


def test_sizes_have_limits_that_can_be_raised(barnabas: Run, topic: str, write: Write) -> None:
    path = write(b"x" * 500_000 + b"\n")
    complaint = barnabas("produce", topic, "--max-request-size", 100_000, "--file", path, status=1)
    assert complaint.startswith("barnabas: line 1: MESSAGE_TOO_LARGE")
    complaint = barnabas("produce", topic, "--max-request-size", 10_000, "--file", path, status=1)
    assert complaint == "barnabas: line 1 is longer than 125536 bytes\n"
    barnabas("produce", topic, "--max-request-size", 1_000_000, "--file", path)
    assert len(barnabas("consume", topic, "--from-beginning", "--exit-at-end")) == 500_001
    path = write(b"x" * 2_000_000 + b"\n")
    complaint = barnabas("produce", topic, "--max-request-size", 3_000_000, "--file", path, status=1)
    assert complaint.startswith("barnabas: line 1 was not delivered: MESSAGE_TOO_LARGE")
    assert complaint.endswith("; 0 records were\n")


def test_progress_is_told_when_asked_for(barnabas: Run, topic: str, write: Write) -> None:
    done = barnabas("produce", topic, "--progress", "--file", write(b"a\n" * 1000), progress=True)
    assert re.fullmatch(r"sent 1,000 records, 2\.0 KiB, \d+\.\d s, [\d,]+ records/s\n", done)


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ("produce t --acks 2", 2, "--acks '2' is not valid; write all, 1 or 0"),
        ("produce t --compression gzp", 2, "--compression gzp: unknown compression (did you mean 'gzip'?); there are"),
        ("produce t --format jsn", 2, "--format jsn: unknown format (did you mean 'json'?); write raw, json, or"),
        ("produce t --format {value}", 2, "--format {value}: unknown format"),
        ("produce t --format %k%v\\n", 2, r"--format: '%k%v\n': nothing tells where %k ends and %v begins"),
        ("produce t --format json --null x", 2, "--null and --tombstone are for raw lines and formats"),
        ("produce t --format json -Z", 2, "--null and --tombstone are for raw lines and formats"),
        ("produce t -f %v\\n -K :", 2, "--key-separator is for raw lines"),
        ("produce t --header x", 2, "'x' is not a header; write NAME=VALUE"),
        ("produce t --keep-partitions", 2, "--keep-partitions is for --format json, or a format with %p"),
        ("produce t -f json -p 1 --keep-partitions", 2, "without --partition"),
        ("produce t --file /nowhere", 1, "/nowhere: No such file"),
        ("produce t --file /", 1, "/ is a directory"),
        ("produce t --partition -1", 2, "Invalid value for '--partition'"),
        ("produce --acks 1", 2, "Missing argument 'TOPIC'"),
        ("consume t --bootstrap-server 127.0.0.1:1 --timeout 0.1", 1, "no broker answers at 127.0.0.1:1"),
        ("consume cli-nowhere", 1, "there is no topic 'cli-nowhere' [UNKNOWN_TOPIC_OR_PARTITION]"),
        ("consume -r cli-nowhere", 1, "no topic matches 'cli-nowhere'"),
        ("consume -r (", 2, "--regex: '(' is not a regular expression"),
        ("consume t.*/", 2, "(--regex reads all topics that match a pattern)"),
        ("consume t --format xml", 2, "--format xml: unknown format; write raw, json, or a format as"),
        (
            "consume t --format {vlaue}",
            2,
            "{vlaue} is not a field of a record (did you mean 'value'?); there are topic, partition",
        ),
        ("consume t --format %q", 2, "--format: %q is not a field"),
        ("consume t --format json --headers", 2, "--key-separator and --headers are for raw lines"),
        ("consume t --json --format raw", 2, "--json is --format json; say one of them"),
        ("consume t --from-beginning --offset 1", 2, "say where to start once"),
        ("consume t --offset x", 2, "--offset x is not a place to start; write 5, -10"),
        ("consume t --offset 10:5", 2, "--offset 10:5 ends before it begins"),
        ("consume t --from-time soon", 2, "--from-time: 'soon' is no"),
        ("consume t --idle-exit soon", 2, "--idle-exit: 'soon' is no"),
        ("consume t --idle-exit 0.01", 2, "--idle-exit 0.01: it must be at least 0.1 s"),
        ("consume t --group g --offset 1", 2, "a group decides who reads what from where"),
        ("consume t u --partition 1", 2, "--partition needs one topic"),
        ("consume t -r --partition 1", 2, "--partition needs one topic"),
        ("consume --headers", 2, "Missing argument 'TOPIC'"),
    ],
)
def test_a_mistake_is_one_line(barnabas: Run, words: str, status: int, complaint: str) -> None:
    said = barnabas(*words.split(), status=status)
    assert complaint in said
    assert said.startswith("barnabas: ")
    assert said.count("\n") == 1
