"""Counts votes and acknowledgements of voters that may have forgotten something. Pure.

A log in *page-cache* mode may come back shorter after a loss of power; its member is *uncertain* then, as the shell
says. Raft's promises hold by three rules, which `docs/raft.md` ("Voters that may have forgotten") proves:

1. *Elections.* The votes of a majority of certain voters elect, or the votes of **every** voter. If the newest
   configuration is not known to be committed, every voter is not enough: the candidate must win in the one before as
   well (`RaftState.rivals`), by its majority of certain voters or by all of them.
2. *Acknowledgements.* Those of an uncertain voter carry a number, drawn anew at every return. A leader that meets a new
   number counts nothing of that voter until it has acknowledged the last entry that the leader had then. Then the
   leader says so with the number (`certain`): a message from an earlier return means nothing.
3. *A new leader* is certain.

*Blank* is an uncertain member whose log was begun empty. Its vote counts for a configuration only beside those of a
majority that is not blank. An operator may *give up* a voter that never comes back (`why_not_given_up`).

Not here: a group of one voter, which elects itself and says in a fact that records may be missing; how a loss of power
is noticed (`log.recovery.startup`).
"""

from collections.abc import Set as AbstractSet

from .messages import AppendResponse
from .progress import NEVER_MS, Progress
from .quorum import majority
from .state import RaftState, Role

__all__ = ["DISCOUNTED", "become_certain", "give_up", "has_won", "note_answer", "note_elected", "why_not_given_up"]

DISCOUNTED = 1 << 31


def has_won(raft: RaftState) -> bool:
    """Tell whether the votes (or pre-votes) of this campaign are enough."""
    votes = raft.votes
    voters = raft.voters
    rivals = raft.rivals.voter_ids
    certain = votes - raft.doubtful
    if len(certain & voters) >= majority(len(voters)):
        return True
    if not voters or not _has_all(raft, voters):
        return False
    return not rivals or _has_all(raft, rivals) or len(certain & rivals) >= majority(len(rivals))


def _has_all(raft: RaftState, voters: AbstractSet[int]) -> bool:
    """True with the votes of all but voters that are given up and still silent, and of a majority that is not blank."""
    missing = voters - raft.votes
    return missing <= raft.given_up & raft.silent and len(voters - missing - raft.blank) >= majority(len(voters))


def why_not_given_up(raft: RaftState, peer: int) -> str:
    """Return why an operator may not give up voter `peer` here and now, or nothing."""
    voters = raft.voters
    if not raft.log.may_forget:
        return "its log keeps what it acknowledged (flush.mode=fsync): a majority of the voters can always elect"
    if raft.role is Role.LEADER or raft.leader_id is not None:
        return f"node {raft.leader_id} leads it"
    if peer not in voters:
        return f"node {peer} is not one of its voters {sorted(voters)}"
    if not raft.is_voter:
        return f"node {raft.node_id} is not one of its voters {sorted(voters)}"
    if peer not in raft.silent or peer == raft.node_id:
        return f"node {peer} is alive"
    able = voters - raft.silent - raft.given_up
    if len(able | {raft.node_id}) < majority(len(voters)):
        return f"of its voters {sorted(voters)} fewer than a majority are alive here"
    return ""


def give_up(raft: RaftState, peer: int) -> None:
    """Hold the elections to come without a voter, unless something has happened that speaks against it."""
    if not why_not_given_up(raft, peer):
        raft.given_up.add(peer)
        raft.note("voter given up", f"node {peer}, by an operator: what only it has kept is lost")


def note_elected(raft: RaftState) -> None:
    """Be certain, and say if acknowledged entries may be missing."""
    certain = (raft.votes - raft.doubtful) & raft.voters
    if len(certain) < majority(len(raft.voters)):
        text = f"only {sorted(certain)} of {sorted(raft.voters)} have surely kept what they acknowledged"
        raft.note("acknowledged records may be missing", text)
    raft.uncertain = 0
    raft.is_blank = False


def become_certain(raft: RaftState, number: int) -> None:
    """The leader says that this member has caught up, if it means this return of it."""
    if raft.uncertain and raft.uncertain == number:
        raft.uncertain = 0
        raft.is_blank = False
        raft.note("certain again", f"node {raft.leader_id} has sent all that may have been lost")


def note_answer(raft: RaftState, progress: Progress, response: AppendResponse) -> bool:
    """Compare a follower's number with the one that is known of it; False if its answer is old."""
    number = response.uncertain
    if number == progress.uncertain:
        return True
    if number:
        progress.uncertain = number
        progress.certain_index = raft.log.last_index
        progress.is_told = False
        # No question that is asked from here on can be answered by an earlier return of it.
        raft.round += 1
        progress.certain_round = raft.round
        progress.match_index = 0
        progress.assumed_ms = NEVER_MS
        progress.become_probe((raft.log.last_index if response.rejected else response.match_index) + 1)
        raft.note("follower may have forgotten", f"node {progress.peer} counts again behind {progress.certain_index}")
        return True
    if response.round < progress.certain_round:
        return False  # It may be from before its return.
    # It was certain when it answered a round begun since: it was told so, or the number came from an old message.
    progress.uncertain = 0
    return True
