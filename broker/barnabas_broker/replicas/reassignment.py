"""Leads the Raft groups of partitions to the members that they should have.

The desired state is in the metadata image: the brokers that should hold a partition, and the disk on which each has its
data. The leader of a partition's group compares, and takes one step at a time
(`barnabas_metadata_quorum.voters.steps`): a change of the group's configuration, which waits until the one before it is
committed. That is all a reassignment is. A broker that has come back with an empty disk becomes a member again in the
same way: its registration names another directory, so the member of before is removed and the new one is brought in,
without anybody asking for it.

When the group is what it should be, and its log says so, the leader reports to the controller, which ends the move in
the image; and only that makes a broker that is no replica any more delete its files. A report that is lost is made
again, by the leader of that moment, because the image still says that the partition is on its way.

Nothing here is a task or a timer of a partition. A partition is reviewed when something has happened to it, and every
tenth of a second while a review asks for another (`reviews`); each review does what can be done at that moment. The
reason why a partition waits is kept as a sentence (`waiting`), and told as an event when it changes.

Limits: one entry in `waiting` per partition that is led here and on its way; `FINISHED_PER_REPORT` moves in one report,
and one report at a time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from barnabas_metadata_quorum.controller.commands import Command, FinishMoves, Refused
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.image import PartitionPlacement as Placement
from barnabas_metadata_quorum.image.records import NOBODY
from barnabas_metadata_quorum.voters.steps import Desired, is_reached, next_step, waits_for
from barnabas_raftlog.errors import ChangeInProgressError, NotLeaderError, StorageFailedError
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.membership import UNKNOWN_DIRECTORY, Configuration, Member, same_directory
from barnabas_raftlog.raft.messages import Fact, GroupId

__all__ = ["Movable", "Moves", "Submit", "founding_configuration"]

REPORT_S = 5.0
FINISHED_PER_REPORT = 1_000
MoveKey = tuple[bytes, int, int]
Submit = Callable[[Command, float], Awaitable[object]]


class Movable(Protocol):
    """The part of a partition that is used here."""

    topic_id: bytes
    index: int
    group: RaftGroup

    @property
    def can_serve(self) -> bool: ...
    @property
    def term(self) -> int: ...


class Moves:
    """See the module. Owned by `Partitions`; `submit` sends a command to the controller, within so many seconds."""

    def __init__(
        self,
        node_id: int,
        is_live: Callable[[int], bool],
        submit: Submit,
        on_fact: Callable[[GroupId, Fact], None],
    ) -> None:
        self._node_id = node_id
        self._is_live = is_live
        self._submit = submit
        self._on_fact = on_fact
        self._directories: Mapping[int, bytes] = {}
        self._settled: dict[GroupId, tuple[Configuration, Placement, tuple[int, ...]]] = {}
        self.waiting: dict[GroupId, str] = {}
        self._finished: dict[MoveKey, None] = {}
        self._reporting: asyncio.Task[None] | None = None

    def on_brokers(self, image: Image) -> Collection[int]:
        """Take in the registered brokers; return the ids of those that have another disk than before."""
        now = {node_id: broker.directory_id for node_id, broker in image.brokers.items()}
        changed = [node_id for node_id, directory_id in now.items() if self._directories.get(node_id) != directory_id]
        if changed or len(now) != len(self._directories):
            self._directories = now
            self._settled.clear()
        return changed

    def forget(self, group_id: GroupId) -> None:
        """The partition is not led here any more, or not here at all."""
        self._settled.pop(group_id, None)
        self.waiting.pop(group_id, None)

    def review(self, partition: Movable, placement: Placement, observers: tuple[int, ...]) -> bool:
        """Do what can be done now for a partition that is led here; return whether to look again without being told."""
        group = partition.group
        group_id = group.group_id
        if not partition.can_serve:
            self.forget(group_id)
            return False
        current = group.configuration
        settled = self._settled.get(group_id)
        if settled is not None and settled[0] is current and settled[1] is placement and settled[2] == observers:
            return False
        if group.log.configuration_index > group.commit_index:
            return True  # The last step is not committed yet.
        desired = desired_of(placement, observers)
        live = {node_id for node_id in (*current.node_ids, *desired.voters) if self._is_live(node_id)}
        live.add(self._node_id)
        if is_reached(current, desired, self._directories):
            if placement.move is not None and not group.log.configuration_index:
                # The controller forgets the founders when a move ends, and one that was called off before its first
                # step has changed no members: nothing else would name them to a replica that is made anew later, which
                # would hold everything and neither vote nor lead.
                self._is_written(partition, group.repeat_members)
                return True
            return self._reached(partition, placement, current, observers)
        caught_up = {node_id for node_id in sorted(current.node_ids) if group.has_caught_up(node_id)}
        about = (current, desired, self._directories, caught_up, live, self._node_id)
        step = next_step(*about)
        if step is None:
            self._wait(partition, waits_for(*about))
            return True
        if self._is_written(partition, lambda: group.change(step)):
            self.waiting.pop(group_id, None)
            self._on_fact(group_id, Fact("members changing", partition.term, words_of(current, step)))
        return True

    async def close(self) -> None:
        """Report nothing any more."""
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait([self._reporting])

    # Inside.

    def _is_written(self, partition: Movable, propose: Callable[[], object]) -> bool:
        """Let the leader's log take a configuration; False if it does not now, and the reason may be in `waiting`."""
        try:
            propose()
        except (ChangeInProgressError, NotLeaderError):
            return False  # The leader of now goes on from here.
        except StorageFailedError as error:
            self._wait(partition, f"the leader cannot write it down: {error}")
            return False
        return True

    def _reached(
        self, partition: Movable, placement: Placement, current: Configuration, observers: tuple[int, ...]
    ) -> bool:
        group_id = partition.group.group_id
        if placement.move is None:
            self._settled[group_id] = (current, placement, observers)
            self.waiting.pop(group_id, None)
            return False
        self._wait(partition, "the members are what they should be; the controller has not confirmed it yet")
        if len(self._finished) < FINISHED_PER_REPORT:
            self._finished[partition.topic_id, partition.index, placement.epoch] = None
        if self._reporting is None:
            self._reporting = asyncio.get_running_loop().create_task(self._report())
        return True

    def _wait(self, partition: Movable, reason: str) -> None:
        group_id = partition.group.group_id
        if self.waiting.get(group_id) != reason:
            self.waiting[group_id] = reason
            self._on_fact(group_id, Fact("members waiting", partition.term, reason))

    async def _report(self) -> None:
        finished, self._finished = tuple(self._finished), {}
        try:
            # When it fails, the image still says that these move, and the next review reports again.
            with contextlib.suppress(Refused):
                await self._submit(FinishMoves(finished), REPORT_S)
        finally:
            self._reporting = None


def desired_of(placement: Placement, observers: tuple[int, ...]) -> Desired:
    """Return who should be in the group of a partition in the end."""
    witness = None if placement.witness == NOBODY else placement.witness
    voters = placement.target if witness is None else (*placement.target, witness)
    return Desired(voters, tuple(node_id for node_id in observers if node_id not in voters), witness)


def words_of(before: Configuration, after: Configuration) -> str:
    """Say what a change does, for the event history."""
    parts = [
        ("voters", sorted(before.voter_ids), sorted(after.voter_ids)),
        ("witnesses", list(before.witnesses), list(after.witnesses)),
        ("learners", sorted(before.learner_ids), sorted(after.learner_ids)),
    ]
    texts = [f"{name} {old} become {new}" for name, old, new in parts if old != new]
    return ", ".join(texts) or "a member has another disk"


def founding_configuration(placement: Placement, node_id: int, directory_id: bytes) -> Configuration | None:
    """Return what the group of a partition began with, for a replica whose log says nothing; None: not its to know.

    A node begins as a founder only with the disk that was counted on; with another one, or after the first finished
    move of the partition, it is nobody until the leader brings it in.
    """
    founders = placement.founders
    if founders is None or node_id not in founders.voters:
        return None
    if not same_directory(founders.directories.get(node_id, UNKNOWN_DIRECTORY), directory_id):
        return None
    members = [Member(voter, founders.directories.get(voter, UNKNOWN_DIRECTORY)) for voter in sorted(founders.voters)]
    witnesses = () if founders.witness == NOBODY else (founders.witness,)
    return Configuration(tuple(members), witnesses=witnesses)
