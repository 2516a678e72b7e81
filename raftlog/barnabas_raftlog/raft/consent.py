"""Spares a candidate the pre-vote if all others have just said as much. Pure.

A pre-vote asks each voter three things (thesis 9.6): does it trust a leader, has it a longer log, has it entered the
term already. When nodes meet, as all of them do when a cluster starts, each tells the other of every group in which
term it is, where its log ends and whom it follows (`reconnect`). That answers all three: a peer that follows nobody and
has no longer log has *consented* to be asked for its vote, in any term that is new to it. A candidate to which every
other voter has consented asks for the votes at once, in the first term that is new to all of them. With ten thousand
groups that start together this is a quarter of all messages.

A pre-vote needs a majority, this needs all: a digest is older than an answer, and the peer may have learned something
since. That does little harm. A peer that stood for election after it sent its digest leads in the candidate's term or a
later one. So the candidate deposes nobody: it is refused, and asks with a pre-vote next time. (It could depose a peer
that had the votes for the present term already and had not counted them, or that stood in an older term.) Consents end
with the term in which they came, with a leader that is heard of, and when any peer falls silent.

Not for a witness, which must not stand before the voters that it yields to (`witness`).
"""

from .messages import PeerDigest
from .state import RaftState

__all__ = ["has_consent", "note_consent", "term_to_stand_in"]


def note_consent(raft: RaftState, digest: PeerDigest) -> None:
    """Take in whether `digest` says what a granted pre-vote would; a newer digest counts instead of an older one."""
    log = raft.log
    peer = digest.peer
    consents = tuple([consent for consent in raft.consents if consent[0] != peer])
    if (
        raft.leader_id is None
        and digest.leader_id is None
        and (digest.last_term, digest.last_index) <= (log.last_term, log.last_index)
        and raft.is_of(peer, digest.directory_id)
    ):
        consents += ((peer, digest.term),)
    raft.consents = consents


def has_consent(raft: RaftState) -> bool:
    """Tell whether every other voter has said that it knows no leader and would not refuse this member its vote."""
    others = (raft.voters | raft.rivals.voter_ids) - {raft.node_id}
    return raft.may_stand and not raft.is_witness and others.issubset([peer for peer, _ in raft.consents])


def term_to_stand_in(raft: RaftState) -> int:
    """Return the first term that is new to this member and, if all have consented, to all of them."""
    return 1 + max([raft.term, *([term for _, term in raft.consents] if has_consent(raft) else [])])
