"""Copies the checkout, plants a mistake in one file, and runs tests there.

The shells between the pure cores are made of coroutines, sockets and files, and their tests drive them in this process
or in another. So a mutant of a shell is a checkout of its own: its tests import the modules beside them, and so does
every process that they start.

A test that hangs has noticed the mistake as well; `TEST_LIMIT_S` and `RUN_LIMIT_S` end it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ROOT", "Copy", "copy_of_checkout"]

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("raftlog", "clients", "metadata_quorum", "broker", "spark", "tests", "scripts", "docs")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
TEST_LIMIT_S = 60
RUN_LIMIT_S = 400
PASSED = 0
FAILED = 1
INTERRUPTED = 2


class Copy:
    """One copy, which serves one mutant after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """Have `text` in a file of the copy; `file` is its path below the checkout."""
        path = self.folder / file
        before = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)

    def first_failure(self, tests: Sequence[str]) -> str | None:
        """Run tests until one fails; return a line that says which one and how. None: all have passed.

        Raises:
            RuntimeError: there are no such tests.
        """
        folders = [str(self.folder / name) for name in ("raftlog", "clients", "metadata_quorum", "broker", "spark")]
        options = ("-x", "-q", "--tb=no", "-p", "no:cacheprovider", f"--timeout={TEST_LIMIT_S}")
        command = (sys.executable, "-m", "pytest", *options, *tests)
        # The path of a Unix socket may have 107 bytes: the name of this folder is short.
        with tempfile.TemporaryDirectory(prefix="m.", ignore_cleanup_errors=True) as temporary:
            variables = {"PYTHONPATH": os.pathsep.join(folders), "TMPDIR": temporary, "PYTHONDONTWRITEBYTECODE": "1"}
            try:
                done = subprocess.run(
                    command,
                    cwd=self.folder,
                    env=os.environ | variables,
                    capture_output=True,
                    text=True,
                    timeout=RUN_LIMIT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"not over after {RUN_LIMIT_S} s"
        if done.returncode == PASSED:
            return None
        if done.returncode in {FAILED, INTERRUPTED}:
            told = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return told[0] if told else "ended in the middle"
        if "Timeout" in done.stdout + done.stderr:
            return "a test hung"
        raise RuntimeError(f"{' '.join(tests)}: {(done.stderr or done.stdout).strip()[-500:]}")


@contextmanager
def copy_of_checkout() -> Iterator[Copy]:
    """Make a copy of the checkout as it is now, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="seams.") as name:
        for folder in FOLDERS:
            shutil.copytree(ROOT / folder, Path(name) / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in FILES:
            shutil.copy(ROOT / file, name)
        yield Copy(Path(name))
