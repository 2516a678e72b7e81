"""A witness: a voter that keeps what another voter still lacks, and nothing else. Pure.

Two replicas cannot lose one: a majority of two is two. A *witness* on a third node votes and acknowledges like any
voter, so that two of three decide, but it serves nobody, and forgets an entry once every *full* voter has it. (Ongaro's
thesis, 11.7.2, names the idea; Harp and the tie breakers of other systems have it without a log.)

*What it may forget.* The leader tells it, with each append, up to which index every full voter holds the log durably
and all is committed (`releasable_index`). What holds once holds for ever: who becomes a full voter later must have all
that was ever released (`lacks_released`), so whatever a witness has forgotten, no member of the group can lack. That
is the whole proof that a witness can feed every full voter: the entry before its first one is in all their logs, and
its (index, term) is what a log that starts later keeps. While a change of members is not committed, both
configurations' full voters must hold what is released, for the change may be undone.

*Learners* are waited for as well, if they are in place (`Progress.has_caught_up`): else one that is about to be
promoted would be behind what is released for ever, under load. One that is not in place is not waited for.

*Bound.* While all full voters answer, a witness keeps what is on its way to the slowest of them (and to learners that
are in place: at most what was written in an election timeout). While one is away it keeps all that is written, until
that one is back, or is no voter any more. The log drops whole segments, so up to two small ones remain (`multiraft`).

*Elections.* An entry that only the dead leader and the witness had is committed, so the witness must be able to lead.
It must not want to: it waits longer than any full voter would, a full voter with an equal log does not grant it a
pre-vote (and will stand itself, with as good a chance), and it is no target of a transfer. If its log is longer than
that of each live full voter, it wins, sends them what they lack, and hands leadership on to the first that has
everything. It is never quiescent as a leader: nobody shall trust in silence in one that serves nobody.

*What was a witness's log* must never pass for a whole one. The log itself says what it is (`LogReader.partial_since`);
a witness is never turned into something else, nor into a learner (`membership.check_change`); and one that comes back
as a learner or voter *lacks the beginning*: it stands for nothing and acknowledges nothing, the driver empties its
log, and it goes on as one that may have forgotten what it acknowledged (`uncertainty`). Nobody misses what it said as
a witness: the change that removed it is committed by the others, and all that came before lies on a majority of them.

*A new witness* does not get the log. Where everybody has everything is where its own begins: an `InstallSnapshot`
names that entry, with the state left out. The same happens to one that was away, and to one for which entries would
have to be read from disk although all full voters have them.

Not here: what a witness lacks of the state (producers, the log's start) no one can get from it; so while it leads, a
member that has lost its page cache, a new learner, or another witness may have to wait for the next leader. With a
witness, `page-cache` mode does not survive a loss of power on one full voter and the loss of the other's disk. If all
full voters have lost what it forgot, it finds that out when it leads, and gives its log up as well
(`cannot_feed_anyone`).
"""

from .messages import VoteRequest
from .progress import Progress
from .state import RaftState

__all__ = ["cannot_feed_anyone", "lacks_released", "releasable_index", "should_yield_to_us", "successor_of"]


def releasable_index(raft: RaftState) -> int:
    """Return, on a leader, up to where witnesses may forget the log; remembered, because it never goes back."""
    if raft.is_witness:
        return 0
    index = min(raft.commit_index, raft.log.durable_index)
    configuration = raft.configuration
    holders = configuration.full_voter_ids
    if raft.commit_index < raft.configuration_index:
        holders |= raft.log.configuration_at(raft.configuration_index - 1).full_voter_ids
    for node_id in holders:
        if node_id != raft.node_id:
            progress = raft.progress.get(node_id)
            index = min(index, 0 if progress is None else progress.match_index)
    if raft.learners and index > raft.released_index:
        lag_ms_max = raft.timing.election_timeout_ms
        for node_id in raft.learners:
            progress = raft.progress.get(node_id)
            if progress is not None and progress.has_caught_up(raft.now_ms, lag_ms_max):
                index = min(index, progress.match_index)
    raft.released_index = max(raft.released_index, index)
    return raft.released_index


def cannot_feed_anyone(raft: RaftState) -> bool:
    """Tell whether this witness leads although every full voter has lost what it has forgotten (page-cache mode)."""
    first_index = raft.log.first_index
    full = [raft.progress[node_id] for node_id in sorted(raft.configuration.full_voter_ids)]
    return all(progress.uncertain and progress.next_index < first_index for progress in full)


def lacks_released(raft: RaftState, node_id: int) -> bool:
    """Tell whether a witness may have forgotten what this node, if it became a full voter now, could need from it.

    What an earlier leader released was committed before this one's term; a witness may also begin where this log does.
    """
    progress = raft.progress.get(node_id)
    match_index = 0 if progress is None or progress.uncertain else progress.match_index
    beginning = max(raft.term_start_index, raft.log.first_index) - 1
    return match_index < max(raft.released_index, beginning, raft.configuration_index)


def should_yield_to_us(raft: RaftState, request: VoteRequest) -> bool:
    """Tell whether a witness asks for a pre-vote though this node, a full voter, is as good a candidate."""
    if request.source not in raft.witnesses or raft.is_witness or not raft.may_stand:
        return False
    return (request.last_term, request.last_index) == (raft.log.last_term, raft.log.last_index)


def successor_of(raft: RaftState) -> Progress | None:
    """Return the most advanced live full voter beside this leader."""
    found: Progress | None = None
    for progress in raft.progress.values():
        able = progress.is_voter and not progress.is_witness and progress.live
        if able and (found is None or progress.match_index > found.match_index):
            found = progress
    return found
