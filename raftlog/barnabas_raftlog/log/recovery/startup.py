"""Starts a node's storage: locks, identifies, reads the checkpoint, and recovers after a crash.

Everything here runs in the write worker and may block. After a clean stop it reads `meta.json`, `checkpoint` and the
first sector of each journal file, whatever the amount of data. After a crash it reads the journal from the checkpoint
on and brings every replica's files in order; then it writes a new checkpoint, and the journal is empty again.

Failures: a replica whose files cannot be written, not even new ones in their place, fails alone, as at any other time.
If those are many, or all, or the checkpoint cannot be written, it is the disk: the start is refused, nothing is
changed for good, and the next start begins with the same sources. So is a start without room.

A start is refused, too, from a directory with terms that no honest cluster reaches, before anything in it is changed.
A start that *mends* recovers such a directory and takes them out (`forgery`); in any other it changes nothing.
"""

import json
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.checkpoint import Checkpoint, JournalPlace, ReplicaRow, decode, encode, encode_row
from barnabas_raftlog.log.journal.entries import Location
from barnabas_raftlog.log.journal.format import FILE_HEADER_BYTES, FileHeader, is_journal_file, parse_file_header
from barnabas_raftlog.log.journal.note import Begun, read_note
from barnabas_raftlog.log.journal.scan import JournalScan
from barnabas_raftlog.log.machine.files import Files, read_file
from barnabas_raftlog.log.machine.open_files import OpenFiles
from barnabas_raftlog.log.removals import being_deleted, is_leftover
from barnabas_raftlog.log.segments.operations import Save
from barnabas_raftlog.log.shared import StorageConfig

from .forgery import Forged, find_forged, mended_state
from .plan import WITH_PAYLOAD, Replay, ReplicaPlan
from .replica import Recovered, empty_row, promised, recover_replica

__all__ = ["Started", "save", "start"]

VERSION = 1
CLEAN_STOP = "clean-stop"
WAY_OUT = "Move the whole directory away and start again: this node is then a new member, without data"
# One replica in ten, and one, may have files that cannot be written; more, or all, are taken for a disk that fails. A
# guess, on the side of keeping what may still be saved.
UNWRITABLE_PERCENT_MAX = 10


class Started(NamedTuple):
    """The result of `start`."""

    lock_fd: int
    directory_id: bytes
    checkpoint: Checkpoint
    journal_paths: list[str]
    was_clean: bool
    written_count: int
    cut_bytes: int
    mended: tuple[str, ...] = ()  # the forgeries in words; only of a start that mends


class _Replayed(NamedTuple):
    replay: Replay
    chain: list[int]  # the journal files that count, oldest first
    last_batch: int


def save(files: Files, path: str, data: bytes) -> None:
    """Replace a small file; a crash leaves the old or the new one."""
    Save(path, data).run(files, OpenFiles(files, 1))


def start(
    files: Files,
    directory: str,
    config: StorageConfig,
    cluster_id: str | None,
    node_id: int | None,
    new_id: Callable[[], str],
    boot_id: str | None = None,
    *,
    mends: bool = False,
) -> Started:
    """Make the directory usable.

    `boot_id` differs after every loss of power, or is empty if that cannot be told; None: power is never lost.

    Raises:
        StorageFailedError: it is in use, belongs to another node or cluster, or is damaged in a way that concerns
            every replica. The text says what, where, and what can be done.
    """
    try:
        if mends and not files.exists(f"{directory}/meta.json"):
            raise StorageFailedError(f"{directory} is not the data directory of a broker: it has no meta.json")
        for part in ("", "/journal", "/replicas"):
            files.make_directory(directory + part)
        lock_fd = files.lock(f"{directory}/lock")
    except BlockingIOError as error:
        raise StorageFailedError(f"{directory} is in use by another process") from error
    except OSError as error:
        raise StorageFailedError(f"cannot use {directory}: {error}") from error
    try:
        directory_id = _identify(files, directory, cluster_id, node_id, new_id)
        return _Start(files, directory, config, boot_id, mends=mends).run(lock_fd, directory_id)
    except (OSError, ValueError) as error:
        files.close(lock_fd)
        raise StorageFailedError(f"cannot start from {directory}: {error}") from error
    except StorageFailedError:
        files.close(lock_fd)
        raise


def _identify(
    files: Files, directory: str, cluster_id: str | None, node_id: int | None, new_id: Callable[[], str]
) -> bytes:
    path = f"{directory}/meta.json"
    data = read_file(files, path)
    if data is None:
        parts = f"{directory}/journal", f"{directory}/replicas"
        if files.exists(f"{directory}/checkpoint") or any(map(files.list_directory, parts)):
            # It was made first of all files here. Another identity beside these votes and entries would be a lie.
            raise StorageFailedError(f"{path} is missing, and {directory} is not empty. {WAY_OUT}")
        meta: dict[str, Any] = {
            "version": VERSION,
            "cluster_id": cluster_id,
            "node_id": node_id,
            "directory_id": new_id(),
        }
        save(files, path, json.dumps(meta).encode())
        files.sync_directory(directory)
    else:
        meta = json.loads(data)
        if not isinstance(meta, dict):
            raise ValueError(f"{path} is damaged: {str(meta)[:100]}")
        if meta.get("version") != VERSION:
            raise StorageFailedError(f"{directory} has format {meta.get('version')}, this version reads {VERSION}")
        for name, wanted in (("cluster_id", cluster_id), ("node_id", node_id)):
            if wanted is not None and meta.get(name) not in {None, wanted}:
                raise StorageFailedError(
                    f"{directory} belongs to {name.replace('_', ' ')} {meta.get(name)}, this broker is configured"
                    f" with {wanted}: correct the configuration, or use another directory"
                )
    try:
        return uuid.UUID(meta["directory_id"]).bytes
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: it says no directory id") from error


class _Start:
    def __init__(
        self, files: Files, directory: str, config: StorageConfig, boot_id: str | None, *, mends: bool
    ) -> None:
        self._files = files
        self._mends = mends
        self._directory = directory
        self._config = config
        self._boot_id = boot_id
        self._journal: dict[int, tuple[str, FileHeader]] = {}  # by sequence
        self._copies: dict[int, list[str]] = {}  # files that say to be the same, by sequence
        self._begun: Begun | None = None

    def run(self, lock_fd: int, directory_id: bytes) -> Started:
        files = self._files
        directory = self._directory
        data = read_file(files, f"{directory}/checkpoint")
        checkpoint = _decoded(data, f"{directory}/checkpoint")
        self._begun = read_note(files, directory)
        marker = read_file(files, f"{directory}/{CLEAN_STOP}")
        # A file that somebody else has put there, a copy for instance, is neither read nor written over.
        names = filter(is_journal_file, files.list_directory(f"{directory}/journal"))
        paths = [f"{directory}/journal/{name}" for name in names]
        self._read_headers(paths)
        newest = max(self._journal, default=0)
        self._check_begun(checkpoint.journal, newest)
        was_clean = (
            marker is not None
            and bytes(marker) == str(checkpoint.number).encode()
            and newest < checkpoint.journal.sequence
        )
        # A failed replica is looked at again, and all others with it: a checkpoint must say that it is good before
        # anything is appended to it.
        has_failed = any(row.failed for row in checkpoint.rows.values())
        recovers = bool((not was_clean or has_failed) and (data or self._journal))
        replayed = self._replay_all(checkpoint, newest) if recovers or self._mends else None
        forged = self._find_forged(checkpoint, replayed)
        started = Started(
            lock_fd=lock_fd,
            directory_id=directory_id,
            checkpoint=checkpoint,
            journal_paths=paths,
            was_clean=was_clean,
            written_count=0,
            cut_bytes=0,
        )
        if self._mends and not forged.groups:
            return started
        if not was_clean:
            # A killed process may have made files whose names are not durable yet, and they are used from here on.
            for part in ("", "/journal", "/replicas"):
                files.sync_directory(directory + part)
        if replayed is not None:
            mended = _take_out(forged, replayed.replay)
            fresh, written, cut = self._recover(checkpoint, replayed, newest, forged, was_clean=was_clean)
            started = started._replace(checkpoint=fresh, written_count=written, cut_bytes=cut, mended=mended)
        elif not data:
            started = started._replace(was_clean=True)
        for name in files.list_directory(f"{directory}/replicas"):
            if is_leftover(name):
                files.remove_tree(f"{directory}/replicas/{name}")
        if self._boot_id is not None and self._boot_id != self._known_boot_id():
            # Not before the doubt about page-cache replicas is in a checkpoint.
            save(files, f"{directory}/boot-id", self._boot_id.encode())
        if marker is not None:
            files.remove(f"{directory}/{CLEAN_STOP}")
            files.sync_directory(directory)
        return started

    def _check_begun(self, place: JournalPlace, newest: int) -> None:
        """See whether the journal file that was written to last is there, if anything in it counts.

        Raises:
            ValueError: it is not.
        """
        if place.position > FILE_HEADER_BYTES and newest < place.sequence:
            raise ValueError(_lost(f"the journal file with sequence number {place.sequence}"))
        if self._begun is not None and self._begun.sequence >= place.sequence and newest < self._begun.sequence:
            path = f"{self._directory}/journal/{self._begun.file}.journal"
            raise ValueError(_lost(f"{path}, with sequence number {self._begun.sequence},"))

    def _known_boot_id(self) -> str | None:
        data = read_file(self._files, f"{self._directory}/boot-id")
        return None if data is None else data.decode(errors="replace")

    def _read_headers(self, paths: list[str]) -> None:
        for path in paths:
            fd = self._files.open(path, create=False)
            try:
                header = parse_file_header(self._files.read(fd, 0, FILE_HEADER_BYTES))
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
            finally:
                self._files.close(fd)
            if header is not None:
                if header.sequence in self._journal:
                    self._copies.setdefault(header.sequence, [self._journal[header.sequence][0]]).append(path)
                self._journal[header.sequence] = (path, header)

    def _replay_all(self, checkpoint: Checkpoint, newest: int) -> _Replayed:
        """Replay the journal over the checkpoint; changes nothing."""
        replay = Replay(checkpoint.rows, checkpoint.hard_states)
        last_batch = checkpoint.journal.batch
        chain = self._chain(checkpoint.journal.sequence, newest)
        for sequence, end in chain:
            last_batch = self._replay(checkpoint, sequence, end, last_batch, replay)
        return _Replayed(replay, [sequence for sequence, _ in chain], last_batch)

    def _find_forged(self, checkpoint: Checkpoint, replayed: _Replayed | None) -> Forged:
        """Return the forgeries in the directory. Other terms that are as high then count as all others do.

        Raises:
            ValueError: there are some, and this start does not mend.
        """
        if replayed is None:
            forged = find_forged(checkpoint.hard_states, checkpoint.rows, {})
        else:
            replay = replayed.replay
            forged = find_forged(replay.hard_states | replay.beyond, checkpoint.rows, replay.plans)
            replay.hard_states |= {group: state for group, state in replay.beyond.items() if group not in forged.terms}
        if forged.groups and not self._mends:
            group = forged.groups[0]
            known = checkpoint.rows.get(group) if replayed is None else replayed.replay.plans.get(group)
            found = forged.describe(group, known.name if known is not None else "")
            raise ValueError(
                f"{found}, which no honest cluster reaches ({len(forged.groups)} groups have such). Stop all brokers, "
                f"give each one's directory to `barnabas log mend --directory {self._directory}`, and start them"
            )
        return forged

    def _recover(
        self, checkpoint: Checkpoint, replayed: _Replayed, newest: int, forged: Forged, *, was_clean: bool
    ) -> tuple[Checkpoint, int, int]:
        """Bring every replica in order, as the journal says, and write a new checkpoint."""
        files = self._files
        directory = self._directory
        replay = replayed.replay
        # A start that was interrupted may have left no boot id: then a loss of power cannot be told either.
        is_other_boot = self._boot_id is not None and (not self._boot_id or self._boot_id != self._known_boot_id())
        power_lost = is_other_boot and not was_clean
        rows: dict[bytes, ReplicaRow] = {}
        written = cut = 0
        descriptors = {sequence: files.open(self._journal[sequence][0], create=False) for sequence in replayed.chain}

        def payload_of(location: Location) -> bytearray:
            return files.read(descriptors[location.sequence], location.position, location.size_bytes)

        self._forget_deleted(replay)
        for name in sorted(replay.deleted):
            if files.exists(f"{directory}/replicas/{name}"):
                files.remove_tree(f"{directory}/replicas/{name}")
        jobs: list[Callable[[], Recovered | StorageFailedError]] = []
        unwritable: dict[bytes, StorageFailedError] = {}
        for group, plan in replay.plans.items():
            row = None if plan.is_new else checkpoint.rows.get(group)
            if row is None or row.name != plan.name:
                row = empty_row(group, plan.name, page_cache=plan.page_cache)
            path = f"{directory}/replicas/{plan.name}"
            rows[group] = row
            jobs.append(partial(_recovered, files, path, row, plan, payload_of, self._config.segment_bytes))
        for (group, plan), found in zip(replay.plans.items(), files.run_all(jobs), strict=True):
            if isinstance(found, StorageFailedError):
                unwritable[group] = found
                continue
            rows[group] = row = found.row
            before = checkpoint.rows.get(group)
            was_page_cache = plan.page_cache or (before is not None and before.page_cache)
            row.blank = plan.is_blank or (row.blank and not plan.is_certain)
            doubtful = found.may_lack or (row.uncertain and not plan.is_certain)
            row.uncertain = row.blank or doubtful or (power_lost and was_page_cache)
            written += found.written_count
            cut += found.cut_bytes
        for fd in descriptors.values():
            files.close(fd)
        if unwritable and len(unwritable) >= min(len(jobs), 2 + len(jobs) * UNWRITABLE_PERCENT_MAX // 100):
            # It is the disk. Nothing is lost, because journal and checkpoint still say what must be there, so nothing
            # may be concluded for good about these replicas: a start that tries again may succeed.
            raise next(iter(unwritable.values()))
        for group, error in unwritable.items():
            rows[group].failed = str(error)
            rows[group].durable = promised(rows[group], replay.plans[group])
        _mend_states(forged, replay, rows)
        place = JournalPlace(max(newest, checkpoint.journal.sequence) + 1, FILE_HEADER_BYTES, replayed.last_batch)
        fresh = Checkpoint(checkpoint.number + 1, place, rows, replay.hard_states)
        packed = [encode_row(row) for row in rows.values()]
        files.sync_directory(f"{directory}/replicas")
        save(files, f"{directory}/checkpoint", encode(fresh.number, place, packed, fresh.hard_states))
        return fresh, written, cut

    def _forget_deleted(self, replay: Replay) -> None:
        """Carry out deletions that had begun, and that the journal does not know of yet."""
        names = set(self._files.list_directory(f"{self._directory}/replicas"))
        plans = replay.plans
        begun = being_deleted(names, replay.tickets)
        for group, plan in list(plans.items()):
            if plan.name in begun:
                del plans[group]
                if plan.name in names:
                    # This one was made after it: the entries in its files are its own.
                    plans[group] = ReplicaPlan(plan.name, 0, page_cache=plan.page_cache, is_new=True)
                    plans[group].is_blank = True

    def _chain(self, oldest: int, newest: int) -> list[tuple[int, int]]:
        """Return the journal files that count, oldest first: (sequence, where its valid part ends, or 0).

        Each file names its predecessor. One that was begun in vain, in place of a file that had failed, is named by
        none; it counts only as the newest, and then nobody was told of its records.
        """
        chain: list[tuple[int, int]] = []
        sequence = newest
        end = 0
        while sequence >= oldest:
            if sequence not in self._journal:
                raise ValueError(_lost(f"the journal file with sequence number {sequence}"))
            if sequence in self._copies:
                paths = " and ".join(sorted(self._copies[sequence]))
                raise ValueError(f"{paths} are the same journal file: put away what is a copy")
            chain.append((sequence, end))
            _, end, sequence = self._journal[sequence][1]
        chain.reverse()
        return chain

    def _replay(self, checkpoint: Checkpoint, sequence: int, end: int, last_batch: int, replay: Replay) -> int:
        """Replay one journal file, up to `end` unless that is 0; return the number of its last batch."""
        path, _ = self._journal[sequence]
        start = checkpoint.journal.position if sequence == checkpoint.journal.sequence else FILE_HEADER_BYTES
        fd = self._files.open(path, create=False)
        try:
            read = partial(self._files.read, fd)
            size_bytes = self._files.size(fd)
            scan = JournalScan(read, end or size_bytes, sequence, start, last_batch)
            for record in scan.records():
                replay.apply(record, sequence, scan.payload(record) if record.kind in WITH_PAYLOAD else b"")
        finally:
            self._files.close(fd)
        if scan.damaged_at is not None or (end and scan.end < end - 512):
            raise ValueError(
                f"{path} is damaged at {scan.damaged_at or scan.end}, in records that had been synced, of any group."
                f" {WAY_OUT}"
            )
        file_bytes = scan.file_bytes
        if sequence == checkpoint.journal.sequence:
            file_bytes = max(file_bytes, checkpoint.journal.size_bytes)
        if self._begun is not None and sequence == self._begun.sequence:
            file_bytes = max(file_bytes, scan.first_file_bytes)
            if start == FILE_HEADER_BYTES and not scan.whole_count:
                raise ValueError(_lost(f"all that {path} held"))
        if size_bytes < file_bytes:
            raise ValueError(f"{path} has {size_bytes} bytes, and had {file_bytes}. {WAY_OUT}")
        return scan.last_batch


def _decoded(data: bytearray | None, path: str) -> Checkpoint:
    """Read a checkpoint file, or return an empty checkpoint for one that is not there."""
    if not data:
        return Checkpoint(0, JournalPlace(1, FILE_HEADER_BYTES, 0), {}, {})
    try:
        return decode(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}. {WAY_OUT}") from error


def _take_out(forged: Forged, replay: Replay) -> tuple[str, ...]:
    """Begin logs anew whose beginning is forged; return all forgeries in words."""
    plans = replay.plans
    found = list[str]()
    for group in forged.groups:
        plan = plans.get(group)
        found.append(forged.describe(group, plan.name if plan is not None else ""))
        if group in forged.starts and plan is not None:
            plans[group] = ReplicaPlan(plan.name, 0, page_cache=plan.page_cache, is_new=True)
            plans[group].is_blank = True
    return tuple(found)


def _mend_states(forged: Forged, replay: Replay, rows: dict[bytes, ReplicaRow]) -> None:
    for group in forged.terms:
        row = rows.get(group)
        last_term = row.epochs[-1][0] if row is not None and row.epochs else 0
        replay.hard_states[group] = mended_state(replay.hard_states.get(group), last_term)
        if row is not None:
            row.uncertain |= group in replay.cut_beyond


def _lost(what: str) -> str:
    return f"{what} is missing, with records that had been synced, of any group. {WAY_OUT}"


def _recovered(
    files: Files,
    path: str,
    row: ReplicaRow,
    plan: ReplicaPlan,
    payload_of: Callable[[Location], bytearray],
    segment_bytes: int,
) -> Recovered | StorageFailedError:
    try:
        return recover_replica(files, path, row, plan, payload_of, segment_bytes)
    except StorageFailedError as error:
        return error
