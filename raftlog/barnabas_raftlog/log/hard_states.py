"""Keeps terms and votes of a node's groups, which must outlive even the replicas.

A replica that moves elsewhere is deleted, and one may be made here again. A peer that was away meanwhile still takes
this node for the voter that it was. So the hard state stays when the log goes (*left behind*): nobody votes twice in a
term. It says one thing more to the next replica that is made here: the entries that its predecessor acknowledged are
not here any more, so it is uncertain (`raft.uncertainty`) until a leader has sent them all. When the group itself is no
more, its hard state is forgotten.

Every change is queued for the journal; it is durable when the journal's ticket of that moment is.

Limits: one entry a group that this node has a replica of, or had one since the topic was made.
"""

from collections.abc import Callable, Container, Mapping

from barnabas_raftlog.log.journal.commit_queue import CommitQueue
from barnabas_raftlog.log.journal.format import LEFT_BEHIND, RecordKind
from barnabas_raftlog.raft.messages import GroupId, HardState

__all__ = ["HardStates"]

_NONE = HardState(0, None)


class HardStates:
    """Owned by `Storage`, on the loop."""

    def __init__(self, known: Mapping[bytes, HardState], commits: CommitQueue) -> None:
        self._known = dict(known)
        self._commits = commits

    def __contains__(self, group: GroupId) -> bool:
        return group in self._known

    def get(self, group: GroupId) -> HardState:
        return self._known.get(group, _NONE)

    def save(self, group: GroupId, hard_state: HardState) -> None:
        self._known[group] = hard_state
        voted_for = 0 if hard_state.voted_for is None else hard_state.voted_for + 1
        self._commits.put(RecordKind.HARD_STATE, group, voted_for, hard_state.term)

    def say_again(self, group: GroupId) -> None:
        """Repeat what is known, so that a replay of the journal meets it before what is queued next."""
        if group in self._known:
            self.save(group, self._known[group])

    def delete(self, group: GroupId, *, for_good: bool) -> int:
        """Note that the replica of `group` goes, its hard state only `for_good`; return the ticket."""
        ticket = self._commits.ticket + 1
        self._commits.put(RecordKind.DELETE, group, ticket, 0 if for_good else LEFT_BEHIND)
        if for_good:
            self._known.pop(group, None)
        return ticket

    def left_behind(self, has_log: Callable[[GroupId], bool]) -> list[GroupId]:
        """Return the groups that have a hard state here and no log."""
        return [group for group in map(GroupId, self._known) if not has_log(group)]

    def for_checkpoint(self, rows: Container[bytes], logs: Container[bytes]) -> dict[bytes, HardState]:
        """Return what a checkpoint of `rows` keeps while `logs` are open.

        The hard state of a log that is in no row yet is left out: it would look like one that another has left behind.
        All of such a log is in the journal, behind the place that the checkpoint names.
        """
        return {group: state for group, state in self._known.items() if group in rows or group not in logs}
