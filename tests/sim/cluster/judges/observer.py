"""Checks every step of every Raft core of every node while it happens.

`observing` puts itself in front of three functions for the length of a run: `RaftCore.step`, which decides,
`Driver._step`, which has carried it out when it returns, and `Outbox.add`, through which all messages leave when their
promises are durable. It checks each member's own invariants, that nobody votes twice in a term, that a term has one
leader, that leaders have everything committed before, that an index and a term name one entry, that everybody commits
the same. Observation does not change what nodes do.

A vote counts once it has left its node. From then on it is remembered across that node's crashes, as the vote of a node
with its disk; the metadata group does not tell disks apart, so there a node has one vote for ever.

*Committed entries are held.* When a leader finds an entry committed, a majority of the voters of its configuration must
hold it durably at that moment: a running voter's log is asked; one that is down, or has another disk by now, holds the
entries that it acknowledged last. High watermarks follow from commit indexes, so none of them exceeds the entries that
a majority holds.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any
from unittest.mock import patch

from barnabas_broker.node import Node
from barnabas_metadata_quorum.image.image import Image
from barnabas_raftlog.multiraft.driver import Driver
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.multiraft.outbox import Outbox
from barnabas_raftlog.raft import core as raft_core
from barnabas_raftlog.raft.invariants import check_member, check_quorum
from barnabas_raftlog.raft.membership import Member, same_directory
from barnabas_raftlog.raft.messages import (
    AppendEntries,
    AppendResponse,
    Entry,
    Event,
    GroupId,
    Message,
    Ready,
    Tick,
    VoteRequest,
    VoteResponse,
)
from barnabas_raftlog.raft.quorum import majority
from barnabas_raftlog.raft.state import Role
from barnabas_raftlog.records.header import CONTROL
from sim.cluster.world import World

__all__ = ["Observer", "observing"]

_CRC = struct.Struct(">I")
_CRC_POSITION = 17


class _Group:
    """All that is known of one group, from any member."""

    def __init__(self) -> None:
        self.leader_of_term = dict[int, int]()
        self.votes = dict[tuple[int, Member], int]()  # (term, voter): candidate
        self.places = dict[tuple[int, int], int]()  # (index, term): checksum
        self.committed = dict[int, tuple[int, int]]()  # index: its term, and the term it was committed in
        self.commit_index = 0
        self.acknowledged = dict[
            Member, tuple[int, int]
        ]()  # (index, term) of the last entry that a member said it holds
        self.witnessed_from = dict[int, int]()  # node id of a witness: the first entry that it keeps


class Observer:
    """One run's observer. `groups` are by group id; `node_of` returns a running node.

    `is_forgetful`: voters lose entries that they acknowledged from memory (power cuts in page-cache mode), so they need
    not hold all that was committed with their help. `Uncertainty` keeps that safe, and the history judges it.
    `compacts`: entries may have lost records by the time they are sent.
    """

    def __init__(
        self, world: World, node_of: Callable[[int], Node | None], *, is_forgetful: bool, compacts: bool = False
    ) -> None:
        self._world = world
        self._node_of = node_of
        self._is_forgetful = is_forgetful
        self._compacts = compacts
        self._images = dict[int, Image]()
        self._versions = dict[tuple[int, int], int]()  # by node and life: of its newest image
        self.groups = dict[bytes, _Group]()

    def on_decided(self, core: Any, ready: Ready) -> None:
        """A core has decided; its decision is not carried out yet."""
        group = self._group(core.log.group)
        if ready.append:
            self._on_entries(group, ready.append)
        if ready.append_no_op:
            self._on_elected(group, core)

    def on_done(self, member: Any, event: Event, commit_before: int, *, was_leader: bool) -> None:
        """A core's step was carried out."""
        core = member.core
        if core.commit_index > commit_before:
            self._on_committed(self._group(core.log.group), core, commit_before, was_leader=was_leader)
        # A leader that was given entries and has not been told yet is between two states.
        if member.proposed is None:
            check_member(core)
        if type(event) is Tick:
            check_quorum(core)

    def _group(self, group_id: bytes) -> _Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = _Group()
        return group

    def _on_entries(self, group: _Group, entries: Any) -> None:
        for entry in entries:
            checksum = _identity(entry) if self._compacts else _checksum(entry)
            known = group.places.setdefault((entry.index, entry.term), checksum)
            assert known == checksum, f"entry {entry.index} of term {entry.term} has two forms"

    def on_said(self, group_id: GroupId, message: Any, directory_id: bytes) -> None:
        """A message leaves a node with this disk: its promises are durable there."""
        group = self._group(group_id)
        if isinstance(message, AppendEntries):
            self._on_entries(group, message.entries)
            return
        if isinstance(message, AppendResponse):
            self._on_acknowledged(group_id, message, Member(message.source, directory_id))
            return
        if isinstance(message, VoteRequest) and not message.pre:
            candidate = message.source
        elif isinstance(message, VoteResponse) and message.granted and not message.pre:
            candidate = message.target
        else:
            return
        voter = Member(message.source, directory_id)
        first = group.votes.setdefault((message.term, voter), candidate)
        assert first == candidate, f"node {message.source} voted for {first} and {candidate} in term {message.term}"

    def _on_acknowledged(self, group_id: GroupId, message: AppendResponse, member: Member) -> None:
        """Check that the entries that a follower acknowledges are durable there."""
        node = None if message.rejected else self._node_of(message.source)
        replica = None if node is None else node.multiraft.groups.get(group_id)
        if node is not None and replica is not None:
            log = replica.log
            index = message.match_index
            assert index <= log.durable_index, f"{message.source} acknowledges {index}, durable is {log.durable_index}"
            term = log.term_at(index)
            if term is not None:
                self._group(group_id).acknowledged[member] = index, term

    def on_image(self, node_id: int, life: int, image: Image) -> None:
        """A node has applied metadata: all nodes go through the same images in the same order, and none goes back."""
        before = self._versions.get((node_id, life), 0)
        self._versions[node_id, life] = image.version
        if image.version < before:
            self._world.violate(f"node {node_id} goes back from metadata image {before} to {image.version}")
        known = self._images.setdefault(image.version, image)
        if known is not image and known != image:
            self._world.violate(f"two metadata images of version {image.version}")

    def _on_elected(self, group: _Group, core: Any) -> None:
        self._world.counts["elections"] += 1
        first = group.leader_of_term.setdefault(core.term, core.node_id)
        assert first == core.node_id, f"nodes {first} and {core.node_id} both lead term {core.term}"
        self._world.note(f"n{core.node_id}", f"leads {core.log.name} in term {core.term}")
        self._world.counts["witness led"] += core.node_id in core.configuration.witnesses
        for index in range(max(core.log.first_index, 1), group.commit_index + 1):
            term, committed_in_term = group.committed.get(index, (0, core.term))
            if committed_in_term < core.term:
                found = core.log.term_at(index)
                assert found == term, f"leader {core.node_id} of term {core.term} has {found} at {index}, not {term}"

    def _on_committed(self, group: _Group, core: Any, before: int, *, was_leader: bool) -> None:
        if core.node_id in core.configuration.witnesses:
            first_index = core.log.first_index
            self._world.counts["witness forgot"] += first_index > group.witnessed_from.get(core.node_id, first_index)
            group.witnessed_from[core.node_id] = first_index
        for index in range(max(before + 1, core.log.first_index), core.commit_index + 1):
            term = core.log.term_at(index)
            agreed = group.committed.setdefault(index, (term, core.term))[0]
            assert agreed == term, f"node {core.node_id} commits term {term} at {index}, others {agreed}"
        if core.commit_index > group.commit_index:
            # One that has committed its own removal leads no more.
            assert was_leader or core.role is Role.LEADER, (
                f"node {core.node_id} commits {core.commit_index} before any leader"
            )
            group.commit_index = core.commit_index
            if group.commit_index > before:
                self._check_held(group, core)

    def _check_held(self, group: _Group, core: Any) -> None:
        """Check that a majority of the voters holds the entries that their leader has just found committed."""
        log = core.log
        voters = core.configuration.voters
        missing = [voter for voter in voters if not self._holds(group, log, voter, core.commit_index)]
        is_excused = self._is_forgetful and log.mode == "page-cache"
        if len(voters) - len(missing) < majority(len(voters)) and not is_excused:
            self._world.violate(f"{log.name}: {core.commit_index} is committed, {missing} of {voters} do not hold it")

    def _holds(self, group: _Group, leaders: Any, voter: Member, index: int) -> bool:
        """Tell whether a voter holds entry `index` of its leader's log durably, or did so by its last word."""
        node = self._node_of(voter.node_id)
        if node is not None and same_directory(voter.directory_id, node.storage.directory_id):
            replica = node.multiraft.groups.get(leaders.group)
            if replica is not None and replica.failed is None:
                log = replica.log
                is_there = log.first_index > index or log.term_at(index) == leaders.term_at(index)
                return is_there and log.durable_index >= index
        said = [place for member, place in group.acknowledged.items() if _is_same(voter, member)]
        there, term = max(said, default=(0, 0))
        return there >= index and leaders.term_at(there) in {term, None}


def _is_same(one: Member, other: Member) -> bool:
    return one.node_id == other.node_id and same_directory(one.directory_id, other.directory_id)


def _checksum(entry: Entry) -> int:
    checksum: int = _CRC.unpack_from(entry.frame, _CRC_POSITION)[0]
    return checksum


def _identity(entry: Entry) -> int:
    """Return a checksum of the fields that compaction keeps: offsets, term, producer and sequence.

    A marker that has lost its record keeps what that said in the place of the sequence.
    """
    frame = bytes(entry.frame[:61])
    producer_end = 53 if frame[22] & CONTROL else 57
    return zlib.crc32(frame[:8] + frame[12:17] + frame[23:27] + frame[43:producer_end])


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Let `observer` see every step of every core until the block ends.

    Of this thread: beside a simulation real clusters may run in the same process, each in a thread of its own.
    """
    here = get_ident()
    decide = raft_core.RaftCore.step
    carry_out = Driver._step
    add = Outbox.add

    def decided(core: Any, event: Event, now_ms: int) -> Ready:
        ready = decide(core, event, now_ms)
        if (ready.append or ready.append_no_op) and get_ident() == here:
            observer.on_decided(core, ready)
        return ready

    def carried_out(driver: Driver, member: RaftGroup, event: Event, now_ms: int) -> None:
        before = member.core.commit_index
        was_leader = member.core.role is Role.LEADER
        carry_out(driver, member, event, now_ms)
        if not member.is_removed and member.failed is None and get_ident() == here:
            observer.on_done(member, event, before, was_leader=was_leader)

    def said(outbox: Outbox, group_id: GroupId, messages: Sequence[Message]) -> None:
        if get_ident() == here:
            for message in messages:
                observer.on_said(group_id, message, outbox._directory_id)
        add(outbox, group_id, messages)

    with (
        patch.object(raft_core.RaftCore, "step", decided),
        patch.object(Driver, "_step", carried_out),
        patch.object(Outbox, "add", said),
    ):
        yield
