"""Voters that may have forgotten what they acknowledged: page-cache logs after a loss of power. Pure.

Raft rests on disks that keep what was acknowledged. A log in *page-cache* mode does not, when its machine loses power:
the replica comes back with a shorter log, and would vote as if it had never had more. One such voter and one crashed
one are then enough to elect a leader without an entry that a majority had acknowledged. So the shell tells the core of
a member whose machine has lost power that it is *uncertain*, and three rules follow.

*Elections.* A vote (or pre-vote) of an uncertain voter says so. A candidate is elected by a majority of certain votes;
or by the votes of **every** voter. Any majority that ever acknowledged an entry has a certain voter in common with the
first, and all its voters, certain or not, with the second; and no voter votes for a shorter log than its own. If fewer
than a majority of those votes were certain, entries may be missing that all of their holders have lost: that is what
page-cache mode allows, and a fact says it.

*Acknowledgements* of an uncertain voter carry its number, drawn anew at every return. A leader that meets a new number
forgets what it knew of that follower's log, and counts nothing it acknowledges until it has acknowledged the last
entry that the leader had when it met the number. All that was ever committed with the help of what was lost lies
before that. Then the leader says so (`certain`), with the number: a message from an earlier return means nothing.

*A new leader* is certain: it was elected by a majority of certain voters none of which had a longer log, or by all.

Terms and votes are always on disk, in both modes, so nobody votes twice, and rounds of an uncertain voter count.

*Members* may have changed in what was lost, and the majorities above are those of a configuration that must hold. So in
page-cache mode a log makes a change of members durable, with all that is before it, before it counts as durable here:
a voter that comes back knows every configuration that it ever acknowledged, and never one without the entries before
it. Nor does a leader commit anything while its newest configuration is not durable on its own disk
(`replication.advance_commit`): what it held then would be committed by the new voters, and forgotten together with
them. Otherwise a group of one or two voters that was just growing could elect by the configuration of before.

*A change may have been overruled*: the leader of three shrinks the group to itself and one other, nobody hears of it,
the other two elect a leader and commit something; then the other loses power, and with it that entry. All voters of
what the first one takes for the group would vote for it. So "every voter" is enough only by a configuration that is
known to be committed; by any other the candidate must win in the one before as well, which was committed (`rivals`): a
majority of that one's certain voters, or all of them. Whoever overruled the change did so with a majority of the voters
before it, or of what replaced them, one voter apart; and that replacement is durable wherever it was acknowledged. A
majority of certain votes needs no more than that, in neither configuration.

What is known must survive a restart: a leader that commits a change appends the same configuration once more
(`Ready.repeat_members`), which no loss of power takes. A newest configuration that is equal to the one before it was
committed, wherever it is found, committed itself or not. A group of two whose third member is gone for good can thus
elect by two, as soon as the repetition is on the disk of one of them that has the longer log. Whoever answers a
candidate says what it knows to be committed, too: the one that has left may have the longest log of all. Only a change
that was interrupted within that moment still waits for the voter that it would have removed.

*A log that has failed*, in either mode, is replaced by an empty one, whose member is uncertain like any other. Before
it is deleted the leader is told, and takes it for one that has come back with the number `DISCOUNTED`, which no member
draws: so what the old log acknowledged has ceased to count when it ceases to exist.

*Blank* is an uncertain member whose log was begun empty: that of a failed one, of a witness that is to be a replica, or
of a node that was a member before, was removed, and is one again. It does not know every configuration that it ever
acknowledged; while it catches up it passes through all that the group has had, and might be the only voter of one. Its
vote counts for a configuration only beside those of a majority that is not blank: whoever replaced that configuration
has an acknowledgement of one of these, so that one has a longer log, and does not vote. No blank member elects itself.

Not here: *a group of one voter*. What it lost when its power failed is lost; it elects itself, and the fact says so.
Not here either: how it is known that power was lost (`log.startup`).

*A voter that never comes back* would keep the others waiting for ever. An operator can give it up (`give_up`): it then
counts as if it had voted, but only as one that all must have, never as one of a majority: a leader still needs the
votes of more than half, so there is one a term. What is given up are the acknowledged entries that only that voter has
kept. It is remembered by those who were told, in memory: by a follower until it hears of a leader, by the leader until
its leadership is confirmed, since one that another candidate ends before that has led nobody. And it is void as soon as
anything is heard of that voter. Who may be given up, and when, `why_not_given_up` says: not one that only `rivals` has.
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
    """True with the votes of all these, but of who was given up and is still silent; a majority of them not blank."""
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
        return f"node {peer} is none of its voters {sorted(voters)}"
    if not raft.is_voter:
        return f"node {raft.node_id} is none of its voters {sorted(voters)}"
    if peer not in raft.silent or peer == raft.node_id:
        return f"node {peer} is alive"
    able = voters - raft.silent - raft.given_up
    if len(able | {raft.node_id}) < majority(len(voters)):
        return f"of its voters {sorted(voters)} fewer than a majority are alive here"
    return ""


def give_up(raft: RaftState, peer: int) -> None:
    """Do without a voter in the elections to come, unless something has happened that speaks against it."""
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
    """Compare a follower's number with what is known of it; False if what it says is old."""
    number = response.uncertain
    if number == progress.uncertain:
        return True
    if number:
        progress.uncertain = number
        progress.certain_index = raft.log.last_index
        progress.is_told = False
        # What is asked from here on cannot be answered by what it was before.
        raft.round += 1
        progress.certain_round = raft.round
        progress.match_index = 0
        progress.assumed_ms = NEVER_MS
        progress.become_probe((raft.log.last_index if response.rejected else response.match_index) + 1)
        raft.note("follower may have forgotten", f"node {progress.peer} counts again behind {progress.certain_index}")
        return True
    if response.round < progress.certain_round:
        return False  # It may be from before its return.
    # It was certain when it answered a round begun since: it was told so, or the number that was met was an old one.
    progress.uncertain = 0
    return True
