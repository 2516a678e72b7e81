"""The demonstration's words; it runs as a whole in `scripts/demo`."""

import io
from pathlib import Path
from typing import Any

import pytest
from demonstration.pipeline import Audited, Counts, Landed, Streamed
from demonstration.reader import GROUP
from demonstration.run import Told, differences, pipeline_differences, proved
from demonstration.source import Expected, Source
from demonstration.spark import SparkResult
from rich.console import Console


def lines(*, terminal: bool) -> list[str]:
    text = io.StringIO()
    told = Told(Console(file=text, force_terminal=terminal), "produced", 1_000)
    for completed in range(0, 1_001, 50):
        told.update(completed)
    return text.getvalue().splitlines()


def test_a_pipe_is_told_five_times_how_far_it_is() -> None:
    assert lines(terminal=False) == [f"produced: {done:,} of 1,000 lines" for done in (200, 400, 600, 800, 1_000)]


def test_a_terminal_has_bars_in_place_of_lines() -> None:
    assert lines(terminal=True) == []


COUNTS = Counts(7, 20, 300)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(Path(__file__).parent / "none"))
    found = Source(1)
    found.records, found.words, found.size_bytes = COUNTS
    found.expected["a.py"] = Expected(7, "sha", "chain")
    return found


def result(**changed: Any) -> SparkResult:
    files = {"a.py": (7, "sha")}
    landed = Landed("", COUNTS, 7, 1.0)
    found = SparkResult(7, files, [], [], 1.0, Streamed(COUNTS, 4, 1.0), landed, files, Audited("a test", [], "", 1.0))
    return found._replace(**changed)


def test_what_adds_up_is_told_with_its_numbers(source: Source) -> None:
    assert not pipeline_differences(source, result())
    assert not differences(source, {GROUP: {"a.py": (7, "chain")}, "Spark": {"a.py": (7, "sha")}})
    told = " / ".join(proved(source, result()))
    for words in ("7 lines, 20 words, 300 bytes", "7 offsets", "by a test"):
        assert words in told


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rows": 8}, "the batch: 8 rows for 7 lines"),
        ({"streamed": Streamed(Counts(6, 20, 300), 4, 1.0)}, "the stream: 6 lines, and the files have 7"),
        ({"landed": Landed("", Counts(7, 19, 300), 7, 1.0)}, "the lake: 19 words, and the files have 20"),
        ({"landed": Landed("", COUNTS, 6, 1.0)}, "the lake: 6 different offsets for 7 lines"),
        ({"audited": Audited("a test", ["partition 1 is wrong"], "", 1.0)}, "partition 1 is wrong"),
    ],
)
def test_a_number_of_the_pipeline_that_is_not_the_files_is_told(
    source: Source, changed: dict[str, object], words: str
) -> None:
    assert pipeline_differences(source, result(**changed)) == [words]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "a.py: the lake has 0 lines of 7"),
        ({"a.py": (7, "chain")}, "a.py: the lake has lines that differ or are out of order"),
        ({"a.py": (7, "sha"), "b.py": (1, "x")}, "b.py: was never written"),
    ],
)
def test_a_file_that_is_not_whole_in_one_place_is_told(
    source: Source, files: dict[str, tuple[int, str]], words: str
) -> None:
    assert differences(source, {GROUP: {"a.py": (7, "chain")}, "the lake": files}) == [words]
