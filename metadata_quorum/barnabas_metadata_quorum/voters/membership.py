"""The members of the metadata quorum: those configured, the founders, and the next change. Pure.

The nodes' configuration (`controller.quorum.voters`) says who *should* vote. The actual voters are in the group's own
log, as in every other group: nodes with the directories that they were counted with. A group begins with `founders`,
which name each controller's directory (`formation`); after that its leader walks, one change at a time, to the
configured members (`steps`). That is how a controller whose disk was replaced is removed and brought in again, and also
how one is added.

*Logs from before directories were written down* name voters without them. The leader of such a group fills them in, one
voter at a time, at a moment when all voters are live and have everything. Until then the group takes any disk of a
node for its voter.

A voter is never one whose directory is unknown: the member that is promoted is known by its registration.
"""

from collections.abc import Collection, Mapping

import msgspec

from barnabas_raftlog.raft.membership import UNKNOWN_DIRECTORY, Configuration, Member

from .steps import Desired, next_step, waits_for

__all__ = ["Membership", "founders", "next_change", "waits"]


class Membership(msgspec.Struct, frozen=True):
    """This node, and the members that there should be: nodes with the controller role vote, all others learn."""

    node_id: int
    cluster_id: str
    voters: frozenset[int]
    learners: frozenset[int]
    directory_id: bytes = UNKNOWN_DIRECTORY

    def __post_init__(self) -> None:
        assert self.voters
        assert not self.voters & self.learners
        assert self.node_id in self.voters | self.learners

    @property
    def member(self) -> Member:
        return Member(self.node_id, self.directory_id)

    @property
    def desired(self) -> Desired:
        return Desired(tuple(sorted(self.voters)), tuple(sorted(self.learners)))


def founders(membership: Membership, directories: Mapping[int, bytes]) -> Configuration:
    """Return the members of a new group; `directories` has every voter's, and the known ones of learners."""

    def members(node_ids: Collection[int]) -> tuple[Member, ...]:
        return tuple(Member(node_id, directories.get(node_id, UNKNOWN_DIRECTORY)) for node_id in sorted(node_ids))

    assert directories.keys() >= membership.voters, (directories, membership.voters)
    return Configuration(members(membership.voters), members(membership.learners))


def next_change(
    current: Configuration,
    membership: Membership,
    directories: Mapping[int, bytes],
    caught_up: Collection[int],
    live: Collection[int],
) -> Configuration | None:
    """Return the configuration that the leader should change `current` to, or None if there is nothing to do now.

    Args:
        current: The committed configuration.
        membership: Of the leader.
        directories: The directory of each registered broker; zeros: unknown.
        caught_up: Node ids of members that have everything.
        live: Node ids of those that can be reached; the leader is one of them.
    """
    known = _known(directories)
    return _identified(current, known, caught_up, live, membership.node_id) or next_step(
        current, membership.desired, known, _promotable(current, caught_up), live, membership.node_id
    )


def waits(
    current: Configuration,
    membership: Membership,
    directories: Mapping[int, bytes],
    caught_up: Collection[int],
    live: Collection[int],
) -> str:
    """Say in words why the group is not as configured; empty if it is, or if something is done now."""
    known = _known(directories)
    return waits_for(current, membership.desired, known, _promotable(current, caught_up), live, membership.node_id)


def _known(directories: Mapping[int, bytes]) -> dict[int, bytes]:
    return {node_id: directory for node_id, directory in directories.items() if directory != UNKNOWN_DIRECTORY}


def _promotable(current: Configuration, caught_up: Collection[int]) -> list[int]:
    unknown = {member.node_id for member in current.learners if member.directory_id == UNKNOWN_DIRECTORY}
    return [node_id for node_id in caught_up if node_id not in unknown]


def _identified(
    current: Configuration,
    known: Mapping[int, bytes],
    caught_up: Collection[int],
    live: Collection[int],
    leader_id: int,
) -> Configuration | None:
    """Fill in unknown directories: of all learners, or of one voter while all voters are in place."""

    def filled(member: Member) -> Member:
        if member.directory_id != UNKNOWN_DIRECTORY:
            return member
        return Member(member.node_id, known.get(member.node_id, UNKNOWN_DIRECTORY))

    learners = tuple(filled(member) for member in current.learners)
    if learners != current.learners:
        return msgspec.structs.replace(current, learners=learners)
    if not current.voter_ids - {leader_id} <= set(live) & set(caught_up):
        return None
    for place, member in enumerate(current.voters):
        if filled(member) != member:
            voters = (*current.voters[:place], filled(member), *current.voters[place + 1 :])
            return msgspec.structs.replace(current, voters=voters)
    return None
