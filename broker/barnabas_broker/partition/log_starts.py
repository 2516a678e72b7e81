"""Follows where a replica's log starts: what is applied, and what is on its way. Pure.

A leader moves the start of a log by proposing a control frame that names an offset of the committed log. When the
frame commits, every replica lets its log start there: a start is never applied before it is committed, and never
forgotten once it is.

*After a crash* a replica does not know what is committed. Its saved state says where the log started as of some
committed entry; that counts once the commit index is known to be there again. Frames behind that entry are found when
the log is replayed. Until then the log may seem to start earlier, but nobody reads from a replica that does not know
the commit index.

*A replica that was filled from a snapshot* has the state of its leader as of an entry that its own log has yet to
reach. It is the same case: everything up to that entry is accounted for, and counts when the log is there.

The frame's offset is cut to where the frame stands in the log: a leader never asks for more, and a frame that does
cannot take away entries behind itself.
"""

import struct

from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.header import HEADER_BYTES, BatchHeader, ControlKind

__all__ = ["LogStarts", "encode_start"]

_OFFSET = struct.Struct(">q")
_PREFIX_TRUNCATION = bytes((ControlKind.PREFIX_TRUNCATION,))


def encode_start(offset: int) -> bytes:
    """Return the body of a `PREFIX_TRUNCATION` frame."""
    return _OFFSET.pack(offset)


class LogStarts:
    """The starts of one log. `offset` is the newest that was applied, 0 for none.

    Invariants: pending indexes strictly increase; frames at or below `known_index` are accounted for by the state that
    this was made from. Limit: one pair for each frame that is not committed yet, or not known to be.
    """

    __slots__ = ("_pending", "known_index", "offset")

    def __init__(self, known_index: int = 0, offset: int = 0) -> None:
        """Begin with what was known as of the committed entry `known_index`."""
        self.known_index = known_index
        self.offset = 0
        self._pending: list[tuple[int, int]] = [(known_index, offset)] if offset else []

    def note(self, index: int, header: BatchHeader, frame: Buffer) -> None:
        """Look at a control frame that is in the log at `index`; of any other kind it is none of our business."""
        if index <= self.known_index or frame[HEADER_BYTES : HEADER_BYTES + 1] != _PREFIX_TRUNCATION:
            return
        body = frame[HEADER_BYTES + 1 :]
        if len(body) >= _OFFSET.size:
            offset: int = _OFFSET.unpack_from(body)[0]
            self._pending.append((index, min(offset, header.base_offset)))

    def truncate_from(self, index: int) -> None:
        """Follow the log, which has lost the entries at and after `index`."""
        self._pending = [pair for pair in self._pending if pair[0] < index]

    def commit(self, commit_index: int) -> bool:
        """Apply what is committed; return whether `offset` has moved."""
        pending = self._pending
        before = self.offset
        while pending and pending[0][0] <= commit_index:
            self.offset = max(self.offset, pending.pop(0)[1])
        return self.offset > before

    def offset_as_of(self, commit_index: int) -> int:
        """Return what `offset` will be when `commit_index` is applied."""
        return max([self.offset, *(offset for index, offset in self._pending if index <= commit_index)])

    def index_for(self, offset: int) -> int | None:
        """Return the index of a frame under way that moves the start to `offset` or beyond; None: there is none."""
        return next((index for index, start in self._pending if start >= offset), None)
