"""A witness: a voter that keeps only what another voter still lacks. Pure.

Two replicas cannot lose one: a majority of two is two. A *witness* on a third node votes and acknowledges like any
voter, so that two of three decide, but it serves nobody, and forgets an entry once every *full* voter has it. (Ongaro's
thesis, 11.7.2, names the idea.) `docs/raft.md` ("Witnesses: why none is missed") has the proofs; the rules are:

- *It may forget* up to the index that the leader tells it with each append: every full voter holds the log durably up
  to there, under both configurations while a change is not committed, and all of it is committed (`releasable_index`).
  A new full voter must have everything that was ever released (`lacks_released`). Learners that are in place are waited
  for.
- *It stands last*: it waits longer than any full voter, a full voter with an equal log refuses it a pre-vote
  (`should_yield_to_us`), it is no target of a transfer, and hands leadership on at once. It never leads in silence.
- *Its log never passes for a whole one* (`LogReader.partial_since`): a witness that comes back as a learner or voter
  *lacks the beginning*. It stands for nothing and acknowledges nothing until the driver has emptied its log.
- *A new witness* gets no log: an `InstallSnapshot` without a state names the entry behind which its own begins.

Not here: the state (producers, the log's start), which nobody can get from a witness. If all full voters have lost what
it forgot, it finds that out when it leads, and gives up its log as well (`cannot_feed_anyone`).
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

    Entries that an earlier leader released were committed before this one's term; a witness may also begin where this
    log does.
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
