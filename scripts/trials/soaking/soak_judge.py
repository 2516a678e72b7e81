"""Judges whether a series of samples is flat, by its trend against its noise. It also plots.

After the warm-up (the first third) a straight line is fitted. Its rise over the rest is *growth* when it exceeds three
times the noise around the line and the metric's normal movement (`ALLOWED`): a process that has taken its last page of
a pool, one connection more. A leak of one object a request passes neither; a leak too small for both needs a longer
run, and the verdict says over how long it has looked.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

WARM_UP = 1 / 3
NOISE_FACTOR = 3.0
SAMPLES_MIN = 20
# Metric: its meaningless rise, as a share of its level and as a number.
ALLOWED = {
    "rss_bytes": (0.05, 4 << 20),
    "file_descriptors": (0.05, 5),
    "threads": (0.0, 3),  # pools that make a thread when one is first wanted
    "tasks": (0.10, 5),
    "journal_bytes": (0.05, 1 << 20),
}
TITLES = {
    "rss_bytes": ("resident memory", "MiB", 1 << 20),
    "file_descriptors": ("file descriptors", "", 1),
    "threads": ("threads", "", 1),
    "tasks": ("tasks", "", 1),
    "journal_bytes": ("journal", "MiB", 1 << 20),
}
COLOURS = ("#1f77b4", "#d9822b", "#3a9d5d", "#8e44ad")


class Trend(NamedTuple):
    """A series after its warm-up. `rise`: along the fitted line, from its first point to its last."""

    level: float
    rise: float
    noise: float
    is_flat: bool


def trend(metric: str, samples: Sequence[tuple[float, float]]) -> Trend | None:
    """Judge one series of (seconds, value); None: too few samples for a judgement."""
    rest = samples[int(len(samples) * WARM_UP) :]
    if len(rest) < SAMPLES_MIN:
        return None
    times, values = zip(*rest, strict=True)
    slope, intercept = statistics.linear_regression(times, values)
    noise = statistics.pstdev([value - (intercept + slope * at) for at, value in rest])
    level = statistics.fmean(values)
    rise = slope * (times[-1] - times[0])
    share, least = ALLOWED[metric]
    return Trend(level, rise, noise, rise <= max(NOISE_FACTOR * noise, share * level, least))


def plot(series: Mapping[str, Mapping[int, Sequence[tuple[float, float]]]], faults: Sequence[float]) -> str:
    """Draw one panel a metric, one line a broker; a fault is a grey stroke."""
    width = 860
    height = 120
    left = 64
    top = 26
    panels = [metric for metric in TITLES if series.get(metric)]
    end_s = max((at for metric in panels for line in series[metric].values() for at, _ in line), default=1.0) or 1.0
    total = len(panels) * (height + 40) + top
    size = f'viewBox="0 0 {width + left + 20} {total}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{width + left + 20}" height="{total}" fill="white"/>',
    ]
    for number, metric in enumerate(panels):
        title, unit, scale = TITLES[metric]
        base = top + number * (height + 40)
        lines = {node_id: [(at, value / scale) for at, value in line] for node_id, line in series[metric].items()}
        highest = max(value for line in lines.values() for _, value in line) * 1.1 or 1.0
        parts.append(f'<text x="{left}" y="{base - 6}">{title}{f", {unit}" if unit else ""}</text>')
        parts += [
            f'<line x1="{left + at / end_s * width:.1f}" y1="{base}" x2="{left + at / end_s * width:.1f}" '
            f'y2="{base + height}" stroke="#dddddd"/>'
            for at in faults
        ]
        parts.append(f'<rect x="{left}" y="{base}" width="{width}" height="{height}" fill="none" stroke="#888888"/>')
        for share in (0.0, 0.5, 1.0):
            y = base + height * (1 - share) + 4
            parts.append(f'<text x="{left - 6}" y="{y:.1f}" text-anchor="end">{highest * share:.0f}</text>')
        for node_id, line in sorted(lines.items()):
            points = " ".join(
                f"{left + at / end_s * width:.1f},{base + height * (1 - value / highest):.1f}" for at, value in line
            )
            colour = COLOURS[node_id % len(COLOURS)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            parts.append(
                f'<text x="{left + width - 70 * (len(lines) - node_id + 1)}" y="{base - 6}" fill="{colour}">'
                f"broker {node_id}</text>"
            )
    minutes = end_s / 60
    parts.append(f'<text x="{left + width}" y="{total - 12}" text-anchor="end">{minutes:.0f} minutes</text>')
    return "\n".join((*parts, "</svg>", ""))
