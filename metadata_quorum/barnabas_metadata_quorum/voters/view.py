"""The metadata group as its leader sees it: who is a member, and how far each has come.

Moments are told by the leader's wall clock, because those who ask have another monotonic one.
"""

from collections.abc import Iterable

from barnabas_metadata_quorum.controller.commands import QuorumAnswer, QuorumMember
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.log_ends import NEVER_MS
from barnabas_raftlog.raft.membership import Member

__all__ = ["quorum_of"]

UNKNOWN_MS = -1


def quorum_of(group: RaftGroup, node_id: int, now_ms: int, wall_ms: int) -> QuorumAnswer:
    """Describe a group that this node, `node_id`, leads; the time is given by both clocks."""
    core = group.core

    def described(members: Iterable[Member]) -> tuple[QuorumMember, ...]:
        return tuple(one(member) for member in members)

    def one(member: Member) -> QuorumMember:
        if member.node_id == node_id:
            return QuorumMember(node_id, member.directory_id, group.log.last_index, wall_ms, wall_ms)
        progress = core.progress.get(member.node_id)
        if progress is None:
            return QuorumMember(member.node_id, member.directory_id, 0, UNKNOWN_MS, UNKNOWN_MS)
        heard_ms = now_ms if progress.live else progress.last_answer_ms
        caught_up_ms = progress.ends.reached_ms(progress.match_index, now_ms)
        is_known = progress.match_index > 0 and caught_up_ms != NEVER_MS
        return QuorumMember(
            member.node_id,
            member.directory_id,
            progress.match_index,
            wall_ms - (now_ms - heard_ms),
            wall_ms - (now_ms - min(caught_up_ms, heard_ms)) if is_known else UNKNOWN_MS,
        )

    configuration = group.log.configuration
    return QuorumAnswer(
        node_id, core.term, group.commit_index, described(configuration.voters), described(configuration.learners)
    )
