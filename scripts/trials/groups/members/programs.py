"""Starts the members of each client. What a member does, and the lines that it writes, are those of `..worker`.

A member of another client than this project's reads the same job, of one member, with its `protocol`: "classic" or
"consumer" (KIP-848). It ends when its standard input does.
"""

from pathlib import Path

from bench import systems
from machines import java
from machines.modules import Program, module_program

__all__ = ["CLIENTS", "SPEAKS", "program_of"]

HERE = Path(__file__).resolve().parent
SPEAKS = {
    "barnabas": frozenset({"classic", "consumer"}),
    "librdkafka": frozenset({"classic", "consumer"}),
    "java": frozenset({"classic", "consumer"}),
}
"""The protocols of each client."""
CLIENTS = tuple(SPEAKS)


def program_of(client: str) -> Program:
    """Return the member of one of `CLIENTS`.

    Raises:
        NotInstalledError: this computer lacks what it needs, and cannot fetch it.
    """
    if client == "java":
        return Program(java.program(HERE / "Member.java", systems.install_kafka(), "-Xmx96m"), {})
    return module_program("trials.groups.worker" if client == "barnabas" else "trials.groups.members.librdkafka_member")
