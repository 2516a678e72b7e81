"""Checks frame by frame that a segment file is what was written to it. Pure.

A checksum covers the bytes that clients sent. Base offset and term, which the leader wrote in front of them, are
covered by two rules between frames: each begins where its predecessor ends, and has the term that the log knows for its
index. So a file that passes has, at every index, an entry of the right term, which by log matching is the right entry:
that is also how a copy from another replica is judged before it takes the place of a damaged file.

Damage is named by the position at which the first bad frame begins. The bytes behind it are not looked at: that would
need trust in the bad frame's length.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .frame_walk import scan_tail
from .leader_epochs import LeaderEpochs

__all__ = ["SegmentCheck", "SegmentPlace"]


class SegmentPlace(NamedTuple):
    """The entries of a sealed segment: from (`base_offset`, `first_index`) to (`end_offset`, `end_index`)."""

    base_offset: int
    first_index: int
    size_bytes: int
    end_offset: int
    end_index: int  # exclusive, as `end_offset` is


class SegmentCheck:
    """One check. `feed` it the file from `position` on, until `is_done`; then `cause` says what is wrong, or nothing.

    `epochs` are rows (term, first_index, start_offset), a copy: a check runs in another thread than the log.
    """

    def __init__(self, place: SegmentPlace, epochs: Sequence[tuple[int, int, int]]) -> None:
        self._place = place
        self._epochs = LeaderEpochs.from_rows(list(epochs))
        self._index = place.first_index
        self._offset = place.base_offset
        self._term = 0
        self.position = 0
        self.needs = 0  # at least so many bytes must be fed next
        self.is_done = False
        self.cause = ""

    def feed(self, data: memoryview) -> None:
        """Check what `data` holds, which begins at `position` and is as long as asked for, unless the file ends."""
        place = self._place
        data = data[: place.size_bytes - self.position]
        tail = scan_tail(data, self._offset, self._term)
        for fields in tail.frames:
            expected = self._epochs.term_at(self._index)
            if fields.term != expected:
                self._fail(fields.position, f"entry {self._index} has term {fields.term}, not {expected}")
                return
            self._index += 1
            self._offset = fields.end_offset
            self._term = fields.term
        if tail.needs:
            is_last = self.position + len(data) >= place.size_bytes or len(data) < self.needs
            if is_last or tail.end + tail.needs > place.size_bytes - self.position:
                self._fail(tail.end, f"entry {self._index} is not whole")
                return
        elif tail.end < len(data):
            self._fail(tail.end, f"entry {self._index} is damaged")
            return
        elif not data and self.position < place.size_bytes:
            self._fail(0, "the file is too short")
            return
        self.position += tail.end
        self.needs = tail.needs
        if self.position == place.size_bytes:
            self.is_done = True
            if (self._index, self._offset) != (place.end_index, place.end_offset):
                self.cause = (
                    f"it ends with ({self._index}, {self._offset}), not ({place.end_index}, {place.end_offset})"
                )

    def fail(self, cause: str) -> None:
        """End the check, because the file cannot be read."""
        self._fail(0, cause)

    def _fail(self, position: int, cause: str) -> None:
        self.position += position
        self.cause = f"{cause}, at position {self.position}"
        self.is_done = True
