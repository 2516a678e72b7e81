"""A loop callback that raises is a bug; a connection that breaks is none."""

import asyncio
from collections.abc import Callable

import pytest

from barnabas_broker.process.loop_errors import end_on_bugs


class Broken(asyncio.Protocol):
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.lost = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        raise self.error

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def told(act: Callable[[], None]) -> list[BaseException]:
    """Return what `fail` is told of while `act` is called by the loop."""
    found: list[BaseException] = []
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    end_on_bugs(loop, found.append)
    loop.call_soon(act)
    loop.call_soon(done.set)
    await done.wait()
    return found


@pytest.mark.parametrize("error", [ValueError("a"), AssertionError("b"), OSError("c")])
async def test_a_callback_that_raises_ends_the_process(error: Exception) -> None:
    def act() -> None:
        raise error

    assert await told(act) == [error]


async def test_what_breaks_one_connection_does_not() -> None:
    found: list[BaseException] = []
    loop = asyncio.get_running_loop()
    end_on_bugs(loop, found.append)
    for error, expected in ((ValueError("a"), []), (AssertionError("b"), ["b"])):
        broken = Broken(error)
        server = await loop.create_server(lambda protocol=broken: protocol, "127.0.0.1", 0)  # type: ignore[misc]
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        await broken.lost
        writer.close()
        server.close()
        assert [str(one) for one in found] == expected
