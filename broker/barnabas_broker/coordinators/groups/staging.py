"""Writes the offsets of transactions into one offsets partition, and ends the transactions there.

An offset is *staged* from the append of its record to the marker that ends its transaction
(`state_machine.staged`). As long as the record is not committed it is not in the table, but it may be soon, without
anybody doing anything more; and whoever wrote it may have been replaced meanwhile. So it is *pending* for everybody
who asks from its append on.

*The way of a marker.* It has to come through here, because a leader does not read what it appends: a marker that was
appended past the shard would end nothing in its table. Its offsets are taken in when it commits, a part at a time.
Until the last of them the marker is under way. An offset that it replaces is not written again meanwhile (`is_ending`);
all others are, because it is for the first marker behind a staged record to say what becomes of that, and for no later
one.

*Who may write.* Whether the transaction is open is for its coordinator to say, and the epoch for the partition to
check; here an offset is written for whoever asks. Whether a member may is the group's affair
(`ConsumerGroup.check_staging`).
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas_broker.coordinators.room import Room
from barnabas_broker.coordinators.runtime.contracts import Done, Writer
from barnabas_broker.coordinators.runtime.shard import BATCH_BYTES_MAX, ShardRuntime
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.markers import EndMarker

from .state_machine.offsets import in_batches
from .state_machine.records import CommittedOffset, OffsetKey
from .state_machine.staged import StagedOffsets
from .table import GroupTable, TableName

__all__ = ["WRITERS_MAX", "StagedName", "Staging"]

WRITERS_MAX = 32
"""Transactions that may have one name pending at once: a member of a group, and those whose end is still on its way."""

Places = Sequence[tuple[OffsetKey, CommittedOffset]]


class StagedName(NamedTuple):
    """Names an offset that a producer has staged, while it is under way."""

    group_id: str
    topic: str
    partition: int
    producer_id: int


class _Marker(NamedTuple):
    """A marker under way. `number`: how many this shard had appended with it."""

    number: int
    is_commit: bool


class Staging:
    """See the module. Owned by its shard.

    Invariants: `_coming` has, by name, the producer of every staged record that is under way, with the number of the
    last marker before it, in their order; `_markers` has each producer's markers that are under way, in their order.
    """

    __slots__ = ("_coming", "_markers", "_number", "_room", "_runtime")

    def __init__(self, runtime: ShardRuntime[GroupTable, Any], room: Room) -> None:
        self._runtime = runtime
        self._room = room
        self._coming: dict[OffsetKey, list[tuple[int, int]]] = {}
        self._markers: dict[int, deque[_Marker]] = {}
        self._number = 0

    @property
    def staged(self) -> StagedOffsets:
        """What is staged and committed, once the shard is loaded."""
        return self._runtime.standby.table.staged

    def is_pending(self, key: OffsetKey) -> bool:
        """Tell whether a transaction that has not ended has written an offset of that name."""
        return key in self._coming or bool(self.staged.producers_of(key))

    def is_ending(self, name: TableName) -> bool:
        """Tell whether a transaction with an offset of that name is being committed."""
        if not isinstance(name, OffsetKey):
            return False
        # What is committed stands before every marker under way.
        written = [*((producer_id, 0) for producer_id in self.staged.producers_of(name)), *self._coming.get(name, ())]
        return any(self._is_committing(producer_id, number) for producer_id, number in written)

    def _is_committing(self, producer_id: int, number: int) -> bool:
        markers = self._markers.get(producer_id, ())
        return next((marker.is_commit for marker in markers if marker.number > number), False)

    def has_room_for(self, producer_id: int, key: OffsetKey, value: CommittedOffset) -> bool:
        """Tell whether that may be staged: it takes no more than what is there already, or there is room.

        There is none while `WRITERS_MAX` others have that name pending: all of them are looked at when one ends.
        """
        coming = len(self._coming.get(key, ()))
        pending = self.staged.producers_of(key)
        if coming >= WRITERS_MAX or (producer_id not in pending and coming + len(pending) >= WRITERS_MAX):
            return False
        growth = self.staged.growth(producer_id, key, value)
        return growth <= 0 or growth <= self._room.for_additions_bytes

    def write(self, writer: Writer, offsets: Places, done: Done | None) -> bool:
        """Append offsets, at least one, as part of the writer's transaction. `done` is called once.

        False: not all of them could be appended, and `done` was told why. INVALID_PRODUCER_EPOCH: a newer instance of
        the producer has taken over.

        Raises:
            ValueError: a name or a note does not fit its field; nothing was appended.
        """
        assert offsets
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
                self._coming.setdefault(key, []).append((writer.producer_id, self._number))
        return True

    def end(self, marker: EndMarker, done: Done | None, *, bumps_epoch: bool) -> None:
        """Append the end of a producer's transaction, or find that it is there. `done` is called once.

        `bumps_epoch`: as in `Partition.append_marker`.
        """
        log = self._runtime.partition.log
        known_index = log.last_index
        error = self._runtime.append_marker(
            marker,
            partial(self._end_some, marker),
            done,
            bumps_epoch=bumps_epoch,
            weight=len(self.staged.of_producer(marker.producer_id)),
        )
        if error is not ErrorCode.NONE:
            if done is not None:
                done(error)
        elif log.last_index > known_index:
            self._number += 1
            under_way = self._markers.setdefault(marker.producer_id, deque())
            under_way.append(_Marker(self._number, marker.is_commit))

    def _end_some(self, marker: EndMarker) -> bool:
        """Take in a part of what a marker ends; return whether there may be more."""
        if self._runtime.standby.table.end_some(marker):
            return True
        under_way = self._markers[marker.producer_id]
        under_way.popleft()
        if not under_way:
            del self._markers[marker.producer_id]
        return False

    def _put(self, producer_id: int, batch: Places, offset: int) -> None:
        staged = self.staged
        for key, value in batch:
            staged.stage(producer_id, key, value, offset)
            coming = self._coming[key]
            # They commit in the order in which they were appended.
            assert coming[0][0] == producer_id
            del coming[0]
            if not coming:
                del self._coming[key]
