"""Limits how much of an answer a client is given from disk at once. Pure.

Batches in memory cost an answer nothing but a reference. Those on disk are read into memory for this answer alone,
checked, and stay there until the client has taken them; a client that asks for much and reads nothing would have a node
hold them. So the first answer from disk has `FIRST_BYTES` at most, and a client that takes its answers whole gets
`GROWTH` times as much with each, up to `BYTES_MAX`. The kernel tells whether it has taken them: nothing is left in this
process, and nothing in the socket that the other side has not acknowledged. So five round trips are enough for the
largest answer, and a client that stops to read leaves less behind than it has taken three times over.

Not here: reading an answer from disk while the socket takes it. Its size leaves first, and is known only when all
batches were walked, for some of them are left out; a batch that turns out damaged then could be told only by ending
the connection, with all other partitions, where now it costs its own partition an error. At 50 ms of round trip
`BYTES_MAX` are 320 MB/s, more than a connection over such a distance gets from the kernel's buffers.
"""

__all__ = ["BYTES_MAX", "FIRST_BYTES", "ColdWindow"]

FIRST_BYTES = 64 << 10
BYTES_MAX = 16 << 20
GROWTH = 4


class ColdWindow:
    """One connection that reads from disk. Invariant: `FIRST_BYTES` <= `size_bytes` <= `BYTES_MAX`."""

    __slots__ = ("given_bytes", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = FIRST_BYTES
        self.given_bytes = 0

    def look(self, left_bytes: int, unacknowledged_bytes: int) -> int:
        """Return how much may be given now.

        `left_bytes` of earlier answers are still in this process, `unacknowledged_bytes` in the kernel.
        """
        if left_bytes:
            self.size_bytes = FIRST_BYTES
        elif not unacknowledged_bytes and 2 * self.given_bytes >= self.size_bytes:
            self.size_bytes = min(self.size_bytes * GROWTH, BYTES_MAX)
        self.given_bytes = 0
        return self.size_bytes
