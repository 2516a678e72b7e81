"""Collects the lines of the members of groups, and checks three promises.

They are promises of consumer groups, over all rounds at once:

- *One owner.* No partition is handed out to two members in one generation, and nobody is handed records of a partition
  after a member of a later generation was.
- *Commits stay.* A question for the committed offset is answered with at least the offset that was acknowledged before
  it, by any coordinator.
- *Nothing is lost.* The records that the members were handed have no gap.
"""

import itertools
import json
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

from machines.modules import Program, module_program

from .worker import Job

LEAVE_LIMIT_S = 60.0
Line = dict[str, Any]


class Observation(NamedTuple):
    """The committed offset of a partition, as an answer to a question asked at `began`."""

    partition: int
    offset: int
    began: float


class Workers:
    """Worker processes and all their lines so far. `changed` is notified of every line."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.lines: list[Line] = []
        self.assignments: dict[tuple[str, str], frozenset[int]] = {}  # group and member
        self.committed_at: dict[tuple[str, str], float] = {}
        """When the last successful commit of a member began."""
        self.generations: dict[tuple[str, str], int] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._reading: dict[int, threading.Thread] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, job: Job, program: Program | None = None) -> subprocess.Popen[str]:
        """Start a worker: this project's, unless `program` is another client's."""
        command, environment = program or module_program("trials.groups.worker")
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(job._asdict()) + "\n")
        process.stdin.flush()
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._processes.append(process)
        self._readers.append(reader)
        self._reading[process.pid] = reader
        reader.start()
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill one, and hear its last words."""
        self._processes.remove(process)
        process.kill()
        self._bury(process)

    def dismiss(self, process: subprocess.Popen[str]) -> None:
        """Let the members of one leave, and wait for it."""
        self._processes.remove(process)
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(LEAVE_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
        self._bury(process)

    def _bury(self, process: subprocess.Popen[str]) -> None:
        process.wait()
        reader = self._reading.pop(process.pid)
        reader.join()
        self._readers.remove(reader)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            try:
                line: Line = json.loads(text)
            except ValueError:
                continue  # A killed process has left half of one.
            with self.changed:
                self._take(line)
                self.changed.notify_all()

    def _take(self, line: Line) -> None:
        self.lines.append(line)
        who = line["group"], line["member"]
        owned = self.assignments.get(who, frozenset())
        match line["what"]:
            case "assigned":
                self.assignments[who] = owned | frozenset(line["partitions"])
            case "revoked" | "lost":
                self.assignments[who] = owned - frozenset(line["partitions"])
            case "committed":
                self.committed_at[who] = line["began"]
                self.generations[who] = line["generation"]
            case _:
                pass

    def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float) -> float:
        """Wait for `condition` and return the moment when it held; ends the run at the limit."""
        deadline = time.monotonic() + limit_s
        with self.changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or any(process.poll() is not None for process in self._processes):
                    raise SystemExit(f"waited for {what}; the last lines: {self.lines[-5:]}")
                self.changed.wait(min(left, 1.0))
            return time.monotonic()

    def all_committed_since(self, moment: float, members: Iterable[tuple[str, str]]) -> bool:
        """Tell whether each of these has succeeded with a commit that it began after `moment`."""
        return all(self.committed_at.get(who, 0.0) > moment for who in members)

    def stop(self) -> None:
        """Let all members leave, and wait for their processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(LEAVE_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join()
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.close()
        self._processes.clear()
        self._readers.clear()


Span = tuple[float, float]
"""A time, from and to, by CLOCK_MONOTONIC."""


def check_spans(lines: Iterable[Line], excused: dict[tuple[str, str], list[Span]]) -> list[str]:
    """Return the partitions that two members had at the same time.

    A member has one from its callback to the next that takes it away, or until it died. One that has lost it, or that
    was made to stand still (`excused`, by group and member), may not have known.
    """
    wrong = []
    had: dict[tuple[str, int], list[tuple[float, float, str, bool]]] = defaultdict(list)
    present: dict[tuple[str, str, int], float] = {}
    for line in sorted(lines, key=lambda line: float(line["at"])):
        group, member, at = line["group"], line["member"], line["at"]
        numbers = line.get("partitions", ())
        if line["what"] == "assigned":
            present |= {(group, member, number): at for number in numbers if (group, member, number) not in present}
        elif line["what"] in {"revoked", "lost", "died"}:
            if line["what"] == "died":
                numbers = [number for one, other, number in present if (one, other) == (group, member)]
            for number in numbers:
                if (began := present.pop((group, member, number), None)) is not None:
                    had[group, number].append((began, at, member, line["what"] != "revoked"))
    for (group, member, number), began in present.items():
        had[group, number].append((began, float("inf"), member, False))
    for (group, number), spans in had.items():
        for one, other in itertools.combinations(sorted(spans), 2):
            stalls = excused.get((group, one[2]), ())
            is_excused = one[3] or any(begin < other[0] < end for begin, end in stalls)
            if other[0] < one[1] and one[2] != other[2] and not is_excused:
                wrong.append(f"{group} partition {number}: {one[2]} until {one[1]:.3f}, {other[2]} from {other[0]:.3f}")
    return wrong


def check_owners(lines: Iterable[Line]) -> list[str]:
    """Return the contradictions to "one owner"."""
    wrong = []
    latest: dict[tuple[str, int], tuple[int, str]] = {}
    owners: dict[tuple[str, int, int], str] = {}
    handed = sorted((line for line in lines if line["what"] == "handed"), key=lambda line: float(line["at"]))
    for line in handed:
        group = line["group"]
        member = line["member"]
        generation = line["generation"]
        for partition in map(int, line["handed"]):
            owner = owners.setdefault((group, generation, partition), member)
            if owner != member:
                wrong.append(f"{group} partition {partition} in generation {generation}: {owner} and {member}")
            last_generation, last_member = latest.get((group, partition), (-1, member))
            if generation < last_generation and member != last_member:
                wrong.append(
                    f"{group} partition {partition}: {member} of generation {generation} after {last_member} "
                    f"of generation {last_generation}"
                )
            else:
                latest[group, partition] = generation, member
    return wrong


def check_commits(lines: Iterable[Line], observations: Iterable[Observation]) -> list[str]:
    """Return the observations that missed a commit acknowledged before them."""
    acknowledged: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for line in lines:
        if line["what"] == "committed":
            for partition, offset in line["committed"].items():
                acknowledged[int(partition)].append((line["at"], offset))
    floors = {partition: sorted(found) for partition, found in acknowledged.items()}
    reached: dict[int, tuple[int, int]] = defaultdict(lambda: (0, -1))  # how many are counted, and their highest
    wrong = []
    for partition, offset, began in sorted(observations, key=lambda found: found.began):
        count, floor = reached[partition]
        found = floors.get(partition, [])
        while count < len(found) and found[count][0] < began:
            floor = max(floor, found[count][1])
            count += 1
        reached[partition] = count, floor
        if offset < floor:
            wrong.append(f"partition {partition}: {offset} is committed, {floor} was acknowledged before")
    return wrong


def check_whole(lines: Iterable[Line], counts: dict[int, int]) -> tuple[list[str], int]:
    """Return the gaps in the first `counts` records of each partition, and how many records came twice."""
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for line in lines:
        if line["what"] == "handed":
            for partition, (first, last) in line["handed"].items():
                ranges[int(partition)].append((first, last))
    wrong = []
    again = 0
    for partition, count in counts.items():
        following = 0
        for first, last in sorted(ranges[partition]):
            if first > following:
                wrong.append(f"partition {partition}: nobody was handed {following} to {first - 1}")
            again += max(0, min(following, last + 1) - first)
            following = max(following, last + 1)
        if following < count:
            wrong.append(f"partition {partition}: handed out up to {following}, {count} were acknowledged")
    return wrong, again
