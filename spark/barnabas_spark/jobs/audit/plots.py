"""Draws the plots of a report as SVG whose colours follow the page, so that they suit a light and a dark one.

matplotlib writes colours that stand for roles. They are replaced by variables of the page's style sheet.
"""

import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from barnabas_spark.lake.ranges import PartitionKey

from .evidence import Evidence
from .findings import Finding
from .summary import PartitionSummary
from .timeline import Timeline

__all__ = ["coverage", "file_sizes", "lags", "rows_over_time"]

# Colours that matplotlib writes, and the variables that stand in for them.
INK, FAINT, GOOD, LOG, BAD, WARN = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
VARIABLES = {INK: "ink", FAINT: "faint", GOOD: "good", LOG: "log", BAD: "bad", WARN: "warn"}
PARTITIONS_MAX = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_over_time(timeline: Timeline) -> str:
    """Draw how many rows have a timestamp in each stretch of time."""
    if not timeline.counts:
        return ""
    figure, axes = _figure("time", 2.6)
    from matplotlib.dates import ConciseDateFormatter  # noqa: PLC0415 - after the backend was chosen

    times = [_moment(at * timeline.width_s) for at, _ in timeline.counts]
    width = timedelta(seconds=timeline.width_s)
    axes.bar(times, [count for _, count in timeline.counts], width=width, align="edge", color=GOOD, linewidth=0)
    formatter: Any = ConciseDateFormatter
    axes.xaxis.set_major_formatter(formatter(axes.xaxis.get_major_locator(), tz=UTC))
    axes.set_ylabel(f"rows in {_duration(timeline.width_s)}")
    _with_thousands(axes.yaxis)
    return _svg(figure, "rows over time")


def coverage(seen: Evidence, findings: Sequence[Finding]) -> str:
    """Draw of each partition which offsets the lake has, which the log has, and where something is wrong."""
    keys = sorted({unit.key for unit in seen.units} | set(seen.spans))[:PARTITIONS_MAX]
    if not keys:
        return ""
    figure, axes = _figure("coverage", 0.9 + 0.36 * len(keys))
    for row, key in enumerate(keys):
        for at, number in enumerate(one for one, unit in enumerate(seen.units) if unit.key == key):
            unit = seen.units[number]
            is_gap = unit.claim >= 0 and seen.claims.kept[unit.claim].purpose == "gap"
            # Neighbours differ a little, so that ranges can be told apart.
            _bar(axes, row, (unit.start_offset, unit.end_offset), WARN if is_gap else GOOD, 0.5, 0.8 + 0.2 * (at % 2))
        if seen.logs is not None and key == seen.logs.key(key.partition):
            log = seen.logs.partitions[key.partition]
            _bar(axes, row + 0.36, (log.start_offset, log.end_offset), LOG, 0.12, 1.0)
        for one in findings:
            if one.is_wrong and one.topic_id == key.topic_id and one.partition == key.partition:
                _bar(axes, row, (one.start_offset, one.end_offset), BAD, 0.5, 0.9)
    axes.set_yticks(range(len(keys)), [_name(key, keys) for key in keys])
    axes.set_ylim(len(keys) - 0.4, -0.5)
    axes.set_xlabel("offset")
    axes.set_ylabel("partition")
    _with_thousands(axes.xaxis)
    axes.margins(x=0.02)
    return _svg(figure, "offsets of each partition")


def file_sizes(sizes: Sequence[int]) -> str:
    """Draw how large the files are."""
    if not sizes:
        return ""
    figure, axes = _figure("sizes", 2.3, 4.4)
    unit, name = next(one for one in ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")) if max(sizes) >= one[0])
    axes.hist([size / unit for size in sizes], bins=min(30, max(5, len(sizes))), color=GOOD, linewidth=0, rwidth=0.92)
    axes.set_xlabel(name)
    axes.set_ylabel("files")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_xlim(left=0)
    return _svg(figure, "sizes of files")


def lags(summaries: Sequence[PartitionSummary]) -> str:
    """Draw how far the lake and a group are behind the log."""
    found = [one for one in summaries if one.lag is not None or one.group_lag is not None][:PARTITIONS_MAX]
    if not found:
        return ""
    figure, axes = _figure("lag", 2.3, 4.4)
    places = range(len(found))
    axes.bar([at - 0.2 for at in places], [one.lag or 0 for one in found], width=0.38, color=GOOD, linewidth=0)
    axes.bar([at + 0.2 for at in places], [one.group_lag or 0 for one in found], width=0.38, color=LOG, linewidth=0)
    axes.set_xticks(places, [str(one.partition) for one in found])
    axes.set_xlabel("partition")
    axes.set_ylabel("offsets behind the log")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(0, max(1, *(max(one.lag or 0, one.group_lag or 0) for one in found)) * 1.1)
    _with_thousands(axes.yaxis)
    return _svg(figure, "lag")


def _figure(name: str, height: float, width: float = 9.2) -> tuple[Any, Any]:
    import matplotlib as mpl  # noqa: PLC0415 - half a second, which only a report needs

    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"
    # Names of parts of a drawing are hashes of this: two drawings of one page must not share any.
    mpl.rcParams["svg.hashsalt"] = f"barnabas-{name}"
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK, labelsize=9)
    axes.xaxis.label.set(color=INK, size=9)
    axes.yaxis.label.set(color=INK, size=9)
    axes.grid(axis="y", color=FAINT, linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def _bar(axes: Any, row: float, between: tuple[int, int], colour: str, height: float, alpha: float) -> None:
    if between[0] < between[1]:
        axes.barh(row, between[1] - between[0], left=between[0], height=height, color=colour, alpha=alpha, linewidth=0)


def _svg(figure: Any, label: str) -> str:
    data = io.StringIO()
    figure.savefig(data, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = data.getvalue()
    text = text[text.index("<svg") :]
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    text = re.sub(r"font: [^;\"]*;?", "", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _with_thousands(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value == int(value) else f"{value:,g}")


def _name(key: PartitionKey, keys: Sequence[PartitionKey]) -> str:
    return str(key.partition) if len({one.topic_id for one in keys}) == 1 else f"{key.topic_id[:8]} {key.partition}"


def _moment(seconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return datetime(9999, 1, 1, tzinfo=UTC) if seconds > 0 else datetime(1, 1, 2, tzinfo=UTC)


def _duration(seconds: int) -> str:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {name}" if seconds < 100 * size else f"{seconds // size} {name}"
    return f"{seconds} s"
