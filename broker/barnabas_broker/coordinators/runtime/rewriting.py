"""Rewrites a log that is much longer than what it says: replays stay short.

The leader writes everything that counts once more behind the log's end, and when that is committed, the log's beginning
goes, on every replica. Both sides of the cut tell the same, so a replay from anywhere finds nothing else, and neither
does one after a leader that is lost half-way. The order of records is kept: a name that has a newer record under way is
not written again, because that record is behind the cut already.

*Open transactions.* What a producer has written as part of a transaction that has not ended counts later, by a marker
behind the end, or never. So the log is cut no further than where the first transaction begins that is open when the
names are listed. What others have brought that had ended by then is among the names, and what these bring is told by
their records and markers, all of which stay. Two things follow. A record that is written again says nothing new, and
says so itself (`contracts.AGAIN`): otherwise it would pass for newer than what a transaction wrote before it. And it
must not come behind a marker that replaces it, so it is left out while there is one under way
(`CoordinatorShard.is_ending`). Rewriting does not begin while an open transaction would keep most of the log.
"""

from typing import Any

from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError

from .shard import BATCH_BYTES_MAX, ShardRuntime

__all__ = ["rewrite"]


async def rewrite(runtime: ShardRuntime[Any, Any]) -> None:
    """Append all that counts once more, then drop the log's beginning before that."""
    log = runtime.partition.log
    size_bytes = log.size_bytes
    start_offset = await _append_all(runtime)
    if start_offset is not None and start_offset > log.log_start_offset:
        try:
            runtime.partition.drop_before(start_offset)
        except (NotLeaderError, StorageFailedError):
            pass  # The records are there twice; that harms nobody, and a later leader will do it.
        else:
            live_bytes = runtime.standby.table.live_bytes
            text = f"{size_bytes} bytes up to offset {start_offset} say what {live_bytes} bytes behind it do"
            runtime.host.tell("coordinator log compacted", str(runtime), text)
    runtime.is_rewriting = False


async def _append_all(runtime: ShardRuntime[Any, Any]) -> int | None:
    """Append all that counts behind the log's present end; return where the log may start then, None: nowhere else."""
    start_offset = runtime.partition.log.log_end_offset
    # First the records under way: each is behind the end, or it is committed before the rewriting begins.
    if not await runtime.wait_committed():
        return None
    slices = Slices()
    table = runtime.standby.table
    open_offset = table.first_open_offset
    if open_offset is not None:
        start_offset = min(start_offset, open_offset)
    names = await taken(table.names_in_steps())
    position = 0
    while position < len(names):
        end = position
        size_bytes = 0
        while end < len(names) and size_bytes < BATCH_BYTES_MAX:
            size_bytes += table.size_of(names[end])
            end += 1
        batch = names[position:end]
        record_of = await taken(table.prepare_in_steps(batch))
        if runtime.append_again(batch, record_of) is not ErrorCode.NONE or not await runtime.wait_committed():
            return None
        position = end
        await slices.yield_if_due()
    return start_offset
