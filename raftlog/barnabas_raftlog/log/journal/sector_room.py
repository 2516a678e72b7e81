"""Gathers bytes into memory that a device can take as it is: whole sectors, page-aligned."""

import mmap
from collections.abc import Iterable, Iterator

from barnabas_raftlog.raft.messages import Buffer

from .format import aligned

__all__ = ["SectorRoom"]


class SectorRoom:
    """Gathers buffers for writes past the page cache. Takes memory as far as it was ever used.

    Every piece begins at the start of `memory`.
    """

    def __init__(self, size_bytes: int) -> None:
        """`size_bytes`: of the largest piece; a multiple of a sector."""
        assert size_bytes == aligned(size_bytes)
        self.memory = memoryview(mmap.mmap(-1, size_bytes))

    def pieces(self, buffers: Iterable[Buffer]) -> Iterator[memoryview]:
        """Return the bytes of `buffers` in pieces of whole sectors, zeros behind the last of them.

        A piece is good until the next one is asked for.
        """
        memory = self.memory
        end = 0
        for buffer in buffers:
            rest = memoryview(buffer)
            while end + len(rest) >= len(memory):
                count = len(memory) - end
                memory[end:] = rest[:count]
                yield memory
                rest = rest[count:]
                end = 0
            begin = end
            end += len(rest)
            memory[begin:end] = rest
        if end:
            size = aligned(end)
            memory[end:size] = bytes(size - end)
            yield memory[:size]
