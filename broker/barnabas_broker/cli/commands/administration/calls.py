"""Runs the calls of a command, and says what brokers refuse in words.

A command with several names does what it can: a name that is refused gets its line on stderr, the others go on, and the
exit status is 1. A broker that does not answer ends the command, because the next name would wait as long.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from barnabas_broker.cli.admin import with_admin
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.output import complain
from barnabas_broker.cli.wording import in_words
from barnabas_clients import Admin
from barnabas_clients.protocol.errors import KafkaError

__all__ = ["administer", "complain_of_silence", "for_each", "usage"]

T = TypeVar("T")


def administer(bootstrap: str, timeout_s: float, use: Callable[[Admin], Awaitable[T]]) -> T:
    """Connect, use the client, close it.

    Raises:
        CommandError: a broker refuses, in words. ClientError: none answers.
    """

    async def run(admin: Admin) -> T:
        try:
            return await use(admin)
        except KafkaError as error:
            raise CommandError(in_words(error)) from error

    return with_admin(bootstrap, timeout_s, run)


async def for_each(names: Iterable[str], act: Callable[[str], Awaitable[None]]) -> int:
    """Call `act` with each name, one after the other, and return the exit status."""
    status = 0
    for name in names:
        try:
            await act(name)
        except KafkaError as error:
            complain(in_words(error))
            status = CommandError.status
        except CommandError as error:
            complain(str(error))
            status = error.status
    return status


def complain_of_silence(silent: Mapping[int, str]) -> None:
    """Say which brokers did not answer, if any, since numbers are missing."""
    for node_id, reason in silent.items():
        complain(f"broker {node_id} did not answer, and what only it knows is missing: {reason}")


@contextmanager
def usage(option: str = "") -> Iterator[None]:
    """Turn the complaint about a typed value into one about the command line: exit status 2."""
    try:
        yield
    except (ValueError, CommandError) as error:
        is_named = not option or str(error).startswith(option)
        raise UsageError(str(error) if is_named else f"{option}: {error}") from error
