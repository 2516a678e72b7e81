"""What every part of the Spark benchmark measures with: a cluster, sessions, sizes, and turns that alternate."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from .spark_process import SparkProcess
from .topics import Topics

__all__ = [
    "IMPATIENT",
    "OURS",
    "PARTITIONS",
    "THEIRS",
    "THEIRS_IMPATIENT",
    "Sizes",
    "Stage",
    "Timed",
    "alternate",
    "timed",
]

OURS = "barnabas"  # as formats are called
THEIRS = "kafka"
# Spark's source ends each task of a new consumer with a fetch that has nothing to wait for but this, 500 ms by default.
# So ratios to it are also shown without that wait.
IMPATIENT = {"kafka.fetch.max.wait.ms": "10"}
THEIRS_IMPATIENT = "Spark's source, fetch.max.wait.ms=10"
PARTITIONS = 12


class Sizes(NamedTuple):
    """How much is measured. `rows` are those of JSON, backlog and archive; `wide_rows` have values of 1 KiB.

    `read_rows` are those of batch reads; there are three times as many small ones.
    """

    rounds: int = 5
    rows: int = 1_000_000
    wide_rows: int = 500_000
    read_rows: int = 1_000_000
    stream_s: float = 20.0
    warm_s: float = 8.0
    rate: int = 1_000


class Timed(NamedTuple):
    """The rounds of one side: seconds of each, and the processor seconds of Spark's processes."""

    seconds: Sequence[float]
    cpu_s: Sequence[float]

    def rates(self, rows: int) -> list[float]:
        """Return the rows per second of each round."""
        return [rows / one for one in self.seconds]

    def cost_beside(self, other: "Timed") -> str:
        """Return the remark that compares processor time, of which other work on the machine changes little."""
        ours, theirs = statistics.median(self.cpu_s), statistics.median(other.cpu_s)
        return f"Spark's processor time: {ours:.2f} s, and {theirs:.2f}"


def timed(answers: Sequence[dict[str, Any]]) -> Timed:
    """Return the times that answers have."""
    return Timed([float(one["seconds"]) for one in answers], [float(one["cpu_s"]) for one in answers])


class Stage(NamedTuple):
    """One cluster of Barnabas that is up, and the sessions. `before` is that of another commit, if there is one."""

    mode: str
    topics: Topics
    spark: SparkProcess
    before: SparkProcess | None
    sizes: Sizes
    console: Console

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Return the options of a read of a topic, from its start."""
        return {
            "kafka.bootstrap.servers": self.topics.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **more,
        }

    def timed(self, name: str, rounds: Mapping[str, Callable[[], dict[str, Any]]]) -> dict[str, Timed]:
        """Measure each side once to warm it, then in turns; return the times of each side's rounds."""
        return {side: timed(answers) for side, answers in self.turns(name, rounds).items()}

    def turns(self, name: str, rounds: Mapping[str, Callable[[], dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
        """As `timed`, with all that was answered."""
        for side in rounds.values():
            side()
        return alternate(rounds, self.sizes.rounds, lambda text: self.console.print(f"{name}, {self.mode}: {text}"))


def alternate(
    sides: Mapping[str, Callable[[], dict[str, Any]]], rounds: int, tell: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """Call each side once a round, in an order that is turned round from round to round; return the answers."""
    answers: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(list(sides)):
            answer = sides[side]()
            answers[side].append(answer)
            figures = ", ".join(f"{key} {value:,.2f}" for key, value in answer.items() if isinstance(value, float))
            tell(f"round {number + 1}: {side}: {figures}")
    return answers
