"""The members of two groups, of all clients, and what happens to them: killed, stopped, gone and come back.

One group is classic, the other of KIP-848. Each member is a process of its own, and has a new name in each life.
"""

import random
import signal
import subprocess
import time
from typing import NamedTuple

from .members.programs import CLIENTS, SPEAKS, program_of
from .watch import Span, Workers
from .worker import Job, Protocol

__all__ = ["GROUPS", "SESSION_S", "Cast", "Role"]

SESSION_S = 6.0
HEARTBEAT_S = 0.5
GROUPS: dict[str, Protocol] = {"of-classic": "classic", "of-consumer": "consumer"}
"""Each group, and its protocol."""
LATE_S = 5.0  # after a stall a member may hand out what it had before
STALL_S = (1.0, 1.8 * SESSION_S)


class Role(NamedTuple):
    """A place in a group, in which one process follows the other."""

    group: str
    client: str


class Cast:
    """See the module. `excused`: when a member could not know what it had, by group and name."""

    def __init__(self, workers: Workers, bootstrap: str, topic: str, chance: random.Random) -> None:
        self.workers = workers
        self.excused: dict[tuple[str, str], list[Span]] = {}
        self._job = Job(bootstrap, topic, [], ["range"], SESSION_S, HEARTBEAT_S)
        self._chance = chance
        self._processes: dict[Role, tuple[str, subprocess.Popen[str]]] = {}
        self._lives: dict[Role, int] = {}
        self.roles = [
            Role(group, client)
            for group, protocol in GROUPS.items()
            for client in CLIENTS
            if protocol in SPEAKS[client]
        ]

    def start(self) -> None:
        for role in self.roles:
            self.enter(role)

    def enter(self, role: Role) -> None:
        life = self._lives[role] = self._lives.get(role, 0) + 1
        name = f"{role.client}.{life}"
        job = self._job._replace(members=[(name, role.group)], protocol=GROUPS[role.group])
        self._processes[role] = name, self.workers.start(job, program_of(role.client))

    def members(self, group: str) -> list[tuple[str, str]]:
        """Return group and name of each member that is there."""
        return [(group, name) for role, (name, _) in self._processes.items() if role.group == group]

    def kill(self, role: Role) -> None:
        name, process = self._processes.pop(role)
        self.workers.kill(process)
        self._tell_end(role, name)

    def leave(self, role: Role) -> None:
        name, process = self._processes.pop(role)
        self.workers.dismiss(process)
        self._tell_end(role, name)

    def _tell_end(self, role: Role, name: str) -> None:
        with self.workers.changed:
            self.workers.lines.append({"what": "died", "member": name, "group": role.group, "at": time.monotonic()})
            self.workers.assignments.pop((role.group, name), None)

    def stall(self, role: Role) -> float:
        """Let one stand still, perhaps for longer than its session; return the seconds."""
        name, process = self._processes[role]
        seconds = self._chance.uniform(*STALL_S)
        began = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        self.excused.setdefault((role.group, name), []).append((began, time.monotonic() + LATE_S))
        return seconds
