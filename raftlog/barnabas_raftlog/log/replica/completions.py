"""Takes note of work that workers have done: entries are durable, or written."""

from barnabas_raftlog.log.segments.operations import Operation, Save, Store, Sync, Write
from barnabas_raftlog.log.transfer.adoption import Adopt

from .kept_state import ask_for_state
from .shortening import drop_unneeded
from .state import LogState
from .write_behind import fail, wrote

__all__ = ["on_journaled", "on_operation", "on_operation_failed"]


def on_journaled(log: LogState, durable_ticket: int) -> None:
    """Take note that the journal has everything up to `durable_ticket` on the disk."""
    if log.durable.complete(durable_ticket):
        log.shared.moved[log.group] = None
    if log.log_start_offset > log.base_offset:
        drop_unneeded(log)
        ask_for_state(log)


def on_operation(log: LogState, operation: Operation) -> None:
    """Take note that the write worker has carried out `operation`."""
    if isinstance(operation, Write):
        wrote(log, operation)
    elif isinstance(operation, Store):
        for write in operation.writes:
            wrote(log, write)
        log.shared.bytes_since_checkpoint += operation.size_bytes
    elif isinstance(operation, Sync):
        log.shared.on_synced(log, operation.row)
    elif isinstance(operation, Save):
        log.saved_index = max(log.saved_index, operation.index)
    elif isinstance(operation, Adopt):
        log.adopting_count -= 1
        log.saved_index = max(log.saved_index, operation.index)
    if log.log_start_offset > log.base_offset:
        drop_unneeded(log)


def on_operation_failed(log: LogState, operation: Operation, error: OSError) -> None:
    """Fail the replica, whose files cannot be trusted any more; the others go on."""
    fail(log, f"{log.name}: {error}")
    if isinstance(operation, Sync):
        log.shared.on_synced(log, operation.row)
