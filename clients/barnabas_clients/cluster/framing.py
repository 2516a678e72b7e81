"""Cuts a stream of length-prefixed frames out of what a socket delivers. Pure.

`FrameReader` has the two halves of `asyncio.BufferedProtocol`: it lends memory to receive into, and is told how much
arrived. Small frames arrive several at a time in one scratch buffer and are copied out of it once, because the
scratch buffer is used again. A frame that does not fit is given its own memory and the rest of it is received straight
into that: a fetch response of 50 MB is copied by the kernel only. Whoever gets a frame owns it: nothing writes to it
again, so views of it (record batches) live as long as anyone holds them.

Not here: what a frame means. A length outside the limits is the peer's fault and cannot be repaired, since nothing
tells where the next frame starts.
"""

from barnabas_raftlog.errors import MalformedMessageError

__all__ = ["FRAME_BYTES_MAX", "FrameReader"]

SCRATCH_BYTES = 64 * 1024
LENGTH_BYTES = 4
# The largest answer we are ready to hold. Brokers keep to fetch_max_bytes (50 MiB by default) plus one batch.
FRAME_BYTES_MAX = 512 * 1024 * 1024


class FrameReader:
    """The receiving end of one connection.

    Either `_large` is None and `_scratch[:_filled]` holds the beginning of the stream not yet cut, or `_large` is the
    frame being received, `_filled` of its bytes are there, and the scratch buffer is empty.
    """

    __slots__ = ("_filled", "_frame_bytes_max", "_large", "_scratch", "_view")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._large: memoryview | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Return where the next bytes belong; never empty. Valid until `received` is called."""
        return (self._view if self._large is None else self._large)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """Take note of `count` bytes written to `buffer()` and return the frames they complete, without their length.

        Raises:
            MalformedMessageError: a length is negative or above the limit. The reader must not be used again.
        """
        self._filled += count
        if self._large is not None:
            if self._filled < len(self._large):
                return []
            frame = self._large
            self._large = None
            self._filled = 0
            return [frame]
        frames: list[memoryview] = []
        position = 0
        end = self._filled
        while end - position >= LENGTH_BYTES:
            size = int.from_bytes(self._view[position : position + LENGTH_BYTES], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                raise MalformedMessageError(f"a frame of {size} bytes (limit {self._frame_bytes_max})")
            start = position + LENGTH_BYTES
            if end - start < size:
                if LENGTH_BYTES + size > SCRATCH_BYTES:
                    self._large = memoryview(bytearray(size))
                    self._large[: end - start] = self._view[start:end]
                    self._filled = end - start
                    return frames
                break
            frames.append(memoryview(bytes(self._view[start : start + size])))
            position = start + size
        # At most one incomplete small frame is left; it moves to the front so that the rest of it fits behind it.
        left = end - position
        if position and left:
            self._view[:left] = bytes(self._view[position:end])
        self._filled = left
        return frames
