"""Decides commands: an image, a command and the time give records and an answer. Pure.

`decide` looks only at its arguments. The image it is given includes the records that it decided before, committed or
not: the driver keeps that *speculative* image, proposes in the order of deciding, and answers nobody before the
commit. So two commands in flight can never both create one topic, and the leader need not wait for one commit to
decide the next.

Soft state (sessions) is changed in place, by the commands that are about it; replicated state changes only by way of
the returned records. A command that is refused changes neither.

*Brokers.* A registration gets an epoch, the offset of its own record, and starts fenced; the first heartbeat that
shows the broker to have applied its own registration unfences it. A command with an older epoch gets
STALE_BROKER_EPOCH: another process has taken that node id. A broker that shuts down is first avoided by placement
while its leaderships move (the broker moves them, Raft group by Raft group), then fenced. One that is away and holds
nothing can be forgotten; nobody waits for it any more, and it is in no list of brokers.

Topics are decided in `topics`, moves of partitions in `reassignments`, snapshots with a name in `named_snapshots`;
levels of features in `features`, configurations of brokers and groups in `resource_changes`; sessions are kept in
`sessions`.

*Retries.* A command with a `command_id` whose answer is still in the image is answered from there and does nothing.
A command that changes something leaves its answer beside its effects, in the same frame.

Not here: partition leaders (each group elects its own), repair, quotas, ACLs.
"""

from collections.abc import Generator, Mapping
from typing import TypeAlias, assert_never

import msgspec

from barnabas_metadata_quorum.image.image import Broker, Image
from barnabas_metadata_quorum.image.records import (
    UNREGISTERED_LEVEL,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    CommandAnswered,
    ProducerIdsAllocated,
    Record,
)
from barnabas_raftlog.steps import at_once

from .commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterConfigsAnswer,
    AlterReassignments,
    AlterReassignmentsAnswer,
    AlterResources,
    Answer,
    BrokerHeartbeat,
    BrokerRegistration,
    CheckSessions,
    Command,
    ControlledShutdown,
    CreatePartitions,
    CreatePartitionsAnswer,
    CreateSnapshot,
    CreateTopics,
    CreateTopicsAnswer,
    DeleteSnapshot,
    DeleteTopics,
    DeleteTopicsAnswer,
    DescribeQuorum,
    FinishMoves,
    HeartbeatAnswer,
    MovesFinished,
    ProducerIdBlock,
    ReadIndex,
    ReadIndexAnswer,
    RefusalReason,
    Refused,
    RegisterBroker,
    SessionsChecked,
    UnregisterBroker,
    UnregisterBrokerAnswer,
    UpdateFeatures,
    decode_answer,
    encode_answer,
)
from .config_changes import alter_configs
from .features import check_registration, update_features
from .levels import check_level
from .named_snapshots import create_snapshot, delete_snapshot
from .reassignments import alter_reassignments, finish_moves
from .resource_changes import alter_resources
from .sessions import Sessions
from .topics import ClusterLimits, create_partitions, create_topics, delete_topics

__all__ = ["ControllerConfig", "Decision", "TopicCommand", "decide", "decide_topics"]

TopicCommand: TypeAlias = CreateTopics | CreatePartitions | AlterConfigs | DeleteTopics

PRODUCER_IDS_PER_COMMAND_MAX = 1_000_000
PRODUCER_ID_MAX = 2**63 - 1


class ControllerConfig(msgspec.Struct, frozen=True):
    """The defaults of new topics, the time for which a silent broker is believed, and the limits of the cluster.

    A default replication factor of 0 means three, or as many as there are registered brokers. Right after the first
    start that may be one: a program that creates topics then had better state a number.

    `flush_mode` is that of topics that say nothing.

    A new cluster begins with `founding_features`, levels by name, if all its nodes know them (`founding`).
    """

    default_partitions: int = 1
    default_replication_factor: int = 1
    session_timeout_ms: int = 3_000
    topics_max: int = 100_000
    partitions_max: int = 100_000
    flush_mode: str = "fsync"
    founding_features: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])

    @property
    def limits(self) -> ClusterLimits:
        return ClusterLimits(self.topics_max, self.partitions_max, self.flush_mode)

    @property
    def beat_s(self) -> float:
        """The interval of heartbeats and of the controller's looks: six in a session, and at least two a second.

        A controller that looks less than twice in a session takes itself for stopped (see `sessions`).
        """
        return min(500, self.session_timeout_ms / 6) / 1_000


class Decision(msgspec.Struct, frozen=True):
    """Records to propose as one frame, perhaps none; the answer holds once everything decided so far is committed."""

    records: tuple[Record, ...]
    answer: Answer


def decide(image: Image, sessions: Sessions, command: Command, config: ControllerConfig, now_ms: int) -> Decision:
    """Decide one command.

    Args:
        image: Includes every record decided before, committed or not.
        sessions: Changed in place, only by commands about brokers that are not refused.
        command: The question.
        config: The active controller's settings; only answers and records depend on them, never `apply`.
        now_ms: Monotonic.

    Raises:
        Refused: the command as a whole; nothing has changed.
    """
    match command:
        case RegisterBroker():
            return _register(image, sessions, command, now_ms)
        case BrokerHeartbeat():
            return _heartbeat(image, sessions, command, now_ms)
        case ControlledShutdown() | UnregisterBroker():
            return _leave(image, sessions, command)
        case CheckSessions():
            return _check_sessions(image, sessions, now_ms)
        case CreateTopics() | CreatePartitions() | AlterConfigs() | DeleteTopics():
            return at_once(decide_topics(image, command, config))
        case AlterReassignments() | FinishMoves():
            return _move(image, command)
        case AllocateProducerIds():
            return _allocate_producer_ids(image, command)
        case CreateSnapshot() | DeleteSnapshot() | UpdateFeatures() | AlterResources():
            return _keep(image, command)
        case ReadIndex():
            return Decision((), ReadIndexAnswer(image.version))
        case DescribeQuorum():
            raise AssertionError("the group knows that, not its image")
        case _:
            assert_never(command)


def decide_topics(image: Image, command: TopicCommand, config: ControllerConfig) -> Generator[None, None, Decision]:
    """Decide as `decide` does, a command about topics, which may take long: yields between pieces of the work.

    The decision is right if no topic has changed meanwhile. Brokers may have changed.
    """
    before = _answered_before(image, command.command_id)
    if before is not None:
        return before
    match command:
        case CreateTopics():
            return (yield from _create_topics(image, command, config))
        case CreatePartitions():
            return (yield from _create_partitions(image, command, config))
        case AlterConfigs():
            return _alter_configs(image, command, config)
        case DeleteTopics():
            return _delete_topics(image, command)
        case _:
            assert_never(command)


# ------------------------------------------------------------------------------------------------ brokers


def _registered(image: Image, node_id: int, epoch: int) -> Broker:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise _not_registered(node_id)
    if broker.epoch != epoch:
        raise Refused(
            RefusalReason.STALE_BROKER_EPOCH,
            f"broker {node_id} has epoch {broker.epoch} (incarnation {broker.incarnation}), not {epoch}",
        )
    return broker


def _not_registered(node_id: int) -> Refused:
    return Refused(RefusalReason.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered")


def _register(image: Image, sessions: Sessions, command: RegisterBroker, now_ms: int) -> Decision:
    check_registration(image, command.node_id, command.record_level)
    known = image.brokers.get(command.node_id)
    epoch = image.version
    wanted = (command.host, command.port, command.rack, command.directory_id)
    listeners = command.listeners or ()
    sessions.touch(command.node_id, now_ms)
    if known is not None and known.incarnation == command.incarnation:
        # The same process again: its first answer was lost, or it moved to another listener.
        same = (known.host, known.port, known.rack, known.directory_id) == wanted and known.listeners == listeners
        if same and not known.shutting_down:
            return Decision((), BrokerRegistration(known.epoch))
    of_listeners = listeners or msgspec.UNSET
    level = command.record_level or msgspec.UNSET
    registered = BrokerRegistered(
        command.node_id, command.incarnation, epoch, *wanted, listeners=of_listeners, record_level=level
    )
    return Decision((registered,), BrokerRegistration(epoch))


def _heartbeat(image: Image, sessions: Sessions, command: BrokerHeartbeat, now_ms: int) -> Decision:
    broker = _registered(image, command.node_id, command.epoch)
    sessions.touch(command.node_id, now_ms)
    caught_up = command.version > broker.epoch
    # An older controller may have registered it, and not have written down what it understands.
    level = command.record_level if command.record_level > broker.record_level else msgspec.UNSET
    if (broker.fenced or level) and caught_up and not broker.shutting_down:
        unfenced = BrokerUnfenced(broker.node_id, broker.epoch, record_level=level)
        return Decision((unfenced,), HeartbeatAnswer(False, False))
    return Decision((), HeartbeatAnswer(broker.fenced, broker.shutting_down))


def _leave(image: Image, sessions: Sessions, command: ControlledShutdown | UnregisterBroker) -> Decision:
    if isinstance(command, ControlledShutdown):
        return _shut_down(image, sessions, command)
    return _unregister(image, sessions, command)


def _shut_down(image: Image, sessions: Sessions, command: ControlledShutdown) -> Decision:
    broker = _registered(image, command.node_id, command.epoch)
    records: list[Record] = []
    if not broker.shutting_down:
        records.append(BrokerShuttingDown(broker.node_id, broker.epoch))
    if command.done:
        sessions.end(broker.node_id)
        if not broker.fenced:
            records.append(BrokerFenced(broker.node_id, broker.epoch, "controlled shutdown"))
    return Decision(tuple(records), HeartbeatAnswer(broker.fenced or command.done, True))


def _check_sessions(image: Image, sessions: Sessions, now_ms: int) -> Decision:
    sessions.check_begins(now_ms)
    records: list[Record] = []
    for node_id, broker in sorted(image.brokers.items()):
        if broker.fenced:
            continue
        silence_ms = sessions.silent_for_ms(node_id, now_ms)
        if silence_ms is not None:
            sessions.end(node_id)
            records.append(BrokerFenced(node_id, broker.epoch, f"no heartbeat for {silence_ms} ms"))
    return Decision(tuple(records), SessionsChecked(tuple(r.node_id for r in records if isinstance(r, BrokerFenced))))


def _unregister(image: Image, sessions: Sessions, command: UnregisterBroker) -> Decision:
    before = _answered_before(image, command.command_id)
    if before is not None:
        return before
    broker = image.brokers.get(command.node_id)
    if broker is None:
        raise _not_registered(command.node_id)
    if not broker.fenced:
        raise Refused(RefusalReason.INVALID_REQUEST, f"broker {broker.node_id} is running; stop it first")
    load = image.loads.get(broker.node_id)
    if load is not None:
        held = f"{load.replicas} replicas, and is the witness of {load.witnesses} partitions"
        text = f"broker {broker.node_id} holds {held}; move them to other brokers first"
        raise Refused(RefusalReason.INVALID_REQUEST, text)
    check_level(image, UNREGISTERED_LEVEL, "that cannot read that one is forgotten")
    sessions.end(broker.node_id)
    record = BrokerUnregistered(broker.node_id, broker.epoch)
    return _with_memory([record], command.command_id, UnregisterBrokerAnswer())


# ------------------------------------------------------------------------------------- topics, producer ids


def _answered_before(image: Image, command_id: bytes) -> Decision | None:
    answer = image.answers.get(command_id)
    return None if answer is None else Decision((), decode_answer(answer))


def _with_memory(records: list[Record], command_id: bytes, answer: Answer) -> Decision:
    if records and command_id:
        records.append(CommandAnswered(command_id, encode_answer(answer)))
    return Decision(tuple(records), answer)


def _create_topics(image: Image, command: CreateTopics, config: ControllerConfig) -> Generator[None, None, Decision]:
    defaults = config.default_partitions, config.default_replication_factor
    records, fates = yield from create_topics(image, command, *defaults, config.limits)
    if command.validate_only:
        records.clear()
    return _with_memory(records, command.command_id, CreateTopicsAnswer(fates))


def _create_partitions(
    image: Image, command: CreatePartitions, config: ControllerConfig
) -> Generator[None, None, Decision]:
    records, fates = yield from create_partitions(image, command, config.limits)
    if command.validate_only:
        records.clear()
    return _with_memory(records, command.command_id, CreatePartitionsAnswer(fates))


def _alter_configs(image: Image, command: AlterConfigs, config: ControllerConfig) -> Decision:
    records, fates = alter_configs(image, command, config.flush_mode)
    if command.validate_only:
        records.clear()
    return _with_memory(records, command.command_id, AlterConfigsAnswer(fates))


def _delete_topics(image: Image, command: DeleteTopics) -> Decision:
    records, fates = delete_topics(image, command)
    return _with_memory(records, command.command_id, DeleteTopicsAnswer(fates))


def _move(image: Image, command: AlterReassignments | FinishMoves) -> Decision:
    if isinstance(command, FinishMoves):
        finished = finish_moves(image, command)
        return Decision(finished, MovesFinished(len(finished)))
    before = _answered_before(image, command.command_id)
    if before is not None:
        return before
    records, fates = alter_reassignments(image, command)
    return _with_memory(records, command.command_id, AlterReassignmentsAnswer(fates))


def _keep(image: Image, command: CreateSnapshot | DeleteSnapshot | UpdateFeatures | AlterResources) -> Decision:
    before = _answered_before(image, command.command_id)
    if before is not None:
        return before
    answer: Answer
    if isinstance(command, CreateSnapshot):
        records, answer = create_snapshot(image, command)
    elif isinstance(command, DeleteSnapshot):
        records, answer = delete_snapshot(image, command)
    else:
        if isinstance(command, UpdateFeatures):
            records, answer = update_features(image, command)
        else:
            records, answer = alter_resources(image, command)
        if command.validate_only:
            records.clear()
    return _with_memory(records, command.command_id, answer)


def _allocate_producer_ids(image: Image, command: AllocateProducerIds) -> Decision:
    if not 1 <= command.count <= PRODUCER_IDS_PER_COMMAND_MAX:
        raise Refused(
            RefusalReason.INVALID_REQUEST,
            f"{command.count} producer ids: 1 to {PRODUCER_IDS_PER_COMMAND_MAX} at a time",
        )
    first = image.next_producer_id
    end = image.next_producer_id + command.count
    if end > PRODUCER_ID_MAX:
        raise Refused(RefusalReason.INVALID_REQUEST, "all 2^63 producer ids have been given out")
    return Decision((ProducerIdsAllocated(end),), ProducerIdBlock(first, command.count))
