"""`barnabas check`: what it prints, and with which status it ends."""

import io
import json
import sys
from pathlib import Path

import pytest

from barnabas_broker.cli.entry import main
from barnabas_broker.history import encode
from barnabas_broker.history import events as e

SENT: tuple[e.Event, ...] = (
    e.Invoked(producer="p", partition="t-0", sequence=0),
    e.Acknowledged(producer="p", partition="t-0", sequence=0, offset=0),
)
FOUND: tuple[e.Event, ...] = (
    e.Positioned(consumer="c", partition="t-0", offset=0),
    e.Consumed(consumer="c", partition="t-0", offset=0, producer="p", sequence=0),
    e.EndReached(consumer="c", partition="t-0", offset=1),
)
LOST: tuple[e.Event, ...] = (e.FaultBegun(kind="kill"), FOUND[0], e.EndReached(consumer="c", partition="t-0", offset=0))


def written(path: Path, *events: e.Event) -> str:
    file = path / "history.jsonl"
    file.write_bytes(b"".join(map(encode, events)))
    return str(file)


def test_kept_promises_end_with_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(tmp_path, *SENT, *FOUND)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("kept: nothing lost")
    assert "never looked for" not in out


def test_records_that_nobody_looked_for_are_named_in_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", written(tmp_path, *SENT)]) == 0
    assert "never looked for: 1 acknowledged record" in capsys.readouterr().out


def test_broken_promises_end_with_status_1_and_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(tmp_path, *SENT, *LOST)]) == 1
    verdict, first = capsys.readouterr().out.splitlines()
    assert verdict.startswith("BROKEN: 1 violation (")
    assert first.startswith("line 5: acknowledged record lost: t-0: p 0, acknowledged at 0")
    assert first.endswith("(after the fault of line 3)")


def test_json_tells_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", written(tmp_path, *SENT, *LOST), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["kept"]
    assert [(v["line"], v["rule"], v["fault_line"]) for v in answer["first"]] == [(5, "lost", 3)]


def test_only_the_first_violations_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks: list[e.Event] = [
        e.HighWatermarkSeen(observer="w", partition="t-0", offset=offset) for offset in range(9, 0, -1)
    ]
    assert main(["check", written(tmp_path, *SENT, *marks), "--limit", "3"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "and 5 more"


def test_malformed_history_ends_with_status_2_and_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(map(encode, SENT)) + b'{"type":"lost"}\n')
    assert main(["check", str(file)]) == 2
    assert "line 3: " in capsys.readouterr().err


def test_missing_and_empty_histories_end_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "none")]) == 2
    assert main(["check", written(tmp_path)]) == 2
    assert "shows nothing" in capsys.readouterr().err


def test_history_may_come_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.TextIOWrapper(io.BytesIO(b"".join(map(encode, SENT + FOUND))))
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["check", "-"]) == 0
