"""The controller's commands, its answers, and its refusals. Pure.

Commands travel from any node to the active controller as msgpack and are decided by `controller.decide`. A command
that names many items (topics to create, topics to delete) is answered per item, as Kafka does: one bad name harms
no other. `Refused` is for a command that failed as a whole.

`command_id` makes a retry safe: 16 bytes that the submitting node draws once per command. The controller stores the
answer under it in the same Raft entry as the effects, so a retry after a lost answer, even at another controller,
gets the first answer instead of TOPIC_ALREADY_EXISTS. Answers are kept for the last `image.ANSWERS_MAX` commands
and `image.ANSWERS_BYTES_MAX` bytes; a retry that comes later than that is decided anew. Topic ids are drawn by the
submitting node for the same reason: chance stays out of the controller.

A command names at most `NAMED_MAX` items (`check_named`): its effects are one atomic entry of the log, decided and
applied by everybody. The node that passes a client's request on checks that first, the controller checks it again.

Commands without a `command_id` are idempotent by nature: registering twice with one incarnation gives the same
epoch, a heartbeat changes nothing the second time, and a producer-id block allocated twice wastes 1,000 of 2^63.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import TypeAlias

import msgspec

from barnabas_metadata_quorum.image.records import UNKNOWN_DIRECTORY, ListenerAddress, NamedSnapshot
from barnabas_raftlog.errors import BarnabasError, MalformedMessageError
from barnabas_raftlog.unpacking import UNREADABLE

__all__ = [
    "CONFIGS_MAX",
    "NAMED_MAX",
    "AllocateProducerIds",
    "AlterConfigs",
    "AlterConfigsAnswer",
    "AlterReassignments",
    "AlterReassignmentsAnswer",
    "AlterResources",
    "AlterResourcesAnswer",
    "AlteredResource",
    "AlteredTopic",
    "Answer",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "CheckSessions",
    "Command",
    "ConfigChange",
    "ConfigOperation",
    "ConfiguredResource",
    "ConfiguredTopic",
    "ControlledShutdown",
    "CreatePartitions",
    "CreatePartitionsAnswer",
    "CreateSnapshot",
    "CreateSnapshotAnswer",
    "CreateTopics",
    "CreateTopicsAnswer",
    "CreatedTopic",
    "DeleteSnapshot",
    "DeleteSnapshotAnswer",
    "DeleteTopics",
    "DeleteTopicsAnswer",
    "DeletedTopic",
    "DescribeQuorum",
    "FeatureChange",
    "FeatureUpdate",
    "FinishMoves",
    "GrownTopic",
    "HeartbeatAnswer",
    "MovesFinished",
    "NewPartitions",
    "NewTopic",
    "ProducerIdBlock",
    "QuorumAnswer",
    "QuorumMember",
    "ReadIndex",
    "ReadIndexAnswer",
    "Reassignment",
    "ReassignmentFate",
    "Refusal",
    "RefusalReason",
    "Refused",
    "RegisterBroker",
    "Reply",
    "SessionsChecked",
    "UnregisterBroker",
    "UnregisterBrokerAnswer",
    "UpdateFeatures",
    "UpdateFeaturesAnswer",
    "check_named",
    "decode_answer",
    "decode_command",
    "decode_reply",
    "encode_answer",
    "encode_command",
    "encode_reply",
]

NAMED_MAX = 10_000
"""Topics, or partitions to be reassigned, that a command may name; it may make as many partitions (`topics`)."""
CONFIGS_MAX = 100
"""Configurations of one topic that may be named at once: there are fewer (`topic_configs`)."""
PRODUCER_ID_BLOCK = 1_000  # Kafka's block size: a broker asks once for a thousand producers


class RefusalReason(Enum):
    """The reason of a refusal, by Kafka's name for it where Kafka has one. The broker maps names to codes."""

    BROKER_ID_NOT_REGISTERED = "BROKER_ID_NOT_REGISTERED"
    INVALID_CONFIG = "INVALID_CONFIG"
    INVALID_PARTITIONS = "INVALID_PARTITIONS"
    INVALID_REPLICATION_FACTOR = "INVALID_REPLICATION_FACTOR"
    INVALID_REPLICA_ASSIGNMENT = "INVALID_REPLICA_ASSIGNMENT"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_TOPIC = "INVALID_TOPIC"
    INVALID_UPDATE_VERSION = "INVALID_UPDATE_VERSION"
    KAFKA_STORAGE_ERROR = "KAFKA_STORAGE_ERROR"
    NO_REASSIGNMENT_IN_PROGRESS = "NO_REASSIGNMENT_IN_PROGRESS"
    NOT_CONTROLLER = "NOT_CONTROLLER"
    POLICY_VIOLATION = "POLICY_VIOLATION"
    RESOURCE_NOT_FOUND = "RESOURCE_NOT_FOUND"
    STALE_BROKER_EPOCH = "STALE_BROKER_EPOCH"
    TIMED_OUT = "TIMED_OUT"
    TOPIC_ALREADY_EXISTS = "TOPIC_ALREADY_EXISTS"
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    UNKNOWN_TOPIC_ID = "UNKNOWN_TOPIC_ID"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"


class Refused(BarnabasError):  # noqa: N818  # an answer, not a fault: it says what happened, like "refused"
    """The controller, or the way to it, said no; the text is fit for a user.

    `outcome_unknown` is set only with TIMED_OUT, when the command may have been, or may yet be, carried out.
    """

    reason: RefusalReason  # type: ignore[assignment]  # one of a few, where others have words

    def __init__(self, reason: RefusalReason, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.outcome_unknown = outcome_unknown


def check_named(count: int, what: str = "topics") -> None:
    """Refuse a command that names more than one command may.

    Raises:
        Refused: POLICY_VIOLATION.
    """
    if count > NAMED_MAX:
        text = f"{count} {what} in one request; {NAMED_MAX} is the maximum"
        raise Refused(RefusalReason.POLICY_VIOLATION, text)


class _Tagged(msgspec.Struct, frozen=True, tag_field="type"):
    """A value that travels as a msgpack map with its kind in `type`."""


class RegisterBroker(_Tagged, frozen=True, tag="register_broker"):
    """A process that started as `node_id` asks to be known. A new incarnation replaces an older one at once.

    `listeners` as in the record: left out where there is one address for all.
    """

    node_id: int
    incarnation: int
    host: str
    port: int
    rack: str | None = None
    directory_id: bytes = UNKNOWN_DIRECTORY
    listeners: tuple[ListenerAddress, ...] | msgspec.UnsetType = msgspec.UNSET
    record_level: int = 0


class BrokerHeartbeat(_Tagged, frozen=True, tag="broker_heartbeat"):
    """The broker is alive, has applied every record below `version`, and understands records of `record_level`."""

    node_id: int
    epoch: int
    version: int
    record_level: int = 0


class ControlledShutdown(_Tagged, frozen=True, tag="controlled_shutdown"):
    """The broker means to stop: no new replicas. With `done` its leaderships have moved: fence it now."""

    node_id: int
    epoch: int
    done: bool


class CheckSessions(_Tagged, frozen=True, tag="check_sessions"):
    """Fence the brokers that were silent for the session timeout. The active controller asks itself."""


class NewTopic(msgspec.Struct, frozen=True):
    """One topic to create. -1 means the cluster's default; `assignments` (partition to node ids) excludes counts."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = msgspec.field(default_factory=dict[int, tuple[int, ...]])
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict[str, str | None])
    topic_id: bytes = b""


class CreateTopics(_Tagged, frozen=True, tag="create_topics"):
    """Create each topic that can be created; with `validate_only` only say which those are."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    command_id: bytes = b""


class NewPartitions(msgspec.Struct, frozen=True):
    """A topic that is to have `count` partitions. `assignments` are those of the new ones; None: place them."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class CreatePartitions(_Tagged, frozen=True, tag="create_partitions"):
    """Let each topic grow that may; with `validate_only` only say which those are."""

    topics: tuple[NewPartitions, ...]
    validate_only: bool = False
    command_id: bytes = b""


class ConfigOperation(IntEnum):
    """A change of one configuration; the numbers are Kafka's. The last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True):
    """One configuration and its change. `operation` is a `ConfigOperation`, or a client's mistake."""

    name: str
    operation: int = 0
    value: str | None = None


class ConfiguredTopic(msgspec.Struct, frozen=True):
    """A topic and the changes to it. With `replace` a configuration that is not named counts as never set."""

    name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


class AlterConfigs(_Tagged, frozen=True, tag="alter_configs"):
    """Change the configurations of each topic that may change; with `validate_only` only say which those are."""

    topics: tuple[ConfiguredTopic, ...]
    validate_only: bool = False
    command_id: bytes = b""


class ConfiguredResource(msgspec.Struct, frozen=True):
    """A broker, all brokers or a group, by Kafka's number for the kind and the name, and the changes to it.

    With `replace` a configuration that is not named counts as never set.
    """

    kind: int
    name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


class AlterResources(_Tagged, frozen=True, tag="alter_resources"):
    """Change what is set for each resource that is no topic; with `validate_only` only say what could be."""

    resources: tuple[ConfiguredResource, ...]
    validate_only: bool = False
    command_id: bytes = b""


class DeleteTopics(_Tagged, frozen=True, tag="delete_topics"):
    """Delete each topic that exists. Answers come in order: names first, then ids."""

    names: tuple[str, ...] = ()
    topic_ids: tuple[bytes, ...] = ()
    command_id: bytes = b""


class Reassignment(msgspec.Struct, frozen=True):
    """The replicas wanted for one partition, the preferred leader first. None cancels the move that is under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


class AlterReassignments(_Tagged, frozen=True, tag="alter_reassignments"):
    """Move each partition that may move. `may_change_factor`: also to more or fewer replicas."""

    partitions: tuple[Reassignment, ...]
    may_change_factor: bool = True
    command_id: bytes = b""


class FinishMoves(_Tagged, frozen=True, tag="finish_moves"):
    """The leaders of these partitions, (topic id, partition, epoch of the move), have led them to their targets.

    A move that was altered or finished meanwhile has another epoch, and is passed over.
    """

    moves: tuple[tuple[bytes, int, int], ...]


class AllocateProducerIds(_Tagged, frozen=True, tag="allocate_producer_ids"):
    """Reserve a block of producer ids that nobody else will ever get."""

    count: int = PRODUCER_ID_BLOCK


class CreateSnapshot(_Tagged, frozen=True, tag="create_snapshot"):
    """Keep a snapshot under its name, unless the name has one: that one stays, and is the answer."""

    snapshot: NamedSnapshot
    command_id: bytes = b""


class DeleteSnapshot(_Tagged, frozen=True, tag="delete_snapshot"):
    """Delete the snapshot that has this name, if it has this id, too: never a successor that was made meanwhile."""

    name: str
    snapshot_id: bytes
    command_id: bytes = b""


class FeatureChange(IntEnum):
    """What an update may do to a feature's level, with Kafka's numbers. A lossy one may cost data, if so it says."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    LOSSY_DOWNGRADE = 3


class FeatureUpdate(msgspec.Struct, frozen=True):
    """The level that a feature should have; 0 switches it off."""

    name: str
    level: int
    change: FeatureChange = FeatureChange.UPGRADE


class UpdateFeatures(_Tagged, frozen=True, tag="update_features"):
    """Change the finalized levels of features: all that are named, or none. `validate_only` changes none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
    command_id: bytes = b""


class UnregisterBroker(_Tagged, frozen=True, tag="unregister_broker"):
    """Forget a broker that is away and holds nothing."""

    node_id: int
    command_id: bytes = b""


class ReadIndex(_Tagged, frozen=True, tag="read_index"):
    """Ask for the version of an image that shows all earlier answers (Raft thesis, 6.4); it changes nothing."""


class DescribeQuorum(_Tagged, frozen=True, tag="describe_quorum"):
    """Ask how far the members of the group have come; it changes nothing, and `decide` never sees it."""


Command: TypeAlias = (
    RegisterBroker
    | BrokerHeartbeat
    | ControlledShutdown
    | CheckSessions
    | CreateTopics
    | CreatePartitions
    | AlterConfigs
    | AlterResources
    | DeleteTopics
    | AlterReassignments
    | FinishMoves
    | AllocateProducerIds
    | CreateSnapshot
    | DeleteSnapshot
    | UpdateFeatures
    | UnregisterBroker
    | ReadIndex
    | DescribeQuorum
)


class BrokerRegistration(_Tagged, frozen=True, tag="broker_registration"):
    """The epoch that names this registration from now on."""

    epoch: int


class HeartbeatAnswer(_Tagged, frozen=True, tag="heartbeat_answer"):
    """The broker's state as the cluster sees it."""

    fenced: bool
    shutting_down: bool


class SessionsChecked(_Tagged, frozen=True, tag="sessions_checked"):
    """The brokers that have just been fenced."""

    fenced: tuple[int, ...]


class CreatedTopic(msgspec.Struct, frozen=True):
    """The fate of one `NewTopic`: created (or creatable) when `error` is None. `warning` is for a log line."""

    name: str
    error: RefusalReason | None = None
    message: str = ""
    topic_id: bytes = bytes(16)
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    warning: str = ""


class CreateTopicsAnswer(_Tagged, frozen=True, tag="create_topics_answer"):
    """One fate per topic asked for, in the order of asking."""

    topics: tuple[CreatedTopic, ...]


class GrownTopic(msgspec.Struct, frozen=True):
    """The fate of one `NewPartitions`: grown (or able to) when `error` is None."""

    name: str
    error: RefusalReason | None = None
    message: str = ""
    topic_id: bytes = bytes(16)


class CreatePartitionsAnswer(_Tagged, frozen=True, tag="create_partitions_answer"):
    """One fate per topic asked for, in the order of asking."""

    topics: tuple[GrownTopic, ...]


class AlteredTopic(msgspec.Struct, frozen=True):
    """The fate of one `ConfiguredTopic`: changed (or able to be) when `error` is None."""

    name: str
    error: RefusalReason | None = None
    message: str = ""


class AlterConfigsAnswer(_Tagged, frozen=True, tag="alter_configs_answer"):
    """One fate per topic asked for, in the order of asking."""

    topics: tuple[AlteredTopic, ...]


class AlteredResource(msgspec.Struct, frozen=True):
    """The fate of one `ConfiguredResource`: changed (or able to be) when `error` is None."""

    error: RefusalReason | None = None
    message: str = ""


class AlterResourcesAnswer(_Tagged, frozen=True, tag="alter_resources_answer"):
    """One fate per resource asked for, in the order of asking."""

    resources: tuple[AlteredResource, ...]


class DeletedTopic(msgspec.Struct, frozen=True):
    """The fate of one topic named or identified; a name that is not known is None, an id zero bytes."""

    name: str | None
    topic_id: bytes
    error: RefusalReason | None = None
    message: str = ""


class DeleteTopicsAnswer(_Tagged, frozen=True, tag="delete_topics_answer"):
    """One fate per topic asked for: names in their order, then ids in theirs."""

    topics: tuple[DeletedTopic, ...]


class ReassignmentFate(msgspec.Struct, frozen=True):
    """The fate of one `Reassignment`: it is on its way, or there already, when `error` is None."""

    topic: str
    partition: int
    error: RefusalReason | None = None
    message: str = ""


class AlterReassignmentsAnswer(_Tagged, frozen=True, tag="alter_reassignments_answer"):
    """One fate per partition asked for, in the order of asking."""

    partitions: tuple[ReassignmentFate, ...]


class MovesFinished(_Tagged, frozen=True, tag="moves_finished"):
    """The number of moves that were still under way."""

    count: int


class ProducerIdBlock(_Tagged, frozen=True, tag="producer_id_block"):
    """The ids [first, first + count)."""

    first: int
    count: int


class CreateSnapshotAnswer(_Tagged, frozen=True, tag="create_snapshot_answer"):
    """The id of the snapshot that has the name now; the one asked for if it was `created`."""

    snapshot_id: bytes
    created: bool


class DeleteSnapshotAnswer(_Tagged, frozen=True, tag="delete_snapshot_answer"):
    """It is gone."""


class UpdateFeaturesAnswer(_Tagged, frozen=True, tag="update_features_answer"):
    """Each feature that was named has the level that was asked for."""


class UnregisterBrokerAnswer(_Tagged, frozen=True, tag="unregister_broker_answer"):
    """The broker is forgotten."""


class ReadIndexAnswer(_Tagged, frozen=True, tag="read_index_answer"):
    """An image of at least this version shows everything that was answered before the question."""

    version: int


class QuorumMember(msgspec.Struct, frozen=True):
    """A voter or learner: the last index that it has, and when, by the leader's wall clock, in ms.

    `heard_at_ms` is when it last answered; `caught_up_at_ms` when it last had all that there was, -1: unknown.
    """

    node_id: int
    directory_id: bytes
    match_index: int
    heard_at_ms: int
    caught_up_at_ms: int


class QuorumAnswer(_Tagged, frozen=True, tag="quorum_answer"):
    """The group as its leader sees it."""

    leader_id: int
    term: int
    commit_index: int
    voters: tuple[QuorumMember, ...]
    learners: tuple[QuorumMember, ...]


class Refusal(_Tagged, frozen=True, tag="refusal"):
    """A `Refused` on its way back; `leader_id` is the node to ask instead, if known."""

    reason: RefusalReason
    message: str
    leader_id: int | None = None


Answer: TypeAlias = (
    BrokerRegistration
    | HeartbeatAnswer
    | SessionsChecked
    | CreateTopicsAnswer
    | CreatePartitionsAnswer
    | AlterConfigsAnswer
    | AlterResourcesAnswer
    | DeleteTopicsAnswer
    | AlterReassignmentsAnswer
    | MovesFinished
    | ProducerIdBlock
    | CreateSnapshotAnswer
    | DeleteSnapshotAnswer
    | UpdateFeaturesAnswer
    | UnregisterBrokerAnswer
    | ReadIndexAnswer
    | QuorumAnswer
    | Refusal
)


class Reply(msgspec.Struct, frozen=True):
    """An answer between nodes. A node that has applied every record below `version` sees its effects."""

    version: int
    answer: Answer


_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode_command(command: Command) -> bytes:
    """Return `command` as msgpack."""
    return msgspec.msgpack.encode(command)


def decode_command(body: bytes | memoryview) -> Command:
    """Read a command.

    Raises:
        MalformedMessageError: it is none; also when a newer node sends a command that this one does not know.
    """
    try:
        return _commands.decode(body)
    except UNREADABLE as error:
        raise MalformedMessageError(f"not a controller command: {error}") from error


def encode_answer(answer: Answer) -> bytes:
    """Return `answer` as msgpack."""
    return msgspec.msgpack.encode(answer)


def decode_answer(body: bytes | memoryview) -> Answer:
    """Read an answer.

    Raises:
        MalformedMessageError: it is none.
    """
    try:
        return _answers.decode(body)
    except UNREADABLE as error:
        raise MalformedMessageError(f"not a controller answer: {error}") from error


def encode_reply(reply: Reply) -> bytes:
    """Return `reply` as msgpack."""
    return msgspec.msgpack.encode(reply)


def decode_reply(body: bytes | memoryview) -> Reply:
    """Read a reply.

    Raises:
        MalformedMessageError: it is none.
    """
    try:
        return _replies.decode(body)
    except UNREADABLE as error:
        raise MalformedMessageError(f"not a controller reply: {error}") from error
