"""Notes who belongs to the group, from which entry of the log on.

A change of members holds as soon as it is in the log. The journal has it beside the entry, and keeps it when the entry
is gone. In page-cache mode the log is synced up to such an entry before that counts as durable: a group that forgot
who its members are could elect two leaders.
"""

from barnabas_raftlog.log.journal.format import RecordKind
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.header import HEADER_BYTES, ControlKind

from .state import LogState
from .write_behind import fail, sync_here

__all__ = ["begin_with", "note_control", "restart_members"]


def begin_with(log: LogState, configuration: Configuration) -> None:
    """Remember who belonged to the group before it changed its members, if the log does not know that."""
    if not log.configuration.voters:
        restart_members(log, 0, 0, configuration)
        log.mark_dirty()


def restart_members(log: LogState, index: int, term: int, configuration: Configuration) -> None:
    """Let `configuration` hold from `index` on, and forget all others; unless it names nobody."""
    if configuration.voters:
        _put(log, index, term, configuration.encode())
        log.members.restart(index, configuration)
        log.configuration = configuration


def note_control(log: LogState, index: int, term: int, frame: Buffer) -> None:
    """See whether a control frame changes the members.

    Raises:
        StorageFailedError: it does, but in a way that this version does not understand.
    """
    if frame[HEADER_BYTES] != ControlKind.MEMBERSHIP:
        return
    body = bytes(frame[HEADER_BYTES + 1 :])
    try:
        configuration = Configuration.decode(body)
    except ValueError as error:
        fail(log, f"{log.name}: entry {index} changes the members to something that cannot be read: {error}")
        assert log.failed is not None
        raise log.failed from error
    _put(log, index, term, body)
    log.members.assign(index, configuration)
    log.configuration = configuration
    if not log.is_journaled:
        sync_here(log)


def _put(log: LogState, index: int, term: int, body: bytes) -> None:
    """Write down in the journal who belongs to the group, which outlives the entry that says so."""
    log.shared.commits.put(RecordKind.MEMBERS, log.group, index, term, body)
