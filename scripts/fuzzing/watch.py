"""Watches brokers from outside: errors in their logs, memory, counts of their status."""

import re
from collections.abc import Mapping
from pathlib import Path

from machines.cluster_handle import ClusterHandle

__all__ = ["GROWTH_BYTES_MAX", "SETTINGS", "LogWatch", "growth_bytes_max", "reached", "resident_bytes"]

GROWTH_BYTES_MAX = 16 << 20
EARLY_GROWTH_BYTES_MAX = 64 << 20
"""From the end of the warm-up to the end of a run; in a short run much happens for the first time after the warm-up."""
WARM_FRAMES = 100_000  # The largest requests of a seed, which leave holes in the memory, are among so many.
SETTINGS = {
    "log.tail.cache.bytes": str(2 << 20),
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
    "client.metrics.otlp.endpoint": "http://127.0.0.1:9/v1/metrics",  # Nobody is there.
}
"""Of the brokers of a run: they keep so few recent batches that any other growth is seen, and serve all APIs."""
_is_trouble = re.compile(r"^\S+ \S+ (?:ERROR|CRITICAL) |^  \| Traceback|never awaited|^Traceback").search
_port_of = re.compile(r"127\.0\.0\.1:(\d+)").findall


class LogWatch:
    """Reads new lines of the brokers' logs."""

    def __init__(self, cluster: ClusterHandle) -> None:
        self._places = {path: path.stat().st_size for path in cluster.logs if path.exists()}

    def trouble(self) -> list[tuple[str, list[int]]]:
        """Return each new line that tells of a broker's mistake, with its traceback, and the ports that it names."""
        found: list[tuple[str, list[int]]] = []
        for path, place in self._places.items():
            with path.open("rb") as log:
                log.seek(place)
                data = log.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._places[path] = place + len(whole)
            lines = whole.decode(errors="replace").splitlines()
            for number, line in enumerate(lines):
                if _is_trouble(line) and not line.startswith("  | "):
                    ports = [int(port) for port in _port_of(line)]
                    found.append(("\n".join([line, *_behind(lines, number)]), ports))
        return found


def _behind(lines: list[str], number: int) -> list[str]:
    """Return the lines of the traceback behind a line."""
    end = number + 1
    while end < len(lines) and lines[end].startswith("  | "):
        end += 1
    return lines[number + 1 : end]


def growth_bytes_max(warm_frames: int) -> int:
    """Return the bytes of memory that a broker may gain after a warm-up of so many frames of clients."""
    return GROWTH_BYTES_MAX if warm_frames >= WARM_FRAMES else EARLY_GROWTH_BYTES_MAX


def resident_bytes(pids: Mapping[int, int]) -> dict[int, int]:
    """Return the resident memory of each of these processes.

    Raises:
        OSError: one of them has ended.
    """
    found = {}
    for node_id, pid in pids.items():
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        found[node_id] = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    return found


def reached(cluster: ClusterHandle) -> dict[str, int]:
    """Return the number of requests that reached a handler, by API and version, as the brokers count."""
    counts: dict[str, int] = {}
    for broker in cluster.status()["brokers"]:
        for name, count in broker.get("stats", {}).get("requests_by_version", {}).items():
            counts[name] = counts.get(name, 0) + count
    return counts
