"""Replaces everything in a log by a snapshot, or by files from another replica.

Both happen when this replica lacks entries that its leader no longer has. In memory it is done at once; on the disk the
journal has it first, then the files show it (see `write_queue.Gate`). Until then nothing of it is durable, so nothing
of it is acknowledged.

*A snapshot* leaves a log without an entry, which begins where the leader's does. The owner's state comes with it, and
goes into the journal record with it, so that a crash finds both or neither.

*Files* come by a transfer (`transfer.incoming`) and are *adopted* when it is complete; `transfer.adoption` says how
that is done on the disk.
"""

import struct
from collections.abc import Callable
from typing import TypeVar

from barnabas_raftlog.log.checkpoint import encode_row
from barnabas_raftlog.log.journal.format import PARTIAL_BIT, RecordKind, encode_place
from barnabas_raftlog.log.machine.open_files import FileHandle
from barnabas_raftlog.log.segments.leader_epochs import LeaderEpochs
from barnabas_raftlog.log.segments.operations import Gate, Remove, Write
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.state_file import encode_state
from barnabas_raftlog.log.transfer.adoption import Adopt
from barnabas_raftlog.log.transfer.incoming import Incoming, Prepared
from barnabas_raftlog.raft.membership import NOBODY, Configuration
from barnabas_raftlog.raft.messages import Buffer, Place

from .kept_state import queue_save
from .members import restart_members
from .state import LogState
from .write_behind import add_gate, row, snapshot

__all__ = ["adopt", "in_writer", "incoming", "install_snapshot"]

_INSTALLED = struct.Struct(">QQ")  # end offset, number of the truncation
_NUMBER = struct.Struct(">Q")  # of the truncation
T = TypeVar("T")


def install_snapshot(
    log: LogState,
    index: int,
    term: int,
    end_offset: int,
    state: Buffer = b"",
    configuration: Configuration = NOBODY,
    *,
    partial_since: Place | None = None,
) -> None:
    """Forget everything: the log now starts after entry `index` of `term`, with offset `end_offset`.

    With `index` 0 nothing stands for what was acknowledged before: the log is uncertain from now on.

    `durable_index` reaches `index` when the journal has this, and in page-cache mode when the files show it.
    `load_state` returns `state` from then on, unless it is empty. `configuration` holds there; `NOBODY`: the one that
    held before. `partial_since`: this is a witness's log, by the configuration at that place; nothing stands for the
    entries that it lacks.
    """
    if log.failed is not None:
        raise log.failed.with_traceback(None)
    before = snapshot(log)
    handles = _forget_segments(log)
    log.active = Segment(log.directory, end_offset, index + 1)
    log.segments = [log.active]
    log.leader_epochs = LeaderEpochs()
    if index:
        log.leader_epochs.assign(term, index, end_offset)
    else:
        log.is_uncertain = True
        log.is_blank = True
    log.start_index = log.last_index = index
    log.last_term = term
    log.log_start_offset = log.log_end_offset = end_offset
    log.size_bytes = 0
    log.tail.reset(index + 1)
    log.shared.loaded.drop_group(log.group)
    # The members go before the record that they belong to: recovery drops them if that never came.
    restart_members(log, index, term, configuration if configuration.voters else log.configuration)
    log.truncations += 1
    number = log.truncations
    saved = encode_state(index, term, state) if state else b""
    log.partial_since = partial_since
    is_partial = partial_since is not None
    payload = _INSTALLED.pack(end_offset, number | is_partial << PARTIAL_BIT) + encode_place(partial_since) + saved
    gate = add_gate(log, before, RecordKind.INSTALL, index, term, payload)
    log.operations.append(Remove(handles, "" if log.is_journaled else log.directory))
    if saved:
        queue_save(log, index, saved)
    _await_snapshot(log, gate, index, number)


def incoming(log: LogState) -> Incoming:
    """Return the place for a transfer to this replica. Its functions block: call them by `in_writer`."""
    return Incoming(log.shared.files, log.directory)


async def in_writer(log: LogState, job: Callable[[], T]) -> T:
    """Run `job`, which may raise, in the write worker.

    Cancellation: the job is carried out all the same.
    """
    return await log.shared.writer.in_thread(job)


def adopt(log: LogState, prepared: Prepared) -> None:
    """Put received files in place of everything in this log, which then ends with the snapshot's entry.

    `durable_index` reaches that entry as after `install_snapshot`; `load_state` returns the state that came with it.
    """
    if log.failed is not None:
        raise log.failed.with_traceback(None)
    manifest = prepared.manifest
    before = snapshot(log)
    index = manifest.snapshot_index
    old = _forget_segments(log)
    received = [Segment.from_row(prepared.directory, one) for one in prepared.rows]
    log.active = Segment(log.directory, manifest.end_offset, index + 1)
    log.segments = [*received, log.active]
    log.leader_epochs = LeaderEpochs.from_rows(list(manifest.epochs))
    configuration = Configuration.decode(manifest.configuration) if manifest.configuration else NOBODY
    log.configuration = configuration if configuration.voters else log.configuration
    log.members.restart(index, log.configuration)
    log.start_index = manifest.start_index
    log.last_index = index
    log.last_term = manifest.snapshot_term
    log.log_start_offset = manifest.log_start_offset
    log.log_end_offset = manifest.end_offset
    log.size_bytes = manifest.size_bytes
    log.partial_since = None
    log.tail.reset(index + 1)
    log.shared.loaded.drop_group(log.group)
    log.truncations += 1
    number = log.truncations
    payload = _NUMBER.pack(number) + encode_row(row(log))
    gate = add_gate(log, before, RecordKind.ADOPT, index, manifest.snapshot_term, payload)
    new = [handle for segment in received for handle in segment.handles]
    log.operations.append(Adopt(prepared.directory, log.directory, old, new, index))
    log.adopting_count += 1
    log.adopted_index = index
    _await_snapshot(log, gate, index, number)


def _forget_segments(log: LogState) -> list[FileHandle]:
    """Return the files of the log, which begins anew, with those that wait for a checkpoint to replace them.

    The latter go with the others, before anything new has a place: it may have the name of one of them.
    """
    for segment in log.segments:
        log.shared.forget_index(segment)
    waiting = [handle for _, _, handles in log.replaced for handle in handles]
    log.replaced = []
    return waiting + [handle for segment in log.segments for handle in segment.handles]


def _await_snapshot(log: LogState, gate: Gate, index: int, number: int) -> None:
    """Let entry `index` be durable when the snapshot behind `gate` is; its operations are queued already."""
    log.directory_changed = True
    durable_index = max(min(log.durable_index, index - 1), 0)  # what a crash would leave now
    if gate.ticket is not None:
        log.durable.reset(durable_index)
        log.durable.queue(gate.ticket, index)
        log.written.reset(index)
    else:
        # Until the journal says that the files show it, a crash would empty the log again: the file that is made
        # behind the second gate is what counts.
        add_gate(log, snapshot(log), RecordKind.TRUNCATED, 0, number)
        log.write_serial += 1
        write = log.open_write = Write(log.active, 0, log.write_serial)
        write.last_index = index
        log.operations.append(write)
        log.written.reset(durable_index)
        log.written.queue(write.serial, index)
    log.shared.writes.add(log)
    log.mark_dirty()
