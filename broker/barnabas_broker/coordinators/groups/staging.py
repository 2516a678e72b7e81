"""Writes the offsets of transactions into one offsets partition, and ends the transactions there.

An offset is *staged* from the append of its record to the marker that ends its transaction
(`state_machine.staged`). As long as the record is not committed it is not in the table, but it may be soon, without
anybody doing anything more; and whoever wrote it may have been replaced meanwhile. So it is *pending* for everybody
who asks from its append on.

*The way of a marker.* It has to come through here, because a leader does not read what it appends: a marker that was
appended past the shard would end nothing in its table. Its offsets are taken in when it commits, a part at a time.
Until the last of them the marker is under way, and no older offset of these names is written again (`is_ending`).

*Who may write.* Whether the transaction is open is for its coordinator to say, and the epoch for the partition to
check; here an offset is written for whoever asks. Whether a member may is the group's affair
(`ConsumerGroup.check_staging`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas_broker.coordinators.runtime.contracts import Done, Writer
from barnabas_broker.coordinators.runtime.shard import BATCH_BYTES_MAX, ShardRuntime
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.markers import EndMarker

from .state_machine.offsets import in_batches
from .state_machine.records import CommittedOffset, GroupKey, Name, OffsetKey
from .state_machine.room import Room
from .state_machine.staged import StagedOffsets
from .table import GroupTable

__all__ = ["EndName", "StagedName", "Staging"]

Places = Sequence[tuple[OffsetKey, CommittedOffset]]


class StagedName(NamedTuple):
    """Names an offset that a producer has staged, while it is under way."""

    group_id: str
    topic: str
    partition: int
    producer_id: int


class EndName(NamedTuple):
    """Names the commit of a producer's transaction, while it is under way; it is no group's."""

    producer_id: int


class Staging:
    """See the module. Owned by its shard.

    Invariant: `_coming` has the producers of every staged record that is under way, by its name, in their order.
    """

    __slots__ = ("_coming", "_room", "_runtime")

    def __init__(self, runtime: ShardRuntime[GroupTable, Any], room: Room) -> None:
        self._runtime = runtime
        self._room = room
        self._coming: dict[OffsetKey, list[int]] = {}

    @property
    def staged(self) -> StagedOffsets:
        """What is staged and committed, once the shard is loaded."""
        return self._runtime.standby.table.staged

    def is_pending(self, key: OffsetKey) -> bool:
        """Tell whether a transaction that has not ended has written an offset of that name."""
        return key in self._coming or bool(self.staged.producers_of(key))

    def is_ending(self, name: Name) -> bool:
        """Tell whether a transaction with an offset of that name is being committed."""
        if isinstance(name, GroupKey):
            return False
        under_way = self._runtime.under_way
        producers = (*self.staged.producers_of(name), *self._coming.get(name, ()))
        return any(EndName(producer_id) in under_way for producer_id in producers)

    def has_room_for(self, producer_id: int, key: OffsetKey, value: CommittedOffset) -> bool:
        """Tell whether that may be staged: it takes no more than what is there already, or there is room."""
        growth = self.staged.growth(producer_id, key, value)
        return growth <= 0 or growth <= self._room.for_offsets_bytes

    def write(self, writer: Writer, offsets: Places, done: Done | None) -> bool:
        """Append offsets as part of the writer's transaction. `done` is called once.

        False: not all of them could be appended, and `done` was told why. INVALID_PRODUCER_EPOCH: a newer instance of
        the producer has taken over.

        Raises:
            ValueError: a name or a note does not fit its field; nothing was appended.
        """
        batches = in_batches(offsets, BATCH_BYTES_MAX)
        for number, (batch, records) in enumerate(batches, 1):
            names = [StagedName(*key, writer.producer_id) for key, _ in batch]
            # Nothing comes in between: there it will stand.
            offset = self._runtime.partition.log.log_end_offset
            put = partial(self._put, writer.producer_id, batch, offset)
            last = done if number == len(batches) else None  # they commit in order, so the last one speaks for all
            error = self._runtime.append(records, names, put, last, writer=writer)
            if error is not ErrorCode.NONE:
                if done is not None:
                    done(error)
                return False
            for key, _ in batch:
                self._coming.setdefault(key, []).append(writer.producer_id)
        return True

    def end(self, marker: EndMarker, done: Done | None, *, bumps_epoch: bool) -> None:
        """Append the end of a producer's transaction, or find that it is there. `done` is called once.

        `bumps_epoch`: as in `Partition.append_marker`.
        """
        table = self._runtime.standby.table
        names = [EndName(marker.producer_id)] if marker.is_commit else []
        error = self._runtime.append_marker(
            marker,
            names,
            partial(table.end_some, marker),
            done,
            bumps_epoch=bumps_epoch,
            weight=len(table.staged.of_producer(marker.producer_id)),
        )
        if error is not ErrorCode.NONE and done is not None:
            done(error)

    def _put(self, producer_id: int, batch: Places, offset: int) -> None:
        staged = self.staged
        for key, value in batch:
            staged.stage(producer_id, key, value, offset)
            coming = self._coming[key]
            if len(coming) == 1:
                del self._coming[key]
            else:
                coming.remove(producer_id)
