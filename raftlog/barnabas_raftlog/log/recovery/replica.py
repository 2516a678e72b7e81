"""Brings one replica's files back to a state that can be explained, after a crash.

There are three sources (see `plan`): the checkpoint's row, the plan that was made from the journal, and the files. The
synced part of the files is trusted as far as the plan says. Behind it the frames are checked one by one: in fsync mode
they must be those of the plan, in page-cache mode they must be valid. At the first that is not, the file is cut, and
the rest of the plan is written from the journal. Then everything is synced, and the result is a new row.

In page-cache mode what is cut off was written, and perhaps acknowledged, unless the write was under way when the node
died: then the file ends with the beginning of a frame. Else the replica is *uncertain* until it has caught up. A term
is not under a frame's checksum; one that is `TERM_JUMP_MAX` above that of the frame before is damage, too, for with it
the node would be no match for its peers.

Damage in the trusted part, or where the journal says that something is stored, is never cut away: the row then says why
the replica has failed. It takes part in nothing until it is made anew and filled by a leader that has everything.

A replica that had failed is *looked at again* at each start: the cause may have been the disk's, or a cable's, and it
may be the last good copy. It counts again if its newest segment is whole, frame by frame from its beginning, and the
log reaches the entry that was durable when it failed, by the same terms. If nobody wrote down which entry that was, the
files hold a log that this replica had once, and the replica is *uncertain*. A copy takes the place of a file that may
not be on the disk, though it can be read. Damage in older segments is the scrub's affair, as ever.

A file that cannot be written or synced is never synced again, but nothing is lost yet: the synced part can be read, and
the journal has the rest. So a copy takes its place, and the replica is recovered once more. If that fails too, the
caller is told (`StorageFailedError`), and decides whether it is the replica or the disk.

A directory that no row knows is adopted by the same scan, from its beginning: in page-cache mode a replica may have
been made, written to and acknowledged before the journal heard of it.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError, StorageFailedError
from barnabas_raftlog.log.checkpoint import ReplicaRow
from barnabas_raftlog.log.journal.entries import Location
from barnabas_raftlog.log.machine.disk_errors import will_pass
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import OpenFiles, copy_over
from barnabas_raftlog.log.segments.check import SegmentCheck, SegmentPlace
from barnabas_raftlog.log.segments.cold_reads import ColdReads
from barnabas_raftlog.log.segments.frame_walk import FrameFields, is_cut_short, scan_tail
from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs
from barnabas_raftlog.log.segments.operations import Save
from barnabas_raftlog.log.segments.segment import Segment, parse_generation, parse_stem
from barnabas_raftlog.log.state_file import decode_state
from barnabas_raftlog.log.transfer.adoption import adopt_again
from barnabas_raftlog.raft.membership import Configuration, ConfigurationHistory
from barnabas_raftlog.raft.messages import TERM_JUMP_MAX, Buffer
from barnabas_raftlog.records.header import HEADER_BYTES, ControlKind, parse_header

from .plan import ReplicaPlan

__all__ = ["Recovered", "empty_row", "promised", "recover_replica"]

CHUNK_BYTES = 1 << 20


class Recovered(NamedTuple):
    """The new row, the entries that were written to the files, and the bytes that were cut off them.

    `may_lack`: what was cut off may have been acknowledged.
    """

    row: ReplicaRow
    written_count: int = 0
    cut_bytes: int = 0
    may_lack: bool = False


def empty_row(group: bytes, name: str, *, page_cache: bool) -> ReplicaRow:
    """Return the row of a replica that holds nothing and never did."""
    return ReplicaRow(
        group=group,
        name=name,
        page_cache=page_cache,
        failed="",
        start_index=0,
        last_index=0,
        end_offset=0,
        truncations=0,
        epochs=[],
        segments=[],
    )


def recover_replica(
    files: Files,
    directory: str,
    row: ReplicaRow,
    plan: ReplicaPlan | None,
    payload_of: Callable[[Location], bytearray],
    segment_bytes: int,
) -> Recovered:
    """Bring the files in `directory` in order, and sync them.

    `plan` is None for a directory that neither checkpoint nor journal knows.

    Raises:
        StorageFailedError: they cannot be written, and neither can new files in their place.
        OSError: there is no room, or there is another reason that will pass.
    """
    if row.failed:
        return _look_again(files, directory, row, plan, payload_of, segment_bytes)
    if plan is not None and plan.adopted is not None:
        row = plan.adopted
    rebuild = _Rebuild(files, directory, row, segment_bytes)
    try:
        files.make_directory(directory)
        if plan is not None and plan.adopted is not None:
            adopt_again(files, directory, row.last_index)
        try:
            rebuild.run(plan, payload_of)
        except StorageFailedError:
            rebuild.close()
            rebuild.renew_files()
            rebuild = _Rebuild(files, directory, row, segment_bytes)
            rebuild.run(plan, payload_of)
    except StorageFailedError as error:
        if error.__cause__ is not None and will_pass(error.__cause__):
            raise error.__cause__ from None
        raise
    except (OSError, CorruptBatchError, ValueError) as error:
        if will_pass(error):
            raise  # Nothing is wrong with the replica: the next start begins as this one did.
        row.failed = f"recovery of {row.name}: {error}"
        row.durable = promised(row, plan)
        return Recovered(row)
    finally:
        rebuild.close()
    return Recovered(rebuild.row(plan), rebuild.written_count, rebuild.cut_bytes, rebuild.may_lack)


def promised(row: ReplicaRow, plan: ReplicaPlan | None) -> tuple[int, list[tuple[int, int, int]]] | None:
    """Return the `ReplicaRow.durable` of a replica that cannot be recovered: it must hold that to be trusted again."""
    if plan is None or plan.start is not None:
        return None
    index = min(row.last_index, plan.trusted_index)
    epochs = LeaderEpochs.from_rows([known for known in row.epochs if known[1] <= index])
    try:
        last_index = _assign_all(epochs, plan.entries.after(index), row.end_offset)
    except (CorruptBatchError, ValueError):
        return None
    return last_index or index, epochs.rows()


def _assign_all(epochs: LeaderEpochs, entries: Iterable[tuple[int, Location]], end_offset: int) -> int:
    """Add the terms of entries that come next; return the last one's index, 0 if there is none.

    Their offsets are not known, so each term counts as beginning at `end_offset`.

    Raises:
        CorruptBatchError: a term is older than the one before it.
    """
    index = 0
    for index, location in entries:
        if location.term < epochs.last_term:
            raise CorruptBatchError(f"entry {index} of term {location.term} follows one of term {epochs.last_term}")
        epochs.assign(location.term, index, end_offset)
    return index


def _look_again(
    files: Files,
    directory: str,
    row: ReplicaRow,
    plan: ReplicaPlan | None,
    payload_of: Callable[[Location], bytearray],
    segment_bytes: int,
) -> Recovered:
    """Do the same with a replica that had failed; return `row` as it is if something is still missing.

    Raises:
        OSError: a reason that will pass.
    """
    if plan is None or plan.adopted is not None:
        return Recovered(row)
    rebuild = _Rebuild(files, directory, row, segment_bytes)
    try:
        rebuild.check_newest()
        if row.durable is None:
            plan.entries.clear()  # The entries before them in the journal are gone.
        rebuild.run(plan, payload_of, is_failed=True)
    except (OSError, CorruptBatchError, StorageFailedError, ValueError) as error:
        if will_pass(error):
            raise
        return Recovered(row)
    finally:
        rebuild.close()
    found = rebuild.row(plan)
    found.uncertain |= row.durable is None
    return Recovered(found, rebuild.written_count, rebuild.cut_bytes)


class _Rebuild:
    """The state of the log as far as it is known to be right; `run` moves that to its end."""

    def __init__(self, files: Files, directory: str, row: ReplicaRow, segment_bytes: int) -> None:
        self._files = files
        self._opened = OpenFiles(files, 16)
        self._cold = ColdReads(files, self._opened, None)
        self._directory = directory
        self._row = row
        self._segment_bytes = segment_bytes
        self._epochs = LeaderEpochs.from_rows([(e, i, o) for e, i, o in row.epochs])
        self._members = ConfigurationHistory.from_rows(row.members)
        self._segments: list[Segment] = []
        self._start_index = row.start_index
        self._last_index = row.last_index
        self._end_offset = row.end_offset
        self._touched: dict[Segment, None] = {}
        self.written_count = 0
        self.cut_bytes = 0
        self.may_lack = False
        self._is_damaged = False
        self._is_cut_short = False

    def close(self) -> None:
        self._opened.close_all()

    def row(self, plan: ReplicaPlan | None) -> ReplicaRow:
        before = self._row
        return ReplicaRow(
            group=before.group,
            name=before.name,
            page_cache=plan.page_cache if plan else before.page_cache,
            failed="",
            start_index=self._start_index,
            last_index=self._last_index,
            end_offset=self._end_offset,
            truncations=max(before.truncations, plan.truncations if plan else 0),
            epochs=self._epochs.rows(),
            segments=[segment.row() for segment in self._segments],
            members=self._members.rows(),
            uncertain=before.uncertain,
            partial_since=before.partial_since if plan is None or plan.partial_since is False else plan.partial_since,
            blank=before.blank,
        )

    def check_newest(self) -> None:
        """Check the synced part of the newest segment from its beginning.

        Raises:
            CorruptBatchError: it differs from what was written.
        """
        for row in self._row.segments[-1:]:
            place = SegmentPlace(
                base_offset=row.base_offset,
                first_index=row.first_index,
                size_bytes=row.size_bytes,
                end_offset=self._row.end_offset,
                end_index=self._row.last_index + 1,
            )
            segment = Segment.from_row(self._directory, row)
            check = SegmentCheck(place, self._epochs.rows())
            while row.size_bytes and not check.is_done:
                with self._opened.borrow(segment.log) as fd:
                    check.feed(memoryview(self._files.read(fd, check.position, max(CHUNK_BYTES, check.needs))))
            if check.cause:
                raise CorruptBatchError(f"{segment.log.path}: {check.cause}")

    def _check_durable(self, plan: ReplicaPlan) -> None:
        """See whether the log, with the journal's entries, holds all that was durable when it failed.

        Raises:
            CorruptBatchError: it does not.
        """
        if self._row.durable is None:
            return
        index, rows = self._row.durable
        found = LeaderEpochs.from_rows(self._epochs.rows())
        known = LeaderEpochs.from_rows([(e, i, o) for e, i, o in rows])
        last_index = _assign_all(found, plan.entries.after(self._last_index), self._end_offset) or self._last_index
        found.truncate_from(index + 1)
        starts = {first for _, first, _ in (*found.rows(), *known.rows()) if first > self._start_index}
        if last_index < index or any(found.term_at(at) != known.term_at(at) for at in starts | {index}):
            raise CorruptBatchError(f"{self._directory} does not hold all up to entry {index}, which had been durable")

    def run(
        self, plan: ReplicaPlan | None, payload_of: Callable[[Location], bytearray], *, is_failed: bool = False
    ) -> None:
        on_disk = sorted(filter(None, map(parse_stem, self._files.list_directory(self._directory))))
        if plan is None:
            self._adopt(on_disk)
        elif plan.start is not None and plan.is_begun_anew:
            self._start_after(*plan.start)
        else:
            start_index = plan.start[0] if plan.start else 0
            self._trust(plan.trusted_index, start_index)
            if plan.trusted_index > self._last_index:
                left = [stem for stem in on_disk if stem[1] > start_index]
                self._scan_adopted(left, plan.trusted_index)
        self._go_on(on_disk, plan, is_failed=is_failed)
        try:
            self._cut(on_disk)
            if plan is not None and not plan.page_cache:
                self._append(plan.entries.after(self._last_index), payload_of)
            self._sync(plan)
        except OSError as error:
            if will_pass(error):
                raise
            raise StorageFailedError(f"cannot write to {self._directory}: {error}") from error
        if plan is not None:
            self._note_members(plan.members)
        if plan is not None and plan.state:
            self._save_state(plan.state)

    def _go_on(self, on_disk: list[tuple[int, int]], plan: ReplicaPlan | None, *, is_failed: bool) -> None:
        """Find the end of the log in the files, behind the trusted part.

        Raises:
            CorruptBatchError, ValueError: something is missing that must be there.
        """
        if plan is None or plan.page_cache or is_failed:
            ends = [] if plan is None else [plan.cut_from, plan.entries.first_index if is_failed else None]
            limit = min((end for end in ends if end is not None), default=None)
            self._scan_unknown(on_disk, limit)
        if plan is None:
            return
        if not plan.page_cache:
            expected = plan.entries.after(self._last_index)
            self._scan(on_disk, lambda index, fields: _is(next(expected, None), index, fields))
            if (stored := plan.entries.last_stored) > self._last_index:
                raise CorruptBatchError(
                    f"{self._directory} ends with entry {self._last_index}, {stored} had been synced"
                )
        if is_failed:
            self._check_durable(plan)
            for segment in self._segments[-1:]:
                self._touched[segment] = None
            for segment in self._touched:
                segment.log.is_doubtful = self._files.exists(segment.log.path)

    def renew_files(self) -> None:
        """Put a copy in the place of each file that was to be written or synced.

        Raises:
            StorageFailedError: that cannot be done either.
        """
        try:
            for segment in self._touched:
                for handle in segment.handles:
                    if self._files.exists(handle.path):
                        copy_over(self._files, handle.path)
        except OSError as error:
            if will_pass(error):
                raise
            raise StorageFailedError(f"cannot write to {self._directory}: {error}") from error

    def _adopt(self, on_disk: list[tuple[int, int]]) -> None:
        if on_disk:
            base_offset, first_index = on_disk[0]
            self._start_index = self._last_index = first_index - 1
            self._end_offset = base_offset
            self._segments = [Segment(self._directory, base_offset, first_index)]

    def _scan_adopted(self, on_disk: list[tuple[int, int]], trusted_index: int) -> None:
        """Find the entries again that were synced when the directory was adopted: no checkpoint followed."""
        if not self._segments:
            self._adopt(on_disk)
        self._scan(on_disk, lambda index, _: index <= trusted_index)
        if self._last_index != trusted_index:
            raise CorruptBatchError(f"{self._directory} ends with entry {self._last_index}, not {trusted_index}")

    def _save_state(self, state: bytes) -> None:
        """Put the state of a snapshot beside the log, unless a later one is there, or the log begins later."""
        installed = decode_state(state)
        assert installed is not None
        path = f"{self._directory}/state"
        known = None
        if self._files.exists(path):
            fd = self._files.open(path, create=False)
            try:
                known = decode_state(self._files.read(fd, 0, self._files.size(fd)))
            finally:
                self._files.close(fd)
        fits = known is not None and known[0] <= self._last_index and self._epochs.term_at(known[0]) == known[1]
        if installed[0] == self._start_index and (known is None or known[0] <= installed[0] or not fits):
            Save(path, state).run(self._files, self._opened)

    def _note_members(self, journaled: dict[int, tuple[int, bytes]]) -> None:
        """Add the members that the journal has of entries that are in the log, or were at its beginning."""
        rows = dict(self._members.rows())
        for index, (term, body) in journaled.items():
            is_gone = index < self._start_index or index == 0
            if index <= self._last_index and (is_gone or self._epochs.term_at(index) == term):
                rows[index] = body
        self._members = ConfigurationHistory.from_rows(sorted(rows.items()))
        self._members.drop_prefix(self._start_index)

    def _start_after(self, index: int, term: int, end_offset: int) -> None:
        self._start_index = self._last_index = index
        self._end_offset = end_offset
        self._epochs = LeaderEpochs()
        self._members.truncate_from(index + 1)
        if index:
            self._epochs.assign(term, index, end_offset)

    def _remove(self, segment: Segment) -> None:
        for handle in segment.handles:
            if self._files.exists(handle.path):
                self._files.remove(handle.path)

    def _trust(self, trusted_index: int, start_index: int) -> None:
        """Begin with the checkpoint's segments behind entry `start_index`, up to `trusted_index`, which was synced."""
        rows = list(self._row.segments)
        if start_index > self._start_index:
            while rows and rows[0].first_index <= start_index:
                rows.pop(0)
            self._start_index = start_index
            self._epochs.drop_prefix(start_index)
            self._members.drop_prefix(start_index)
        self._segments = [Segment.from_row(self._directory, row) for row in rows]
        if trusted_index < self._row.last_index:
            self._step_back(trusted_index)
        for segment in self._segments[-1:]:
            # The sealed ones are not needed now; the scrub looks at them, and can mend them.
            if segment.size_bytes and self._size_of(segment) < segment.size_bytes:
                raise CorruptBatchError(f"{segment.log.path} is shorter than the {segment.size_bytes} synced bytes")

    def _step_back(self, trusted_index: int) -> None:
        """Give up the entries after `trusted_index`: the journal says that they were truncated."""
        if trusted_index < self._start_index:
            raise ValueError(f"entry {trusted_index} was truncated, the log starts after {self._start_index}")
        index = trusted_index + 1
        while len(self._segments) > 1 and self._segments[-1].first_index > index:
            self._segments.pop()
        segment = self._segments[-1]
        self._cold.load_index(segment, blocking=True)
        hint = segment.index.before_index(index)
        # The entry itself may be gone from the file, so the walk ends behind its predecessor.
        position = 0
        end_offset = segment.base_offset
        if trusted_index >= segment.first_index:
            hint = segment.index.before_index(trusted_index)
            place = self._cold.seek(
                segment, hint, segment.size_bytes, lambda found, _: found == trusted_index, blocking=True
            )
            if place is None:
                raise CorruptBatchError(f"{segment.log.path} has no entry {trusted_index}")
            header = parse_header(self._cold.read(segment.log, place[2], 61, blocking=True))
            position = place[2] + header.size_bytes
            end_offset = header.end_offset
        segment.truncate_to(position, end_offset)
        row = segment.index.before_index(trusted_index)
        self._recount(segment, row)
        self._epochs.truncate_from(index)
        self._members.truncate_from(index)
        self._last_index = trusted_index
        self._end_offset = end_offset
        self._touched[segment] = None

    def _recount(self, segment: Segment, row: tuple[int, int, int] | None) -> None:
        def count(index: int, header: object) -> bool:
            del index
            segment.renew_max(header.max_timestamp, header.base_offset)  # type: ignore[attr-defined]
            return False

        if segment.size_bytes:
            self._cold.seek(segment, row, segment.size_bytes, count, blocking=True)

    def _size_of(self, segment: Segment) -> int:
        if not self._files.exists(segment.log.path):
            return 0
        with self._opened.borrow(segment.log) as fd:
            return self._files.size(fd)

    def _scan_unknown(self, on_disk: list[tuple[int, int]], limit: int | None) -> None:
        """Take over what is valid, up to entry `limit` (exclusive), where nobody wrote down what there should be."""

        def accept(index: int, fields: FrameFields) -> bool:
            if limit is not None and index >= limit:
                return False
            # Of a log that begins later, and of which nothing else is known, the first term may be any.
            known = self._epochs.last_term
            self._is_damaged = fields.term - known > TERM_JUMP_MAX and (known > 0 or not self._last_index)
            return not self._is_damaged

        self._is_damaged = self._is_cut_short = False
        self._scan(on_disk, accept)
        # Something is behind a segment only when that is whole.
        is_followed = self._is_cut_short and any(stem[1] > self._last_index + 1 for stem in on_disk)
        self.may_lack = (self._is_damaged or is_followed) and (limit is None or self._last_index + 1 < limit)

    def _scan(self, on_disk: list[tuple[int, int]], accept: Callable[[int, FrameFields], bool]) -> None:
        """Go on through the files for as long as the frames are valid and accepted."""
        present = set(on_disk)
        if not self._segments:
            self._segments = [Segment(self._directory, self._end_offset, self._last_index + 1)]
        while self._scan_segment(self._segments[-1], accept):
            following = (self._end_offset, self._last_index + 1)
            if following not in present or following[0] == self._segments[-1].base_offset:
                return
            self._segments.append(Segment(self._directory, *following))

    def _scan_segment(self, segment: Segment, accept: Callable[[int, FrameFields], bool]) -> bool:
        """Return whether the file was good up to its end; note if it was not because of damage."""
        size = self._size_of(segment)
        wanted = CHUNK_BYTES
        while segment.size_bytes < size:
            with self._opened.borrow(segment.log) as fd:
                data = self._files.read(fd, segment.size_bytes, wanted)
            tail = scan_tail(memoryview(data), self._end_offset, self._epochs.last_term)
            for fields in tail.frames:
                if not accept(self._last_index + 1, fields):
                    return False
                self._note(segment, fields, memoryview(data)[fields.position :][: fields.size_bytes])
            if not tail.needs:
                if tail.end < len(data):
                    self._is_damaged = True
                    return False
            elif len(data) < wanted or (tail.end == 0 and tail.needs <= len(data)):
                self._is_cut_short = is_cut_short(memoryview(data)[tail.end :], self._end_offset)
                self._is_damaged = not self._is_cut_short
                return False
            wanted = max(CHUNK_BYTES, tail.needs)
        return True

    def _note(self, segment: Segment, fields: FrameFields, frame: Buffer) -> None:
        index = self._last_index + 1
        if fields.end_offset == fields.base_offset and frame[HEADER_BYTES] == ControlKind.MEMBERSHIP:
            self._members.assign(index, Configuration.decode(bytes(frame[HEADER_BYTES + 1 :])))
        self._epochs.assign(fields.term, index, fields.base_offset)
        segment.add(index, fields.base_offset, fields.size_bytes, fields.max_timestamp)
        self._last_index = index
        self._end_offset = fields.end_offset
        self._touched[segment] = None

    def _cut(self, on_disk: list[tuple[int, int]]) -> None:
        """Remove everything behind the end of the log."""
        active = self._segments[-1]
        size = self._size_of(active)
        if size > active.size_bytes:
            self.cut_bytes += size - active.size_bytes
            with self._opened.borrow(active.log) as fd:
                self._files.truncate(fd, active.size_bytes)
            self._touched[active] = None
        kept = {(segment.base_offset, segment.first_index) for segment in self._segments if not segment.generation}
        for base_offset, first_index in on_disk:
            if (base_offset, first_index) not in kept:
                segment = Segment(self._directory, base_offset, first_index)
                self.cut_bytes += self._size_of(segment)
                self._opened.forget(segment.log)
                self._remove(segment)
        # A compaction that no checkpoint has heard of has not happened, and files that one replaced are not needed.
        compacted = {(segment.base_offset, segment.first_index, segment.generation) for segment in self._segments}
        for name in filter(None, map(parse_generation, self._files.list_directory(self._directory))):
            if name not in compacted:
                self._remove(Segment(self._directory, *name))
                self.cut_bytes += 1
        # These are copies that were not finished.
        for left in self._files.list_directory(self._directory):
            if left.endswith(".new"):
                self._files.remove(f"{self._directory}/{left}")

    def _append(self, wanted: Iterable[tuple[int, Location]], payload_of: Callable[[Location], bytearray]) -> None:
        """Write the entries that only the journal has."""
        buffers: list[Buffer] = []
        start = self._segments[-1].size_bytes
        for index, location in wanted:
            frame = payload_of(location)
            header = parse_header(frame)
            if index != self._last_index + 1 or header.base_offset != self._end_offset:
                raise CorruptBatchError(f"entry {index} in the journal does not continue the log at {self._end_offset}")
            segment = self._segments[-1]
            if segment.size_bytes + len(frame) > self._segment_bytes and self._end_offset > segment.base_offset:
                self._write(segment, buffers, start)
                segment = Segment(self._directory, self._end_offset, index)
                self._segments.append(segment)
                start = 0
            buffers.append(frame)
            fields = FrameFields(
                position=0,
                size_bytes=len(frame),
                base_offset=header.base_offset,
                term=location.term,
                end_offset=header.end_offset,
                max_timestamp=header.max_timestamp,
            )
            self._note(segment, fields, frame)
            self.written_count += 1
            if segment.size_bytes - start > CHUNK_BYTES:
                self._write(segment, buffers, start)
                start = segment.size_bytes
        self._write(self._segments[-1], buffers, start)

    def _write(self, segment: Segment, buffers: list[Buffer], position: int) -> None:
        if buffers:
            with self._opened.borrow(segment.log, create=True) as fd:
                self._files.write(fd, buffers, position)
            buffers.clear()

    def _sync(self, plan: ReplicaPlan | None) -> None:
        for segment in self._touched:
            for handle, position, rows, size_bytes in segment.index_writes():
                with self._opened.borrow(handle, create=True) as fd:
                    self._files.write(fd, [rows], position)
                    self._files.truncate(fd, size_bytes)
            try:
                self._opened.sync(segment.log)
            except OSError as error:
                # Also if the error will pass: a copy takes the place of a file whose sync failed.
                raise StorageFailedError(f"cannot sync {segment.log.path}: {error}") from error
        if self._touched or self.cut_bytes:
            self._files.sync_directory(self._directory)
            if plan is None:  # else `startup` does it once for all replicas
                self._files.sync_directory(self._directory.rpartition("/")[0])


def _is(expected: tuple[int, Location] | None, index: int, fields: FrameFields) -> bool:
    if expected is None:
        return False
    location = expected[1]
    return expected[0] == index and location.term == fields.term and location.size_bytes == fields.size_bytes
