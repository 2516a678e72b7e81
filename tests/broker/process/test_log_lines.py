"""No name that a client or peer chose forges a line of the log."""

import io
import json
import logging
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_broker.cli import errors as cli_errors
from barnabas_broker.cli.commands.watch import status
from barnabas_broker.cli.output import complain, print_table, say, say_json
from barnabas_broker.process.log_lines import LINE_CHARACTERS_MAX, MARGIN, LineFormatter
from barnabas_broker.status.events import CLIENT_ID_CHARACTERS_MAX, EventHistory, FetchCounters
from barnabas_raftlog.raft.messages import Fact

FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FORGED = "x\n2026-11-25 12:00:00,000 CRITICAL __main__: node 1 is broken\x1b[2J\r\u2028\u202e\x9b\ud800"
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=50)


def are_lines(text: str, count: int) -> bool:
    """Say whether it is so many lines without anything else that a terminal obeys."""
    unwanted = {"Cc", "Cs", "Zl", "Zp"}
    bare = text.replace("\n", "")
    return (
        text.count("\n") == count
        and text.endswith("\n")
        and not any(unicodedata.category(character) in unwanted or character == "\u202e" for character in bare)
    )


@contextmanager
def logged(name: str) -> Iterator[io.StringIO]:
    """Give what a logger writes in the form that the processes of this project have."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(FORM))
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@given(ANY_TEXT, ANY_TEXT)
@example(FORGED, FORGED)
@settings(deadline=None, max_examples=30)
def test_a_message_is_one_line_of_the_log(text: str, other: str) -> None:
    with logged("log_lines_test") as stream:
        logging.getLogger("log_lines_test").info(f"client %s is %s{text}", text, other)  # noqa: G004
    assert are_lines(stream.getvalue(), 1)


@given(ANY_TEXT)
@example(FORGED)
@settings(deadline=None, max_examples=30)
def test_a_traceback_cannot_look_like_another_message(text: str) -> None:
    with logged("log_lines_test") as stream:
        try:
            raise ValueError(text)
        except ValueError:
            logging.getLogger("log_lines_test").exception("failed: %s", text)
    first, *rest = stream.getvalue().split("\n")[:-1]
    assert " ERROR log_lines_test: failed: " in first
    assert rest[0] == f"{MARGIN}Traceback (most recent call last):"
    assert all(line.startswith(MARGIN) for line in rest)
    assert are_lines(stream.getvalue(), 1 + len(rest))


def test_a_line_of_the_log_has_an_end() -> None:
    with logged("log_lines_test") as stream:
        logging.getLogger("log_lines_test").info("%s", "g" * 1_000_000)
    assert len(stream.getvalue()) == LINE_CHARACTERS_MAX + 1


@given(ANY_TEXT, ANY_TEXT)
@example(FORGED, FORGED)
@settings(deadline=None, max_examples=30)
def test_an_event_is_a_line_in_the_log_and_in_what_is_remembered(subject: str, cause: str) -> None:
    history = EventHistory(lambda: 7)
    with logged("barnabas_broker.status.events") as stream:
        history.add("member left", subject, cause)
        history.add_fact(subject, Fact("handshake refused", 3, cause))
    assert are_lines(stream.getvalue(), 2)
    for event in history.to_list():
        assert are_lines(f"{event['group']}{event['cause']}\n", 1)


def test_an_event_holds_no_more_than_a_line_of_what_a_client_sends() -> None:
    history = EventHistory(lambda: 7)
    history.add("member left", "g" * 1_000_000, "r" * 1_000_000)
    assert len(str(history.to_list())) < 5_000


def test_a_reader_is_remembered_by_as_much_of_its_name_as_a_name_needs() -> None:
    counters = FetchCounters()
    counters.add("c" * 32_000, "t", 0, 1, 0, 1)
    counters.add("\n", "t", 0, 1, 0, 1)
    names = [row["client_id"] for row in counters.to_list()]
    assert names == ["c" * CLIENT_ID_CHARACTERS_MAX, "\n"], "cut, and otherwise as it is: this is for programs"


def printed(command: Callable[[], Any]) -> str:
    stream = io.StringIO()
    with redirect_stdout(stream), redirect_stderr(stream):
        command()
    return stream.getvalue()


@given(ANY_TEXT, ANY_TEXT)
@example(FORGED, FORGED)
@example("[red]x[/]", ":smile:")
@settings(deadline=None, max_examples=30)
def test_what_commands_print_is_lines(text: str, other: str) -> None:
    assert are_lines(printed(lambda: say(text, other)), 2)
    assert are_lines(printed(lambda: complain(text)), 1)
    assert are_lines(printed(lambda: cli_errors.report(text, 1)), 1)
    assert are_lines(printed(lambda: print_table(("group", "size"), [(text, 5), (None, other)], [text, other])), 5)
    as_json = printed(lambda: say_json([text, other]))
    assert are_lines(as_json, 1)
    assert json.loads(as_json) == [text, other]


def test_a_table_takes_nothing_for_markup() -> None:
    assert printed(lambda: print_table(("group",), [("[red]x[/]",), (":smile:",)], [":smile:[b]"])).split() == [
        ":smile:[b]",
        "group",
        "[red]x[/]",
        ":smile:",
    ]


@given(ANY_TEXT)
@example(FORGED)
@example("[red]x[/] :smile:")
@settings(deadline=None, max_examples=30)
def test_the_status_of_a_cluster_is_lines(text: str) -> None:
    broker = {
        "node_id": 1,
        "host": "h",
        "port": 1,
        "peer_port": 2,
        "pid": 3,
        "state": text,
        "leaders": 0,
        "replicas": text,
        "occupied_by": f"node 1 of cluster {text}",
        "quorum": {"voters": [text], "waiting": f"x{text}"},
        "fetches": [{"client_id": text, "topic": "t"}, text],
        "events": [{"time_ms": 5, "kind": "k", "group": text}],
        "stats": {"requests": text},
    }
    found = {"cluster_id": text, "bootstrap": text, "health": text, "reasons": [text], "brokers": [broker]}
    assert are_lines(printed(lambda: status.show(found, verbose=True)), 2 + 2 + 2 + 4)


@pytest.mark.parametrize("level", ["INFO", logging.ERROR])
def test_a_process_logs_such_lines(level: int | str) -> None:
    code = (
        "import logging, sys\n"
        "from barnabas_broker.process.log_lines import log_to_stderr\n"
        f"log_to_stderr({level!r}, '%(levelname)s %(message)s')\n"
        "logging.getLogger('a').info('quiet')\n"
        "logging.getLogger('b').error('a\\nb')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stderr.splitlines()[-1] == "ERROR a\\nb"
    assert ("INFO quiet" in done.stderr) == (level == "INFO")
