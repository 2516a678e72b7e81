"""Takes all bytes of hostile clients and forgets them: the control of a crowd.

It listens on as many ports as there are brokers, accepts everybody, reads and forgets. So the machine carries the same
traffic, and no broker does.
"""

import asyncio
import json
import sys

BUFFER_BYTES = 256 << 10


class Forgets(asyncio.BufferedProtocol):
    """One connection. All of them read into the same memory."""

    memory = bytearray(BUFFER_BYTES)
    taken_bytes = 0

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.memory

    def buffer_updated(self, nbytes: int) -> None:
        Forgets.taken_bytes += nbytes


async def main(count: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Forgets, "127.0.0.1", 0, backlog=1_000) for _ in range(count)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    done = asyncio.Event()

    def told() -> None:
        word = sys.stdin.readline().strip()
        if not word:
            loop.remove_reader(sys.stdin.fileno())
            done.set()
            return
        print(json.dumps({"ports": ports, "taken_bytes": Forgets.taken_bytes}), flush=True)

    loop.add_reader(sys.stdin.fileno(), told)
    print("ready", flush=True)
    await done.wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
