"""Makes the worker of each client ready to run: compiles or fetches what it needs, into the cache.

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

from pathlib import Path
from typing import NamedTuple

from bench import systems
from machines import cache
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
        return Program([str(cache.go_program("exactly-once-go", HERE / "franz_go"))], {})
    module = f"trials.transactions.exactly_once.clients.{client}_worker"
    return Program(module_command(module), module_environment())


def _java() -> list[str]:
    jars = systems.install_kafka()
    source = HERE / "Worker.java"

    def compile_to(folder: Path) -> None:
        cache.fetch("javac", "-cp", f"{jars}/*", "-d", folder, source)

    classes = cache.kept(f"exactly-once-java-{cache.sum_of(source)}", compile_to)
    return [*JAVA, "-cp", f"{classes}:{jars}/*", "Worker"]
