"""Serves one replica of one partition: a Raft group's listener that speaks Kafka's terms.

Raft counts entries (`commit_index`, inclusive, from 1), clients count records (`high_watermark`, exclusive, from 0).
The one conversion is `high_watermark_at`; nothing else here, or anywhere, computes one from the other.

*Append* is one synchronous stretch: check the producer's sequence, propose, note the producer's batch. So the order of
two produce requests is fixed by the order in which they are served, and a repetition that arrives a moment after its
original is recognised. `append` returns the index to wait for: the batch's own, or the original's.

*Transactions.* The replica's state knows them from its log (`transactions`); readers of committed records see what is
before `last_stable_offset`. A leader takes the first batch of a transaction only with the guard that was taken before
the coordinator was asked (`verifications`), and the end of one as a marker (`append_marker`), a batch like others.

*Doubts.* In page-cache mode a loss of power may have taken a marker, and left the data before it. So what is open when
a leadership begins is in doubt until the transaction's coordinator has said how it stands (`doubts`).

*Turned away.* A producer sends further batches before it knows the fate of the first. If that was refused for a reason
that passes (leadership is handed on, the disk is busy or full, too few replicas are in sync), those behind it are
refused for the same reason, until it comes again: clients bring all of them again, in order. If those behind it were
called out of order, clients would give up, or begin a new epoch and perhaps store something twice. A batch that is
refused for what it is (too large, damaged) is not waited for: it need not come again.

*Leadership.* A leader that is not confirmed takes appends (they count only when committed) but answers no reads: the
commit index that it knows may be older than the one that clients have seen. When leadership ends, all requests that
wait here are answered at once.

*The start of the log* moves as everything else does: a leader proposes it, and when that commits every replica forgets
the records before it (`drop_before`, `log_starts`). A replica that needs entries that are gone gets a snapshot: where
its leader's log begins, and the state beside it (`snapshot`, `install`); then the entries from there on, as always.

*In-sync replicas* are those voters, but for a witness, that are live and have reached the log's end within
`replica.lag.time.max.ms`. The host has them reviewed while something changes (`review`), and they are announced when
they changed. Only they count for `min.insync.replicas`: a replica that is still on its way in may have everything, and
is not relied on. Observers that are in sync are announced with them, lest the partition be taken for under-replicated;
they count for nothing.

*A witness* (`is_witness`) votes and serves nobody. It leads only until the others have the entries that it alone had;
meanwhile the partition has no leader as far as clients are concerned (the group says so, here as on the replicas). The
observer of the partition is told nothing here, because the log lacks what the replicas have. A witness that is to be a
replica begins anew with an empty log (`install`, of entry 0); it has served nobody, so nothing goes back for anybody.

The group's driver calls the `on_...` methods after a drive, in the order in which things happened; an entry that
`append` has already noted is skipped there.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from barnabas_broker.config.topic import PAGE_CACHE, TopicSettings
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.image.image import Topic
from barnabas_metadata_quorum.leaders.table import NO_LEADER
from barnabas_raftlog.errors import BarnabasError, NotLeaderError, StorageFailedError
from barnabas_raftlog.log.state_file import StateOrMaker
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.multiraft.interfaces import GroupLog
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import Entry, InstallSnapshot
from barnabas_raftlog.records.header import TRANSACTIONAL, BatchHeader, ControlKind
from barnabas_raftlog.records.markers import EndMarker, marker_batch

from .aborted_index import AbortedRange, AbortedTransaction
from .contracts import PartitionLog, PartitionObserver, PendingAppend
from .in_sync import copied_index, copies_of_committed, electable, in_sync, lacks_something, readable_elsewhere
from .log_starts import encode_start
from .producer_state import (
    FORGOTTEN_AT_ONCE,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    PerhapsForgottenError,
    ProducerBatch,
    ProducerTable,
)
from .record_rules import RecordRules, rules_of
from .replica_state import ReplicaState
from .transactions import OpenTransaction
from .verifications import Verification, Verifications
from .waiters import CommitWaiters

__all__ = ["NotEnoughReplicasError", "Partition", "PartitionHost", "high_watermark_at"]

SWEPT_MIN = 64  # waiters that have given up
GAP_MS = 5_000
"""For so long after a change of leaders, or after something was refused that may come again, a batch that does not
follow its producer's last one is sent back, to be brought again behind the one that is missing, before it is called out
of order. Clients wait for a second at most."""
EVERYTHING_BYTES = EVERY_INDEX = 1 << 62
TURNED_AWAY_MAX = 1_000
"""Producers, per partition, that are remembered as turned away; beyond it the one is forgotten that was first."""


class NotEnoughReplicasError(BarnabasError):
    """Fewer replicas are in sync than `min.insync.replicas`; nothing was appended."""


class _TurnedAway(NamedTuple):
    """The reason why a producer was refused, and until when a gap in its batches is put down to that."""

    until_ms: int
    kind: type[BarnabasError]
    text: str


def high_watermark_at(log: GroupLog, commit_index: int) -> int:
    """Return the first offset after the committed prefix: the only place where an index becomes an offset."""
    return log.offset_after(commit_index)


class PartitionHost(Protocol):
    """The broker, as a partition sees it."""

    @property
    def node_id(self) -> int: ...
    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def is_live(self, node_id: int) -> bool: ...
    def wake(self, partition: "Partition") -> None:
        """Something that fetches wait for has changed: who leads, where the log starts, or that it serves at all."""

    def gained(self, partition: "Partition", start_offset: int, decided_offset: int) -> None:
        """There may be more to read than before, and that is all.

        It begins at `start_offset` and ends at the high watermark; for readers of committed records it begins at
        `decided_offset` and ends at the last stable offset.
        """

    def finish(self, waiters: Sequence[PendingAppend]) -> None:
        """Tell these that they are committed; of many only some at once, the others in later callbacks of the loop."""

    def fail(self, waiters: Sequence[PendingAppend], code: ErrorCode) -> None:
        """Tell these, as `finish` does, that they will not know."""

    def on_failed(self, partition: "Partition", error: StorageFailedError) -> None:
        """Its log has failed for good."""

    def review_soon(self, partition: "Partition") -> None:
        """Its in-sync replicas may change: call `review` at the next occasion."""

    def on_doubts(self, partition: "Partition") -> None:
        """It has begun to lead, and `doubts` something: ask how those transactions stand."""

    def announce(self, partition: "Partition", term: int, leader_id: int, isr: tuple[int, ...]) -> None: ...
    def learn(self, partition: "Partition", term: int, leader_id: int) -> None: ...


class Partition:
    """See the module. `isr` holds node ids, this one's included when it leads.

    Neither `high_watermark` nor `last_stable_offset`, which is at most that, ever goes back.
    """

    __slots__ = (
        "_doubts",
        "_gaps_until_ms",
        "_given_up",
        "_led_term",
        "_short",
        "_turned_away",
        "_verifications",
        "_waiters",
        "changes",
        "expiration_ms",
        "group",
        "high_watermark",
        "host",
        "index",
        "is_confirmed",
        "is_leader",
        "is_refusing",
        "isr",
        "lag_ms_max",
        "last_stable_offset",
        "leader_id",
        "log",
        "min_insync",
        "observer",
        "observing",
        "placement",
        "rules",
        "settings",
        "state",
        "term",
        "topic_id",
        "topic_name",
    )

    group: RaftGroup

    def __init__(
        self,
        host: PartitionHost,
        topic: Topic,
        index: int,
        log: PartitionLog,
        state: ReplicaState,
        *,
        min_insync: int,
        rules: RecordRules,
        lag_ms_max: int,
        expiration_ms: int,
    ) -> None:
        self.host = host
        self.log = log
        self.state = state
        self.topic_id = topic.topic_id
        self.topic_name = topic.name
        self.index = index
        self.placement = topic.partitions[index]
        self.observing = topic.observers
        self.min_insync = min_insync
        self.rules = rules
        self.lag_ms_max = lag_ms_max
        self.expiration_ms = expiration_ms
        self.high_watermark = log.log_start_offset
        self.last_stable_offset = log.log_start_offset
        self.changes = 0  # for those who read: how often there was another one than that there is more to read
        self.term = 0
        self.leader_id: int | None = None
        self.is_leader = False
        self.is_confirmed = False
        self.isr: tuple[int, ...] = ()
        self.is_refusing = False  # acks=all, for too few replicas in sync; said once, until they are enough again
        self.observer: PartitionObserver | None = None
        self.settings: TopicSettings | None = None
        self._led_term = 0
        self._waiters: CommitWaiters[PendingAppend] = CommitWaiters()
        self._turned_away: dict[int, _TurnedAway] = {}  # in this leadership, and nothing was taken from them since
        self._verifications = Verifications()
        self._doubts: dict[int, OpenTransaction] = {}  # by producer; in this leadership
        self._gaps_until_ms = 0  # until then a gap is taken for a batch that is still on its way
        # Committed, but on fewer replicas than min.insync.replicas: possible only where that is above a majority.
        self._short: list[tuple[int, PendingAppend]] = []
        self._given_up = 0  # those of both lists, at least, that wait no more

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    @property
    def producers(self) -> ProducerTable:
        """The producers that have written here."""
        return self.state.producers

    @property
    def replicas(self) -> tuple[int, ...]:
        """Everybody who holds it or is about to, as the metadata says; the first one should lead."""
        return self.placement.replicas

    @property
    def electable(self) -> tuple[int, ...]:
        """The replicas that may lead now, in their order: those that are on their way in cannot yet."""
        return electable(self.group.configuration, self.replicas)

    @property
    def is_witness(self) -> bool:
        """True while this node votes here and keeps no copy to rely on."""
        return self.group.is_witness

    def configure(self, settings: TopicSettings) -> None:
        """Go by `settings` from now on. Batches on their way are not looked at again."""
        self.settings = settings
        self.min_insync = settings.min_insync_replicas
        self.rules = rules_of(settings)
        if not self.is_witness:
            self.log.limit_segments(settings.segment_bytes)
        if self.is_leader:
            # Requests that wait for more replicas than are asked for now need not.
            self.host.review_soon(self)

    # Requests.

    def append(
        self,
        header: BatchHeader,
        frame: bytearray | memoryview,
        *,
        needs_replicas: bool = False,
        came_in_term: int | None = None,
        guard: Verification | None = None,
    ) -> tuple[int, int]:
        """Append a checked batch unless it is a repetition; return its (or the original's) base offset and index.

        `needs_replicas`: only while as many replicas are in sync as `min.insync.replicas` asks for. `came_in_term`:
        only in that term. Its producer may have been turned away in a later one, and have sent it again elsewhere.
        `guard`: what `verification` gave, and the coordinator has said yes since.

        Raises:
            NotLeaderError: another node leads, or nobody, or this one in another term.
            NotEnoughReplicasError: they are not, or a batch before this one was refused for that; or it would begin a
                transaction while the one before is in doubt.
            OutOfOrderSequenceError, InvalidProducerEpochError: the producer has to do something about it.
            InvalidTransactionStateError: it would begin a transaction without a guard that holds, or belongs to none
                while its producer has one open.
            StorageFailedError: nothing was appended; or so it was with a batch before this one.
        """
        producer_id = header.producer_id
        if not self.is_leader:
            raise NotLeaderError(self.leader_id)
        # All that may pass comes before the sequence is judged: the batch before this one may have met with it.
        try:
            if came_in_term not in {None, self.term} or (guard is not None and guard.term != self.term):
                raise NotLeaderError(self.leader_id)
            if needs_replicas and not self.has_enough_replicas:
                raise NotEnoughReplicasError(f"in sync are {list(self.isr)}, min.insync.replicas is {self.min_insync}")
            self.group.check_may_propose()
        except (NotLeaderError, NotEnoughReplicasError) as error:
            self.turn_away(producer_id, error)
            raise
        original = self._original(header, guard) if producer_id >= 0 else None
        if original is not None:
            return original.base_offset, original.log_index
        is_transactional = header.attributes & TRANSACTIONAL
        if is_transactional:
            self._check_not_in_doubt(producer_id, header.producer_epoch)
            self._check_verified(producer_id, header.producer_epoch, guard)
        base_offset = self.log.log_end_offset
        try:
            index = self.group.propose(frame).index
        except StorageFailedError as error:
            self.turn_away(producer_id, error)
            raise
        if producer_id >= 0:
            self._turned_away.pop(producer_id, None)
            self.state.note_batch(header, index, base_offset, self.host.wall_ms())
            if is_transactional:
                self._verifications.drop(producer_id)
        else:
            self.state.producers.skip(index)
        return base_offset, index

    def _original(self, header: BatchHeader, guard: Verification | None) -> ProducerBatch | None:
        """Return the batch of which this is a repetition; raise if it is not this one's turn."""
        try:
            return self.state.producers.check(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                is_transactional=header.attributes & TRANSACTIONAL != 0,
                begins=guard is not None and guard.begins,
            )
        except OutOfOrderSequenceError as error:
            self._send_back(header.producer_id, error)
            if not isinstance(error, PerhapsForgottenError):
                raise
            if guard is not None and header.base_sequence > guard.lowest_sequence:
                raise
            return None

    def verification(
        self, producer_id: int, epoch: int, base_sequence: int, *, bumps_epoch: bool
    ) -> Verification | None:
        """Return the guard for a transactional batch, before the coordinator is asked; None: it need not be asked.

        `bumps_epoch`: the producer uses version 2 of transactions. The guard holds until the transaction begins here, a
        marker comes that may end it, or this node's term is over; batches that are under way together share it.

        Raises:
            NotLeaderError: another node leads, or nobody.
        """
        if not self.is_leader:
            raise NotLeaderError(self.leader_id)
        if self._has_begun(producer_id, epoch):
            return None
        return self._verifications.guard(self.term, producer_id, epoch, base_sequence, begins=bumps_epoch)

    def forget_verification(self, producer_id: int, guard: Verification) -> None:
        """Let a guard go: the coordinator has said no, also to the batches that share it."""
        self._verifications.forget(producer_id, guard)

    def _has_begun(self, producer_id: int, epoch: int) -> bool:
        batches = self.state.producers.batches(producer_id)
        return bool(batches) and batches[-1].is_open and batches[-1].epoch == epoch

    def _check_verified(self, producer_id: int, epoch: int, guard: Verification | None) -> None:
        """Refuse a batch that would begin a transaction of which the coordinator has not said that it is one."""
        if not self._has_begun(producer_id, epoch) and not self._verifications.holds(producer_id, epoch, guard):
            raise InvalidTransactionStateError(
                f"producer {producer_id} sent a batch of epoch {epoch} that is part of no transaction under way"
            )

    @property
    def doubts(self) -> Collection[OpenTransaction]:
        """Transactions that were open when this leadership began, and may have lost their markers.

        Their producers begin no other one here, and no marker of another transaction ends them, until `dismiss_doubt`
        or `end_doubt` is called, or their own marker comes. None, but in page-cache mode.
        """
        return self._doubts.values()

    def dismiss_doubt(self, doubt: OpenTransaction) -> None:
        """Hear that a transaction is under way: its marker will come, as ever."""
        if self._doubts.get(doubt.producer_id) is doubt:
            del self._doubts[doubt.producer_id]

    def end_doubt(self, doubt: OpenTransaction, marker: EndMarker) -> bool:
        """End a transaction that has lost its marker; False: it is in doubt no more, and nothing was done.

        A marker of no coordinator, of term -1, gets the term of the producer's last one. Raises what `append_marker`
        does; then it is in doubt yet.
        """
        producer_id = doubt.producer_id
        if self._doubts.get(producer_id) is not doubt:
            return False
        if marker.coordinator_epoch < 0:
            term = self.state.producers.batches(producer_id)[-1].coordinator_epoch
            marker = marker._replace(coordinator_epoch=max(0, term))
        self.append_marker(marker, bumps_epoch=marker.producer_epoch > doubt.epoch, is_answer=True)
        return True

    def _check_not_in_doubt(self, producer_id: int, epoch: int) -> None:
        if producer_id in self._doubts and self._doubts[producer_id].epoch != epoch:
            error = NotEnoughReplicasError(f"how the last transaction of producer {producer_id} has ended is not known")
            self.turn_away(producer_id, error)
            raise error

    def append_marker(
        self, marker: EndMarker, *, bumps_epoch: bool, needs_replicas: bool = True, is_answer: bool = False
    ) -> int:
        """End a producer's transaction here, unless that was done; return the index to wait for.

        It is done if the log has the same marker behind all else of the producer: its sender has not heard of it.
        A producer without a transaction here, or unknown, gets a marker as well: it fences what is under way.

        Args:
            marker: From the transaction coordinator, whose decision has committed.
            bumps_epoch: The transaction is one of version 2, whose marker has the epoch of the next one.
            needs_replicas: As in `append`.
            is_answer: It says how a transaction has ended that is in doubt here.

        Raises:
            NotLeaderError: another node leads, or nobody, or a witness.
            NotEnoughReplicasError: nothing was appended; or how an earlier transaction has ended is not known.
            InvalidProducerEpochError, CoordinatorFencedError: it comes too late, and is not to be sent again.
            StorageFailedError: nothing was appended.
        """
        if not self.is_leader:
            raise NotLeaderError(self.leader_id)
        if needs_replicas and not self.has_enough_replicas:
            raise NotEnoughReplicasError(f"in sync are {list(self.isr)}, min.insync.replicas is {self.min_insync}")
        self.group.check_may_propose()
        doubt = self._doubts.get(marker.producer_id)
        if doubt is not None and not is_answer and marker.producer_epoch != doubt.epoch + bumps_epoch:
            raise NotEnoughReplicasError(f"how the transaction of epoch {doubt.epoch} has ended is not known")
        repeated = self.state.producers.check_marker(marker, bumps_epoch=bumps_epoch)
        if repeated is not None:
            if not bumps_epoch:
                # Or it ends the next transaction, which has written nothing here, and may have something under way.
                self._verifications.drop(marker.producer_id)
            return repeated.log_index
        wall_ms = self.host.wall_ms()
        offset = self.log.log_end_offset
        index = self.group.propose(marker_batch(marker, wall_ms)).index
        self.state.note_marker(marker, index, offset, wall_ms)
        self._doubts.pop(marker.producer_id, None)
        if bumps_epoch:
            self._verifications.drop_before(marker.producer_id, marker.producer_epoch)
        else:
            self._verifications.drop(marker.producer_id)
        return index

    def turn_away(self, producer_id: int, error: BarnabasError) -> None:
        """Note that a batch was refused for a reason that passes, so those behind it are, until it comes again."""
        if producer_id < 0:
            return
        if len(self._turned_away) >= TURNED_AWAY_MAX and producer_id not in self._turned_away:
            del self._turned_away[next(iter(self._turned_away))]
        self._turned_away[producer_id] = _TurnedAway(self.host.now_ms() + GAP_MS, type(error), str(error))

    def _send_back(self, producer_id: int, gap: OutOfOrderSequenceError) -> None:
        """Raise if the batch before this one was turned away, or was by another replica, and will be brought again."""
        now_ms = self.host.now_ms()
        turned_away = self._turned_away.get(producer_id)
        if turned_away is not None and now_ms < turned_away.until_ms:
            if turned_away.kind is not NotLeaderError:
                raise turned_away.kind(turned_away.text) from gap
            raise NotLeaderError(self.leader_id) from gap
        if now_ms < self._gaps_until_ms:
            raise NotLeaderError(self.leader_id) from gap

    def drop_before(self, offset: int) -> int:
        """Let the log start at `offset` on every replica; return the index to wait for.

        The records below are gone once that index has committed; room comes back a whole segment at a time, so a start
        within the newest segment frees none. `offset` is from 0 to the high watermark; one that is not above the
        present start changes nothing.

        Raises:
            NotLeaderError: another node leads, or nobody.
            StorageFailedError: nothing was changed.
        """
        assert 0 <= offset <= self.high_watermark, (offset, self.high_watermark)
        if not self.is_leader:
            raise NotLeaderError(self.leader_id)
        if offset <= self.log.log_start_offset:
            return self.state.producers.commit_index
        under_way = self.state.starts.index_for(offset)
        if under_way is not None:
            return under_way
        entry = self.group.propose_control(ControlKind.PREFIX_TRUNCATION, encode_start(offset))
        self.state.note((entry,), self.host.wall_ms())
        return entry.index

    def wait_for(self, index: int, waiter: PendingAppend) -> bool:
        """Let `waiter` be told when enough replicas have `index`; False if they do, and it is not going to be."""
        if index > self.state.producers.commit_index:
            self._waiters.add(index, waiter)
            return True
        if not self._is_short(index):
            return False
        self._hold_short([(index, waiter)])
        return True

    def forget(self, waiter: PendingAppend) -> None:
        """`waiter` has given up, and says so; thousands may do at once, so the lists are swept when it is worth it."""
        assert waiter.is_closed
        self._given_up += 1
        if self._given_up >= SWEPT_MIN and 2 * self._given_up >= len(self._waiters) + len(self._short):
            self._given_up = 0
            self._waiters.sweep(_has_given_up)
            self._short = [pair for pair in self._short if not pair[1].is_closed]

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have something in a range, `end_offset` exclusive, by first offset.

        Up to `last_stable_offset` that is all of them, and it stays so; transactions that began earlier are included.
        """
        return self.state.transactions.aborted.between(start_offset, end_offset)

    def aborted_range(self, start_offset: int, end_offset: int) -> AbortedRange | None:
        """Return what there is now of `aborted_between`; None: nothing was aborted here."""
        aborted = self.state.transactions.aborted
        return aborted.range(start_offset, end_offset) if len(aborted) else None

    def readable_end(self, *, is_committed: bool) -> int:
        """Return where readers must stop; `is_committed`: those of committed records."""
        return self.last_stable_offset if is_committed else self.high_watermark

    def bytes_between(self, start_offset: int, end_offset: int) -> int | None:
        """Return how many bytes can be read in a range of offsets; None: not known without asking the disk."""
        try:
            start_offset = max(start_offset, self.log.log_start_offset)
            frames = self.log.read(start_offset, end_offset, EVERYTHING_BYTES)
        except StorageFailedError:
            return None
        return None if frames is None else sum(map(len, frames))

    @property
    def can_serve(self) -> bool:
        """True while this node leads and a majority has confirmed it since anything could have gone wrong."""
        return self.is_confirmed and self.group.confirmed

    @property
    def not_leading_code(self) -> ErrorCode:
        """The error for clients that take this node for the leader."""
        failed = self.group.failed is not None
        return ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def is_handing_over(self) -> bool:
        """True while this node leads, and takes nothing because another is about to."""
        return self.is_leader and self.group.core.transfer_target is not None

    @property
    def follows(self) -> bool:
        """True while this replica knows its leader and may serve what that one has committed."""
        if self.is_leader or self.leader_id is None or self.group.failed is not None:
            return False
        return self.host.node_id in self.group.configuration.node_ids and not self.is_witness

    def readable_elsewhere(self, now_ms: int) -> list[tuple[int, int]]:
        """Return the other members that could serve reads now, and where their logs end; only a leader knows."""
        return readable_elsewhere(self.group, self.log, now_ms, self.lag_ms_max)

    @property
    def has_enough_replicas(self) -> bool:
        """Whether acks=all may be accepted now."""
        return self.copies_in_sync >= self.min_insync

    @property
    def copies_in_sync(self) -> int:
        """How many replicas are in sync; observers are none."""
        return len(set(self.isr).intersection(self.replicas))

    def review(self, now_ms: int) -> bool:
        """Look at the in-sync replicas, announce a change, and return whether to look again without being told."""
        if not self.is_confirmed:
            return False
        self._announce_in_sync(now_ms)
        if self._short:
            self._finish_short()
        forgotten = self.state.producers.forget_before(self.host.wall_ms() - self.expiration_ms)
        # A replica that lacks something may leave without a further word. One that is live should come back in sync;
        # the core may hear of that later than the links.
        if self._short or forgotten == FORGOTTEN_AT_ONCE or lacks_something(self.group, self.isr):
            return True
        return any(
            replica not in self.isr and self.host.is_live(replica) for replica in (*self.replicas, *self.observing)
        )

    def has_caught_up(self, node_id: int) -> bool:
        """Tell whether that replica would take over quickly: it had everything at most an election timeout ago."""
        return self.group.has_caught_up(node_id)

    @property
    def successors(self) -> tuple[int, ...]:
        """The other replicas that may lead now and would take over quickly, in their order."""
        own = self.host.node_id
        return tuple(node_id for node_id in self.electable if node_id != own and self.has_caught_up(node_id))

    def transfer(self, node_id: int) -> None:
        """Begin to hand leadership to the replica on `node_id`; producers are refused until it is decided."""
        self.group.transfer(node_id)

    def end(self, code: ErrorCode) -> None:
        """Answer all that wait: this replica serves nothing any more."""
        self.is_leader = self.is_confirmed = False
        self._doubts = {}
        if self.observer is not None:
            self.observer.on_ended()
        self._fail_waiters(code)
        self._wake()

    # Told by the driver of the group (GroupListener).

    def on_appended(self, entries: Sequence[Entry]) -> None:
        self.state.note(entries, self.host.wall_ms())
        if self.is_leader:
            self.host.review_soon(self)

    def on_truncated(self, index: int) -> None:
        self.state.truncate_from(index, self.log.offset_after)
        if self._waiters:
            self.host.fail(self._waiters.take_from(index), ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_committed(self, commit_index: int) -> None:
        state = self.state
        state.commit(commit_index)
        high_watermark = high_watermark_at(self.log, commit_index)
        assert high_watermark >= self.high_watermark
        read_until = self.high_watermark
        decided_until = self.last_stable_offset
        started_at = self.log.log_start_offset
        self.high_watermark = high_watermark
        if state.starts.commit(commit_index):
            self._drop_prefix(commit_index)
        if not state.is_ahead:
            # Otherwise what is known of transactions is for a log that begins later: see `transactions`.
            self.last_stable_offset = self._decided_until()
        # The observer is first: it is committed, however long answers are held back.
        if self.observer is not None and not self.is_witness:
            self.observer.on_committed(commit_index)
        if self._waiters:
            if self.min_insync > copies_of_committed(self.group.configuration):
                self._hold_short([(commit_index, waiter) for waiter in self._waiters.take_committed(commit_index)])
                self._finish_short()
            else:
                self.host.finish(self._waiters.take_committed(commit_index))
        if state.is_save_due(commit_index, self.log.size_bytes):
            state.save(self.log)
        if self.log.log_start_offset != started_at:
            self._wake()
        else:
            self.host.gained(self, read_until, decided_until)

    def on_configuration(self, configuration: Configuration) -> None:
        """The group knows who is in sync. But a witness that ceases to be one has segments like the others."""
        if self.settings is not None and not self.is_witness:
            self.log.limit_segments(self.settings.segment_bytes)

    def on_failed(self, error: StorageFailedError) -> None:
        self.host.on_failed(self, error)

    def on_leadership(self, term: int, leader_id: int | None, is_leader: bool, confirmed: bool) -> None:
        led_term = self._led_term if self.is_leader else 0
        was_confirmed = self.is_confirmed and led_term == term
        self.term = term
        self.leader_id = leader_id
        self.is_leader = is_leader
        self.is_confirmed = confirmed
        if self.observer is not None:
            self.observer.on_leadership(term, is_leader=is_leader, confirmed=confirmed)
        if led_term and (not is_leader or led_term != term):
            self.host.announce(self, led_term, NO_LEADER, ())
            self._verifications.clear()
            self._doubts = {}
            self._fail_waiters(self.not_leading_code)
        if is_leader and led_term != term:
            self._led_term = term
            self.is_refusing = False
            self._turned_away.clear()
            self._gaps_until_ms = self.host.now_ms() + (GAP_MS if self.log.log_end_offset else 0)
            # Until a majority has answered nobody knows better; a batch that too few have does not commit.
            self.isr = self.electable
            self._begin_doubting()
        if confirmed and not was_confirmed:
            self.isr = ()
            self._announce_in_sync(self.host.now_ms())
            self.host.review_soon(self)
        if not is_leader and leader_id is not None:
            self.host.learn(self, term, leader_id)
        self._wake()

    def install(self, snapshot: InstallSnapshot) -> None:
        self._wake()
        if snapshot.snapshot_index == 0:
            self.state.reset()
            self.high_watermark = 0
            self.last_stable_offset = 0
        else:
            self.state.install(snapshot.snapshot_index, bytes(snapshot.data), self.log.size_bytes)

    def snapshot(self) -> tuple[int, int, StateOrMaker] | None:
        """Return where this log begins: a replica that lacks something before that needs all that follows."""
        if self.state.is_ahead:
            return None  # Nothing is known yet as of any committed entry: ask again.
        index = self.log.first_index - 1
        term = self.log.term_at(index)
        assert term is not None, index
        return index, term, self.state.encoder()

    # Inside.

    def _begin_doubting(self) -> None:
        """Doubt what is open: a loss of power may have taken its markers, whoever has led since."""
        if self.settings is None or self.settings.flush_mode != PAGE_CACHE:
            return
        self._doubts = {one.producer_id: one for one in self.state.transactions.open_transactions()}
        if self._doubts:
            self.host.on_doubts(self)

    def _wake(self) -> None:
        self.changes += 1
        self.host.wake(self)

    def _decided_until(self) -> int:
        """Return the first offset that belongs to a transaction which may yet be aborted; the high watermark if none.

        What is below the start of the log nobody reads, so it holds nobody up.
        """
        first = self.state.transactions.first_unstable_offset
        if first is None:
            return self.high_watermark
        decided_until = min(self.high_watermark, max(first, self.log.log_start_offset))
        # It would go back only where a loss of power took committed entries from a majority.
        return max(decided_until, self.last_stable_offset)

    def _drop_prefix(self, commit_index: int) -> None:
        """Let the log start where that was committed, and forget what lies before."""
        # It lies beyond the log only if a loss of power took committed entries from a majority.
        log = self.log
        state = self.state
        offset = min(state.starts.offset, self.high_watermark)
        if log.has_segments_before(offset):
            # Deleted entries cannot be replayed.
            state.save(log)
        log.drop_before(offset, commit_index)
        state.transactions.aborted.forget_before(offset)
        state.saved_size_bytes = min(state.saved_size_bytes, log.size_bytes)

    def _announce_in_sync(self, now_ms: int) -> None:
        about = (self.group, self.replicas, self.observing, self.host.node_id)
        isr = in_sync(*about, now_ms, self.lag_ms_max)
        if isr != self.isr:
            self.isr = isr
            self.is_refusing = self.is_refusing and not self.has_enough_replicas
            self.host.announce(self, self._led_term, self.host.node_id, isr)

    def _is_short(self, index: int) -> bool:
        """Tell whether fewer replicas than the topic asks for have `index`, which is committed."""
        return index > self._enough_index()

    def _enough_index(self) -> int:
        """Return up to which index, of those that are committed, as many replicas as the topic asks for have all."""
        if self.min_insync <= copies_of_committed(self.group.configuration) or not self.is_leader:
            return EVERY_INDEX
        return copied_index(self.group, self.log, self.replicas, self.host.node_id, self.min_insync)

    def _hold_short(self, pairs: Sequence[tuple[int, PendingAppend]]) -> None:
        """Let these wait for more copies of a committed entry: no commit will come, each review counts them.

        A review must be asked for here. All in-sync followers may have had everything at the last one, and the copy
        that is missing be this node's own, which is not durable yet.
        """
        self._short.extend(pairs)
        self.host.review_soon(self)

    def _finish_short(self) -> None:
        short = self._short
        enough_index = self._enough_index()
        self._short = [pair for pair in short if pair[0] > enough_index and not pair[1].is_closed]
        if len(self._short) < len(short):
            self.host.finish([waiter for index, waiter in short if index <= enough_index])

    def _fail_waiters(self, code: ErrorCode) -> None:
        short, self._short = self._short, []
        if short or self._waiters:
            self.host.fail([*(pair[1] for pair in short), *self._waiters.take_all()], code)


def _has_given_up(waiter: PendingAppend) -> bool:
    return waiter.is_closed
