"""Ends a test's server without leaving a socket behind."""

import asyncio

__all__ = ["end"]


async def end(server: asyncio.Server) -> None:
    """Close `server`, after all sockets that it has accepted have become connections.

    Otherwise asyncio drops a socket that was accepted in the very turn of the loop in which its server is closed:
    making the connection fails silently (Python 3.11), and the socket stays open until it is collected.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        for sock in server.sockets:
            loop.remove_reader(sock.fileno())
        await asyncio.sleep(0)
    server.close()
