"""Measures a broker's costs of hostile clients: peak memory, processor time, longest callback.

Memory is that of the process (`VmHWM`, which is set back before each scene), so the kernel's page cache for it does not
count. Callbacks are those in the broker's own `status` (`loop`): the longest of each ten seconds of the last minute, in
time of the processor and of the wall. The ten seconds in which a scene begins and all later ones count for it. So a
scene waits for the next ten seconds if something above the limit has been in these (`forget`); otherwise everything
above the limit at the end is this scene's. A broker without an answer is *not measured*, which is never taken for good.
A callback is forgiven the time in which its processor stood still (`standstill`): the kernel charges that to the
running process.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.status import ask_broker

from .machine import Stills, still_ms

__all__ = ["CALLBACK_MS_MAX", "MEMORY_MIB_MAX", "PAUSE_S_MAX", "BrokerCosts", "Cost", "Longest"]

MEMORY_MIB_MAX = 512
CALLBACK_MS_MAX = 10.0
PAUSE_S_MAX = 1.0
ANSWER_S = 10.0
FORGOTTEN_S = 150.0  # the effects of a scene may last longer than the scene
PROC = Path("/proc")


class Longest(NamedTuple):
    """The longest callbacks of a broker in some time, in milliseconds.

    `still_ms`: the time for which the machine stood still during the one that used the processor.
    """

    processor_ms: float
    processor_in: str
    wall_ms: float
    wall_in: str
    still_ms: float = 0.0

    @property
    def own_ms(self) -> float:
        """The part of the processor's time that was certainly its own."""
        return max(0.0, self.processor_ms - self.still_ms)


class Cost(NamedTuple):
    """The costs of one broker in one scene. `longest` is None if it was not measured; `missing` says why."""

    node_id: int
    alive: bool
    memory_mib: int
    processor_s: float
    longest: Longest | None
    missing: str

    def complaints(self) -> list[str]:
        """Return all that is beyond the limits."""
        who = f"broker {self.node_id}"
        if not self.alive:
            return [f"{who} has ended"]
        found = []
        if self.memory_mib > MEMORY_MIB_MAX:
            found.append(f"{who}: {self.memory_mib} MiB")
        if self.longest is None:
            found.append(f"{who}: longest callback not measured: {self.missing}")
        elif self.longest.own_ms > CALLBACK_MS_MAX:
            found.append(f"{who}: a callback of {self.longest.processor_ms:.1f} ms: {self.longest.processor_in}")
        return found

    def __str__(self) -> str:
        if not self.alive:
            return f"broker {self.node_id} ENDED"
        text = f"broker {self.node_id}: {self.memory_mib} MiB, {self.processor_s:.1f} s of a processor"
        if self.longest is None:
            return f"{text}, callbacks not measured ({self.missing})"
        one = self.longest
        still = f"; the machine stood still for {one.still_ms:.1f}" if one.still_ms else ""
        return (
            f"{text}, longest callback {one.processor_ms:.1f} ms of the processor ({one.processor_in}{still}), "
            f"{one.wall_ms:.1f} ms of the wall ({one.wall_in})"
        )


class BrokerCosts:
    """The brokers of one cluster on this machine."""

    def __init__(self, directory: Path) -> None:
        self._files = ClusterFiles.load(directory)
        found = {node_id: self._files.process(node_id) for node_id in self._files.node_ids}
        self._pids = {node_id: process.pid for node_id, process in found.items() if process is not None}
        self._used_s = dict.fromkeys(self._pids, 0.0)
        self._first_slots = dict.fromkeys(self._pids, 0)
        self.begin()

    def begin(self) -> None:
        """Count anew from here: peaks of memory, time of processors, and callbacks."""
        for node_id, pid in self._pids.items():
            if self._is_alive(pid):
                (PROC / str(pid) / "clear_refs").write_text("5")
                self._used_s[node_id] = _processor_s(pid)
                self._first_slots[node_id] = self._latest_slot(node_id)

    def forget(self) -> bool:
        """Wait until the present slots have no callback above the limit; return whether that is so."""
        until = time.monotonic() + FORGOTTEN_S
        while True:
            longest = [self._longest(node_id, self._latest_slot(node_id))[0] for node_id in self._pids]
            if all(one is None or one.processor_ms <= CALLBACK_MS_MAX for one in longest):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(1.0)

    def take(self, stills: Stills = ()) -> Sequence[Cost]:
        """Return the costs of every broker since `begin`. `stills`: see `Kept`."""
        return [self._cost(node_id, pid, stills) for node_id, pid in self._pids.items()]

    @staticmethod
    def _is_alive(pid: int) -> bool:
        try:
            return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def _cost(self, node_id: int, pid: int, stills: Stills) -> Cost:
        if not self._is_alive(pid):
            return Cost(node_id, alive=False, memory_mib=0, processor_s=0.0, longest=None, missing="it has ended")
        longest, missing = self._longest(node_id, self._first_slots[node_id], stills)
        if not self._is_alive(pid):
            return self._cost(node_id, pid, stills)
        used_s = _processor_s(pid) - self._used_s[node_id]
        return Cost(
            node_id, alive=True, memory_mib=_peak_mib(pid), processor_s=used_s, longest=longest, missing=missing
        )

    def _longest(self, node_id: int, first_slot: int, stills: Stills = ()) -> tuple[Longest | None, str]:
        answer = ask_broker(self._files, node_id, ANSWER_S)
        if isinstance(answer, str):
            return None, answer
        return longest_of(answer, first_slot, stills)

    def _latest_slot(self, node_id: int) -> int:
        """Return the number of the present ten seconds, as the broker counts them; 0 if it does not say."""
        answer = ask_broker(self._files, node_id, ANSWER_S)
        slots = [] if isinstance(answer, str) else _slots_of(answer)
        return max((int(slot["slot"]) for slot in slots), default=0)


def longest_of(status: dict[str, Any], first_slot: int = 0, stills: Stills = ()) -> tuple[Longest | None, str]:
    """Return the longest callback of a broker's status since that slot began, or the reason why there is none.

    The longest callback is the one of which most is left when the machine's standstills are taken off.
    """
    slots = [slot for slot in _slots_of(status) if slot["slot"] >= first_slot]
    if not slots:
        return None, "its status has no measurement of its loop"
    wall = max((slot["wall"] for slot in slots), key=_longest_ms)
    found = []
    for slot in slots:
        processor = slot["processor"]
        stood_ms = still_ms(stills, processor["ended_ms"], processor["lasted_ms"])
        found.append(
            Longest(
                processor_ms=processor["longest_ms"],
                processor_in=processor["in"],
                wall_ms=wall["longest_ms"],
                wall_in=wall["in"],
                still_ms=stood_ms,
            )
        )
    return max(found, key=lambda one: one.own_ms), ""


def _slots_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    loop = status.get("loop")
    return loop["slots"] if isinstance(loop, dict) and loop.get("callbacks") else []


def _longest_ms(one: dict[str, Any]) -> float:
    longest_ms: float = one["longest_ms"]
    return longest_ms


def _peak_mib(pid: int) -> int:
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) >> 10


def _processor_s(pid: int) -> float:
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
