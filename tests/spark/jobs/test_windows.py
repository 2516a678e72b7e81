"""`windows` counts each record in its windows, once, and says how many came too late."""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark.jobs.demo_input import produce_all, source
from spark.lake.produced import Topic, new_topic

from barnabas_spark.jobs import cli, windowing
from barnabas_spark.jobs.errors import UsageError
from barnabas_spark.jobs.options import duration_ms
from barnabas_spark.windows.progress import Watched

BASE_MS = 1_767_225_600_000
WINDOW_MS, SLIDE_MS, DELAY_MS = 20_000, 10_000, 15_000


class Line(NamedTuple):
    """A line of the demo's input, at a time of its own; None: it has none that can be read."""

    file: str
    size: int
    time_ms: int | None

    def encoded(self, number: int) -> bytes:
        seconds, millis = divmod((self.time_ms or 0) - BASE_MS, 1000)
        texts = (self.time_ms, f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}.{millis:03}Z")
        at = "no time" if self.time_ms is None else texts[number % 2]
        return json.dumps({"at": at, "line": {"file": self.file, "size": self.size}}).encode()


def lines(share: slice) -> list[Line]:
    """Return a part of the demo's input. Times go back by up to five seconds; every fiftieth line has none."""
    return [
        Line(name.decode(), len(text), None if number % 50 == 49 else BASE_MS + number * 50 + number * 7919 % 5000)
        for number, (name, text) in enumerate(list(source())[share], share.start or 0)
    ]


def produce(topic: Topic, written: Iterable[Line]) -> None:
    encoded = ((one.file.encode(), one.encoded(number), BASE_MS) for number, one in enumerate(written))
    produce_all(topic, encoded)


Key = tuple[int, str]


class Model:
    """The stupid version: windows that are open, in a dict."""

    def __init__(self) -> None:
        self.open: dict[Key, tuple[int, int]] = {}
        self.watermark = -1
        self.newest = -1

    def run(self, arrived: Iterable[Line]) -> tuple[dict[Key, tuple[int, int]], int]:
        """Take what one run reads; return the windows that it closes, and how many windows of a file were late."""
        late: Counter[Key] = Counter()
        for one in arrived:
            if one.time_ms is None:
                continue
            self.newest = max(self.newest, one.time_ms)
            last = one.time_ms // SLIDE_MS * SLIDE_MS
            for start in range(last, last - WINDOW_MS, -SLIDE_MS):
                key = (start, one.file)
                if start + WINDOW_MS <= self.watermark:
                    late[key] += 1
                    continue
                records, size = self.open.get(key, (0, 0))
                self.open[key] = (records + 1, size + one.size)
        self.watermark = self.newest - DELAY_MS
        closed = {key: row for key, row in self.open.items() if key[0] + WINDOW_MS <= self.watermark}
        self.open = {key: row for key, row in self.open.items() if key not in closed}
        return closed, len(late)


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[list[dict[str, Any]], str]:
    capfd.readouterr()
    status = cli.main(["windows", *words, "--json"])
    said = capfd.readouterr()
    assert status == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()], said.err


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_windows_of_the_demos_input_are_those_of_a_dict_and_a_restart_goes_on(
    spark: Any, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(cluster.bootstrap)
    words = [topic.name, "-b", topic.bootstrap, "--window", "20s", "--slide", "10s", "--watermark", "15s"]
    words += ["--time-field", "at", "--by", "line.file", "--sum", "line.size", "--checkpoint", str(tmp_path / "c")]
    words += ["--limit", "100000"]
    model, late = Model(), 0
    # The second run has lines of the first one's time, and more that are newer.
    for arrived in (lines(slice(0, 2000)), [*lines(slice(0, 100)), *lines(slice(2000, 3000))]):
        produce(topic, arrived)
        closed, late = model.run(arrived)
        rows, said = run(capfd, *words)
        found = {(row["start"], row["group"]): (row["records"], row["sum"]) for row in rows}
        assert found == {(iso(start), file): row for (start, file), row in closed.items()}
        assert len(found) == len(rows), "a window closes once"
        without = sum(one.time_ms is None for one in arrived)
        assert f"{len(closed):,} windows closed, {len(model.open):,} still open" in said
        assert f"; {late:,} late, {without} without a time; watermark {iso(model.watermark, 'milliseconds')}" in said
    assert late


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_closed_windows_are_written_once_though_a_continuous_run_is_stopped(
    spark: Any, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(cluster.bootstrap)
    files = [name for name, _ in list(source())[:1000]]
    now_ms = BASE_MS + 300 * 86_400_000
    produce_all(topic, ((name, b"", now_ms + number * 100) for number, name in enumerate(files[:500])))
    words = [topic.name, "-b", topic.bootstrap, "--window", "10s", "--watermark", "5s", "--by", "key"]
    results = tmp_path / "results"
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        if len(told) == 1:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(windowing, "say", say)
        run(capfd, *words, "--to", str(results), "--continuous", "--interval", "10ms")
    produce_all(topic, ((name, b"", now_ms + number * 100) for number, name in enumerate(files[500:], 500)))
    ((counted,), _) = run(capfd, *words, "--to", str(results))
    # The newest is at 99.9 s: at 94.9 s, windows up to 90 s are closed.
    expected = Counter((number // 100, name.decode()) for number, name in enumerate(files) if number < 900)
    rows = duckdb.read_parquet(f"{results}/batch=*/*.parquet").project('epoch_ms(start), "group", records').fetchall()
    assert {((at - now_ms) // 10_000, name): records for at, name, records in rows} == dict(expected)
    assert len(rows) == len(expected)
    assert (counted["late"], counted["open_windows"]) == (0, len(set(files[900:])))
    assert cli.main(["windows", *words, "--to", str(results), "--checkpoint", str(tmp_path / "other")]) == 1
    assert "has windows of another checkpoint" in capfd.readouterr().err


def iso(at_ms: int, timespec: str = "seconds") -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


@given(st.integers(1, 999), st.sampled_from([("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]))
def test_durations_are_numbers_with_a_unit(count: int, unit: tuple[str, int]) -> None:
    assert duration_ms("--window", f"{count}{unit[0]}") == count * unit[1]


@pytest.mark.parametrize("text", ["", "1", "m", "-1s", "1.5s", "0s", "400d", "1w", "1 s"])
def test_what_is_no_duration_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(UsageError, match="--window: '"):
        duration_ms("--window", text)


def progress(batch: int, at: str, records: int, late: int, *, ran: bool = True) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": at,
        "durationMs": {"addBatch": 5} if ran else {},
        "observedMetrics": {"times": {"records": records, "without_time": 1}} if ran else {},
        "stateOperators": [{"numRowsTotal": 7, "numRowsDroppedByWatermark": late}],
        "eventTime": {"watermark": f"w{batch}"},
    }


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8), st.data())
def test_what_a_query_says_again_is_counted_once(batches: list[tuple[int, int]], data: st.DataObject) -> None:
    said = [progress(number, f"t{number}", *counts) for number, counts in enumerate(batches)]
    watched = Watched()
    for end in range(1, len(said) + 1):
        # Spark tells the newest ones, among which some are known.
        watched.take(said[data.draw(st.integers(0, end - 1)) if end > 1 else 0 : end])
        watched.take(said[:end])
    assert watched.take(said) is False
    counted = watched.counted
    assert counted.records == sum(records for records, _ in batches)
    assert counted.late == sum(late for _, late in batches)
    assert (counted.batches, counted.without_time, counted.open_windows) == (len(batches), len(batches), 7)
    assert re.fullmatch(r"w\d+", counted.watermark)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--window", "soon"], "--window: 'soon' is not a duration; write 500ms, 30s, 10m, 2h or 1d"),
        (["--window", "1m", "--slide", "2m"], "--slide 2m is longer than --window 1m"),
        (["--from", "latest"], "--from latest needs --group"),
        (["--from", "now"], "--from: 'now' is not known; write one of earliest, latest"),
        (["--sum", "a[0]"], "--sum: 'a[0]' is not a field; write name, or outer.inner"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: list[str], complaint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["windows", "t", *words]) == 2
    said = capfd.readouterr().err
    assert said.startswith(f"barnabas-spark: {complaint}")
    assert said.count("\n") == 1
