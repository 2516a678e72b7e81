"""Receives the files of one transfer: checked as they come, kept through crashes.

They are never part of the log. They lie in a directory of their own beside the replica's segments:

    incoming/manifest           the list of the files, synced before anything else
    incoming/<stem>.part        a file that is not complete: its frames are valid up to where it ends, or are cut
    incoming/<stem>.log         a complete file: checked, synced, renamed; with `.index` and `.timeindex`
    installing.<index>/         the same directory, complete, with the owner's `state`: ready to become the log

*Checked as they come* is every frame (header, checksum, offset, term) and, at its end, the file's own checksum. So a
damaged byte costs the frames from there on, not the file (if they are wrong again, then the file: the bytes before may
be wrong, too); and damage by the sender's disk is found here as well, because the frames' checksums are the producers'.
*Kept* is every whole frame: a process that starts again, or another sender's manifest that names the same file, goes on
behind the last one. *Replaced:* a file that a new manifest does not name is deleted before that manifest is saved, so
nothing in the directory is ever taken for another manifest's file.

Everything here blocks. It runs in the write worker, one call at a time, and no call does more than a few MiB of work,
so that other replicas' writes go on between them. Syncing a whole file at its end finds little left to do, because the
disk is started on every 8 MiB.

Not here: senders, the order and the rate (`catch_up.receiving`), and the moment at which the files become the log
(`replica.installing`).
"""

from barnabas_raftlog.errors import BarnabasError, MalformedMessageError
from barnabas_raftlog.log.checkpoint import SegmentRow
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.open_files import OpenFiles
from barnabas_raftlog.log.segments.frame_walk import scan_tail
from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs
from barnabas_raftlog.log.segments.offset_index import INDEX_ROW_BYTES, TIME_ROW_BYTES
from barnabas_raftlog.log.segments.operations import WRITE_BACK_BYTES, Save
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.state_file import encode_state
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.wire.crc32c import crc32c

from .adoption import READY_PREFIX, ready_directory
from .manifest import Manifest, SegmentFile, decode_manifest, encode_manifest, stem_of

__all__ = ["DamagedTransferError", "Incoming", "Prepared"]

DIRECTORY = "incoming"
RECHECK_BYTES = 4 << 20  # read again in one call, of a file that was there already


class DamagedTransferError(BarnabasError):
    """The bytes that arrived are not those that the manifest promised; wrong ones are not kept."""


class Prepared:
    """A complete transfer: its manifest, the directory of its files, and a checkpoint's row for each."""

    __slots__ = ("directory", "manifest", "rows")

    def __init__(self, manifest: Manifest, directory: str, rows: list[SegmentRow]) -> None:
        self.manifest = manifest
        self.directory = directory
        self.rows = rows


class _Receiving:
    """The file that is being written. Bytes up to `checked` are whole, valid frames; `pending` came after them."""

    __slots__ = (
        "checked",
        "crc",
        "damaged_at",
        "end_offset",
        "fd",
        "file",
        "index",
        "is_rechecked",
        "needs",
        "pending",
        "segment",
        "term",
        "written_back",
    )

    def __init__(self, file: SegmentFile, segment: Segment, fd: int) -> None:
        self.file = file
        self.segment = segment
        self.fd = fd
        self.checked = 0
        self.crc = 0
        self.term = 0
        self.needs = 0
        self.written_back = 0
        self.end_offset = file.base_offset
        self.index = file.first_index - 1
        self.pending = bytearray()
        self.is_rechecked = False
        self.damaged_at = -1

    @property
    def position(self) -> int:
        return self.checked + len(self.pending)


class Incoming:
    """One transfer of one replica, whose directory is `replica_directory`. Used by one task, through the worker."""

    def __init__(self, files: Files, replica_directory: str) -> None:
        self._files = files
        self._replica = replica_directory
        self._directory = f"{replica_directory}/{DIRECTORY}"
        self._manifest: Manifest | None = None
        self._epochs = LeaderEpochs()
        self._receiving: _Receiving | None = None
        # It has a few descriptors of its own, which are closed with the transfer.
        self._opened = OpenFiles(files, 4)

    def begin(self, manifest: Manifest) -> tuple[frozenset[SegmentFile], int]:
        """Make room for the files that `manifest` names, keep those that are there, and forget the rest.

        Returns the files that are complete, and how many bytes of others are there to be looked at.
        """
        files = self._files
        if self._receiving is not None and self._receiving.file not in manifest.files:
            self._close()
        if not files.exists(self._replica):
            raise FileNotFoundError(f"{self._replica} is gone")
        self._take_back()
        if not files.exists(self._directory):
            files.make_directory(self._directory)
            files.sync_directory(self._replica)
            # A replica that is new may have no checkpoint yet, and with it no name that survives a loss of power.
            files.sync_directory(self._replica.rpartition("/")[0])
        known = self._saved_manifest()
        same = frozenset(manifest.files) & frozenset(known.files if known is not None else ())
        kept = {stem_of(file.base_offset, file.first_index): file for file in same}
        complete: set[SegmentFile] = set()
        left_bytes = 0
        for name in files.list_directory(self._directory):
            stem = ".".join(name.split(".")[:2])
            if name == "manifest":
                continue
            if stem not in kept:
                files.remove(f"{self._directory}/{name}")
            elif name.endswith(".log"):
                complete.add(kept[stem])
            elif name.endswith(".part"):
                left_bytes += self._size_of(f"{self._directory}/{name}")
        files.sync_directory(self._directory)
        if known != manifest:
            Save(f"{self._directory}/manifest", encode_manifest(manifest)).run(files, self._opened)
        self._manifest = manifest
        self._epochs = LeaderEpochs.from_rows(list(manifest.epochs))
        return frozenset(complete), left_bytes

    def open(self, file: SegmentFile) -> int | None:
        """Go on with `file`; return the position of the next byte that is wanted, or None: call again.

        The bytes that an earlier process left are read and checked first, a few MiB in each call.
        """
        receiving = self._receiving
        if receiving is None or receiving.file != file:
            self._close()
            fd = self._files.open(self._path(file, "part"), create=True)
            receiving = self._receiving = _Receiving(
                file, Segment(self._directory, file.base_offset, file.first_index), fd
            )
        if not receiving.is_rechecked:
            wanted = min(RECHECK_BYTES, file.size_bytes - receiving.position)
            data = self._files.read(receiving.fd, receiving.position, wanted)
            is_valid = self._scan(receiving, data)
            receiving.is_rechecked = not is_valid or len(data) < RECHECK_BYTES
            if not receiving.is_rechecked:
                return None
            self._cut(receiving)
        return receiving.position

    def write(self, file: SegmentFile, position: int, data: Buffer) -> None:
        """Add the bytes at `position`, which is where `open` said, or where the last call ended.

        Raises:
            DamagedTransferError: a frame is not valid; `open` says where to go on.
        """
        receiving = self._receiving
        assert receiving is not None
        assert (receiving.file, receiving.position) == (file, position)
        if position + len(data) > file.size_bytes:
            raise DamagedTransferError(f"more than the {file.size_bytes} bytes of {self._path(file, 'part')}")
        self._files.write(receiving.fd, [data], position)
        begin = receiving.written_back
        stop = (position + len(data)) // WRITE_BACK_BYTES * WRITE_BACK_BYTES
        if begin < stop:
            self._files.start_write_back(receiving.fd, begin, stop - begin)
            receiving.written_back = stop
        if not self._scan(receiving, data):
            at = receiving.checked
            path = self._path(file, "part")
            self._cut(receiving)
            if at == receiving.damaged_at:
                self._close()
                self._files.remove(path)
            receiving.damaged_at = at
            raise DamagedTransferError(f"no valid batch at {at} of {path}")

    def finish(self, file: SegmentFile) -> None:
        """Check the whole file, and let it count.

        Raises:
            DamagedTransferError: it is not the file that the manifest names. It is gone; `open` begins anew.
            OSError: it could not be synced, and is gone, too: nobody knows how much of it is on the disk.
        """
        receiving = self._receiving
        assert receiving is not None
        assert receiving.file == file
        is_whole = receiving.checked == file.size_bytes and not receiving.pending
        ends = (receiving.index, receiving.end_offset) == (file.last_index, file.end_offset)
        path = self._path(file, "part")
        segment = receiving.segment
        if not is_whole or receiving.crc != file.crc32c or not ends:
            self._close()
            self._files.remove(path)
            raise DamagedTransferError(f"{path} is not the file that was promised: it is fetched again")
        for handle, position, rows, size_bytes in segment.index_writes():
            with self._opened.borrow(handle, create=True) as fd:
                self._files.write(fd, [rows], position)
                self._files.truncate(fd, size_bytes)
                self._files.sync(fd)
        try:
            self._files.sync(receiving.fd)
        except OSError:
            self._close()
            self._files.remove(path)
            raise
        self._close()
        self._files.rename(path, self._path(file, "log"))
        self._files.sync_directory(self._directory)

    def prepare(self) -> Prepared:
        """Make everything ready to become the log; all files are complete."""
        manifest = self._manifest
        files = self._files
        assert manifest is not None
        self._close()
        rows = [
            SegmentRow(
                base_offset=file.base_offset,
                first_index=file.first_index,
                size_bytes=file.size_bytes,
                max_timestamp=file.max_timestamp,
                max_timestamp_offset=file.max_timestamp_offset,
                index_rows=self._size_of(self._path(file, "index")) // INDEX_ROW_BYTES,
                time_rows=self._size_of(self._path(file, "timeindex")) // TIME_ROW_BYTES,
            )
            for file in manifest.files
        ]
        state = encode_state(manifest.snapshot_index, manifest.snapshot_term, manifest.state)
        Save(f"{self._directory}/state", state).run(files, self._opened)
        ready = ready_directory(self._replica, manifest.snapshot_index)
        files.rename(self._directory, ready)
        files.sync_directory(self._replica)
        return Prepared(manifest, ready, rows)

    def close(self) -> None:
        """Let go of open files; the received bytes stay."""
        self._close()

    def clear(self) -> None:
        """Delete everything that was received."""
        self._close()
        for name in self._files.list_directory(self._replica) if self._files.exists(self._replica) else ():
            if name == DIRECTORY or name.startswith(READY_PREFIX):
                self._files.remove_tree(f"{self._replica}/{name}")

    # Inside.

    def _path(self, file: SegmentFile, kind: str) -> str:
        return f"{self._directory}/{stem_of(file.base_offset, file.first_index)}.{kind}"

    def _close(self) -> None:
        self._opened.close_all()
        if self._receiving is not None:
            self._files.close(self._receiving.fd)
            self._receiving = None

    def _take_back(self) -> None:
        """Go on with a transfer that was ready and did not become the log; if there are more, forget them all."""
        files = self._files
        ready = [name for name in files.list_directory(self._replica) if name.startswith(READY_PREFIX)]
        if len(ready) == 1 and not files.exists(self._directory):
            files.rename(f"{self._replica}/{ready.pop()}", self._directory)
            files.sync_directory(self._replica)
        for name in ready:
            files.remove_tree(f"{self._replica}/{name}")

    def _saved_manifest(self) -> Manifest | None:
        path = f"{self._directory}/manifest"
        if not self._files.exists(path):
            return None
        fd = self._files.open(path, create=False)
        try:
            return decode_manifest(self._files.read(fd, 0, self._files.size(fd)))
        except MalformedMessageError:
            return None  # Nothing that is there can be trusted then: it is fetched again.
        finally:
            self._files.close(fd)

    def _size_of(self, path: str) -> int:
        if not self._files.exists(path):
            return 0
        fd = self._files.open(path, create=False)
        try:
            return self._files.size(fd)
        finally:
            self._files.close(fd)

    def _scan(self, receiving: _Receiving, data: Buffer) -> bool:
        """Check the frames that `data` completes; False if one is not valid."""
        pending = receiving.pending
        pending += data
        if len(pending) < receiving.needs:
            return True
        with memoryview(pending) as view:
            tail = scan_tail(view, receiving.end_offset, receiving.term)
            end = tail.end
            for fields in tail.frames:
                # The term stands outside of what a batch's checksum covers, and so does the offset.
                if fields.term != self._epochs.term_at(receiving.index + 1):
                    end = fields.position
                    break
                receiving.index += 1
                receiving.segment.add(receiving.index, fields.base_offset, fields.size_bytes, fields.max_timestamp)
                receiving.end_offset = fields.end_offset
                receiving.term = fields.term
            with view[:end] as whole:
                receiving.crc = crc32c(whole, receiving.crc)
        receiving.checked += end
        del pending[:end]
        receiving.needs = tail.needs
        left_bytes = receiving.file.size_bytes - receiving.checked
        return end == tail.end and tail.needs <= left_bytes and bool(tail.needs or not pending)

    def _cut(self, receiving: _Receiving) -> None:
        """Forget the bytes behind the last whole, valid frame."""
        receiving.pending.clear()
        receiving.needs = 0
        self._files.truncate(receiving.fd, receiving.checked)
