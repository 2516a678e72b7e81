"""One Raft group as the rest of a node sees it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.links.raft_frames import METADATA_GROUP
from barnabas_raftlog.log.errors import DiskFullError, StorageBusyError
from barnabas_raftlog.log.state_file import made
from barnabas_raftlog.log.transfer.incoming import Prepared
from barnabas_raftlog.raft.core import RaftCore, Role
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import (
    AppendResponse,
    Campaign,
    Entry,
    Event,
    GiveUp,
    GroupId,
    InstallSnapshot,
    StartRound,
    Tick,
    TransferLeadership,
)
from barnabas_raftlog.raft.quorum import majority
from barnabas_raftlog.raft.uncertainty import DISCOUNTED, why_not_given_up
from barnabas_raftlog.records.header import ControlKind

from .candidacies import Line
from .interfaces import Frame, GroupListener, GroupLog

__all__ = ["START_ROUND", "Drive", "RaftGroup", "SnapshotFetcher"]

START_ROUND = StartRound()
# A witness's log goes a segment at a time, so up to two of these stay (`raft.witness`).
WITNESS_SEGMENT_BYTES = 4 << 20


class Drive(Protocol):
    """The drive that steps a group, as the group sees it (`driver`)."""

    @property
    def is_punctual(self) -> bool: ...
    def now(self) -> int: ...
    def post(self, group: "RaftGroup", event: Event) -> None: ...
    def on_proposed(self, group: "RaftGroup", entry: Entry) -> None: ...
    def leave(self, group: "RaftGroup", error: StorageFailedError) -> None: ...


class SnapshotFetcher(Protocol):
    """Fetches the files of a snapshot that comes without data (`catch_up`)."""

    def on_offer(self, group: "RaftGroup", offer: InstallSnapshot) -> None: ...

    def adopt(self, group: "RaftGroup", prepared: Prepared) -> None:
        """Replace the group's log, within a drive."""

    def on_adopted(self, group: "RaftGroup", prepared: Prepared) -> None: ...

    def on_removed(self, group: "RaftGroup") -> None: ...


class RaftGroup:
    """A handle on one group of this node. Belongs to its driver, which alone steps the core.

    `high_watermark` is the end offset of the committed prefix. `configuration` is the newest in the log; `members` are
    the nodes in it, and the leader, member or not. A group whose log failed has `failed` set, leads
    nothing, and takes no more part; only removing and adding it again revives it. If the node's storage failed, and not
    the log alone, it `is_suspended` too, and goes on by itself when the storage works again.

    On a witness (`is_witness`) the log forgets its beginning by itself. It never `is_leader`, nor is its node anybody's
    `leader_id`, also while its core leads: that is only until somebody else can.
    """

    __slots__ = (
        "_driver",
        "_make_core",
        "check_state",
        "commit_index",
        "configuration",
        "core",
        "deadline_ms",
        "durable_index",
        "failed",
        "first_ms",
        "first_term",
        "forgotten_index",
        "group_id",
        "high_watermark",
        "is_held",
        "is_removed",
        "is_suspended",
        "leadership",
        "listener",
        "log",
        "members",
        "notices",
        "prepare_state",
        "prepared",
        "promise_ticket",
        "proposed",
        "readers",
        "sends_files",
        "stall_pending",
        "term_bound",
    )

    def __init__(
        self,
        driver: Drive,
        group_id: GroupId,
        log: GroupLog,
        make_core: Callable[[int], RaftCore],
        listener: GroupListener,
    ) -> None:
        self._driver = driver
        self._make_core = make_core
        core = make_core(log.first_index - 1)
        self.group_id = group_id
        self.log = log
        self.core = core
        self.listener = listener
        self.configuration = core.configuration
        self.members = self.configuration.node_ids
        self.failed: StorageFailedError | None = None
        self.is_removed = False
        self.is_suspended = False
        self.is_held = False
        # The state that the driver last told to others; it compares after every step.
        self.commit_index = core.commit_index
        self.high_watermark = log.offset_after(core.commit_index)
        self.durable_index = log.durable_index
        self.deadline_ms: int | None = None
        # The first term that it knew in this life, and when; the highest term that others may claim by that, or 0.
        self.first_term = 0
        self.first_ms = 0
        self.term_bound = 0
        self.leadership: tuple[int, int | None, bool, bool] = (core.term, None, False, False)
        self.proposed: list[Entry] | None = None  # appended here, the core has not heard of it
        # Callers that wait for leadership to be confirmed: the round that will do it, None before it has begun.
        self.readers: list[tuple[int | None, asyncio.Future[None]]] = []
        self.promise_ticket = 0  # of the newest saved hard state
        self.stall_pending = False
        self.notices: list[tuple[Callable[..., None], object]] = []
        self.sends_files = False  # Its snapshots are segments, sent by `catch_up`; set by the group's owner.
        self.forgotten_index = -1  # as a witness; -1: it was none yet
        self.prepared: Prepared | None = None  # received by `catch_up`, about to become the log
        # Is given a state before the listener has to `install` it; set by the group's owner, if that takes long.
        self.prepare_state: Callable[[bytes], Awaitable[None]] | None = None
        # Is given a snapshot from the leader before it replaces the log, and raises MalformedMessageError if it must
        # not; set by the group's owner.
        self.check_state: Callable[[InstallSnapshot], None] | None = None

    @property
    def is_leader(self) -> bool:
        return self.core.role is Role.LEADER and self.failed is None and not self.core.is_witness

    @property
    def is_witness(self) -> bool:
        """Votes, keeps entries that another voter lacks, and serves nobody. False before it knows that it is."""
        return self.core.is_witness

    @property
    def confirmed(self) -> bool:
        """Leads, and a majority has said so since this node last stalled; False while its tick is late.

        A voter that is the only one is a majority, however late it is: nobody else can have been elected.
        """
        core = self.core
        is_sure = self._driver.is_punctual or core.is_lone_voter
        return core.confirmed and not self.stall_pending and self.is_leader and is_sure

    @property
    def leader_id(self) -> int | None:
        """The node that serves; None while nobody is known to lead, or a witness does."""
        leader_id = self.core.leader_id
        return None if leader_id in self.core.witnesses else leader_id

    @property
    def is_settled(self) -> bool:
        """Leads, and a majority has said so, or knows the leader; or waits for nothing."""
        core = self.core
        if core.deadline_ms is None or self.failed is not None or self.is_removed:
            return True
        return core.confirmed if core.role is Role.LEADER else core.leader_id is not None

    def may_miss_leader(self, now_ms: int) -> bool:
        """Tell whether a deadline that passes now may be the beginning of an election among several nodes."""
        return self.group_id != METADATA_GROUP and self.lacks_leader(now_ms)

    def lacks_leader(self, now_ms: int) -> bool:
        """Tell whether this node follows nobody that it has heard of lately, and could not lead without others."""
        core = self.core
        if core.role is Role.LEADER or core.is_lone_voter:
            return False
        return core.leader_id is None or now_ms - core.heard_ms >= core.timing.election_timeout_ms

    def line(self, node_id: int, live: set[int]) -> Line:
        """Tell how urgently this node should stand, if it must choose among many groups.

        It should be the first if it is preferred. If somebody is missing, perhaps the preferred one, one of those that
        are live should, too: every node finds the same one, and each of them as many as any other.
        """
        voters = self.core.voters
        able = self.core.configuration.full_voter_ids
        if len(live & voters) < majority(len(voters)):
            return Line.HOPELESS
        live_able = sorted(live & able)
        if not live_able:
            return Line.OTHERS  # Two witnesses are left, for a moment, as while a replica and a witness change places.
        is_missing = len(live_able) < len(able)
        is_chosen = is_missing and live_able[(self.core.lot or 0) % len(live_able)] == node_id
        return Line.FIRST if self.core.preferred or is_chosen else Line.OTHERS

    def propose(self, frame: Frame) -> Entry:
        """Append `frame` to the log at once, stamped with offset and term; send it at the end of this iteration.

        Raises:
            NotLeaderError: this node does not lead the group, or is handing leadership on.
            DiskFullError, StorageBusyError: not now; the group goes on.
            StorageFailedError: the log failed; the group has resigned.
        """
        self.check_may_propose()
        return self._appended(lambda: self.log.append_batch(self.core.term, frame))

    def propose_control(self, kind: ControlKind, body: bytes = b"") -> Entry:
        """As `propose`, for a frame that takes an index but no offset."""
        self.check_may_propose()
        return self._appended(lambda: self.log.append_control(self.core.term, kind, body))

    def change(self, new: Configuration) -> Entry:
        """Propose `new` members, of which at most one voter may differ; it holds at once and may still be undone.

        Done when `commit_index` reaches the entry's index. A leader that leaves itself out leads until then.

        Raises:
            NotLeaderError: this node does not lead the group, or is handing leadership on.
            ChangeInProgressError: the last change, or the first entry of this leadership, is not committed yet.
            ValueError: this change is not allowed, or none.
            DiskFullError, StorageBusyError, StorageFailedError: as for `propose`.
        """
        self.check_may_propose()
        self.core.check_change(new)
        return self._appended(lambda: self.log.append_control(self.core.term, ControlKind.MEMBERSHIP, new.encode()))

    def repeat_members(self) -> Entry:
        """Propose the newest members once more, for a log that names them nowhere: the first ones are no entry.

        A member that begins again with an empty log learns from the entries which members the group has.

        Raises:
            NotLeaderError, DiskFullError, StorageBusyError, StorageFailedError: as for `propose`.
        """
        return self.propose_control(ControlKind.MEMBERSHIP, self.log.configuration.encode())

    def has_caught_up(self, node_id: int) -> bool:
        """Tell whether a member had everything at most an election timeout ago: if a learner, it may be promoted.

        Not one that does not know itself whether it has (`raft.uncertainty`): its vote would be worth less than others.
        The thesis' rounds come to the same (4.2.1). False on a node that does not lead.
        """
        core = self.core
        progress = self.core.progress.get(node_id)
        lag_ms_max = core.timing.election_timeout_ms
        if progress is None or progress.uncertain:
            return False
        return progress.has_caught_up(self._driver.now(), lag_ms_max)

    def transfer(self, node_id: int) -> None:
        """Begin to hand leadership to `node_id`; nothing happens if this node does not lead."""
        self._driver.post(self, TransferLeadership(node_id))

    def begin_with(self, configuration: Configuration, *, stand: bool) -> None:
        """Take `configuration` for the one that the group began with; only if nothing is known of its members yet."""
        assert not self.log.configuration.voters, self.log.configuration
        self.log.begin_with(configuration)
        self._driver.post(self, Campaign() if stand else Tick())

    def campaign(self) -> None:
        """Stand for election, by way of a pre-vote."""
        self._driver.post(self, Campaign())

    def give_up(self, node_id: int, *, really: bool) -> str:
        """Hold elections without a voter that never comes back; return why that is refused, or nothing.

        Only with `really` anything is done. `docs/raft.md` says what it costs; only an operator may want it.
        """
        if self.failed is not None or self.is_removed:
            return f"its replica here is out of service ({self.failed})"
        reason = why_not_given_up(self.core, node_id)
        if really and not reason:
            self._driver.post(self, GiveUp(node_id))
        return reason

    def discount(self, node_id: int) -> None:
        """Count nothing any more that `node_id` has acknowledged: its log has failed, and will be another one."""
        refusal = AppendResponse(
            term=self.core.term,
            source=node_id,
            target=self.core.node_id,
            match_index=0,
            round=0,
            rejected=True,
            hint_index=0,
            hint_term=0,
            uncertain=DISCOUNTED,
        )
        self._driver.post(self, refusal)

    async def confirm(self) -> None:
        """Wait until a majority has said, after this call, that this node still leads (ReadIndex, thesis 6.4).

        Everything that was committed when this was called is then at or below `commit_index`. Callers of one loop
        iteration share a round. Waits for ever if no majority can be reached and nobody else is elected:
        give it a deadline. Cancelled, it has no effect.

        Raises:
            NotLeaderError: this node does not lead the group, or stopped to before it was confirmed.
        """
        self._check_leader()
        if self.readers and self.readers[-1][0] is None:
            answer = self.readers[-1][1]
        else:
            answer = asyncio.get_running_loop().create_future()
            self.readers.append((None, answer))
            self._driver.post(self, START_ROUND)
        await asyncio.shield(answer)

    def snapshot(self, start_index: int | None = None) -> tuple[int, int, bytes] | None:
        """Return the listener's snapshot, with the log's end offset in front, which the receiver's log needs.

        Without data it is an offer: the receiver is to fetch files (`catch_up`), up to this index or a later one.
        `start_index`: only the offset there, for a witness, whose log begins behind that entry.
        """
        if start_index is not None:
            try:
                end_offset = self.log.offset_after(start_index)
            except StorageFailedError:
                return None  # A damaged segment: it is asked again when that was mended, or somebody else leads.
            term = self.log.term_at(start_index)
            assert term is not None, start_index
            return start_index, term, end_offset.to_bytes(8, "big")
        if self.sends_files:
            index = self.log.first_index - 1
            term = self.log.term_at(index)
            assert term is not None, index
            return index, term, b""
        snapshot = self.listener.snapshot()
        if snapshot is None:
            return None
        index, term, state = snapshot
        return index, term, self.log.offset_after(index).to_bytes(8, "big") + made(state)

    def _appended(self, append: Callable[[], Entry]) -> Entry:
        """Append, tell the driver, and let a log that failed take this group out of service."""
        try:
            entry = append()
        except (DiskFullError, StorageBusyError):
            raise
        except StorageFailedError as error:
            self._driver.leave(self, error)
            raise
        self._driver.on_proposed(self, entry)
        return entry

    def check_may_propose(self) -> None:
        """Refuse while leadership is handed on (thesis 3.10): under load the target would never have everything."""
        self._check_leader()
        if self.core.transfer_target is not None:
            raise NotLeaderError(self.core.transfer_target)

    def _check_leader(self) -> None:
        if not self.is_leader or self.is_removed:
            raise NotLeaderError(self.leader_id if self.core.role is not Role.LEADER else None)

    # For the driver.

    def restart_core(self) -> None:
        """Begin anew from the stored state, as after a crash: the core went ahead of a log that could not follow."""
        self.core = self._make_core(self.commit_index)
        self.proposed = None

    def forget(self) -> None:
        """Drop the beginning of a witness's log, which every full voter has."""
        if self.forgotten_index < 0:
            self.log.limit_segments(WITNESS_SEGMENT_BYTES)
            self.forgotten_index = self.log.first_index - 1
        index = self.core.forgettable_index
        if index > self.forgotten_index:
            self.forgotten_index = index
            self.log.drop_prefix(index, partial_since=self.core.configuration_place)

    def reset_log(self) -> None:
        """Give up a log that lacks its beginning: this node is no witness any more, and is to have all of it.

        Its acknowledgements as a witness count for nobody now: the change that took the role away was committed by the
        others, before the one that gives it another was proposed.
        """
        self.log.install_snapshot(0, 0, 0, b"", self.log.configuration)
        self.commit_index = 0
        self.durable_index = 0
        self.forgotten_index = -1
        self.high_watermark = 0
        self.restart_core()

    def on_round_started(self) -> None:
        """Note which round will answer the newest reader."""
        if self.readers and self.readers[-1][0] is None:
            self.readers[-1] = (self.core.round, self.readers[-1][1])

    def after_steps(self) -> None:
        """Tell the waiting readers, and the log, the news of the core."""
        if self.readers:
            self.tell_readers()
        if self.log.is_uncertain and not self.core.uncertain:
            self.log.became_certain()

    def tell_readers(self) -> None:
        """Answer readers whose round a majority has answered, or all when there is nothing left to confirm."""
        if not self.is_leader:
            self.fail_readers(NotLeaderError(self.leader_id))
            return
        # A round says what `confirm` asks, however this node has stalled since. Not before an entry of this term is
        # committed: until then the commit index may be older than what another leader has told.
        if self.core.commit_index < self.core.term_start_index:
            return
        answered = self.core.answered_round
        while self.readers and (begun := self.readers[0][0]) is not None and begun <= answered:
            answer = self.readers.pop(0)[1]
            if not answer.done():
                answer.set_result(None)

    def fail_readers(self, error: NotLeaderError) -> None:
        readers, self.readers = self.readers, []
        for _, answer in readers:
            if not answer.done():
                answer.set_exception(error)
