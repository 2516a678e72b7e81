"""Runs load and faults on machines of their own, and judges the history. Torture, power cuts and the soak share it."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from machines.machines import Machines, missing

from barnabas_broker.history import Summary

from .load import Recorder

__all__ = ["FAILED", "SHOWN_MAX", "Trial", "cannot", "leave_evidence", "work_folder"]

FAILED = 1
CANNOT = 2
SHOWN_MAX = 20


class Trial:
    """The machines of one run, and its history; `hung` names the hang, and is empty if there was none.

    Args:
        folder: The place of the machines.
        settings: Of all brokers.
        history: The file of the history; None: one in `folder`.
        wire_delay_ms: See `Machines`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        history: str | None = None,
        wire_delay_ms: float | None = None,
    ) -> None:
        self.machines = Machines(folder, settings=settings, wire_delay_ms=wire_delay_ms)
        self.recorder = Recorder(Path(history) if history else folder / "history.jsonl")
        self.hung = ""
        self._folder = folder

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the block be the run: a hang ends it and is told, and all brokers end behind it."""
        try:
            yield
        except RuntimeError as error:  # HangError, or a broker that does not start
            self.hung = str(error)
            print(f"HUNG: {self.hung}", file=sys.stderr)
            for machine in self.machines.all:
                print(f"broker {machine.node_id} last said: {machine.last_words()}", file=sys.stderr)
        finally:
            self.machines.mend_links()
            self.machines.stop()
            self.recorder.close()

    def judge(self, shown_max: int = SHOWN_MAX) -> Summary:
        """Print the first violations; return the summary of the history."""
        for violation in self.recorder.checker.violations[:shown_max]:
            print(violation, file=sys.stderr)
        return self.recorder.checker.summary()

    def leave_evidence(self) -> None:
        """Copy the history and the logs of the brokers to a directory that stays, and name it."""
        leave_evidence(self.recorder.path, *self._folder.glob("machine-*/broker.*"))


def leave_evidence(*files: Path) -> None:
    """Copy these files to a directory that stays, each with its folder's name before its own, and name it."""
    left = Path(tempfile.mkdtemp(prefix="barnabas-torture-failed-"))
    for file in files:
        shutil.copy(file, left / f"{file.parent.name}-{file.name}")
    print(f"history and logs: {left}", file=sys.stderr)


def cannot(program: str, error: Exception) -> int:
    """Say why this computer cannot do it; return the exit status."""
    print(f"{program}: {error}; all that is missing: {missing() or 'nothing'}", file=sys.stderr)
    return CANNOT


@contextmanager
def work_folder(prefix: str, *, keeps: bool) -> Iterator[Path]:
    """Make a folder for the brokers' logs and disks, and remove it at the end; or say where it is, and leave it."""
    if keeps:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        print(f"leaves {folder}")
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix=prefix) as temporary:
            yield Path(temporary)
