"""Cuts length-prefixed frames out of the stream that a socket delivers. Pure.

`FrameReader` works with `asyncio.BufferedProtocol`: it lends memory to receive into, and is told how much arrived.
Several small frames arrive together in one scratch buffer. Each is copied out of it once, because the scratch buffer is
used again. A frame that does not fit gets its own memory, and the rest of it is received straight into that, so a fetch
response of 50 MB is copied by the kernel only. A frame belongs to the caller: nothing writes to it again, so views of
it (record batches) stay valid as long as someone holds them.

The memory of the last large frame is used again once nobody holds a view of it, as long as large frames follow each
other: new memory for each mebibyte was a third of what it took to read records of 1 KiB.

Not here: what a frame means. A length outside the limits is the peer's fault and cannot be repaired, since nothing
tells where the next frame starts.
"""

from barnabas_raftlog.errors import MalformedMessageError

__all__ = ["FRAME_BYTES_MAX", "FrameReader"]

SCRATCH_BYTES = 64 * 1024
LENGTH_BYTES = 4
SPARE_BYTES_MAX = 2 * 1024 * 1024
"""Larger frames give their memory back at once."""
# The largest answer that we are ready to hold. Brokers keep to fetch_max_bytes (50 MiB by default) plus one batch.
FRAME_BYTES_MAX = 512 * 1024 * 1024


class FrameReader:
    """The receiving end of one connection.

    If `_large` is None, `_scratch[:_filled]` holds the part of the stream that is not cut into frames yet. Otherwise
    `_large` is the frame being received, `_filled` of its bytes are there, and the scratch buffer is empty. `_spare` is
    the memory of the frame before, if that was large, too.
    """

    __slots__ = ("_filled", "_frame_bytes_max", "_large", "_scratch", "_spare", "_view")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._large: memoryview | None = None
        self._spare: bytearray | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes; never empty. Valid until `received` is called."""
        return (self._view if self._large is None else self._large)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """Take `count` bytes that were written to `buffer()`. Return the frames that they complete, without lengths.

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
            self._spare = frame.obj if len(frame) <= SPARE_BYTES_MAX else None  # type: ignore[assignment]  # made below
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
                    self._large = memoryview(self._memory(size))
                    self._large[: end - start] = self._view[start:end]
                    self._filled = end - start
                    return frames
                break
            frames.append(memoryview(bytes(self._view[start : start + size])))
            position = start + size
        if frames:
            self._spare = None
        # At most one incomplete small frame is left. It moves to the front, so that the rest of it fits behind it.
        left = end - position
        if position and left:
            self._view[:left] = bytes(self._view[position:end])
        self._filled = left
        return frames

    def _memory(self, size: int) -> bytearray:
        """Return memory for a large frame: that of the last one if nobody looks at it any more, else new memory."""
        spare, self._spare = self._spare, None
        if spare is not None:
            try:
                # It refuses to change its size while there are views of it.
                spare.append(0)
            except BufferError:
                return bytearray(size)
            del spare[size:]
            spare += bytes(size - len(spare))
            return spare
        return bytearray(size)
