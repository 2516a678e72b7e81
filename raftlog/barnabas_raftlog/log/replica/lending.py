"""The log of one replica as a source of whole files, and as one that is filled with them.

*Sending.* What may be sent is what never changes again: segments that are sealed, wholly in their files, and
committed. While a transfer reads them they are *pinned*: `log_start_offset` moves as it should, but their files stay
until the last pin is gone, and whoever would rewrite one asks `is_pinned` first. A pin does not outlive the process,
and a log that is itself replaced takes its files with it: who reads one then gets `SegmentGoneError`.

*Being filled.* `adopt` puts a complete transfer in place of everything that this log has; see `transfer.adoption` for
what that means on the disk. In memory it is done at once. Until the journal has it, nothing of it is durable, so
nothing of it is acknowledged.

Checksums of files are computed once, a few MiB at a time in the read threads, and remembered while the file is part of
the log. They say nothing about whether the bytes are right (the frames' own checksums do); only that they are the same.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TypeVar

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.log.checkpoint import encode_row
from barnabas_raftlog.log.journal.format import RecordKind
from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs
from barnabas_raftlog.log.segments.operations import Operation
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.state_file import StateOrMaker
from barnabas_raftlog.log.transfer.adoption import Adopt
from barnabas_raftlog.log.transfer.incoming import Incoming, Prepared
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile
from barnabas_raftlog.raft.membership import NOBODY, Configuration
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.wire.crc32c import crc32c

from .shortening import CutLog

__all__ = ["FilledLog", "SegmentGoneError"]

CHECKSUM_BYTES = 4 << 20  # read and checksummed in one go
_NUMBER = struct.Struct(">Q")
T = TypeVar("T")


class SegmentGoneError(BarnabasError):
    """That segment is not, or not any more, a sealed part of this log."""


class FilledLog(CutLog):
    """A `CutLog` whose sealed segments can be sent as files, and that can be filled with such files."""

    adopted_index = 0  # the last entry that came as a file; what is saved beside the log is as of that one or later
    _adopting = 0  # adoptions that the write worker has not carried out yet
    # Of sealed segments: how much of the file was read, and the checksum of that. Replaced, never changed.
    _checksums: Mapping[Segment, tuple[int, int]] = MappingProxyType({})

    # Sending.

    def sealed_segments(self, commit_index: int) -> list[Segment]:
        """Return the segments that never change again, oldest first; none of them is the last one."""
        index = min(commit_index, self.durable_index, self._written.reached)
        segments = self._segments
        return [one for one, after in pairwise(segments) if after.first_index <= index + 1]

    def sealed_segment(self, base_offset: int, first_index: int, commit_index: int) -> Segment:
        """Return one of them by its name.

        Raises:
            SegmentGoneError: there is none.
        """
        for segment in self.sealed_segments(commit_index):
            if (segment.base_offset, segment.first_index) == (base_offset, first_index):
                return segment
        raise SegmentGoneError(f"{self.name} has no sealed segment {base_offset}.{first_index}")

    def pin(self, segments: Sequence[Segment]) -> None:
        """Keep the files of `segments` until `unpin`. Pins add up."""
        self._pins = {**self._pins, **{segment: self._pins.get(segment, 0) + 1 for segment in segments}}

    def unpin(self, segments: Sequence[Segment]) -> None:
        """Take one pin from each; what was kept only for their sake goes."""
        pins = {**self._pins, **{segment: self._pins[segment] - 1 for segment in segments}}
        self._pins = {segment: count for segment, count in pins.items() if count}
        if not self.is_deleted and self.log_start_offset > self.base_offset:
            self._drop_unneeded()

    def is_pinned(self, segment: Segment) -> bool:
        """Tell whether somebody reads the file of `segment` as a whole."""
        return segment in self._pins

    async def checksum_more(self, segment: Segment) -> int | None:
        """Go on with the checksum of a sealed segment; return it when it is known, None for: call again.

        Cancellation: what was computed counts. Raises what `read_file` does.
        """
        position, checksum = self._checksums.get(segment, (0, 0))
        if position < segment.size_bytes:
            data = await self.read_file(segment, position, min(CHECKSUM_BYTES, segment.size_bytes - position))
            checksum = crc32c(data, checksum)
            position += len(data)
            known = {one: found for one, found in self._checksums.items() if one in self._segments}
            self._checksums = {**known, segment: (position, checksum)}
        return checksum if position == segment.size_bytes else None

    async def read_file(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        """Read exactly so much of the file of a sealed segment.

        Raises:
            SegmentGoneError: it is not part of this log any more.
            OSError: the disk says so.
        """
        self._check_has(segment)
        cold = self._host.cold
        try:
            return await cold.run(lambda blocking: cold.read_all(segment.log, position, size_bytes, blocking=blocking))
        except OSError:
            self._check_has(segment)
            raise

    def _check_has(self, segment: Segment) -> None:
        if self.is_deleted or segment not in self._segments:
            raise SegmentGoneError(f"{segment.log.path} is not part of the log any more")

    def suspect(self, segment: Segment, cause: str) -> None:
        """Have the file of a sealed segment checked, and mended if it is damaged."""
        self._host.suspect(self, segment, cause)

    def file_of(self, segment: Segment, checksum: int) -> SegmentFile:
        """Return what a manifest says of a sealed segment."""
        after = self._segments[self._segments.index(segment) + 1]
        return SegmentFile(
            segment.base_offset,
            segment.first_index,
            after.base_offset,
            after.first_index - 1,
            segment.size_bytes,
            checksum,
            segment.max_timestamp,
            segment.max_timestamp_offset,
        )

    def manifest(self, files: Sequence[SegmentFile], state: Buffer, configuration: bytes = b"") -> Manifest:
        """Return the snapshot that consists of `files`, which are this log's oldest; without any: of nothing."""
        start = files[0].first_index - 1 if files else self.first_index - 1
        index = files[-1].last_index if files else start
        end_offset = files[-1].end_offset if files else self.offset_after(index)
        term = self.term_at(index)
        assert term is not None, (index, self.first_index)
        epochs = tuple(row for row in self.epochs() if row[1] <= index)
        configuration = configuration or self.configuration_at(index).encode()
        base_offset = files[0].base_offset if files else end_offset
        log_start = min(max(self.log_start_offset, base_offset), end_offset)
        return Manifest(index, term, end_offset, start, log_start, epochs, tuple(files), configuration, bytes(state))

    # Being filled.

    @property
    def is_adopting(self) -> bool:
        """True while files are on their way to their place: no other transfer may begin."""
        return self._adopting > 0

    def incoming(self) -> Incoming:
        """Return the place for a transfer to this replica. Its functions block: call them by `in_writer`."""
        return Incoming(self._host.files, self.directory)

    async def in_writer(self, job: Callable[[], T]) -> T:
        """Run `job`, which may raise, in the write worker.

        Cancellation: the job is carried out all the same.
        """
        return await self._host.writer.in_thread(job)

    def adopt(self, prepared: Prepared) -> None:
        """Put what was received in place of everything in this log, which then ends with the snapshot's entry.

        `durable_index` reaches that entry as after `install_snapshot`; `load_state` returns what came with it.
        """
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        manifest, before = prepared.manifest, self._snapshot()
        index = manifest.snapshot_index
        old = self._forget_segments()
        received = [Segment.from_row(prepared.directory, row) for row in prepared.rows]
        self._active = Segment(self.directory, manifest.end_offset, index + 1)
        self._segments = [*received, self._active]
        self._epochs = LeaderEpochs.from_rows(list(manifest.epochs))
        configuration = Configuration.decode(manifest.configuration) if manifest.configuration else NOBODY
        self.configuration = configuration if configuration.voters else self.configuration
        self._members.restart(index, self.configuration)
        self.start_index, self.last_index = manifest.start_index, index
        self.last_term, self.log_end_offset = manifest.snapshot_term, manifest.end_offset
        self.size_bytes, self.partial_since = manifest.size_bytes, None
        self.log_start_offset = manifest.log_start_offset
        self._tail.reset(index + 1)
        self._host.loaded.drop_group(self.group)
        self._truncations += 1
        number = self._truncations
        payload = _NUMBER.pack(number) + encode_row(self._row())
        gate = self._add_gate(before, RecordKind.ADOPT, index, manifest.snapshot_term, payload)
        new = [handle for segment in received for handle in segment.handles]
        self.operations.append(Adopt(prepared.directory, self.directory, old, new, index))
        self._adopting += 1
        self.adopted_index = index
        self._await_snapshot(gate, index, number)

    def save_state(self, index: int, state: StateOrMaker) -> None:
        """Keep `state` as `CutLog.save_state` does, but never in place of one that says more.

        It is written behind the adoption, so it can count as of what was adopted, durable or not: a crash before that
        leaves the older log with the older state.
        """
        super().save_state(max(index, self.adopted_index), state)

    def on_operation(self, operation: Operation) -> None:
        if isinstance(operation, Adopt):
            self._adopting -= 1
            self._saved_index = max(self._saved_index, operation.index)
        super().on_operation(operation)
