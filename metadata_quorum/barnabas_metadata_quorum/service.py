"""Runs the metadata quorum on one node: log, image, and the controller if it leads.

Every node runs one of these. Controllers are voters of the metadata group, all other nodes learn from them
(`formation`, `voters.changes`); all of them apply the same committed records in the same order and so hold the same
image. `image` may be read at any time without waiting; `subscribe` tells of changes, `wait_until` waits for one.

The group's driver calls the `GroupListener` methods: on the loop, never during a step, in the order of the log. Few
committed entries are applied at once; many are applied in pieces, each in an iteration of the loop of its own, with
an image of its own. From the time when this node's leadership is confirmed and the first entry of its term is applied
until it ends, an `ActiveController` decides commands. Commands from this node and from others come the same way
(`submission`).

*Snapshots.* When enough log has been applied, the image is encoded and written by the storage worker, and the log's
prefix is dropped only when the file is durable. The last snapshot's bytes stay in memory for members whose next
entry is gone. A snapshot from the leader is written before anything of it counts, on the loop, because the Raft
answer rests on it; that happens once in the life of a node that was away for long.

*Failure.* A record that this version does not know, or a frame that is none, ends the service with that error (`wait`
raises it): from there on this node could only diverge. Its log is intact, and an upgraded node goes on from it. A
failed log ends the service too: the image would stand still, and nobody would see it. But a snapshot that cannot be
read is refused before it replaces anything (`RaftGroup.check_state`): its sender loses the connection, and this node
goes on with its state.

Limits: `WAITERS_MAX` waits for the image; one command at a time that goes in parts; the controller's and the
submission's own. Subscribers are called one after the other and must not block.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Protocol

from barnabas_metadata_quorum.controller.commands import (
    AllocateProducerIds,
    Answer,
    CheckSessions,
    Command,
    CreatedTopic,
    CreateTopics,
    CreateTopicsAnswer,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsAnswer,
    DescribeQuorum,
    NewTopic,
    ProducerIdBlock,
    RefusalReason,
    Refused,
    Reply,
    UpdateFeatures,
    decode_command,
    encode_reply,
)
from barnabas_metadata_quorum.controller.controller import ControllerConfig
from barnabas_metadata_quorum.controller.parts import Divided, check_whole, parts_of, refused_part, together
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import RECORD_LEVEL, UnknownRecordError
from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot
from barnabas_metadata_quorum.voters.changes import VoterChanges, status_of
from barnabas_metadata_quorum.voters.formation import Formation
from barnabas_metadata_quorum.voters.membership import Membership
from barnabas_metadata_quorum.voters.view import quorum_of
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import BarnabasError, MalformedMessageError, NotLeaderError, StorageFailedError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.storage import Storage
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.multiraft.interfaces import GroupLog
from barnabas_raftlog.multiraft.multiraft import METADATA_GROUP, MultiRaft
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import Entry, Fact, InstallSnapshot
from barnabas_raftlog.tasks import Tasks

from .active_controller import ActiveController, Clocks, not_controller
from .descriptions import fact_of
from .founding import Founding
from .pulse import Pulse
from .registration import BrokerIdentity, Registration
from .replica import APPLIED_BYTES, MetadataReplica
from .snapshot_store import SnapshotStore
from .submission import METHOD, Submission, refusal_of

__all__ = ["SEGMENT_BYTES", "Membership", "MetadataService", "open_log"]

# Small, because the log's prefix goes segment by segment, and a snapshot comes about once per MiB.
SEGMENT_BYTES = 1 << 20
WAITERS_MAX = 10_000
ACTIVATION_S = 1.0  # for a command at a leader that is about to become the active controller

Subscriber = Callable[[Image, Image], None]


class MetadataLog(GroupLog, Protocol):
    """The part of `ReplicaLog` that the metadata group uses, beside the part of the driver."""

    def replay(self, from_index: int) -> AsyncIterator[Entry]: ...


def open_log(storage: Storage) -> ReplicaLog:
    """Return the metadata group's log: always durable before it is acknowledged, whatever topics are."""
    return storage.open_log(METADATA_GROUP, "metadata", "fsync", segment_bytes=SEGMENT_BYTES)


class MetadataService:
    """See the module. Made before the links start, so that no call finds nobody serving; then `start`, `close`.

    Args:
        membership: This node and the others.
        multiraft, links, log, snapshots: The parts that the service uses; `log` is that of the metadata group.
        broker: The identity to register; None for a node that is only a controller.
        config: Used while this node is the active controller.
        clocks: Time, monotonic and of the wall.
        on_fact: Gets an event for each applied record that an operator would ask about.
        new_id: Makes the ids of topics, and of commands that must not be carried out twice.
        meter: Measures the pieces that are applied in iterations of their own.
    """

    def __init__(  # noqa: PLR0913 - the caller brings all its parts
        self,
        membership: Membership,
        multiraft: MultiRaft,
        links: NodeLinks,
        log: MetadataLog,
        snapshots: SnapshotStore,
        *,
        broker: BrokerIdentity | None,
        config: ControllerConfig,
        clocks: Clocks,
        on_fact: Callable[[Fact], None],
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        meter: LoopMeter | None = None,
    ) -> None:
        self._meter = meter or LoopMeter()
        self._membership = membership
        self._multiraft = multiraft
        self._links = links
        self._log = log
        self._snapshots = snapshots
        self._config = config
        self._clocks = clocks
        self._on_fact = on_fact
        self._replica = MetadataReplica(Snapshot(0, 0, Image(membership.cluster_id)))
        self._newest: tuple[int, int, bytes] | None = None  # the snapshot on disk: index, term, bytes
        self._received: Snapshot | None = None  # about to be installed
        self._saving = False
        self._is_closed = False
        self._is_applying = False
        self._commit_index = 0
        self._active: ActiveController | None = None
        self._group: RaftGroup | None = None
        self._changed = Pulse()
        self._tasks = Tasks(self._fail)
        self._formation = Formation(
            membership,
            links,
            log,
            changed=self._changed,
            monotonic_ms=clocks.monotonic_ms,
            on_fact=on_fact,
        )
        self._founding = self._founding_with(RECORD_LEVEL if broker is None else broker.record_level)
        self._voter_changes = VoterChanges(membership, links.is_live, on_fact)
        self._subscribers: list[Subscriber] = []
        self._waiters: dict[asyncio.Future[Image], Callable[[Image], bool]] = {}
        self._failure: BaseException | None = None
        self._broken: asyncio.Future[None] | None = None
        self._in_parts = asyncio.Semaphore(1)
        self._submission = self._submission_with(new_id)
        self._registration = None if broker is None else self._registration_as(broker)
        links.serve(METHOD, self._serve)
        links.on_peer.append(lambda _node_id, _live: self._changed.fire())

    def _founding_with(self, record_level: int) -> Founding:
        membership = self._membership
        return Founding(
            (membership.voters | membership.learners) - {membership.node_id},
            membership.voters,
            self._links,
            self._config.founding_features,
            record_level=record_level,
            changed=self._changed,
            spawn=self._tasks.spawn,
            on_known=self._consider_activation,
            on_fact=self._on_fact,
        )

    def _submission_with(self, new_id: Callable[[], uuid.UUID]) -> Submission:
        return Submission(
            self._node_id,
            self._links,
            leader_id=self._whom_to_ask,
            carry_out_here=self._carry_out,
            changed=self._changed,
            new_id=new_id,
        )

    def _registration_as(self, broker: BrokerIdentity) -> Registration:
        return Registration(
            self._node_id,
            broker,
            submit=self._submission.submit,
            wait_until=self.wait_until,
            beat_s=self._config.beat_s,
        )

    @property
    def _node_id(self) -> int:
        return self._membership.node_id

    # For users of the service.

    @property
    def image(self) -> Image:
        """The state as far as this node has applied it."""
        return self._replica.image

    @property
    def leader_id(self) -> int | None:
        """The leader of the metadata group as far as this node knows, active or not."""
        return None if self._group is None else self._group.leader_id

    @property
    def is_active(self) -> bool:
        """True while this node is the active controller, and a majority has said so since it last stalled."""
        return self._active is not None and self._group is not None and self._group.confirmed

    @property
    def _is_about_to_be_active(self) -> bool:
        return self._group is not None and self._group.is_leader and self._active is None

    @property
    def voter_ids(self) -> frozenset[int]:
        """The voters of the metadata group as far as this node knows; before there is a group, the configured ones."""
        return self._log.configuration.voter_ids or self._membership.voters

    def status(self) -> dict[str, Any]:
        """Return the members of the group, and what this node waits for to be one, or to change them."""
        return status_of(self._log.configuration, self._formation.waiting or self._voter_changes.waiting)

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of this broker's registration; None before it has one."""
        return None if self._registration is None else self._registration.epoch

    async def start(self) -> None:
        """Load the state, join the group, begin to register. Returns without waiting for a leader.

        Raises:
            StorageFailedError, MalformedMessageError: snapshot or log cannot be read.
            UnknownRecordError: they were written by a newer version.
        """
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        await self._load()
        preferred = self._node_id == min(self._membership.voters)
        self._group = self._multiraft.add_group(METADATA_GROUP, self._log, None, self, preferred=preferred)
        self._group.check_state = self._check_state
        self._tasks.spawn(self._run(self._group))

    async def wait(self) -> None:
        """Return when the service is closed; raise the error that broke it."""
        assert self._broken is not None, "start() first"
        await asyncio.shield(self._broken)

    async def close(self) -> None:
        """Stop registering and deciding. Waiting calls get NOT_CONTROLLER or TimeoutError. Idempotent."""
        self._is_closed = True
        await self._tasks.close()
        self._deactivate()
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(None)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each change of the image, which may be many records at once."""
        self._subscribers.append(subscriber)

    async def wait_until(self, claim: Callable[[Image], bool], timeout_s: float) -> Image:
        """Return the first image of which `claim` is true, which may be the present one.

        Raises:
            TimeoutError: it has not become true in time, or too many wait already.
        """
        if claim(self.image):
            return self.image
        if len(self._waiters) >= WAITERS_MAX:
            raise TimeoutError(f"{len(self._waiters)} wait for the image already")
        future: asyncio.Future[Image] = asyncio.get_running_loop().create_future()
        self._waiters[future] = claim
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        finally:
            del self._waiters[future]

    async def submit(self, command: Command, timeout_s: float) -> Answer:
        """Let the active controller carry out `command`; then wait until this node sees the effect, if time allows.

        A command that names much goes in parts, one command at a time (`parts`). When the time is up the rest is not
        asked for, and the answer says so of each item.

        Raises:
            Refused: by the controller, or TIMED_OUT; by the first part, if the command goes in parts.
        """
        deadline_ms = self._clocks.monotonic_ms() + int(timeout_s * 1_000)
        if not isinstance(command, Divided):
            return await self._submit(command, deadline_ms)
        for _ in check_whole(command, self.image):
            await asyncio.sleep(0)
        # To check much, and to decide the first part if this is the controller, takes milliseconds each.
        await asyncio.sleep(0)
        parts = parts_of(command, self.image)
        first = next(parts)
        second = next(parts, None)
        if second is None:
            return await self._submit(command, deadline_ms)
        try:
            async with asyncio.timeout(timeout_s):
                await self._in_parts.acquire()
        except TimeoutError as error:
            raise Refused(RefusalReason.TIMED_OUT, "other commands that name much are being carried out") from error
        try:
            return together(
                [
                    await self._submit(first, deadline_ms),
                    *(await self._answers(chain([second], parts), deadline_ms)),
                ]
            )
        finally:
            self._in_parts.release()

    async def _answers(self, parts: Iterable[Divided], deadline_ms: int) -> list[Answer]:
        answers: list[Answer] = []
        late: Refused | None = None
        for part in parts:
            if late is not None:
                await asyncio.sleep(0)
                answers.append(refused_part(part, late))
                continue
            try:
                answers.append(await self._submit(part, deadline_ms))
            except Refused as refused:
                answers.append(refused_part(part, refused))
                if refused.reason is RefusalReason.TIMED_OUT:
                    late = Refused(RefusalReason.TIMED_OUT, "there was no time left for this one")
        return answers

    async def _submit(self, command: Command, deadline_ms: int) -> Answer:
        reply = await self._submission.submit(command, self._left_s(deadline_ms))
        if reply.version > self.image.version:
            # In time or not, it is committed; this node will see it.
            with contextlib.suppress(TimeoutError):
                await self.wait_until(lambda image: image.version >= reply.version, self._left_s(deadline_ms))
        return reply.answer

    async def create_topics(
        self, topics: Sequence[NewTopic], timeout_s: float, *, validate_only: bool = False
    ) -> tuple[CreatedTopic, ...]:
        """Create topics; one fate each, in order. Raises `Refused`."""
        answer = await self.submit(CreateTopics(tuple(topics), validate_only), timeout_s)
        assert isinstance(answer, CreateTopicsAnswer)
        return answer.topics

    async def delete_topics(
        self, names: Sequence[str], topic_ids: Sequence[bytes], timeout_s: float
    ) -> tuple[DeletedTopic, ...]:
        """Delete topics; one fate each, names first. Raises `Refused`."""
        answer = await self.submit(DeleteTopics(tuple(names), tuple(topic_ids)), timeout_s)
        assert isinstance(answer, DeleteTopicsAnswer)
        return answer.topics

    async def allocate_producer_ids(self, timeout_s: float) -> ProducerIdBlock:
        """Return a block of ids for this caller alone. Raises `Refused`."""
        answer = await self.submit(AllocateProducerIds(), timeout_s)
        assert isinstance(answer, ProducerIdBlock)
        return answer

    async def begin_shutdown(self, timeout_s: float) -> None:
        """Tell the controller that this broker will stop, so that nothing new is placed here. Raises `Refused`."""
        if self._registration is not None:
            await self._registration.begin_shutdown(timeout_s)

    async def finish_shutdown(self, timeout_s: float) -> None:
        """Be fenced, then hand the metadata group to another voter if this node leads it. Raises `Refused`."""
        deadline_ms = self._clocks.monotonic_ms() + int(timeout_s * 1_000)
        if self._registration is not None:
            await self._registration.finish_shutdown(timeout_s)
        group = self._group
        others = [node_id for node_id in sorted(self.voter_ids - {self._node_id}) if self._links.is_live(node_id)]
        if group is None or not group.is_leader or not others:
            return
        group.transfer(next((node_id for node_id in others if group.has_caught_up(node_id)), others[0]))
        # If it does not work out, the others elect somebody when this node's links close.
        await self._changed.wait_while(lambda: group.is_leader, self._left_s(deadline_ms))

    # Commands.

    def _whom_to_ask(self) -> int | None:
        return self.leader_id if self.leader_id is not None else self._formation.leader_id

    async def _serve(self, source: int, body: bytes) -> bytes:
        """Carry out another node's command."""
        if source < 0:
            raise Refused(RefusalReason.INVALID_REQUEST, "controller commands come from nodes; use the Kafka protocol")
        return encode_reply(await refusal_of(self._carry_out(decode_command(body))))

    async def _carry_out(self, command: Command) -> Reply:
        # A leader that was elected a moment ago becomes active when an entry is through.
        try:
            async with asyncio.timeout(ACTIVATION_S):
                while self._is_about_to_be_active:
                    await self._changed.wait()
        except TimeoutError as error:
            raise not_controller(None) from error
        if self._active is None:
            raise not_controller(self.leader_id)
        if isinstance(command, DescribeQuorum) and self._group is not None:
            if not self._group.confirmed:
                await self._group.confirm()
            now_ms, wall_ms = self._clocks.monotonic_ms(), self._clocks.wall_ms()
            return Reply(0, quorum_of(self._group, self._node_id, now_ms, wall_ms))
        return await self._active.carry_out(command)

    # Calls of the group's driver (GroupListener).

    def on_appended(self, entries: Sequence[Entry]) -> None:
        self._replica.append(entries)

    def on_truncated(self, index: int) -> None:
        self._replica.truncate_from(index)

    def on_committed(self, commit_index: int) -> None:
        self._commit_index = commit_index
        if self._is_applying:
            return
        if self._replica.due_bytes(commit_index) > APPLIED_BYTES:
            self._apply_soon()  # Not in the midst of the driver's calls of other listeners.
        else:
            self._apply_some()

    def _apply_soon(self) -> None:
        self._is_applying = True
        asyncio.get_running_loop().call_soon(self._meter.run, "metadata", self._apply_some)

    def _apply_some(self) -> None:
        self._is_applying = False
        if self._failure is not None or self._is_closed:
            return
        old = self.image
        try:
            records = self._replica.commit(self._commit_index)
        except (UnknownRecordError, MalformedMessageError) as error:
            self._fail(error)
            return
        self._publish(old)
        term = self._replica.applied_term
        for record in records:
            if (fact := fact_of(record, term)) is not None:
                self._on_fact(fact)
        if self._active is not None:
            self._active.applied(self._replica.applied_index)
        self._consider_activation()
        self._review_members()
        if self._replica.snapshot_is_due and not self._saving:
            self._save_snapshot()
        if self._replica.due_bytes(self._commit_index):
            self._apply_soon()

    def on_configuration(self, configuration: Configuration) -> None:
        self._changed.fire()

    def on_failed(self, error: StorageFailedError) -> None:
        self._fail(error)

    def on_leadership(self, term: int, leader_id: int | None, is_leader: bool, confirmed: bool) -> None:
        if not is_leader:
            self._voter_changes.end()
        if self._active is not None and (not is_leader or term != self._active.term):
            self._deactivate()
        self._consider_activation()
        self._changed.fire()

    def install(self, snapshot: InstallSnapshot) -> None:
        if self._failure is not None:
            return
        data = bytes(snapshot.data)
        old = self.image
        received = self._received
        self._received = None
        try:
            if received is None or received.raft_index != snapshot.snapshot_index:
                received = self._checked(decode_snapshot(data))
            self._snapshots.replace_now(received.raft_index, data)
        except BarnabasError as error:
            self._fail(error)
            return
        self._replica.install(received)
        self._newest = (received.raft_index, received.raft_term, data)
        cause = f"entries up to {received.raft_index} came as one, {len(data)} bytes"
        self._on_fact(Fact("metadata snapshot installed", received.raft_term, cause))
        self._publish(old)

    def snapshot(self) -> tuple[int, int, bytes] | None:
        return self._newest

    # Inside.

    def _check_state(self, snapshot: InstallSnapshot) -> None:
        """Refuse a snapshot that cannot be read; one of a newer version is let through, and ends the service."""
        self._received = None
        if self._failure is not None:
            return
        with contextlib.suppress(UnknownRecordError):
            received = self._checked(decode_snapshot(snapshot.data))
            place = (received.raft_index, received.raft_term)
            wanted = (snapshot.snapshot_index, snapshot.snapshot_term)
            if place != wanted:
                raise MalformedMessageError(f"a metadata snapshot as of {place}, announced as one of {wanted}")
            self._received = received

    async def _load(self) -> None:
        stored = self._snapshots.load()
        if stored is not None:
            snapshot, data = stored
            self._replica = MetadataReplica(self._checked(snapshot))
            self._newest = (snapshot.raft_index, snapshot.raft_term, data)
        applied_index = self._replica.applied_index
        if self._log.first_index > applied_index + 1 or self._log.last_index < applied_index:
            # A crash fell between the log's step and the file's. Entries that only one of the two has were not
            # acknowledged here, and a majority without this node holds them. The members of that time are not known
            # either: log and snapshot go.
            cause = f"the log ends at {self._log.last_index}, the snapshot at {applied_index}: fetching anew"
            self._on_fact(Fact("metadata log reset", self._replica.applied_term, cause))
            self._snapshots.remove()
            self._replica = MetadataReplica(Snapshot(0, 0, Image(self._membership.cluster_id)))
            self._newest = None
            self._log.install_snapshot(applied_index := 0, 0, 0)
        async for entry in self._log.replay(applied_index + 1):
            self._replica.append((entry,))

    def _checked(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.image.cluster_id != self.image.cluster_id:
            raise MalformedMessageError(
                f"a metadata snapshot of cluster {snapshot.image.cluster_id}; "
                f"this node belongs to {self.image.cluster_id}"
            )
        return snapshot

    def _left_s(self, deadline_ms: int) -> float:
        return max(0, deadline_ms - self._clocks.monotonic_ms()) / 1_000

    async def _run(self, group: RaftGroup) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._formation.run(group))
            if self._registration is not None:
                tasks.create_task(self._registration.run())

    async def _watch(self) -> None:
        """Look for changes that come without a sign: sessions that end."""
        while True:
            await asyncio.sleep(self._config.beat_s)
            self._review_members()
            if self._active is not None and self.is_active:
                # An error here means that leadership is ending, and the driver of the group says why.
                with contextlib.suppress(NotLeaderError, StorageFailedError):
                    self._active.decide(CheckSessions())

    def _review_members(self) -> None:
        if self.is_active and self._group is not None:
            directories = {node_id: broker.directory_id for node_id, broker in self.image.brokers.items()}
            self._voter_changes.review(self._group, directories)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._deactivate()
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    def _publish(self, old: Image) -> None:
        new = self.image
        if new is old:
            return
        call_each(self._subscribers, lambda subscriber: subscriber(old, new))

        def look(waiter: tuple[asyncio.Future[Image], Callable[[Image], bool]]) -> None:
            future, claim = waiter
            if not future.done() and claim(new):
                future.set_result(new)

        call_each(self._waiters.items(), look, lambda waiter, error: waiter[0].set_exception(error))

    def _consider_activation(self) -> None:
        """Become the active controller if this node leads, and everything of former terms is applied.

        Not only while it is certain that it leads: a node that is slow stalls again before a majority has said so. Its
        answers are given when that has.
        """
        group = self._group
        replica = self._replica
        if self._active is not None or group is None or self._failure is not None:
            return
        term = group.core.term
        # The first entry of a term is its leader's own; once that is applied, so is everything before it.
        if not (group.is_leader and replica.applied_term == term):
            return
        try:
            ahead = replica.ahead()
        except (UnknownRecordError, MalformedMessageError) as error:
            self._fail(error)
            return
        beginning = () if ahead.version else self._founding.updates(term)
        if beginning is None:  # A new cluster: this goes on when the other nodes have said what they understand.
            return
        self._active = ActiveController(
            term,
            group,
            ahead,
            last_index=replica.last_index,
            applied_index=replica.applied_index,
            config=self._config,
            clocks=self._clocks,
        )
        self._on_fact(Fact("controller active", term, f"node {self._node_id} leads from image {self.image.version} on"))
        if beginning:
            with contextlib.suppress(NotLeaderError, StorageFailedError):  # The next one asks, too.
                self._active.decide(UpdateFeatures(beginning))
        self._changed.fire()

    def _deactivate(self) -> None:
        if self._active is not None:
            active = self._active
            self._active = None
            active.end(self.leader_id)

    def _save_snapshot(self) -> None:
        snapshot = self._replica.snapshot()
        self._saving = True

        def done(result: bytes | StorageFailedError) -> None:
            self._saving = False
            if self._is_closed:
                return
            if isinstance(result, StorageFailedError):
                self._on_fact(Fact("metadata snapshot failed", snapshot.raft_term, str(result)))
            elif self._newest is None or snapshot.raft_index > self._newest[0]:
                self._newest = (snapshot.raft_index, snapshot.raft_term, result)
                self._log.drop_prefix(snapshot.raft_index)

        self._snapshots.save(snapshot, done)
