"""Makes the worker of each client ready to run: compiles or fetches what it needs, into the benchmarks' cache.

*What a worker does,* in every language. It reads one line of JSON from standard input (`Workers` writes it): the
brokers (`bootstrap`), `input`, `output`, `group`, the `history` file, `began_ms`, its `name`, which is its
transactional id over all its lives, and its `life`, which is the name of its producer and its consumer in the history.
It is a member of the group, reads committed records, and for each handful of them makes one transaction: a record in
the partition of the same number of the output, `<life> <sequence> from <input>-<partition>@<offset>`, and the offsets.
When standard input ends, it ends the transaction and itself. When its client says that it cannot go on, it ends with
another status than 0, and is started again.

*What it writes* to the history, a write for each line: `begun`, and `consumed` and `invoked` for each record, before
the record is sent; `acknowledged`; `offset_sent` for each partition; `ending`; `ended`.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench import systems
from machines.modules import module_command, module_environment

__all__ = ["CLIENTS", "SECOND_PROTOCOL", "Program", "program_of"]

HERE = Path(__file__).resolve().parent
CLIENTS = ("barnabas", "java", "franz-go", "librdkafka")
SECOND_PROTOCOL = frozenset({"barnabas", "java", "franz-go"})
"""Those that speak the second protocol of transactions, in which each one has its own epoch."""
JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")


class Program(NamedTuple):
    """How a worker is started."""

    command: list[str]
    environment: dict[str, str]


def program_of(client: str) -> Program:
    """Return the worker of one of `CLIENTS`.

    Raises:
        NotInstalledError: this computer lacks what it needs, and cannot fetch it.
    """
    if client == "java":
        return Program(_java(), {})
    if client == "franz-go":
        return Program(_franz_go(), {})
    module = f"trials.transactions.exactly_once.clients.{client}_worker"
    return Program(module_command(module), module_environment())


def _java() -> list[str]:
    jars = systems.install_kafka()
    source = HERE / "Worker.java"
    classes = systems.CACHE / f"exactly-once-java-{_sum(source)}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=systems.CACHE) as folder:
            output = Path(folder, "classes")
            systems.fetch("javac", "-cp", f"{jars}/*", "-d", output, source)
            output.rename(classes)
    return [*JAVA, "-cp", f"{classes}:{jars}/*", "Worker"]


def _franz_go() -> list[str]:
    source = HERE / "franz_go"
    program = systems.CACHE / f"exactly-once-go-{_sum(*sorted(source.iterdir()))}"
    if not program.exists():
        with tempfile.TemporaryDirectory() as folder:  # Go writes go.sum beside the source: not into the checkout.
            copy = shutil.copytree(source, Path(folder) / "franz_go")
            systems.fetch("go", "mod", "tidy", cwd=copy)
            systems.fetch("go", "build", "-o", program, ".", cwd=copy)
    return [str(program)]


def _sum(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
