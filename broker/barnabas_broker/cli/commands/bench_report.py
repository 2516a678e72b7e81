"""Makes of what a benchmark measured its figures: lines for people, an object for programs. Pure.

A figure without the client's share is not worth much: the client is Python in one process, and often the slowest part.
So its processor time is always told, and whether it had any left.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_broker.cli.wording import counted
from barnabas_broker.config.quantities import shown_bytes

__all__ = ["Measured", "lines_of", "percentile"]

PERCENTILES = (50.0, 95.0, 99.0, 99.9)
# Beyond this share of a core a loop is never idle for long, and what it measures is itself.
BUSY_PERCENT = 85
LEAST_S = 1e-6


class Measured(NamedTuple):
    """One run. `latencies_ms` has a name for each sort of them, and need not have one value for each record."""

    topic: str
    records: int
    record_bytes: int
    took_s: float
    client_cpu_s: float
    rate: float | None
    latencies_ms: Mapping[str, Sequence[float]]

    @property
    def client_percent(self) -> float:
        """The client's processor time in percent of one core."""
        return 100 * self.client_cpu_s / max(self.took_s, LEAST_S)

    def as_json(self, what: str) -> dict[str, Any]:
        """Return everything that was measured, with units in the names."""
        per_s = self.records / max(self.took_s, LEAST_S)
        return {
            "bench": what,
            "topic": self.topic,
            "records": self.records,
            "record_bytes": self.record_bytes,
            "seconds": round(self.took_s, 6),
            "records_per_s": round(per_s, 1),
            "bytes_per_s": round(per_s * self.record_bytes, 1),
            "client_cpu_s": round(self.client_cpu_s, 6),
            "client_cpu_percent": round(self.client_percent, 1),
        } | {f"{name}_ms": _percentiles(values) for name, values in self.latencies_ms.items()}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the least value of an ascending, non-empty sequence that `percent` of all are not above."""
    assert ordered
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def lines_of(measured: Measured, verb: str) -> list[str]:
    """Return the lines that tell a person what has been measured."""
    per_s = measured.records / max(measured.took_s, LEAST_S)
    size = shown_bytes(measured.record_bytes)
    done = f"{verb} {counted(measured.records, 'record')} of {size} in {measured.took_s:.2f} s"
    lines = [f"{done}: {per_s:,.0f} records/s, {shown_bytes(round(per_s * measured.record_bytes))}/s"]
    for name, values in measured.latencies_ms.items():
        if values:
            shown = [f"{label} {ms:.1f} ms" for label, ms in _percentiles(values).items()]
            lines.append(f"{name.replace('_', ' ')}: {', '.join(shown)}")
    lines.append(f"client: {measured.client_cpu_s:.2f} s of processor time, {_share(measured)}")
    return lines


def _share(measured: Measured) -> str:
    share = f"{measured.client_percent:.0f} % of a core"
    if measured.rate is not None:
        return f"{share}; the rate was given: {measured.rate:g} records/s"
    if measured.client_percent >= BUSY_PERCENT:
        return f"{share}: the client is the limit, the cluster may do more"
    return f"{share}: the client had time left"


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    found = {f"p{percent:g}": round(percentile(ordered, percent), 3) for percent in PERCENTILES}
    return found | {"max": round(ordered[-1], 3)}
