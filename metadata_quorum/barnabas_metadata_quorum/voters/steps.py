"""Leads a group from its members to those that it should have, step by step. Pure.

`next_step` compares and names one configuration to change to; the group's leader proposes it, and asks again when it is
committed. Nothing is remembered between steps: a new leader, a changed target or a cancelled move goes on from the
group's state by then. Each step is one that `membership.check_change` allows.

*The way.* A newcomer is a learner first, all of them at once, for learners count in no majority. A learner that
has caught up becomes a voter; as soon as the group has a voter more than it should have in the end, one that is to go
goes. So a group of three is three or four voters all the way, and where it grows or shrinks it never has fewer than the
smaller of its beginning and its end. A voter that is not live goes first, then a witness, the leader last: where two
replicas and their witness change places, the witness is a replica before a replica is the witness, and no record is
ever left with one of them alone.

*Voters that must not go yet.* No live voter is let go while the live ones among the rest would be no majority: the
group would stop by its own hand. Voters that are not live are no reason to wait, they count for nothing.

*A lost disk.* A voter whose broker is registered with another directory is lost, the leader included: it will keep none
of its promises. It cannot stay until its successor has caught up, because both have one node id, so it is removed
first, and the group goes on with a voter less until then. A witness that is to be a replica, or the reverse, goes and
comes back in the same way, but after everything else, one at a time. A witness's log has no beginning, so a former
witness is no member at all for a moment, before it is a learner: it has to hear that it may give up its data.

*A new witness* comes last, when all others are there, and votes at once: it keeps nothing that all full voters have, so
there is nothing to catch up with. If one of them is away or behind, the new witness has to take in what that one lacks
while the group may need its vote to commit anything; then it is a learner first, like every newcomer.

Observers are learners that stay.

Not here: finding out which learners have caught up, carrying steps out, choosing targets.
"""

from collections.abc import Collection, Mapping

import msgspec

from barnabas_raftlog.raft.membership import UNKNOWN_DIRECTORY, Configuration, Member, same_directory

__all__ = ["Desired", "is_reached", "next_step", "waits_for"]


class Desired(msgspec.Struct, frozen=True):
    """The members that a group should have, as node ids. `voters` includes the witness; no observer is a voter."""

    voters: tuple[int, ...]
    observers: tuple[int, ...] = ()
    witness: int | None = None


def next_step(
    current: Configuration,
    desired: Desired,
    directories: Mapping[int, bytes],
    caught_up: Collection[int],
    live: Collection[int],
    leader_id: int,
) -> Configuration | None:
    """Return the next configuration; None if there is nothing to do, or nothing before something else has happened.

    Args:
        current: The committed configuration.
        desired: The members in the end.
        directories: The directory of each registered broker; a broker that is not there is taken as it is.
        caught_up: Node ids of members that have everything: learners that could be voters now, and voters.
        live: Node ids of those that can be reached; `leader_id` is one of them.
        leader_id: The node that carries the step out.
    """
    plan = _Plan(current, desired, directories)
    plan.joins_at_once = current.full_voter_ids - {leader_id} <= set(live) & set(caught_up)
    lost = [member for member in current.voters if plan.is_lost(member)]
    if lost and len(current.voters) > 1:
        return plan.without(_first_to_go(lost, current.witnesses, live, leader_id))
    with_learners = plan.with_learners(current.voters, current.witnesses)
    if with_learners != current:
        return with_learners
    ready = [node_id for node_id in plan.missing if node_id in live and plan.is_ready(node_id, caught_up)]
    leaving = [member for member in current.voters if plan.is_leaving(member)]
    # If nobody is missing, the members in `leaving` go only to come back in another role.
    surplus = len(current.voters) > len(desired.voters) or not plan.missing
    if leaving and surplus:
        going = _first_to_go(leaving, current.witnesses, live, leader_id)
        if going.node_id not in live or _stays_live(current, going, live):
            return plan.without(going)
    if ready:
        return plan.promoting(ready[0])
    return None


def is_reached(current: Configuration, desired: Desired, directories: Mapping[int, bytes]) -> bool:
    """Tell whether nothing is left to do."""
    plan = _Plan(current, desired, directories)
    return (
        not any(plan.is_lost(member) for member in (*current.voters, *current.learners))
        and not any(plan.is_leaving(member) for member in current.voters)
        and current.voter_ids == set(desired.voters)
        and current.learner_ids == set(desired.observers)
    )


def waits_for(
    current: Configuration,
    desired: Desired,
    directories: Mapping[int, bytes],
    caught_up: Collection[int],
    live: Collection[int],
    leader_id: int,
) -> str:
    """Say in words why there is no next step although the target is not reached; empty otherwise."""
    if is_reached(current, desired, directories) or next_step(
        current, desired, directories, caught_up, live, leader_id
    ):
        return ""
    plan = _Plan(current, desired, directories)
    missing = [node_id for node_id in plan.missing if not plan.comes_without_learning(node_id) or node_id not in live]
    away = [node_id for node_id in missing if node_id not in live]
    behind = [node_id for node_id in missing if node_id in live and node_id not in caught_up]
    reasons = []
    if behind:
        reasons.append(f"brokers {behind} are catching up")
    if away:
        reasons.append(f"brokers {away} cannot be reached")
    if not reasons:
        dead = sorted(current.voter_ids - set(live))
        reasons.append(f"no majority would be left: voters {dead} cannot be reached")
    return "; ".join(reasons)


class _Plan:
    """One comparison. `missing`: node ids that are to vote and do not, in the order of `desired`.

    `joins_at_once`: no voter lacks anything that a new witness would have to keep.
    """

    def __init__(self, current: Configuration, desired: Desired, directories: Mapping[int, bytes]) -> None:
        self.current = current
        self.desired = desired
        self.directories = directories
        self.missing = [node_id for node_id in desired.voters if node_id not in current.voter_ids]
        self.joins_at_once = False

    def is_lost(self, member: Member) -> bool:
        """Tell whether the member's node has come back with another disk."""
        now = self.directories.get(member.node_id, UNKNOWN_DIRECTORY)
        return not same_directory(member.directory_id, now)

    def is_leaving(self, voter: Member) -> bool:
        """Tell whether this voter is to go, for good or to come back in another role."""
        if voter.node_id not in self.desired.voters:
            return True
        return (voter.node_id in self.current.witnesses) != (voter.node_id == self.desired.witness)

    def is_ready(self, node_id: int, caught_up: Collection[int]) -> bool:
        """Tell whether this one that is missing could be a voter now, if it is live."""
        if node_id in self.current.learner_ids and node_id in caught_up:
            return True
        return self.joins_at_once and self.missing == [node_id] == [self.desired.witness]

    def comes_without_learning(self, node_id: int) -> bool:
        """Tell whether `node_id` is the new witness, and not to be sent the log: not yet, or not at all."""
        if node_id != self.desired.witness or node_id not in self.missing:
            return False
        return self.joins_at_once or len(self.missing) > 1

    def with_learners(self, voters: tuple[Member, ...], witnesses: tuple[int, ...]) -> Configuration:
        """Return a configuration of these voters, and of all learners that there should be beside them."""
        voting = {member.node_id for member in voters}
        known = {member.node_id: member for member in self.current.learners}
        learners = []
        for node_id in {*self.desired.voters, *self.desired.observers} - voting - {*self.current.witnesses}:
            before = known.get(node_id)
            if before is None and self.comes_without_learning(node_id):
                continue
            if before is None or self.is_lost(before):
                before = self._newcomer(node_id)
            learners.append(before)
        return Configuration(tuple(sorted(voters)), tuple(sorted(learners)), tuple(sorted(witnesses)))

    def without(self, member: Member) -> Configuration:
        voters = tuple(voter for voter in self.current.voters if voter != member)
        return self.with_learners(voters, tuple(one for one in self.current.witnesses if one != member.node_id))

    def promoting(self, node_id: int) -> Configuration:
        witnesses = self.current.witnesses
        if node_id == self.desired.witness:
            witnesses = (*witnesses, node_id)
        promoted = self.current.member(node_id) or self._newcomer(node_id)
        return self.with_learners((*self.current.voters, promoted), witnesses)

    def _newcomer(self, node_id: int) -> Member:
        return Member(node_id, self.directories.get(node_id, UNKNOWN_DIRECTORY))


def _first_to_go(members: list[Member], witnesses: Collection[int], live: Collection[int], leader_id: int) -> Member:
    def rank(member: Member) -> tuple[bool, bool, bool, int]:
        node_id = member.node_id
        return node_id in live, node_id not in witnesses, node_id == leader_id, node_id

    return min(members, key=rank)


def _stays_live(current: Configuration, going: Member, live: Collection[int]) -> bool:
    rest = [member for member in current.voters if member != going]
    return 2 * sum(member.node_id in live for member in rest) > len(rest)
