"""Leads one partition of an internal topic: loading, appending, committing, ending.

A shard lives as long as one leadership. It begins LOADING: it reads the entries that were committed when leadership
was confirmed and that this replica has not read yet (`standby`), so that it knows everything that any leader before it
has promised, and answers nothing until then. Then it is ACTIVE. When leadership ends it is ENDED: everybody who is
parked is told so, and the table of what is committed goes back to the replica.

*A promise rests on the log.* Everything that a coordinator promises is a batch of ordinary records, and is answered and
shown only when the batch is committed. A shard that was deposed without knowing it can append, but never commit; and it
does not answer reads, because they ask for confirmation first (`confirm`). So nothing that was shown ever goes back,
whichever broker is asked.

*The table is what the log says*, exactly, up to one index (`Standby.applied_index`). A batch is `under_way` until it
commits, and is taken in then (`on_committed`): always, and in the order of the log. Its answer may come later, because
`min.insync.replicas` can ask for more copies than a commit needs; its records are true meanwhile, and are shown. So a
shard can end at any moment and hand back what it knows.

*Many at once.* Work for thousands is a generator that yields between small pieces: the first piece at once, the others
beside what comes in meanwhile (`in_slices`). Each later piece looks first whether its shard is still active.

*A log that is much longer than what it says* is rewritten behind its end (`rewriting`).

Limits: batches of `BATCH_BYTES_MAX`, so that a replay never holds the loop for longer than one takes, a few
milliseconds; appends beyond what the disk keeps up with are refused by the log.

Not here: the meaning of records (`contracts`), and the partitions that this broker leads (`coordinator`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.verifications import Verification
from barnabas_broker.partition.waiters import CommitWaiters
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.markers import EndMarker

from .append_errors import REFUSALS, coordinator_error, refusal
from .batch import batch_of
from .contracts import AGAIN, Apply, CoordinatorShard, Done, KeyAndValue, Name, RecordOf, Steps, Table, Writer
from .shard_host import ShardHost
from .standby import Standby
from .under_way import UnderWay

__all__ = ["BATCH_BYTES_MAX", "REWRITE_BYTES", "ShardRuntime", "ShardState"]

BATCH_BYTES_MAX = 64 * 1024
BATCH_OVERHEAD_BYTES = 1024
APPLIED_STEP = 1_000  # names whose committed records are taken in between two yields
REWRITE_BYTES = 4 << 20
"""A log is rewritten when it is larger than this, and than `REWRITE_FACTOR` times what it says. To read 4 MiB takes
about a second, which a replica that was away has to do before it can lead."""
REWRITE_FACTOR = 4
CONFIRM_S = 2.0
_ENDED = object()

T = TypeVar("T", bound=Table[Any])
S = TypeVar("S", bound=CoordinatorShard[Any])


class ShardState(Enum):
    """See the module."""

    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


class _Answer:
    """Somebody who may be answered when a batch is committed on enough replicas (PendingAppend)."""

    __slots__ = ("done",)
    is_closed = False  # It waits until it is told, even if the client has given up.

    def __init__(self, done: Done) -> None:
        self.done = done

    def on_committed(self) -> None:
        self.done(ErrorCode.NONE)

    def on_failed(self, code: ErrorCode) -> None:
        self.done(coordinator_error(code))


class ShardRuntime(Generic[T, S]):
    """The runtime under one shard; see the module. Owned by the loop.

    `shard` is the coordinator's part, made for this leadership, and `standby.table` the committed state, which is the
    shard's once it is loaded. `on_long` is called when the log is much longer than what it says; `is_rewriting` is
    True from then until the rewriting has ended. `is_recovering`: this broker stood still, and asks whether it leads.
    """

    def __init__(
        self,
        host: ShardHost,
        partition: Partition,
        standby: Standby[T],
        make_shard: "Callable[[ShardRuntime[T, S]], S]",
        on_long: "Callable[[ShardRuntime[T, S]], None]",
    ) -> None:
        self.host = host
        self.partition = partition
        self.term = partition.term
        self.standby = standby
        self.state = ShardState.LOADING
        self.under_way = UnderWay()
        self.is_recovering = False
        self.is_rewriting = False
        self._on_long = on_long
        self._commit_index = 0
        self._is_applying = False
        self._commit_waits: CommitWaiters[asyncio.Future[bool]] = CommitWaiters()
        # Since the last rewriting; an earlier leader's appends count as much.
        self._appended_bytes = REWRITE_BYTES
        self.shard = make_shard(self)

    def __repr__(self) -> str:
        return repr(self.partition)

    @property
    def is_certain(self) -> bool:
        """True while a majority has confirmed this leadership since anything could have gone wrong."""
        return self.state is ShardState.ACTIVE and self.partition.can_serve

    @property
    def record_bytes_max(self) -> int:
        """How long one record may be, key and value."""
        return self.partition.rules.message_bytes_max - BATCH_OVERHEAD_BYTES

    async def confirm(self, timeout_s: float) -> ErrorCode:
        """Return NONE when a majority has said, after this call, that this is the coordinator; else why it is not.

        Then what had been committed by then is known here.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.partition.group.confirm()
                await self._wait_applied(self.partition.producers.commit_index)
        except TimeoutError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except NotLeaderError:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if self.state is ShardState.ACTIVE else ErrorCode.NOT_COORDINATOR

    def recover(self) -> None:
        """After a stall, be sure to lead, then let every deadline begin anew. If another node leads, the shard ends."""
        if not self.is_recovering:
            self.is_recovering = True
            self.host.spawn(self._recover())

    async def _recover(self) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = await self.confirm(CONFIRM_S)
        self.is_recovering = False
        if error is ErrorCode.NONE:
            self.in_slices(self.shard.recover_in_steps())

    def in_slices(self, steps: Steps) -> None:
        """Take the first step now and the others beside what else there is to do."""
        if next(steps, _ENDED) is not _ENDED:
            self.host.spawn(taken(steps))

    # The beginning and the end.

    async def load(self) -> int:
        """Read what is committed and not read yet, then serve; return how many records that were.

        Cancelled, it leaves a shard that serves nothing.

        Raises:
            StorageFailedError, MalformedMessageError, CorruptBatchError: as `Standby.advance`.
        """
        partition = self.partition
        standby = self.standby
        slices = Slices()
        known_count = standby.record_count
        await standby.advance(partition.log, partition.producers.commit_index, self._is_loading)
        for _ in self.shard.build_in_steps(standby.table):
            await slices.yield_if_due()
        if self._is_loading():
            self.state = ShardState.ACTIVE
            # Entries that were committed meanwhile hold no records: in this term only this shard appends any.
            self.on_committed(partition.producers.commit_index)
            self.in_slices(self.shard.begin_in_steps())
        return standby.record_count - known_count

    def _is_loading(self) -> bool:
        return self.state is ShardState.LOADING

    def end(self, error: ErrorCode) -> None:
        """Serve nothing any more; answer everybody who is parked with `error`."""
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.ENDED
        self.under_way.clear()
        for future in self._commit_waits.take_all():
            _resolve(future, is_committed=False)
        self.shard.settle_account()
        self.in_slices(self.shard.end_in_steps(error, was_active=was_active))

    def hand_back(self) -> Standby[T]:
        """Return what is known to be committed, as a follower keeps it. This shard must end at once."""
        return self.standby

    # Commits.

    def on_committed(self, commit_index: int) -> None:
        """Take in what this shard has appended up to `commit_index`, inclusive, which is committed.

        A later leader's entry may be committed before this replica is told that its own leadership is over, with
        others of that leader before it. Then this shard knows as much as it ever will: the replica reads the rest from
        the log. An entry of the shard's own term has nothing before it that is not known here.
        """
        if self.state is ShardState.ACTIVE and self.partition.log.term_at(commit_index) == self.term:
            self._commit_index = commit_index
            if not self._is_applying:
                self._is_applying = True
                self.in_slices(self._apply())

    def _apply(self) -> Steps:
        while self.state is ShardState.ACTIVE:
            self.standby.applied_index = index = self.under_way.commit(self._commit_index, APPLIED_STEP)
            self.shard.settle_account()
            for future in self._commit_waits.take_committed(index):
                _resolve(future, is_committed=True)
            if index == self._commit_index:
                break
            yield
        self._is_applying = False

    async def wait_committed(self) -> bool:
        """Return when everything appended so far is committed; False when leadership ended before."""
        return await self._wait_applied(self.partition.log.last_index)

    async def _wait_applied(self, index: int) -> bool:
        """Return when what is committed up to `index` is taken in; False when leadership ended before."""
        if self.state is not ShardState.ACTIVE:
            return False
        if index <= self.standby.applied_index:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._commit_waits.add(index, future)
        return await future

    # The log.

    def append(
        self,
        records: Sequence[KeyAndValue],
        names: Sequence[Name],
        apply: Apply,
        done: Done | None,
        *,
        writer: Writer | None = None,
    ) -> ErrorCode:
        """Append one batch of records that change what is known under `names`; with `writer`, in its transaction.

        `apply` is called when it commits, `done` then or later: when as many replicas have it as the topic asks for, or
        when nobody here will know. Or return why it is not appended, and call neither.
        """
        frame = batch_of(records, self.host.wall_ms(), writer=writer, producers=self.partition.producers)
        return self._append(frame, names, apply, done, None if writer is None else writer.guard)

    def append_again(self, names: Iterable[Name], record_of: RecordOf[Any]) -> ErrorCode:
        """Append the committed records of these names once more, so that the older ones may go.

        A name that has a newer record under way is left out: a replay must not come back to the older one. Nor to one
        that a marker under way is about to replace.
        """
        records: list[KeyAndValue] = []
        for name in names:
            if name in self.under_way or self.shard.is_ending(name):
                continue
            record = record_of(name)
            if record is not None:
                records.append(record)
        if not records:
            return ErrorCode.NONE
        frame = batch_of(records, self.host.wall_ms(), writer=None, producers=self.partition.producers, headers=AGAIN)
        return self._append(frame, (), _nothing, None, None)

    def append_marker(
        self,
        marker: EndMarker,
        apply: Apply,
        done: Done | None,
        *,
        bumps_epoch: bool,
        weight: int,
    ) -> ErrorCode:
        """Append the end of a producer's transaction in this partition, or find that it is there; as `append`.

        `apply` takes in so many records (`weight`), if need be a part at a time. It is not called if the marker was in
        the log: then that one's is. `bumps_epoch`: the marker has the epoch of the producer's next transaction.
        """
        known_index = self.partition.log.last_index
        try:
            if self.state is not ShardState.ACTIVE:
                raise NotLeaderError
            index = self.partition.append_marker(marker, bumps_epoch=bumps_epoch, needs_replicas=False)
        except REFUSALS as error:
            return refusal(error)
        if index > known_index:
            self._note(index, (), apply, weight)
        self._wait_for(index, done)
        return ErrorCode.NONE

    def _append(
        self, frame: bytearray, names: Sequence[Name], apply: Apply, done: Done | None, guard: Verification | None
    ) -> ErrorCode:
        try:
            if self.state is not ShardState.ACTIVE:
                raise NotLeaderError
            _, index = self.partition.append(parse_header(frame), frame, guard=guard)
        except REFUSALS as error:
            return refusal(error)
        self._note(index, names, apply, 0)
        self._wait_for(index, done)
        self._appended_bytes += len(frame)
        self._consider_rewriting()
        return ErrorCode.NONE

    def _note(self, index: int, names: Sequence[Name], apply: Apply, weight: int) -> None:
        self.under_way.add(index, names, apply, weight=weight)
        self.shard.settle_account()

    def _wait_for(self, index: int, done: Done | None) -> None:
        if done is not None and not self.partition.wait_for(index, _Answer(done)):
            done(ErrorCode.NONE)

    def _consider_rewriting(self) -> None:
        size_bytes = self.partition.log.size_bytes
        if self.is_rewriting or self._appended_bytes < REWRITE_BYTES // 4 or size_bytes <= REWRITE_BYTES:
            return
        if size_bytes > REWRITE_FACTOR * self.standby.table.live_bytes and self._would_shorten():
            self.is_rewriting = True
            self._appended_bytes = 0
            self._on_long(self)

    def _would_shorten(self) -> bool:
        """Tell whether half of the log's records would go: they stay from the first open transaction on."""
        log = self.partition.log
        open_offset = self.standby.table.first_open_offset
        return open_offset is None or 2 * open_offset >= log.log_start_offset + log.log_end_offset


def _nothing() -> None:
    pass


def _resolve(future: "asyncio.Future[bool]", *, is_committed: bool) -> None:
    if not future.done():
        future.set_result(is_committed)
