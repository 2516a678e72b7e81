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

from bench import systems
from machines import cache, java
from machines.modules import Program, module_program

__all__ = ["CLIENTS", "SECOND_PROTOCOL", "program_of"]

HERE = Path(__file__).resolve().parent
CLIENTS = ("barnabas", "java", "franz-go", "librdkafka")
SECOND_PROTOCOL = frozenset({"barnabas", "java", "franz-go"})
"""Those that speak the second protocol of transactions, in which each one has its own epoch."""


def program_of(client: str) -> Program:
    """Return the worker of one of `CLIENTS`.

    Raises:
        NotInstalledError: this computer lacks what it needs, and cannot fetch it.
    """
    if client == "java":
        return Program(java.program(HERE / "Worker.java", systems.install_kafka(), "-Xmx128m"), {})
    if client == "franz-go":
        return Program([str(cache.go_program("exactly-once-go", HERE / "franz_go"))], {})
    return module_program(f"trials.transactions.exactly_once.clients.{client}_worker")
