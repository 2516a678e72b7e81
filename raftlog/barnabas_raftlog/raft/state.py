"""The state of one member of a Raft group, field by field. Pure.

`election`, `replication`, `leadership` and `follower` are functions over this state, one file for each subject of the
paper; `core` chooses among them and turns their output into one `Ready`. The rules that all of them need are methods
here: who the members are, who trusts whom, when to stand for election. Nothing outside `raft/` writes here.
"""

from collections.abc import Callable, Container, Sequence
from enum import Enum, auto

import msgspec

from .log_ends import LogEnds
from .membership import NOBODY, Configuration, Member, same_directory
from .messages import Entry, Fact, HardState, InstallSnapshot, LogReader, Message, Place, Rng
from .progress import Progress
from .quorum import majority_value

__all__ = ["REST_MS", "RaftState", "Role", "RoundTrip", "SnapshotSource", "Timing"]

REST_MS = 20
"""A leader waits at least so long before it says that all is committed and quiet: after it began, after it said so, and
after what it was given within this time."""

SnapshotSource = Callable[[int | None], tuple[int, int, bytes] | None]
"""Returns (last index covered, its term, state) of the newest snapshot, or None while there is none.

Called with an index of the log, or the one before its first: of that very place, without a state, for a witness."""


class Timing(msgspec.Struct, frozen=True):
    """Times to wait, and how much to send. All members of a group should agree on the times.

    The times are for nodes next to each other; if others are farther away, waits for their answers are longer
    (`RoundTrip`). `election_timeout_ms` must exceed the longest round trip that is to be survived, including a slow
    disk on the way of a vote.
    """

    election_timeout_ms: int = 1000
    heartbeat_interval_ms: int = 100
    retry_ms: int = 60
    bytes_per_append: int = 1 << 20
    bytes_in_flight_max: int = 16 << 20


class RoundTrip(msgspec.Struct):
    """The time that the farthest live node takes to answer, in ms, as measured. One for all groups of a node.

    The driver's side changes it, cores read it: waits for answers, and the time that is left to others to stand for
    election, are longer by it.
    """

    ms: int = 0


class Role(Enum):
    """The present role of a member. Everyone starts, and restarts, as a follower."""

    FOLLOWER = auto()
    CANDIDATE = auto()
    LEADER = auto()


class RaftState:
    """Everything one member knows. Owned by `RaftCore.step`; the driver reads it and never writes it.

    Invariants: `term` and `commit_index` never decrease; `voted_for` is set at most once in a term;
    `commit_index` <= `verified_index` <= last index on a follower; `progress` is empty unless LEADER;
    `deadline_ms` is None on a quiescent member (unless it leads and must remind somebody), on a lone leader, and on
    a member that is outside.
    """

    __slots__ = (  # noqa: RUF023 - in groups, in the order in which a reader wants them
        # Identity: who this is, and what it was given. Set once; the driver changes what is inside of two of them.
        "member",  # this node, and the disk that it keeps its data on
        "node_id",  # of `member`
        "directory_id",  # of `member`
        "timing",  # how long to wait, and how much to send
        "rng",  # draws the random part of deadlines
        "preferred",  # whether this replica was planned to lead: it stands for election before the others
        "lot",  # the same on all members: by it they agree who stands first if one is missing. None: they draw alike
        "round_trip",  # to the farthest live node; the driver changes it
        "busy_peers",  # nodes that are sent no entries now (`replication`); the driver changes it
        "snapshot_source",  # gives a leader the snapshot that it sends; None: there is none to send
        "now_ms",  # the time of the newest step; never goes back
        # Promises: on disk before anybody hears of them.
        "term",  # the newest term known; never goes back
        "voted_for",  # whom this node has voted for in `term`; None again with a newer term
        # The log, and what of it is committed.
        "log",  # read here, changed by the driver between two steps
        "commit_index",  # known to be committed up to here; never goes back
        "released_index",  # every full voter has the log up to here, says the leader (`witness`); never goes back
        "uncertain",  # the number of a return that may have forgotten what was acknowledged; 0 when made certain again
        "is_blank",  # uncertain, and begun empty: it may not know every change of members; ends with `uncertain`
        # Members: as the log had them when the newest step began (`read_members`).
        "configuration",  # the newest one in the log, committed or not
        "configuration_index",  # the entry that brought it
        "voters",  # node ids of its voters,
        "learners",  # of its learners,
        "witnesses",  # and of those voters that are witnesses
        "directories",  # by node id: the directory of each member
        "peers",  # node ids of all members but this one, sorted
        "replaced",  # the one before, if the log may forget and has no repetition of the newest; else nobody (`rivals`)
        # The place of this member in that configuration (`refresh_membership`).
        "is_voter",  # a voter, with this disk
        "is_lone_voter",  # the only one
        "may_stand",  # for election: as a voter, or as one that a change leaves out which is not known to be committed
        "is_witness",  # a voter that serves nobody
        "is_outside",  # neither of these, nor a learner: it waits for nothing
        "lacks_beginning",  # its log is a witness's, and should be whole: it counts for nothing until it was emptied
        "removed_at",  # (term, index) of the newest committed entry at which it is no member, as told; never goes back
        "silent",  # peers that nothing was heard of since their link was last reported down, or ever
        # All roles.
        "role",  # follower, candidate or leader
        "leader_id",  # who leads in `term`, also if that is this node; None while nobody is known to, or trusted
        "quiescent",  # a leader that says nothing, or a follower that trusts it in silence; until something is amiss
        "deadline_ms",  # when a `Tick` has something to do; None: not before something is heard
        # Follower: what it knows of this term's leader. Forgotten with the term, and by a leader that steps down.
        "verified_index",  # the log is known to be equal to the leader's up to here; `commit_index` in a new term
        "reported_index",  # the highest match index that the leader was told; 0 in a new term
        "leader_round",  # the newest round that the leader has begun; 0 in a new term
        "heard_ms",  # when the leader was last heard, or was given another election timeout to be heard in
        "pardoned_ms",  # `heard_ms` as the newest stall set it; anything else there: the leader was heard since
        "pardons",  # stalls in a row that gave the leader more time, while it was not heard
        # Candidate: the campaign under way. Each begins with its own vote and without refusals.
        "pre_voting",  # whether it asks for pre-votes
        "votes",  # voters that have granted what it asks for,
        "doubtful",  # those of them that are uncertain,
        "blank",  # and those that are blank
        "refusals",  # voters that have refused it
        "consents",  # (peer, its term): would not refuse its vote now (`consent`); none with a new term, or a leader
        "given_up",  # voters that an operator gave up (`uncertainty`), until it follows a leader or surely leads itself
        "attempts",  # campaigns since a leader was known
        "ballots",  # elections that it took part in since a leader was known, its own and others'
        # Leader. Empty, or without meaning, on everybody else; set when it is elected.
        "progress",  # by peer: what is known of each follower
        "ends",  # where the log ended, and when (`log_ends`)
        "term_start_index",  # the first entry of its term
        "led_term",  # the newest term that it led, also when it leads no more; 0: it never did
        "round",  # number of the newest question "do you still follow me?"; begins with 0
        "confirm_round",  # the answer to this round confirms its leadership; 0, or begun after the newest stall
        "asked_round",  # somebody waits for the answer to this round; 0: nobody does
        "confirmed",  # it certainly leads; not before an entry of its term is committed, nor right after a stall
        "active_since_ms",  # when it was elected, was woken, or ran again after a stall: answers are due since then
        "rest_ms",  # when it may fall silent: `REST_MS` after it last did, and after each proposal until then
        # Transfer of a leadership.
        "transfer_target",  # who is to take over; None when that took too long, or this node leads no more
        "transfer_deadline_ms",  # when it has taken too long: an election timeout after it began
        # Output of the step under way; emptied into a `Ready` at its end.
        "out_messages",  # leave at once, unless a promise is to be saved
        "out_after_persist",  # leave when what is promised is on disk
        "out_facts",  # for operators
        "out_append",  # entries for the log
        "out_append_no_op",  # whether the first entry of a new leadership is due
        "out_repeat_members",  # whether the newest configuration is to be appended once more (`uncertainty`)
        "out_truncate_from",  # drop the log from here on, before anything is appended; None: nothing
        "out_install",  # the snapshot that replaces the log; None: none
        "out_batch",  # (start, last index, entries, bytes) last read from the log, for followers that are equally far
    )

    def __init__(  # noqa: PLR0913 - what a member is given
        self,
        member: Member,
        hard_state: HardState,
        log: LogReader,
        commit_index: int,
        timing: Timing,
        rng: Rng,
        *,
        preferred: bool,
        now_ms: int,
        snapshot: SnapshotSource | None = None,
        uncertain: bool = False,
        blank: bool = False,
        busy_peers: Container[int] = (),
        lot: int | None = None,
        round_trip: RoundTrip | None = None,
    ) -> None:
        assert commit_index <= log.last_index, (commit_index, log.last_index)
        self.member = member
        self.node_id = member.node_id
        self.directory_id = member.directory_id
        self.timing = timing
        self.rng = rng
        self.preferred = preferred
        self.lot = lot
        self.round_trip = round_trip if round_trip is not None else RoundTrip()
        self.busy_peers = busy_peers
        self.snapshot_source = snapshot
        self.now_ms = now_ms
        self._init_log(log, commit_index, uncertain=uncertain, blank=blank)
        self._init_promises(hard_state)
        self.role = Role.FOLLOWER
        self.leader_id: int | None = None
        self.quiescent = False
        self.deadline_ms: int | None = None
        self._init_follower()
        self._init_candidate()
        self._init_leader()
        self._init_output()
        self.removed_at = (-1, -1)
        self.read_members()
        self.silent = set(self.peers)
        self.refresh_membership()
        if self.is_lone_voter:
            self.deadline_ms = now_ms
        elif preferred and self.term and not self.is_outside and not self.is_witness:
            # A member that was away: a leader that there is by now has the time of some round trips to say so.
            self.deadline_ms = now_ms + rng.randrange(100, 151) + 2 * self.round_trip.ms
        elif not self.is_outside:
            self.stand_without_leader()

    def _init_log(self, log: LogReader, commit_index: int, *, uncertain: bool, blank: bool) -> None:
        self.log = log
        self.commit_index = max(commit_index, log.first_index - 1)  # All that a snapshot covers was committed.
        self.released_index = 0
        self.uncertain = self.rng.randrange(1, 1 << 31) if uncertain else 0
        self.is_blank = blank

    def _init_promises(self, hard_state: HardState) -> None:
        """An entry on disk proves its term even if the save of the hard state was lost with a crash.

        Nobody votes before that save, so a vote in the proven term cannot have been given.
        """
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        if self.log.last_term > self.term:
            self.term = self.log.last_term
            self.voted_for = None

    def _init_follower(self) -> None:
        self.verified_index = self.commit_index
        self.reported_index = 0
        self.leader_round = 0
        self.heard_ms = self.now_ms
        self.pardoned_ms = self.now_ms - 1
        self.pardons = 0

    def _init_candidate(self) -> None:
        self.pre_voting = False
        self.votes = set[int]()
        self.doubtful = set[int]()
        self.blank = set[int]()
        self.refusals = set[int]()
        self.consents: tuple[tuple[int, int], ...] = ()
        self.given_up = set[int]()
        self.attempts = 0
        self.ballots = 0

    def _init_leader(self) -> None:
        self.progress = dict[int, Progress]()
        self.ends: LogEnds | None = None
        self.term_start_index = 0
        self.led_term = 0
        self.round = 0
        self.confirm_round = 0
        self.asked_round = 0
        self.confirmed = False
        self.active_since_ms = self.now_ms
        self.rest_ms = self.now_ms + REST_MS
        self.transfer_target: int | None = None
        self.transfer_deadline_ms = 0

    def _init_output(self) -> None:
        self.out_messages = list[Message]()
        self.out_after_persist = list[Message]()
        self.out_facts = list[Fact]()
        self.out_append: Sequence[Entry] = ()
        self.out_append_no_op = False
        self.out_repeat_members = False
        self.out_truncate_from: int | None = None
        self.out_install: InstallSnapshot | None = None
        self.out_batch: tuple[int, int, Sequence[Entry] | None, int] | None = None

    @property
    def answered_round(self) -> int:
        """The newest round that a majority of the voters has answered; a round asks "do you still follow me?"."""
        rounds = [progress.round for progress in self.progress.values() if progress.is_voter]
        if self.is_voter:
            rounds.append(self.round)
        return majority_value(rounds)

    def read_members(self) -> None:
        """Take the members from the log, and what they replaced while that may be in doubt."""
        log = self.log
        configuration = log.configuration
        index = log.configuration_index
        self.configuration = configuration
        self.configuration_index = index
        self.voters = configuration.voter_ids
        self.learners = configuration.learner_ids
        self.witnesses = frozenset(configuration.witnesses)
        self.directories = {member.node_id: member.directory_id for member in configuration.members}
        self.peers = tuple(sorted(self.directories.keys() - {self.node_id}))
        before = log.configuration_at(index - 1) if log.may_forget else NOBODY
        self.replaced = NOBODY if before == configuration else before

    @property
    def rivals(self) -> Configuration:
        """The members that may have overruled the newest change; nobody if it is known to be committed."""
        return self.replaced if self.configuration_index > self.commit_index else NOBODY

    def refresh_membership(self) -> None:
        """Find out what this node is in the configuration that holds, under its own directory and no other.

        It may stand for election as a voter; and also as one that the newest configuration leaves out, while that one
        is not known to be committed: nobody else may have its entry (thesis 4.2.2, figure 4.6). A member is *outside*
        if it is neither voter nor learner, or if it was told of a removal newer than any entry it has. It then has no
        deadline.

        A member that was a witness and is to be something else *lacks the beginning* of the log, and counts for nothing
        before that was emptied.
        """
        configuration = self.configuration
        index = self.configuration_index
        term = self.log.term_at(index)
        # By term first: an entry of an older term than a committed one stands before it, or was discarded.
        was_told = self.removed_at >= (self.removed_at[0] if term is None else term, index)
        self.is_voter = configuration.has_voter(self.member)
        self.lacks_beginning = self._lacks_beginning()
        self.is_lone_voter = self.is_voter and len(self.voters) == 1
        self.may_stand = not was_told and (
            (self.is_voter and not self.lacks_beginning)
            or (index > self.commit_index and self.log.configuration_at(index - 1).has_voter(self.member))
        )
        is_learner = not was_told and configuration.has_learner(self.member)
        self.is_outside = not self.may_stand and not is_learner
        self.is_witness = self.node_id in self.witnesses or (
            self.may_stand and not self.is_voter and self.node_id in self.log.configuration_at(index - 1).witnesses
        )

    def _lacks_beginning(self) -> bool:
        since = self.log.partial_since
        if since is None or self.node_id in self.witnesses:
            return False
        belongs = self.is_voter or self.configuration.has_learner(self.member)
        return belongs and self.configuration_place >= since  # else it is about to hear that it is a witness

    @property
    def configuration_place(self) -> Place:
        """Place of the newest configuration; its term is taken for 0 if the log begins behind it."""
        return self.log.term_at(self.configuration_index) or 0, self.configuration_index

    @property
    def forgettable_index(self) -> int:
        """The index up to which this node, as a witness, may forget its log; 0 on everybody else."""
        return min(self.released_index, self.commit_index) if self.is_witness else 0

    def is_of(self, peer: int, directory_id: bytes) -> bool:
        """Tell whether a message of node `peer` came from the member of that id, not from another disk."""
        known = self.directories.get(peer)
        return known is not None and same_directory(known, directory_id)

    def trusts_leader(self) -> bool:
        """True while there is no reason to help another node to an election (thesis 4.2.3)."""
        if self.role is Role.LEADER:
            return True
        if self.leader_id is None:
            return False
        return self.quiescent or self.now_ms - self.heard_ms < self.timing.election_timeout_ms

    def note(self, kind: str, cause: str) -> None:
        self.out_facts.append(Fact(kind, self.term, cause))

    def expect_leader(self) -> None:
        """Give the leader one election timeout, and a random part of another, to be heard from."""
        self.quiescent = False
        self.heard_ms = self.now_ms
        self.deadline_ms = self.now_ms + self.election_timeout_ms()

    def election_timeout_ms(self) -> int:
        """Draw a timeout; the preferred replica's is short, so that two rarely stand at once.

        A witness waits for at least another half of it after the last full voter would have stood.
        """
        timeout_ms = self.timing.election_timeout_ms
        if self.is_witness:
            return 2 * timeout_ms + self.rng.randrange(0, 1 + timeout_ms // 2)
        if self.preferred:
            return timeout_ms + self.rng.randrange(0, 1 + timeout_ms // 20)
        return timeout_ms + self.rng.randrange(timeout_ms // 20, 1 + timeout_ms // 2)

    @property
    def ballot_ms(self) -> int:
        """Time to wait for the outcome of an election: doubled when two have failed, up to four times as long.

        A vote must be on two disks before it counts. If that takes longer than an election timeout, somebody else
        would begin the next term each time before the votes of this one are there.
        """
        return self.timing.election_timeout_ms << min(max(self.ballots - 2, 0), 2)

    def stand_without_leader(self) -> None:
        """Stand when a present leader, or an election under way, had the time of some round trips to be heard of."""
        far_ms = 2 * self.round_trip.ms
        self.stand_within(150 + far_ms, 401 + far_ms, preferred_ms=21)

    @property
    def retry_ms(self) -> int:
        """Time to wait for answers to a pre-vote, and before another election after one that was lost."""
        return self.timing.retry_ms + self.round_trip.ms

    def stand_in_turn(self, lost: int, start_ms: int, spread_ms: int, early_ms: int) -> None:
        """Stand for election now that `lost` leads no more, which all of the others learn at the same time.

        If two stood within half a round trip of each other, both would have voted for themselves before they hear of
        it, and the election would be lost. So the preferred replica stands within `early_ms`, if it is there. One of
        the others follows from `start_ms` on, the same one in the eyes of all, and another one for other groups. Those
        that are left come within `spread_ms` after that. Each of these turns begins when a request of the one before
        must have arrived; `start_ms` is at least `early_ms`.
        """
        half_ms = self.round_trip.ms // 2
        if self.lot is None:
            alike_ms = start_ms - early_ms + 2 * half_ms
            self.stand_within(alike_ms, alike_ms + spread_ms, early_ms)
            return
        able = sorted(self.configuration.full_voter_ids - self.silent - {lost})
        second_ms = start_ms + half_ms
        if able and able[self.lot % len(able)] == self.node_id:
            self.stand_within(second_ms, second_ms + early_ms, early_ms)
        else:
            third_ms = second_ms + early_ms + half_ms
            self.stand_within(third_ms, third_ms + spread_ms, early_ms)

    def stand_within(self, start_ms: int, stop_ms: int, preferred_ms: int) -> None:
        """Stand for election `start_ms` to `stop_ms` from now, preferred replicas within `preferred_ms`.

        A witness waits until all the others have had the time to. An earlier deadline stays.
        """
        self.quiescent = False
        if self.is_witness:
            delay_ms = self.rng.randrange(stop_ms, 2 * stop_ms)
        elif self.preferred:
            delay_ms = self.rng.randrange(0, preferred_ms)
        else:
            delay_ms = self.rng.randrange(start_ms, stop_ms)
        deadline_ms = self.now_ms + delay_ms
        if self.deadline_ms is None or deadline_ms < self.deadline_ms:
            self.deadline_ms = deadline_ms
