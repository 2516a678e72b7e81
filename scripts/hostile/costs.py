"""What hostile clients cost a broker: memory at its peak, processor time, and the longest callback of its loop.

Memory is that of the process (`VmHWM`, which is set back before each scene), so what the kernel keeps in the page cache
for it does not count. Callbacks are what the broker itself says in `status` (`loop`): the longest of the last minute,
in time of the processor and of the wall. A minute is longer than most scenes. So a scene that follows one whose longest
callback was above the limit waits until that is forgotten (`forget`); after one that was below, whatever is above the
limit at the end is this scene's. A broker that does not say is *not measured*, which is never taken for good.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas_broker.cluster_files import ClusterFiles
from barnabas_broker.cluster_status import ask_broker

__all__ = ["CALLBACK_MS_MAX", "MEMORY_MIB_MAX", "PAUSE_S_MAX", "BrokerCosts", "Cost", "Longest"]

MEMORY_MIB_MAX = 512
CALLBACK_MS_MAX = 10.0
PAUSE_S_MAX = 1.0
ANSWER_S = 10.0
FORGOTTEN_S = 150.0  # the meter keeps a minute; what a scene began may last longer than the scene
PROC = Path("/proc")


class Longest(NamedTuple):
    """The longest callbacks of a broker's last minute, in milliseconds."""

    processor_ms: float
    processor_in: str
    wall_ms: float
    wall_in: str


class Cost(NamedTuple):
    """Of one broker in one scene. `longest` is None where it was not measured; `missing` says why."""

    node_id: int
    alive: bool
    memory_mib: int
    processor_s: float
    longest: Longest | None
    missing: str

    def complaints(self) -> list[str]:
        """Return what is beyond the limits."""
        who = f"broker {self.node_id}"
        if not self.alive:
            return [f"{who} has ended"]
        found = []
        if self.memory_mib > MEMORY_MIB_MAX:
            found.append(f"{who}: {self.memory_mib} MiB")
        if self.longest is None:
            found.append(f"{who}: longest callback not measured: {self.missing}")
        elif self.longest.processor_ms > CALLBACK_MS_MAX:
            found.append(f"{who}: a callback of {self.longest.processor_ms:.1f} ms: {self.longest.processor_in}")
        return found

    def __str__(self) -> str:
        if not self.alive:
            return f"broker {self.node_id} ENDED"
        text = f"broker {self.node_id}: {self.memory_mib} MiB, {self.processor_s:.1f} s of a processor"
        if self.longest is None:
            return f"{text}, callbacks not measured ({self.missing})"
        one = self.longest
        return (
            f"{text}, longest callback {one.processor_ms:.1f} ms of the processor ({one.processor_in}), "
            f"{one.wall_ms:.1f} ms of the wall ({one.wall_in})"
        )


class BrokerCosts:
    """The brokers of one cluster on this machine."""

    def __init__(self, directory: Path) -> None:
        self._files = ClusterFiles.load(directory)
        found = {node_id: self._files.process(node_id) for node_id in self._files.node_ids}
        self._pids = {node_id: process.pid for node_id, process in found.items() if process is not None}
        self._used_s = dict.fromkeys(self._pids, 0.0)
        self.begin()

    def begin(self) -> None:
        """Let what follows count anew: peaks of memory, and time of processors."""
        for node_id, pid in self._pids.items():
            if self._is_alive(pid):
                (PROC / str(pid) / "clear_refs").write_text("5")
                self._used_s[node_id] = _processor_s(pid)

    def forget(self) -> bool:
        """Wait until no callback above the limit is remembered; return whether that is so."""
        until = time.monotonic() + FORGOTTEN_S
        while True:
            longest = [self._longest(node_id)[0] for node_id in self._pids]
            if all(one is None or one.processor_ms <= CALLBACK_MS_MAX for one in longest):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(1.0)

    def take(self) -> Sequence[Cost]:
        """Return what every broker cost since `begin`."""
        return [self._cost(node_id, pid) for node_id, pid in self._pids.items()]

    @staticmethod
    def _is_alive(pid: int) -> bool:
        try:
            return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def _cost(self, node_id: int, pid: int) -> Cost:
        if not self._is_alive(pid):
            return Cost(node_id, alive=False, memory_mib=0, processor_s=0.0, longest=None, missing="it has ended")
        longest, missing = self._longest(node_id)
        if not self._is_alive(pid):
            return self._cost(node_id, pid)
        used_s = _processor_s(pid) - self._used_s[node_id]
        return Cost(
            node_id, alive=True, memory_mib=_peak_mib(pid), processor_s=used_s, longest=longest, missing=missing
        )

    def _longest(self, node_id: int) -> tuple[Longest | None, str]:
        answer = ask_broker(self._files, node_id, ANSWER_S)
        if isinstance(answer, str):
            return None, answer
        return longest_of(answer)


def longest_of(status: dict[str, Any]) -> tuple[Longest | None, str]:
    """Return what a broker's status says of its loop, or why that says nothing."""
    loop = status.get("loop")
    if not isinstance(loop, dict) or not loop.get("callbacks"):
        return None, "its status has no measurement of its loop"
    processor, wall = loop["processor"], loop["wall"]
    return Longest(processor["longest_ms"], processor["in"], wall["longest_ms"], wall["in"]), ""


def _peak_mib(pid: int) -> int:
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) >> 10


def _processor_s(pid: int) -> float:
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
