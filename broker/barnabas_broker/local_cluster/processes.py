"""Identifies, watches and ends processes that this one did not necessarily start.

A process id alone names nothing: after a crash and a day of uptime it may be someone's editor. So a process is
identified by its id and the time it started (together with the boot, as start times count from it), and signals go
through a pidfd, which keeps meaning the process it was opened for.

Waiting is done on pidfds (kqueue on macOS), never by asking again and again. A zombie counts as ended: its parent may
be a container's init that never reaps. A process of which threads are left has not ended: after a kill it goes on
existing, with its locks and ports, until the last write or sync that the disk owes it has come back (`is_ending`).
"""

import contextlib
import os
import pwd
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .interrupts import Interrupts

__all__ = ["ProcessIdentity", "identify", "is_ending", "is_running", "owner_of", "send_signal", "wait_for_exit"]

PF_EXITING = 0x4  # among a process's flags: it frees what it holds (Linux, include/linux/sched.h)
SIGKILL_MASK = 1 << (signal.SIGKILL - 1)


class ProcessIdentity(NamedTuple):
    """One process, for as long as the machine keeps its boot id. `started` is compared, never interpreted."""

    pid: int
    started: str


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has this id now, or None when none runs."""
    if pid <= 0:
        return None
    if sys.platform == "darwin":
        command = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
        return ProcessIdentity(pid, found) if found else None
    try:
        return _identity(pid, _stat(pid))
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_ending(process: ProcessIdentity) -> bool:
    """Say whether this process still runs and has no future: it was killed or has ended, but not all of it is gone.

    False on macOS, which is not asked.
    """
    if sys.platform == "darwin":
        return False
    try:
        # In this order: a signal is pending no more a moment before the process is called exiting.
        status = Path(f"/proc/{process.pid}/status").read_text()
        stat = _stat(process.pid)
        is_same = _identity(process.pid, stat) == process
    except (FileNotFoundError, ProcessLookupError):
        return False
    return is_same and (stat.state == "Z" or bool(stat.flags & PF_EXITING) or _has_been_killed(status))


class _Stat(NamedTuple):
    state: str
    flags: int
    threads: int
    start_ticks: str


def _stat(pid: int) -> _Stat:
    text = Path(f"/proc/{pid}/stat").read_text()
    # The second field is the command in parentheses and may hold spaces; the fields behind its last one do not.
    fields = text.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[6]), int(fields[17]), fields[19])


def _identity(pid: int, stat: _Stat) -> ProcessIdentity | None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    has_ended = stat.state == "X" or (stat.state == "Z" and stat.threads <= 1)
    return None if has_ended else ProcessIdentity(pid, f"{boot}:{stat.start_ticks}")


def _has_been_killed(status: str) -> bool:
    """Tell from `/proc/PID/status` whether SIGKILL is on its way to a thread that cannot be interrupted now."""
    pending = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) & SIGKILL_MASK for mask in pending)


def is_running(process: ProcessIdentity) -> bool:
    """Say whether this very process, and not another that has its id, has not ended."""
    return identify(process.pid) == process


def owner_of(process: ProcessIdentity) -> str:
    """Return the name of the user whose process it is, or the number of one without a name."""
    if sys.platform == "darwin":
        return "another user"
    try:
        uid = Path(f"/proc/{process.pid}").stat().st_uid
    except OSError:
        return "another user"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal the process; False when it has ended, also when another has its id now.

    Raises:
        PermissionError: it belongs to somebody else.
    """
    if sys.platform == "darwin":
        if not is_running(process):
            return False
        os.kill(process.pid, number)
        return True
    with contextlib.ExitStack() as cleanup:
        fd = _open(process, cleanup)
        if fd is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
            return True
        return False


def wait_for_exit(
    processes: Iterable[ProcessIdentity], timeout_s: float, interrupts: Interrupts | None = None
) -> set[ProcessIdentity]:
    """Wait until all have ended, the time is up or the user has had enough; return those that still run."""
    deadline = time.monotonic() + timeout_s
    left = {process for process in processes if is_running(process)}
    if sys.platform == "darwin":
        queue = select.kqueue()
        with contextlib.closing(queue):
            watch = [select.kevent(p.pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT) for p in left]
            queue.control(watch, 0)
            while left and (left_s := deadline - time.monotonic()) > 0:
                queue.control([], len(left), left_s)
                left = {process for process in left if is_running(process)}
                if interrupts is not None and interrupts.asked():
                    break
        return left
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as cleanup:
        for process in sorted(left):
            fd = _open(process, cleanup)
            if fd is None:
                left.discard(process)
            else:
                selector.register(fd, selectors.EVENT_READ, process)
        if interrupts is not None:
            selector.register(interrupts, selectors.EVENT_READ, interrupts)
        while left and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                if key.data is not interrupts:
                    left.discard(key.data)
                    selector.unregister(key.fd)
                elif interrupts is not None and interrupts.asked():
                    return left
    return left


def _open(process: ProcessIdentity, cleanup: contextlib.ExitStack) -> int | None:
    """Return a pidfd of the process, or None when it has ended."""
    assert sys.platform != "darwin"
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    cleanup.callback(os.close, fd)
    # Only now is it certain which process the descriptor stands for.
    return fd if is_running(process) else None
