"""The demonstration's words; it runs as a whole in `scripts/demo`."""

import io

from demonstration.run import Told
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
