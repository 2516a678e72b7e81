"""Memory that a device can take as it is: it begins with a page, and what is handed over are whole sectors."""

import mmap
from collections.abc import Iterable, Iterator

from barnabas_raftlog.raft.messages import Buffer

from .format import aligned

__all__ = ["SectorRoom"]


class SectorRoom:
    """Gathers buffers for writes past the page cache. Takes memory as far as it was ever used.

    `memory` is where every piece begins.
    """

    def __init__(self, size_bytes: int) -> None:
        """`size_bytes`: of the largest piece; a multiple of a sector."""
        assert size_bytes == aligned(size_bytes)
        self.memory = memoryview(mmap.mmap(-1, size_bytes))

    def pieces(self, buffers: Iterable[Buffer]) -> Iterator[memoryview]:
        """Return the bytes of `buffers` in pieces of whole sectors, zeros behind the last of them.

        A piece is good until the next one is asked for.
        """
        memory, end = self.memory, 0
        for buffer in buffers:
            rest = memoryview(buffer)
            while end + len(rest) >= len(memory):
                count = len(memory) - end
                memory[end:] = rest[:count]
                yield memory
                rest, end = rest[count:], 0
            begin, end = end, end + len(rest)
            memory[begin:end] = rest
        if end:
            size = aligned(end)
            memory[end:size] = bytes(size - end)
            yield memory[:size]
