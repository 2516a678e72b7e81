"""Keeps the owner's state beside the log, in place of its older entries.

The log never looks into it (`state_file`). A segment whose entries nobody could replay any more goes only when such a
state covers them (`shortening`).
"""

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.machine.files import read_file
from barnabas_raftlog.log.segments.operations import Save, SyncDirectory
from barnabas_raftlog.log.state_file import StateOrMaker, decode_state, encode_state, made

from .reading import on_unreadable
from .state import LogState

__all__ = ["ask_for_state", "load_state", "queue_save", "save_state"]

STATE_FILE = "state"


def save_state(log: LogState, index: int, state: StateOrMaker) -> None:
    """Queue the state after entry `index`, or a later one, to be kept in place of an older one.

    It counts after a crash if the log still has that entry then, so it had better be durable.

    It never takes the place of a state that says more. It is written behind an adoption, so it can count as of the
    adopted entry, durable or not: a crash before that leaves the older log with the older state.
    """
    index = max(index, log.adopted_index)
    term = log.term_at(index)
    assert term is not None, index
    queue_save(log, index, lambda: encode_state(index, term, made(state)))
    log.shared.writes.add(log)


def queue_save(log: LogState, index: int, data: StateOrMaker) -> None:
    """Queue the write of the file; the caller hands the log to the write queue."""
    if not log.is_named:
        # Checkpoints do this too, once for all replicas, but a state may count before the first of them.
        log.is_named = True
        log.operations.append(SyncDirectory(log.directory.rpartition("/")[0]))
    log.operations.append(Save(f"{log.directory}/{STATE_FILE}", data, index))


def load_state(log: LogState) -> tuple[int, bytes] | None:
    """Return the state that `save_state` kept: (index, blob); None if none fits this log. May block.

    Raises:
        StorageFailedError: the file cannot be read; unless that will pass, the replica has failed.
    """
    path = f"{log.directory}/{STATE_FILE}"
    try:
        data = read_file(log.shared.files, path)
    except OSError as error:
        on_unreadable(log, (log.active,), error)
        raise StorageFailedError(f"cannot read {path}: {error}") from error
    saved = None if data is None else decode_state(data)
    if saved is None or log.term_at(saved[0]) != saved[1]:
        return None
    return saved[0], saved[2]


def ask_for_state(log: LogState) -> None:
    """Have the state saved again if that alone keeps a segment.

    The others may have made durable, and so committed, what this disk has only now: then the state was kept with
    an entry before it, and nothing would delete the segment until somebody writes again.
    """
    if log.on_state_needed is None or not log.has_segments_before(log.log_start_offset):
        return
    index = log.segments[1].first_index - 1
    if max(log.saved_index, log.asked_index) < index <= min(log.committed_index, log.durable_index):
        log.asked_index = index
        log.on_state_needed()
        log.shared.writes.flush()
