"""Does what a page says, as its reader would: in a shell, on a cluster of its own.

Pages speak of `localhost:9092`, and of `/tmp/barnabas` or `/var/lib/barnabas`. Here a cluster has other ports and
another directory, so that it meets nobody else's; both are put in place of the pages' in what is run, and taken out of
what was printed.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple, Self

from machines.cluster_handle import free_port

from documents.comparison import agree
from documents.notebook import Notebook
from documents.pages import Example, Turn, sections, turns

__all__ = ["Difference", "Reader", "page_text"]

ROOT = Path(__file__).resolve().parents[2]
SHOWN_PORT = 9092
SHOWN_DATA = ("/tmp/barnabas", "/var/lib/barnabas")  # noqa: S108 - what readers are told to type
"""The directory of the pages' cluster. A page has one name for it: `/tmp` to try something, the other to run one."""
PORTS = 8
"""Of the pages' clusters: one of three brokers on the first ports, and others on those behind them."""
PEER_PORTS = 1000
REAL_PORTS = range(9110, 9910, 20)
"""As many digits as the pages' ports have, theirs between brokers included: tables keep their columns."""
BLOCK_TIMEOUT_S = 120
END_OF_TURN = "-- end of turn --"


class _Run(NamedTuple):
    """What was run; what the page shows, which stands `at` that slice of its text; and what was printed."""

    command: str
    shown: str
    printed: str
    at: slice


class Difference(NamedTuple):
    """A page shows something else than an example printed. `at` is a slice of the page's text."""

    page: str
    line: int
    command: str
    shown: str
    printed: str
    at: slice

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}\nshown:\n{self.shown}\nprinted:\n{self.printed}"


def claimed_port() -> tuple[int, socket.socket]:
    """Return the first of the ports of a cluster, and what keeps other readers of this machine from them until closed.

    A reader's cluster starts long after its port was chosen. A second reader that had chosen the same one would be told
    so by its `cluster start`, and its other commands would go to the first one's brokers.
    """
    for port in REAL_PORTS:
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", port + PORTS))
            return free_port(PORTS, (port,)), claim
        except (OSError, RuntimeError):  # another reader's, or of somebody else
            claim.close()
    raise RuntimeError("no free ports")


class Reader:
    """One reader with one cluster directory; what pages start is stopped when the reader goes.

    `desk` is the directory in which the reader works.
    """

    def __init__(self) -> None:
        self._home = Path(mkdtemp(prefix="docs-"))
        self._data = self._home / "barnabas"
        self.desk = self._home / "desk"
        self.desk.mkdir()
        self._port, self._claim = claimed_port()
        self._shown_data = SHOWN_DATA[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for made in sorted(self._home.glob("*/cluster.json")):
            self.bash(f"barnabas cluster stop --data {made.parent}", check=False)
        self._claim.close()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """What a reader's shell has in its environment."""
        binaries = str(Path(sys.executable).parent)
        return {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", **self._own_environment}

    @property
    def _own_environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("scripts", "tests")),
            "BARNABAS_BOOTSTRAP_SERVER": f"localhost:{self._port}",
            "BARNABAS_CONFIG": str(self._home / "profiles.toml"),
            "COLUMNS": "120",
            "MPLBACKEND": "Agg",
            "SPARK_LOCAL_IP": "127.0.0.1",  # whatever the network of this machine is like
            # Of a JVM that lives for some seconds: do not compile for speed, and start no threads for collecting.
            "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            # A reader's pytest has no plugins of ours that want to be configured.
            "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider",
        }

    def beside(self, name: str) -> Path:
        """Return what is called `/tmp/barnabas-NAME` on the pages."""
        return self._data.with_name(f"{self._data.name}-{name}")

    @property
    def has_cluster(self) -> bool:
        """Whether the pages' cluster is there, running or not."""
        return (self._data / "cluster.json").exists()

    def read(
        self, page: str, titles: Sequence[str] | None = None, *, exactly: bool = False, notebook: Notebook | None = None
    ) -> list[Difference]:
        """Run the examples of a page, or of some of its sections, in order; return where the page is wrong.

        With `exactly`, numbers and ids must be the same, too. With a notebook, that is where programs run.
        """
        text = page_text(page)
        self._shown_data = next((name for name in reversed(SHOWN_DATA) if name in text), SHOWN_DATA[0])
        if notebook is not None:
            notebook.begin()
        there = sections(text)
        assert there, f"{page} has no examples"
        assert titles is None or set(titles) <= {section.title for section in there}, titles
        return [
            Difference(page, text.count("\n", 0, found.at.start) + 1, *found)
            for section in there
            if titles is None or section.title in titles
            for example in section.examples
            for found in self._run(text, example, notebook)
            if not agree(found.shown, found.printed) or (exactly and found.shown != found.printed)
        ]

    def _run(self, text: str, example: Example, notebook: Notebook | None) -> Iterator[_Run]:
        if example.before is not None:
            self.bash(self._real(example.before))
        if example.language == "console":
            said = turns(example.source)
            for turn, printed in zip(said, self._say(said, notebook), strict=True):
                start = example.body_at.start + turn.output_at
                yield _Run(turn.command, turn.output, printed, slice(start, start + len(turn.output)))
        elif example.saved_as is not None:
            (self.desk / example.saved_as).write_text(self._real(example.source))
        elif notebook is not None or example.language == "python":
            printed = self._program(example, notebook)
            if example.shown_at is not None:
                yield _Run("a program", text[example.shown_at], printed, example.shown_at)
            elif "Traceback" in printed:
                yield _Run("a program", "", printed, slice(example.body_at.stop, example.body_at.stop))

    def _program(self, example: Example, notebook: Notebook | None) -> str:
        source = self._real(example.source)
        if notebook is not None:
            return self._shown(notebook.run(example.language, source))
        program = self.desk / "example.py"
        program.write_text(source)
        (printed,) = self._type([f"python -W error {program.name}"])
        return printed

    def _say(self, said: Sequence[Turn], notebook: Notebook | None) -> list[str]:
        """Type commands into one shell; with a notebook into a shell each, but jobs run in the notebook if they can."""
        if notebook is None:
            return self._type([turn.command for turn in said])
        printed = []
        for turn in said:
            found = notebook.job(self._real(turn.command), self._own_environment)
            printed.append(self._type([turn.command])[0] if found is None else self._shown(found))
        return printed

    def _type(self, commands: Sequence[str]) -> list[str]:
        """Run commands one after the other in one shell; return what each printed, stderr included, in whole lines."""
        # A last line without an end gets one, and any other an empty line behind it, which is taken away again.
        printed = self.bash(
            "".join(f"{self._real(one)}\necho; echo '{END_OF_TURN}'\n" for one in commands), check=False
        )
        outputs = printed.split(f"{END_OF_TURN}\n")[:-1]
        assert len(outputs) == len(commands), printed
        return [self._shown(re.sub(r"(^|(?<=\n))\n$", "", output)) for output in outputs]

    def bash(self, script: str, *, check: bool = True) -> str:
        """Run a script, and return what it prints; a background job that holds its output open is waited for."""
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}"],
            cwd=self.desk,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout
        return done.stdout

    def _real(self, source: str) -> str:
        """Put this cluster's place into what a page tells to do."""
        source = source.replace(self._shown_data, str(self._data))
        source = source.replace(f"localhost:{SHOWN_PORT}", f"localhost:{self._port}")
        for number in range(1, PORTS):
            source = re.sub(rf"(--port |:){SHOWN_PORT + number}\b", rf"\g<1>{self._port + number}", source)
        data = re.escape(str(self._data))
        return re.sub(rf"cluster start --data {data}(?= )(?!.*--port)", rf"\g<0> --port {self._port}", source)

    def _shown(self, output: str) -> str:
        """Take this cluster's place out of what was printed."""
        output = output.replace(str(self._data), self._shown_data)
        for space in (0, PEER_PORTS):
            for number in range(PORTS):
                output = re.sub(rf"\b{self._port + space + number}\b", str(SHOWN_PORT + space + number), output)
        return re.sub(r" +$", "", output, flags=re.MULTILINE)


def page_text(page: str) -> str:
    return (ROOT / page).read_text()
