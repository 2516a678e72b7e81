"""Changes the members of the metadata group, one at a time, while this node leads.

The group has no other controller to decide for it: its leader compares its members with the nodes' configuration
and with the directories that brokers have registered with, and proposes the next change (`membership.next_change`).
The rest is Raft's: a change waits until the last one is committed. Nothing is remembered, so a new leader goes on from
there.

`review` is called after each commit, and twice a second, because nothing signals that a learner has caught up.
"""

from collections.abc import Callable, Mapping
from typing import Any

from barnabas_raftlog.errors import ChangeInProgressError, NotLeaderError, StorageFailedError
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import Fact

from .membership import Membership, next_change, waits

__all__ = ["VoterChanges", "status_of"]


class VoterChanges:
    """See the module. `waiting` says in words why the next change waits; empty if there is none."""

    def __init__(self, membership: Membership, is_live: Callable[[int], bool], on_fact: Callable[[Fact], None]) -> None:
        self._membership = membership
        self._is_live = is_live
        self._on_fact = on_fact
        self.waiting = ""

    def review(self, group: RaftGroup, directories: Mapping[int, bytes]) -> None:
        """Propose the next change, if there is one now, in a group that this node leads, confirmed."""
        current = group.log.configuration
        me = self._membership
        if group.log.configuration_index > group.commit_index:
            return
        live = {node_id for node_id in current.node_ids | me.voters | me.learners if self._is_live(node_id)}
        live.add(me.node_id)
        caught_up = {node_id for node_id in sorted(current.node_ids) if group.has_caught_up(node_id)} | {me.node_id}
        about = (current, me, directories, caught_up, live)
        change = next_change(*about)
        if change is None:
            self._wait(waits(*about), group.core.term)
            return
        try:
            group.change(change)
        except (ChangeInProgressError, NotLeaderError, StorageFailedError):
            return  # The next review, here or at the next leader, goes on from here.
        self._wait("", group.core.term)
        self._on_fact(Fact("members changing", group.core.term, words_of(current, change)))

    def end(self) -> None:
        """Forget it all: this node does not lead any more."""
        self.waiting = ""

    def _wait(self, reason: str, term: int) -> None:
        if reason and reason != self.waiting:
            self._on_fact(Fact("members waiting", term, reason))
        self.waiting = reason


def words_of(before: Configuration, after: Configuration) -> str:
    """Describe a change, for the event history."""
    parts = [
        ("voters", sorted(before.voter_ids), sorted(after.voter_ids)),
        ("learners", sorted(before.learner_ids), sorted(after.learner_ids)),
    ]
    texts = [f"{name} {old} become {new}" for name, old, new in parts if old != new]
    return ", ".join(texts) or "a member is known by its directory"


def status_of(configuration: Configuration, waiting: str) -> dict[str, Any]:
    """Return the members of the group as this node knows them, as plain values."""
    return {
        "voters": {str(member.node_id): member.directory_id.hex() for member in configuration.voters},
        "learners": sorted(configuration.learner_ids),
        "waiting": waiting,
    }
