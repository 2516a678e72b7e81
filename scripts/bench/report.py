"""The report of a comparison: the file of its samples, table, plots and page."""

import base64
import html
import statistics
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from rich.console import Console
from rich.table import Table

from bench.loads.load import Measured

__all__ = ["Header", "Row", "Sample", "Samples", "page_of", "rows_of", "write_report"]

SYSTEMS = ("barnabas", "kafka", "nats")
COLOURS = {"barnabas": "#1b6ca8", "kafka": "#b0b0b0", "nats": "#e0a030"}
SMALLER_IS_BETTER = ("_ms", "_us", "_s_gb", "pause_s", "ready_s", "rss_mib")
SAMPLES = "samples.json"
PAGE = "compare.html"
BARS_MAX = 12
GB = 1e9


class Header(msgspec.Struct):
    """The circumstances of a run."""

    commit: str
    date: str
    machine: str
    versions: dict[str, str]
    settings: dict[str, str]


class Sample(msgspec.Struct):
    """One phase of one workload on one system in one round."""

    system: str
    mode: str
    round: int
    workload: str
    measured: Measured


class Samples(msgspec.Struct):
    """All measurements of a run."""

    header: Header
    rows: list[Sample]

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / SAMPLES).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

    @classmethod
    def load(cls, directory: Path) -> Self:
        return msgspec.json.decode((directory / SAMPLES).read_bytes(), type=cls)


class Row(NamedTuple):
    """One metric of one workload: the values of each system, one a round."""

    mode: str
    workload: str
    phase: str
    metric: str
    values: dict[str, list[float]]

    @property
    def medians(self) -> dict[str, float]:
        return {system: statistics.median(found) for system, found in self.values.items()}

    def ratio(self, peer: str) -> float | None:
        """Return the ratio by which Barnabas is better than `peer`; None: one of them was not measured."""
        ours = self.medians.get("barnabas")
        theirs = self.medians.get(peer)
        if not ours or not theirs:
            return None
        return theirs / ours if self.metric.endswith(SMALLER_IS_BETTER) else ours / theirs


def rows_of(samples: Samples) -> list[Row]:
    """Return all metrics, in the order in which they were measured; processor time of bytes that were moved as well."""
    found = dict[tuple[str, str, str, str], dict[str, list[float]]]()
    for sample in samples.rows:
        measured = sample.measured
        for metric, value in (*measured.metrics.items(), *_costs(measured)):
            if metric in {"bytes", "requests"}:
                continue
            key = (sample.mode, sample.workload, measured.phase, metric)
            found.setdefault(key, {}).setdefault(sample.system, []).append(value)
    return [Row(*key, values) for key, values in found.items()]


def _costs(measured: Measured) -> Iterator[tuple[str, float]]:
    """Yield processor seconds a gigabyte of records, or microseconds a request that were not the kernel's.

    The broker that worked most, and the one that worked least, come by themselves.
    """
    if (requests := measured.metrics.get("requests")) and len(measured.broker_user_s) > 1:
        used = sorted(measured.broker_user_s.values())
        yield "most_busy_broker_user_us", used[-1] / requests * 1e6
        yield "least_busy_broker_user_us", used[0] / requests * 1e6
    size = measured.metrics.get("bytes")
    if not size:
        return
    spent = sorted(measured.broker_cpu_s.values())
    yield "client_cpu_s_gb", measured.client_cpu_s / size * GB
    yield "all_brokers_cpu_s_gb", sum(spent) / size * GB
    if len(spent) > 1:
        yield "most_busy_broker_cpu_s_gb", spent[-1] / size * GB
        yield "least_busy_broker_cpu_s_gb", spent[0] / size * GB


def write_report(samples: Samples, directory: Path, console: Console) -> None:
    """Print the table; write the samples, the plots and the page into `directory`."""
    rows = rows_of(samples)
    console.print(_table(samples.header, rows))
    samples.save(directory)
    plots = {name: _plot(name, chosen) for name, chosen in _charts(rows)}
    for name, data in plots.items():
        (directory / f"{_file_name(name)}.png").write_bytes(data)
    (directory / PAGE).write_text(page_of(samples.header, rows, plots))


def _cells(row: Row) -> list[str]:
    medians = row.medians
    shown = []
    for system in SYSTEMS:
        values = row.values.get(system)
        if values is None:
            shown.append("not measured")
        else:
            shown.append(f"{medians[system]:,.2f} ({min(values):,.2f} to {max(values):,.2f})")
    ratios = [row.ratio(peer) for peer in SYSTEMS[1:]]
    return [row.mode, row.workload, row.phase, row.metric, *shown, *(f"{r:.2f}" if r else "" for r in ratios)]


HEADINGS = ("mode", "workload", "phase", "metric", *SYSTEMS, "to Kafka", "to NATS")


def _table(header: Header, rows: Iterable[Row]) -> Table:
    table = Table(title=f"medians (least to most), commit {header.commit}, {header.machine}; ratios: above 1 is better")
    for heading in HEADINGS:
        table.add_column(heading)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _charts(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Group rows for charts: one metric of one phase, in one mode, each."""
    groups = dict[str, list[Row]]()
    for row in rows:
        if row.metric in {"mb_s", "p50_ms", "p99_ms", "requests_s", "transactions_s", "pause_s", "rss_mib", "ready_s"}:
            groups.setdefault(f"{row.phase}, {row.metric}, {row.mode}", []).append(row)
    yield from groups.items()


def _plot(title: str, rows: list[Row]) -> bytes:
    """Return a PNG with a bar for each system and workload, and each round's value as a dot on it."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - half a second, which measuring does not need

    rows = rows[:BARS_MAX]
    figure = Figure(figsize=(2.5 + 1.3 * len(rows), 4), layout="constrained")
    axes = figure.subplots()
    for place, system in enumerate(SYSTEMS):
        for number, row in enumerate(rows):
            if values := row.values.get(system):
                at = number + (place - 1) * 0.27
                label = system if number == 0 else None
                axes.bar(at, statistics.median(values), width=0.25, color=COLOURS[system], label=label)
                axes.plot([at] * len(values), values, "k.", markersize=3)
    axes.set_xticks(range(len(rows)), [row.workload for row in rows], rotation=20, ha="right")
    axes.set_title(title)
    if rows[0].metric.endswith("_ms"):
        axes.set_yscale("log")
    axes.legend()
    data = BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return data.getvalue()


def _file_name(title: str) -> str:
    return title.replace(", ", "-").replace(" ", "-")


def page_of(header: Header, rows: list[Row], plots: dict[str, bytes]) -> str:
    """Return one page that needs no other file."""
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>\n" for row in rows
    )
    headings = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    images = "".join(
        f'<img alt="{html.escape(name)}" src="data:image/png;base64,{base64.b64encode(data).decode()}">\n'
        for name, data in plots.items()
    )
    settings = html.escape(", ".join(f"{name}={value}" for name, value in header.settings.items()))
    return f"""<!doctype html>
<meta charset="utf-8">
<title>Barnabas beside Apache Kafka and NATS</title>
<style>body {{ font: 14px sans-serif; margin: 2em }} td, th {{ padding: 2px 8px; text-align: left }}
tr:nth-child(even) {{ background: #f4f4f4 }} img {{ max-width: 100% }}</style>
<h1>Barnabas beside Apache Kafka and NATS</h1>
<p>Commit {html.escape(header.commit)}, {header.date}, {html.escape(header.machine)}; {settings}.
Medians, with the least and the most; a ratio above 1 says that Barnabas is better.</p>
{images}
<table><tr>{headings}</tr>
{cells}</table>
"""
