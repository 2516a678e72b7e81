"""The log of one replica: its whole interface, by concern.

A method is a function of the module before its name. Methods that only look at a field or two are in `LogState`, and so
is the account of the fields.
"""

from . import (
    ages,
    appending,
    checking,
    compacting,
    completions,
    installing,
    kept_state,
    lending,
    measuring,
    members,
    reading,
    shortening,
    timestamps,
    write_behind,
)
from .state import LogState

__all__ = ["ReplicaLog"]


class ReplicaLog(LogState):
    """One replica's log: entries by index for Raft, frames by offset for clients. `Storage.open_log` returns it."""

    __slots__ = ()

    # Entries are added.
    append_batch = appending.append_batch
    append_control = appending.append_control
    append = appending.append
    roll = appending.roll
    begin_with = members.begin_with
    became_certain = appending.became_certain

    # Entries are taken away, at the end or the beginning.
    truncate_from = shortening.truncate_from
    drop_before = shortening.drop_before
    drop_prefix = shortening.drop_prefix

    # Everything is replaced.
    install_snapshot = installing.install_snapshot
    incoming = installing.incoming
    in_writer = installing.in_writer
    adopt = installing.adopt

    # Frames are read by offset, entries by index.
    read = reading.read
    read_cold = reading.read_cold
    entries = reading.entries
    replay = reading.replay
    offset_after = reading.offset_after

    # Records are found by time; segments have an age.
    offset_for_timestamp = timestamps.offset_for_timestamp
    max_timestamp = timestamps.max_timestamp
    begun_ms = ages.begun_ms
    look_at_files = ages.look_at_files

    # Ranges are measured.
    range_parts = measuring.range_parts

    # The owner's state is kept beside the log.
    save_state = kept_state.save_state
    load_state = kept_state.load_state

    # Sealed segments are lent as files.
    sealed_segments = lending.sealed_segments
    sealed_segment = lending.sealed_segment
    pin = lending.pin
    unpin = lending.unpin
    checksum_more = lending.checksum_more
    read_file = lending.read_file
    file_of = lending.file_of
    manifest = lending.manifest

    # They are checked and mended.
    suspect = lending.suspect
    segments_to_scrub = checking.segments_to_scrub
    begin_check = checking.begin_check
    mended = checking.mended

    # They are compacted.
    compact = compacting.compact
    forget_replaced = compacting.forget_replaced
    in_thread = compacting.in_thread

    # Storage and its queues have the files written.
    created = write_behind.created
    deleted = write_behind.deleted
    store = write_behind.store
    queue_checkpoint = write_behind.queue_checkpoint
    on_journaled = completions.on_journaled
    on_operation = completions.on_operation
    on_operation_failed = completions.on_operation_failed
