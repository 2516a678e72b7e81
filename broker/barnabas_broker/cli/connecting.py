"""Opens the client of a command: the one place where produce, consume and bench wait for a first answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from barnabas_clients import Admin, Consumer, Producer

__all__ = ["connected"]

Client = TypeVar("Client", Admin, Consumer, Producer)


@asynccontextmanager
async def connected(client: Client) -> AsyncIterator[Client]:
    """Open a client, lend it, close it.

    Raises:
        DeadlineExceededError: no broker answered within the client's `timeout_s`.
    """
    async with client:
        yield client
