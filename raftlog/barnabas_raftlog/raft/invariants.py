"""Asserts what must hold after every step; for tests and the simulator. Pure.

No product code imports this. `check_member` looks at one member alone. `GroupHistory` watches a whole group and
remembers: the five properties of the paper's figure 3, and the promises that they rest on. A broken promise needs one
accident to show, a broken outcome several in a row, so the promises catch most mistakes first.

Log matching is checked by induction instead of by comparing logs: an (index, term) always names the same bytes and
the same previous term. That is all the property says, and costs one dictionary entry for each entry appended.

Members change. A majority is always one of the configuration that the member in question holds, and a vote or a copy
counts for the disk that it is on: `disks` has one for each member, a lost one as it last was.
"""

from collections.abc import Mapping, Sequence

from .membership import NOBODY, Configuration, Member, check_change
from .messages import AppendEntries, AppendResponse, Entry, HardState, LogReader, Message, VoteRequest, VoteResponse
from .progress import ProgressState
from .state import RaftState, Role

__all__ = ["GroupHistory", "check_member", "check_quorum"]


def check_member(core: RaftState) -> None:
    """Assert what one member's state promises by itself; cheap enough for every step."""
    last_index = core.log.last_index
    assert core.commit_index <= last_index, f"commit {core.commit_index} beyond the log's end {last_index}"
    assert core.log.durable_index <= last_index, f"durable {core.log.durable_index} beyond {last_index}"
    assert core.term >= core.log.last_term, f"entry of term {core.log.last_term} in term {core.term}"
    assert core.may_stand or core.role is Role.FOLLOWER, "a learner or a stranger stands for election"
    assert not (core.is_outside and core.deadline_ms is not None), "a stranger waits for something"
    assert not (core.quiescent and core.is_witness and core.role is Role.LEADER), "a witness leads in silence"
    if core.quiescent:
        missed = [peer for peer, progress in core.progress.items() if progress.is_missed]
        assert (core.deadline_ms is None) == (not missed), f"silent with a deadline, or {missed} forgotten"
        assert core.leader_id is not None, "silent without a leader"
        is_done = core.commit_index == last_index or not core.peers  # A lone member needs nobody's attention.
        assert is_done, f"silent, but only {core.commit_index} of {last_index} is committed"
    elif core.role is not Role.LEADER:
        assert core.deadline_ms is not None or core.is_outside, "a member that is not silent waits for nothing"
    if core.role is not Role.LEADER:
        assert not core.progress, "followers of one that does not lead"
        assert core.ends is None, "samples of a log that another one leads"
        assert not core.confirmed, "confirmed without leading"
        assert core.commit_index <= core.verified_index <= last_index, f"{core.verified_index=} {last_index=}"
        assert core.reported_index <= core.verified_index, f"{core.reported_index=} {core.verified_index=}"
        return
    assert core.leader_id == core.voted_for == core.node_id, "a leader without its own vote"
    assert not core.confirmed or core.commit_index >= core.term_start_index, "confirmed without an entry of its own"
    assert core.progress.keys() == set(core.peers), f"leads {sorted(core.progress)} instead of {core.peers}"
    for progress in core.progress.values():
        roles = (progress.peer in core.voters, progress.peer in core.witnesses)
        assert (progress.is_voter, progress.is_witness) == roles, f"node {progress.peer} counts for what it is not"
        ends = (progress.match_index, progress.next_index, last_index)
        assert progress.match_index < progress.next_index <= last_index + 1, f"(match, next, last) {ends}"
        assert progress.in_flight_bytes == sum(size for _, size in progress.in_flight), "the window leaks"
        assert progress.state is ProgressState.REPLICATE or not progress.in_flight, "a window while probing"
        if core.quiescent and progress.live:
            assert progress.match_index == last_index, f"silent, but node {progress.peer} lacks entries"


def check_quorum(core: RaftState) -> None:
    """Assert after a `Tick` that an active leader was answered by a majority lately (thesis 6.2)."""
    if core.role is not Role.LEADER or core.quiescent:
        return
    # Twice the timeout: ticks come late, and a short stall is nobody's fault.
    oldest_ms = core.now_ms - 2 * core.timing.election_timeout_ms
    if core.active_since_ms < oldest_ms:
        heard = [p.peer for p in core.progress.values() if p.is_voter and p.last_answer_ms >= oldest_ms]
        assert len(heard) + core.is_voter > len(core.voters) / 2, f"leads without a quorum, heard only {heard}"


class GroupHistory:
    """Everything that ever happened in one group, as far as it must never be contradicted."""

    def __init__(self) -> None:
        self.leader_of_term = dict[int, int]()
        self.lone_terms = set[int]()  # Terms whose leader needed nobody's vote but its own.
        self.votes_cast = dict[tuple[int, Member], int]()  # (term, voter): candidate
        self.places = dict[tuple[int, int], tuple[int, bytes]]()  # (index, term): (previous term, frame)
        self.shown = set[tuple[int, int]]()  # Places that were sent to anybody.
        self.committed = dict[int, tuple[int, int]]()  # index: (its term, the lowest term it was seen committed in)
        self.commit_index = 0
        self.configuration = NOBODY  # the newest committed one
        # A voter has lost what it acknowledged (a power cut in page-cache mode): an entry may then be committed with
        # the help of an acknowledgement that is gone. No leader may lack it all the same.
        self.is_forgetful = False

    def on_appended(self, previous_term: int, entries: Sequence[Entry]) -> None:
        """Log matching: an index and a term name one entry, and through it everything before."""
        for entry in entries:
            place = (previous_term, bytes(entry.frame))
            first = self.places.setdefault((entry.index, entry.term), place)
            assert first == place, f"entry {entry.index} of term {entry.term} has two forms"
            assert entry.term >= previous_term, f"terms fall at {entry.index}"
            previous_term = entry.term

    def on_changed(self, core: RaftState, new: Configuration) -> None:
        """A leader begins a change: of one voter, after the last one, and after an entry of its own, were committed."""
        assert core.role is Role.LEADER
        check_change(core.log.configuration, new)
        index = core.log.configuration_index
        is_repeated = core.log.configuration_at(index - 1) == core.log.configuration
        assert is_repeated or core.commit_index >= index, "two changes at once"
        assert core.commit_index >= core.term_start_index, "a change before an entry of the own term is committed"

    def forget_lost(self, node_id: int, last_index: int) -> None:
        """A lone voter crashed before anybody saw its entries that were not durable: it may lead that term again.

        With more voters the term itself was durable on a majority before its first entry was written.
        """
        for place in [place for place in self.places if place[0] > last_index and place not in self.shown]:
            is_committed = self.committed.get(place[0], (0, 0))[0] == place[1]  # and went with a disk, if at all
            if place[1] in self.lone_terms and self.leader_of_term[place[1]] == node_id and not is_committed:
                del self.places[place]

    def on_sent(self, message: Message, saved: HardState, disk_term: int, member: Member) -> None:
        """Votes and terms of one's own are on disk before anybody hears of them; one vote a term.

        `saved` and `disk_term`, the term of the last entry, are what a crash would leave `member` now.
        """
        if isinstance(message, AppendEntries):
            is_safe = max(saved.term, disk_term) >= message.term
            assert is_safe, f"node {message.source} could come back and lead term {message.term} again"
            self.shown.update((entry.index, entry.term) for entry in message.entries)
        if isinstance(message, VoteRequest) and not message.pre:
            candidate = message.source
        elif isinstance(message, VoteResponse) and message.granted and not message.pre:
            candidate = message.target
        else:
            return
        first = self.votes_cast.setdefault((message.term, member), candidate)
        assert first == candidate, f"node {message.source} voted twice in term {message.term}"
        is_saved = saved.term > message.term or saved == HardState(message.term, candidate)
        assert is_saved, f"node {message.source} tells a vote before it is saved: {saved}"

    def on_acknowledged(self, response: AppendResponse, disk: LogReader, leader: RaftState | None) -> None:
        """An acknowledgement: durable (`disk` is what would survive now), and equal to the leader's log."""
        index = response.match_index
        assert index <= disk.last_index, f"node {response.source} acknowledges {index} before it is durable"
        if leader is not None and leader.role is Role.LEADER and leader.term == response.term:
            theirs = disk.term_at(index)
            ours = leader.log.term_at(index)
            assert theirs == ours or None in {theirs, ours}, f"node {response.source} acknowledges another {index}"

    def on_stepped(self, core: RaftState, disks: Mapping[Member, LogReader]) -> None:
        """Check one member after its step was carried out. `disks` show what would survive a crash now."""
        if core.role is Role.LEADER and self.leader_of_term.get(core.term) != core.node_id:
            self._on_elected(core)
        if core.commit_index > self.commit_index:
            self._on_first_committed(core, disks)

    def check_commits(self, core: RaftState, before_index: int) -> None:
        """State machine safety: `core` commits at each index the entry that everybody has committed there."""
        for index in range(max(before_index + 1, core.log.first_index), core.commit_index + 1):
            term = core.log.term_at(index)
            agreed = self.committed[index][0]
            assert term == agreed, f"node {core.node_id} commits term {term} at {index}, others {agreed}"

    def on_forgotten(self, core: RaftState, index: int, disks: Mapping[Member, LogReader]) -> None:
        """A witness is about to drop what is committed, and on the disk of every full voter."""
        assert index <= core.commit_index, f"node {core.node_id} forgets {index}, committed is {core.commit_index}"
        for voter in self.configuration.voters:
            if voter.node_id in self.configuration.witnesses or voter not in disks or self.is_forgetful:
                continue
            disk = disks[voter]
            is_held = disk.term_at(index) == self.committed[index][0] or disk.first_index > index
            assert is_held, f"witness {core.node_id} forgets {index}, {voter} has {disk.last_index}"

    def _on_elected(self, core: RaftState) -> None:
        """Election safety, and leader completeness."""
        assert core.term not in self.leader_of_term, (
            f"nodes {self.leader_of_term[core.term]} and {core.node_id} both lead term {core.term}"
        )
        self.leader_of_term[core.term] = core.node_id
        if core.is_lone_voter:
            self.lone_terms.add(core.term)
        else:
            voters = core.configuration.voters
            real = [voter for voter in voters if self.votes_cast.get((core.term, voter)) == core.node_id]
            assert len(real) > len(voters) / 2, f"{core.node_id} leads by votes never cast: {real} of {voters}"
        for index in range(core.log.first_index, self.commit_index + 1):
            term, committed_in_term = self.committed[index]
            if committed_in_term < core.term:
                assert core.log.term_at(index) == term, f"leader {core.node_id} lacks committed entry {index}"

    def _on_first_committed(self, core: RaftState, disks: Mapping[Member, LogReader]) -> None:
        """Nothing is committed before a majority holds it durably."""
        index = core.commit_index
        term = core.log.term_at(index)
        assert term == core.term, f"entry {index} of term {term} is committed by counting in term {core.term} (5.4.2)"
        voters = core.configuration.voters
        kept = [(voter, disks[voter]) for voter in voters if voter in disks]
        holders = [voter for voter, disk in kept if disk.term_at(index) == term or disk.first_index > index]
        is_held = self.is_forgetful or len(holders) > len(voters) / 2
        assert is_held, f"entry {index} committed, durable on {holders} of {voters}"
        for covered in range(self.commit_index + 1, index + 1):
            covered_term = core.log.term_at(covered)
            assert covered_term is not None
            self.committed[covered] = (covered_term, core.term)
        self.commit_index = core.commit_index
        self.configuration = core.log.configuration_at(index)
