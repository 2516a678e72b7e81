"""Starts the members of each client. What a member does, and the lines that it writes, are those of `..worker`.

A member of another client than this project's reads the same job, of one member, with its `protocol`: "classic" or
"consumer" (KIP-848). It ends when its standard input does.
"""

from pathlib import Path
from typing import NamedTuple

from bench import systems
from machines import cache
from machines.modules import module_command, module_environment

__all__ = ["CLIENTS", "SPEAKS", "Program", "program_of"]

HERE = Path(__file__).resolve().parent
JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx96m")
SPEAKS = {
    "barnabas": frozenset({"classic", "consumer"}),
    "librdkafka": frozenset({"classic", "consumer"}),
    "java": frozenset({"classic", "consumer"}),
}
"""The protocols of each client."""
CLIENTS = tuple(SPEAKS)


class Program(NamedTuple):
    """How a member is started."""

    command: list[str]
    environment: dict[str, str]


def program_of(client: str) -> Program:
    """Return the member of one of `CLIENTS`.

    Raises:
        NotInstalledError: this computer lacks what it needs, and cannot fetch it.
    """
    if client == "java":
        return Program(_java(), {})
    module = "trials.groups.worker" if client == "barnabas" else "trials.groups.members.librdkafka_member"
    return Program(module_command(module), module_environment())


def _java() -> list[str]:
    jars = systems.install_kafka()
    source = HERE / "Member.java"

    def compile_to(folder: Path) -> None:
        cache.fetch("javac", "-cp", f"{jars}/*", "-d", folder, source)

    classes = cache.kept(f"group-member-{cache.sum_of(source)}", compile_to)
    return [*JAVA, "-cp", f"{classes}:{jars}/*", "Member"]
