"""Opens the client of a command: the one place where produce, consume and bench wait for a first answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from barnabas_clients import Admin, Consumer, Producer

from .waiting import told

__all__ = ["connected"]

Client = TypeVar("Client", Admin, Consumer, Producer)


@asynccontextmanager
async def connected(client: Client, timeout_s: float) -> AsyncIterator[Client]:
    """Open a client, lend it, close it; as long as it lives, people are told what it waits for.

    Args:
        client: not opened yet.
        timeout_s: that with which it was made.

    Raises:
        CommandError: no broker can be reached.
        DeadlineExceededError: a broker did not answer within `timeout_s`.
    """
    async with told(client, timeout_s), client:
        yield client
