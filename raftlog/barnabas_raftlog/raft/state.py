"""The state of one member of a Raft group, and the few rules that every part of the core needs. Pure.

`election`, `replication`, `leadership` and `follower` are functions over this state, one file for each subject of
the paper; `core` chooses among them and turns what they left behind into one `Ready`. Nothing outside `raft/`
writes here.
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

# How long a leader waits at least before it says that all is committed and quiet: after it began, after it said so, and
# after what it was given within this time.
REST_MS = 20

SnapshotSource = Callable[[int | None], tuple[int, int, bytes] | None]
"""Returns (last index covered, its term, state) of the newest snapshot, or None while there is none.

Called with an index of the log, or the one before its first: of that very place, without a state, for a witness."""


class Timing(msgspec.Struct, frozen=True):
    """How long to wait, and how much to send. All members of a group should agree on the times.

    The times are for nodes next to each other: where others are farther away, waits for their answers are longer
    (`RoundTrip`). `election_timeout_ms` must exceed the longest round trip that is to be survived, including a slow
    disk on the way of a vote.
    """

    election_timeout_ms: int = 1000
    heartbeat_interval_ms: int = 100
    retry_ms: int = 60
    bytes_per_append: int = 1 << 20
    bytes_in_flight_max: int = 16 << 20


class RoundTrip(msgspec.Struct):
    """How long the farthest live node takes to answer, in ms, as it was measured. One for all groups of a node.

    The driver's side changes it, cores read it: whoever waits for answers waits for so much longer, and whoever leaves
    somebody else the time to stand for election leaves it so much longer as well.
    """

    ms: int = 0


class Role(Enum):
    """What a member currently is. Everyone starts, and restarts, as a follower."""

    FOLLOWER = auto()
    CANDIDATE = auto()
    LEADER = auto()


class RaftState:
    """Everything one member knows. Owned by `RaftCore.step`; the driver reads it and never writes it.

    Invariants: `term` and `commit_index` never decrease; `voted_for` is set at most once in a term;
    `commit_index` <= `verified_index` <= last index on a follower; `progress` is empty unless LEADER;
    `deadline_ms` is None on a quiescent member (unless it leads and must remind somebody), on a lone leader, and on
    whoever is outside. `configuration` is what the log says, as of the beginning of the newest step; `voters`,
    `learners`, `peers` and what follows them are taken from it and from nowhere else (`read_members`). `replaced` is
    the one before it, if the log may forget and no repetition in it says that the change was committed; else nobody.
    """

    __slots__ = (
        "active_since_ms",
        "asked_round",
        "attempts",
        "ballots",
        "blank",
        "busy_peers",
        "commit_index",
        "configuration",
        "configuration_index",
        "confirm_round",
        "confirmed",
        "consents",
        "deadline_ms",
        "directories",
        "directory_id",
        "doubtful",
        "ends",
        "given_up",
        "heard_ms",
        "is_blank",
        "is_lone_voter",
        "is_outside",
        "is_voter",
        "is_witness",
        "lacks_beginning",
        "leader_id",
        "leader_round",
        "learners",
        "led_term",
        "log",
        "lot",
        "may_stand",
        "member",
        "node_id",
        "now_ms",
        "out_after_persist",
        "out_append",
        "out_append_no_op",
        "out_batch",
        "out_facts",
        "out_install",
        "out_messages",
        "out_repeat_members",
        "out_truncate_from",
        "peers",
        "pre_voting",
        "preferred",
        "progress",
        "quiescent",
        "refusals",
        "released_index",
        "removed_at",
        "replaced",
        "reported_index",
        "rest_ms",
        "rng",
        "role",
        "round",
        "round_trip",
        "silent",
        "snapshot_source",
        "term",
        "term_start_index",
        "timing",
        "transfer_deadline_ms",
        "transfer_target",
        "uncertain",
        "verified_index",
        "voted_for",
        "voters",
        "votes",
        "witnesses",
    )

    def __init__(  # noqa: PLR0913, PLR0915 - the list of what a member is, once
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
        self.member, self.node_id, self.directory_id = member, member.node_id, member.directory_id
        self.log, self.timing, self.rng = log, timing, rng
        self.snapshot_source = snapshot
        self.preferred = preferred
        self.busy_peers = busy_peers  # Changed by the driver: who is sent no entries now; see `replication`.
        # All members of a group have the same lot; by it they agree who stands first when one of them is missing. None:
        # nobody does, and they draw alike.
        self.lot, self.round_trip = lot, round_trip if round_trip is not None else RoundTrip()
        # A number of this return from a loss of power, or 0; see `uncertainty`.
        self.uncertain = rng.randrange(1, 1 << 31) if uncertain else 0
        self.is_blank = blank  # uncertain, and begun empty: it may know fewer changes of members than it acknowledged
        self.now_ms = now_ms
        # Promises. An entry on disk proves its term even if the save of the hard state was lost with a crash:
        # nobody votes before that save, so a vote in the proven term cannot have been given.
        self.term, self.voted_for = hard_state.term, hard_state.voted_for
        if log.last_term > self.term:
            self.term, self.voted_for = log.last_term, None
        # What a snapshot covers was committed.
        self.commit_index = max(commit_index, log.first_index - 1)
        self.role = Role.FOLLOWER
        self.leader_id: int | None = None
        self.deadline_ms: int | None = None
        self.quiescent = False
        # The members, as the log has them.
        self.read_members()
        self.is_voter = self.is_lone_voter = self.may_stand = self.is_witness = self.is_outside = False
        self.lacks_beginning = False
        self.released_index = 0  # Every full voter has the log up to here: said by a leader, or heard by a witness.
        # The last (term, index) that is committed and of which somebody said that this node is no member there.
        self.removed_at = (-1, -1)
        # Members that nothing was heard of since their link was last reported down, or ever.
        self.silent = set(self.peers)
        # As a follower.
        self.verified_index = self.commit_index  # Known equal to the log of this term's leader up to here.
        self.reported_index = 0  # The highest match index told to this term's leader.
        self.heard_ms = now_ms
        self.leader_round = 0
        # As a candidate.
        self.pre_voting = False
        # Who would not refuse its vote now, as it said by itself, and the term it was in; see `consent`.
        self.consents: tuple[tuple[int, int], ...] = ()
        self.votes = set[int]()
        self.refusals = set[int]()
        self.doubtful = set[int]()  # Those of `votes` that are of uncertain voters,
        self.blank = set[int]()  # and of blank ones.
        self.given_up = set[int]()  # Voters that an operator has given up; see `uncertainty`.
        self.attempts = 0  # to stand, since a leader was known
        self.ballots = 0  # real elections of others or of its own that this member took part in, since then
        # As a leader.
        self.progress = dict[int, Progress]()
        self.ends: LogEnds | None = None
        self.term_start_index = 0  # Index of the first entry of the own term.
        self.led_term = 0
        self.round = 0
        self.confirm_round = 0
        self.asked_round = 0  # Somebody waits for the answer to this round.
        self.confirmed = False
        self.active_since_ms = now_ms
        self.rest_ms = now_ms + REST_MS  # when it may fall silent
        self.transfer_target: int | None = None
        self.transfer_deadline_ms = 0
        # What the current step has decided so far; emptied into a `Ready` at its end.
        self.out_messages = list[Message]()
        self.out_after_persist = list[Message]()
        self.out_facts = list[Fact]()
        self.out_append: Sequence[Entry] = ()
        self.out_append_no_op = self.out_repeat_members = False
        self.out_truncate_from: int | None = None
        self.out_install: InstallSnapshot | None = None
        self.out_batch: tuple[int, int, Sequence[Entry] | None, int] | None = None
        self.refresh_membership()
        if self.is_lone_voter:
            self.deadline_ms = now_ms
        elif preferred and self.term and not self.is_outside and not self.is_witness:
            # A member that was away: whoever leads by now has the time of some round trips to say so.
            self.deadline_ms = now_ms + rng.randrange(100, 151) + 2 * self.round_trip.ms
        elif not self.is_outside:
            self.stand_without_leader()

    @property
    def answered_round(self) -> int:
        """The newest round that a majority of the voters has answered; a round asks "do you still follow me?"."""
        rounds = [progress.round for progress in self.progress.values() if progress.is_voter]
        if self.is_voter:
            rounds.append(self.round)
        return majority_value(rounds)

    def read_members(self) -> None:
        """Take from the log who belongs to the group, and what that replaced while it may be in doubt."""
        log = self.log
        configuration = self.configuration = log.configuration
        index = self.configuration_index = log.configuration_index
        self.voters, self.learners = configuration.voter_ids, configuration.learner_ids
        self.witnesses = frozenset(configuration.witnesses)
        self.directories = {member.node_id: member.directory_id for member in configuration.members}
        self.peers = tuple(sorted(self.directories.keys() - {self.node_id}))
        before = log.configuration_at(index - 1) if log.may_forget else NOBODY
        self.replaced = NOBODY if before == configuration else before

    @property
    def rivals(self) -> Configuration:
        """Who may have overruled the newest change; nobody if it is known to be committed (`uncertainty`)."""
        return self.replaced if self.configuration_index > self.commit_index else NOBODY

    def refresh_membership(self) -> None:
        """Find out what this node is in the configuration that holds, under its own directory and no other.

        It may stand for election as a voter; and also as one that the newest configuration leaves out, while that one
        is not known to be committed: nobody else may have its entry (thesis 4.2.2, figure 4.6). Neither that nor a
        learner, or told that it was removed later than anything it has: *outside*. It waits for nothing then.

        Who was a witness and is to be something else *lacks the beginning* of the log, and counts for nothing yet.
        """
        configuration, index = self.configuration, self.configuration_index
        term = self.log.term_at(index)
        # By term first: what is of an older term than a committed entry stands before it, or was discarded.
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
        """Where the newest configuration stands; its term is taken for 0 where the log begins behind it."""
        return self.log.term_at(self.configuration_index) or 0, self.configuration_index

    @property
    def forgettable_index(self) -> int:
        """Up to where this node, as a witness, may forget its log; 0 on everybody else."""
        return min(self.released_index, self.commit_index) if self.is_witness else 0

    def is_of(self, peer: int, directory_id: bytes) -> bool:
        """Tell whether what came from node `peer` came from the member of that id, not from another disk."""
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
        """How long to wait for the outcome of an election: doubled when two have failed, up to four times as long.

        A vote must be on two disks before it counts. Where that takes longer than an election timeout, somebody else
        would begin the next term each time before the votes of this one are there.
        """
        return self.timing.election_timeout_ms << min(max(self.ballots - 2, 0), 2)

    def stand_without_leader(self) -> None:
        """Nobody is known to lead: leave a present leader, or an election under way, the time of some round trips."""
        far_ms = 2 * self.round_trip.ms
        self.stand_within(150 + far_ms, 401 + far_ms, preferred_ms=21)

    @property
    def retry_ms(self) -> int:
        """How long to wait for answers to a pre-vote, and before another election after one that was lost."""
        return self.timing.retry_ms + self.round_trip.ms

    def stand_in_turn(self, lost: int, start_ms: int, spread_ms: int, early_ms: int) -> None:
        """Stand for election now that `lost` leads no more, which all of the others learn at the same time.

        If two stood within half a round trip of each other, both would have voted for themselves before they hear of
        it, and the election would be lost. So the preferred replica stands within `early_ms`, if it is there. Next,
        from `start_ms` on, is one of the others, the same one in the eyes of all, and another one for other groups;
        then come those that are left, within `spread_ms`. Each of these turns begins when a request of the one before
        must have arrived; `start_ms` is at least `early_ms`.
        """
        half_ms = self.round_trip.ms // 2
        if self.lot is None:
            self.stand_within(
                start_ms - early_ms + 2 * half_ms, start_ms - early_ms + 2 * half_ms + spread_ms, early_ms
            )
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
