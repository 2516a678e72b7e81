"""The records of the metadata log, which are stored and replicated. Pure.

Each is a msgpack map with a `type` and a `version` beside its own fields. The rules that let versions meet:

* A field may be added with a default without a new version: old nodes skip names that they do not know. So add
  one this way only if ignoring it is harmless.
* A change that must not be ignored raises the record's version, or is a new type.
* A node that meets a type or version it does not know cannot hold the same image as the others any more. It stops
  with `UnknownRecordError`, which names the record; an upgrade is the cure, and its log is intact.

Records say what *is* now, never what to compute: applying them needs no clock, no chance and no configuration.
Several records in one frame are one atomic change.

Version 2 of three types came with directories and moves: a registration, and the founders of a partition, name the
directories that hold their data. In a record of version 1, a directory is `UNKNOWN_DIRECTORY`. Version 2 of a move came
with witnesses: a node that ignored the former ones would let them delete data with which they may still have to vote.

Listeners came to registrations without a new version: a node that ignores them tells all clients the first address.

*Rolling upgrades.* A record of a new type would stop the nodes that are still to be upgraded. So a broker says which
`record_level` it understands, in its registration and in its heartbeats, and the controller refuses a command whose
records somebody cannot read. Level 1 came with named snapshots, level 2 with features, level 3 with
configurations of what is no topic, level 4 with brokers that are forgotten, level 5 with groups of KIP-848, whose
records are not here; 0 is a broker of before there were levels. Levels are ignored by nodes that do not know them,
which is harmless: heartbeats tell the next controller again.

Not here: ACLs, SCRAM credentials and client quotas have no record types yet; an older node will answer
`UnknownRecordError` when they come.
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from barnabas_raftlog.errors import BarnabasError, MalformedMessageError
from barnabas_raftlog.unpacking import UNREADABLE

__all__ = [
    "CONFIGS_LEVEL",
    "FEATURES_LEVEL",
    "GROUPS_LEVEL",
    "NOBODY",
    "RECORD_LEVEL",
    "SNAPSHOTS_LEVEL",
    "UNKNOWN_DIRECTORY",
    "UNREGISTERED_LEVEL",
    "BrokerFenced",
    "BrokerRegistered",
    "BrokerShuttingDown",
    "BrokerUnfenced",
    "BrokerUnregistered",
    "CommandAnswered",
    "FeatureFinalized",
    "ListenerAddress",
    "NamedSnapshot",
    "NamedSnapshotCreated",
    "NamedSnapshotDeleted",
    "PartitionMoved",
    "PartitionsAdded",
    "PinnedTopic",
    "ProducerIdsAllocated",
    "Record",
    "ResourceConfigured",
    "TopicConfigured",
    "TopicCreated",
    "TopicDeleted",
    "UnknownRecordError",
    "decode_record",
    "encode_record",
]


UNKNOWN_DIRECTORY = bytes(16)
NOBODY = -1
SNAPSHOTS_LEVEL = 1
"""The record level that a broker must have to read records of named snapshots."""
FEATURES_LEVEL = 2
"""The record level that a broker must have to read records of features."""
CONFIGS_LEVEL = 3
"""The record level that a broker must have to read configurations of brokers and groups."""
UNREGISTERED_LEVEL = 4
"""The record level that a broker must have to read that another one is forgotten."""
GROUPS_LEVEL = 5
"""The record level that a broker must have to read groups of KIP-848, also such as have members of both kinds."""
RECORD_LEVEL = GROUPS_LEVEL
"""The record level of this code."""


class UnknownRecordError(BarnabasError):
    """The metadata log holds a record that only a newer version of Barnabas understands: this node must stop."""


class _Record(msgspec.Struct, frozen=True, tag_field="type"):
    """A record as a tagged msgpack map."""


class ListenerAddress(msgspec.Struct, frozen=True, array_like=True):
    """Where clients that came in on the listener `name` find a broker. Elements that follow are for later versions."""

    name: str
    host: str
    port: int


class BrokerRegistered(_Record, frozen=True, tag="broker_registered"):
    """A broker process joined, fenced. `epoch` is this record's own offset, so epochs only grow.

    `directory_id` names the disk that it came with: another disk under the same node id lacks the data of the first.
    `host` and `port` are what clients are told of a broker that names no listeners; else `listeners` has all of them,
    that one first. A record of one nameless listener is the same, byte by byte, as before there were names.
    """

    node_id: int
    incarnation: int
    epoch: int
    host: str
    port: int
    rack: str | None
    directory_id: bytes = UNKNOWN_DIRECTORY
    version: int = 2
    listeners: tuple[ListenerAddress, ...] | msgspec.UnsetType = msgspec.UNSET
    record_level: int | msgspec.UnsetType = msgspec.UNSET


class BrokerUnfenced(_Record, frozen=True, tag="broker_unfenced"):
    """The broker caught up with its own registration: it may be shown to clients and given replicas.

    With a `record_level` it is a broker that serves already, and whose level an older controller did not write down.
    """

    node_id: int
    epoch: int
    version: int = 1
    record_level: int | msgspec.UnsetType = msgspec.UNSET


class BrokerFenced(_Record, frozen=True, tag="broker_fenced"):
    """The broker is not to be shown to clients; `cause` is for a person."""

    node_id: int
    epoch: int
    cause: str
    version: int = 1


class BrokerShuttingDown(_Record, frozen=True, tag="broker_shutting_down"):
    """The broker moves its leaderships away and will stop; it stays so until it registers again."""

    node_id: int
    epoch: int
    version: int = 1


class BrokerUnregistered(_Record, frozen=True, tag="broker_unregistered"):
    """The broker is forgotten. If it comes after all, it registers as one that was never seen."""

    node_id: int
    epoch: int
    version: int = 1


class TopicCreated(_Record, frozen=True, tag="topic_created"):
    """A whole topic: `assignments[p]` are the node ids of partition p, the preferred leader first.

    `directories` are those of all brokers named, at this moment: together with the assignment they are the voters that
    found each partition's group. `witnesses[p]` votes in partition p beside its replicas, or is `NOBODY`; no
    partition has a witness if the tuple is empty.
    """

    topic_id: bytes
    name: str
    assignments: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str]
    directories: Mapping[int, bytes] = msgspec.field(default_factory=dict[int, bytes])
    witnesses: tuple[int, ...] = ()
    version: int = 2


class PartitionsAdded(_Record, frozen=True, tag="partitions_added"):
    """More partitions of a topic: `assignments` and the rest are theirs; they follow the ones that it has."""

    topic_id: bytes
    assignments: tuple[tuple[int, ...], ...]
    directories: Mapping[int, bytes] = msgspec.field(default_factory=dict[int, bytes])
    witnesses: tuple[int, ...] = ()
    version: int = 2


class PartitionMoved(_Record, frozen=True, tag="partition_moved"):
    """The whole placement of one partition, and of its move, not only the change.

    `replicas` hold it, or are about to. While it is on its way, `target` are its replicas in the end and `original`
    those it returns to if the move is cancelled; both are empty when it stands still. `epoch` is this record's own
    offset, by which the group's leader says which move it has finished. Without `has_founders` a replica that has
    nothing is nobody until the partition's leader brings it in; once that is so, it stays so. `witness` should vote
    beside the replicas, and `former_witnesses` may still vote while it is on its way.
    """

    topic_id: bytes
    partition: int
    epoch: int
    replicas: tuple[int, ...]
    target: tuple[int, ...] = ()
    original: tuple[int, ...] = ()
    witness: int = NOBODY
    has_founders: bool = True
    former_witnesses: tuple[int, ...] = ()
    version: int = 2


class TopicConfigured(_Record, frozen=True, tag="topic_configured"):
    """All configurations that are set for a topic from now on, not only the change."""

    topic_id: bytes
    configs: Mapping[str, str]
    version: int = 1


class TopicDeleted(_Record, frozen=True, tag="topic_deleted"):
    """The topic and its data are to go; its id is never used again."""

    topic_id: bytes
    version: int = 1


class ProducerIdsAllocated(_Record, frozen=True, tag="producer_ids_allocated"):
    """Everything below `next_producer_id` has been given out."""

    next_producer_id: int
    version: int = 1


class PinnedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic in a named snapshot, with its name of then. `ranges` are packed (see `pinned_ranges`)."""

    topic_id: bytes
    name: str
    ranges: bytes


class NamedSnapshot(msgspec.Struct, frozen=True):
    """Ranges of offsets of topics, kept under a name until somebody deletes it; it never changes.

    `best_effort`: topics that are compacted were allowed in it, so records may vanish from its ranges unnoticed.
    `created_at_ms` is wall-clock time.
    """

    snapshot_id: bytes
    name: str
    created_at_ms: int
    topics: tuple[PinnedTopic, ...]
    best_effort: bool = False

    @property
    def size_bytes(self) -> int:
        """What it counts for: about its encoded size, the same on every node."""
        return 64 + len(self.name) + sum(24 + len(topic.name) + len(topic.ranges) for topic in self.topics)


class NamedSnapshotCreated(_Record, frozen=True, tag="named_snapshot_created"):
    """A name that was free has a snapshot."""

    snapshot: NamedSnapshot
    version: int = 1


class NamedSnapshotDeleted(_Record, frozen=True, tag="named_snapshot_deleted"):
    """The name is free again. The id names what was deleted, so that nobody doubts which one."""

    name: str
    snapshot_id: bytes
    version: int = 1


class FeatureFinalized(_Record, frozen=True, tag="feature_finalized"):
    """The whole cluster speaks a feature on this level from now on; 0 is as if it had never been finalized."""

    name: str
    level: int
    version: int = 1


class ResourceConfigured(_Record, frozen=True, tag="resource_configured"):
    """All configurations that are set for a resource that is no topic from now on, not only the change.

    `kind` is Kafka's number for such resources: 4 is the broker with the id that `name` is, or all brokers if it is
    empty; 16 is a subscription to clients' metrics; 32 is a group.
    """

    kind: int
    name: str
    configs: Mapping[str, str]
    version: int = 1


class CommandAnswered(_Record, frozen=True, tag="command_answered"):
    """The encoded answer to a command, so that a retry is answered the same instead of being carried out twice."""

    command_id: bytes
    answer: bytes
    version: int = 1


Record: TypeAlias = (
    BrokerRegistered
    | BrokerUnfenced
    | BrokerFenced
    | BrokerShuttingDown
    | BrokerUnregistered
    | TopicCreated
    | PartitionsAdded
    | PartitionMoved
    | TopicConfigured
    | TopicDeleted
    | ProducerIdsAllocated
    | NamedSnapshotCreated
    | NamedSnapshotDeleted
    | FeatureFinalized
    | ResourceConfigured
    | CommandAnswered
)

# The highest version of each type that this code understands.
VERSIONS: Mapping[str, int] = {
    "broker_registered": 2,
    "broker_unfenced": 1,
    "broker_fenced": 1,
    "broker_shutting_down": 1,
    "broker_unregistered": 1,
    "topic_created": 2,
    "partitions_added": 2,
    "partition_moved": 2,
    "topic_configured": 1,
    "topic_deleted": 1,
    "producer_ids_allocated": 1,
    "named_snapshot_created": 1,
    "named_snapshot_deleted": 1,
    "feature_finalized": 1,
    "resource_configured": 1,
    "command_answered": 1,
}


class _Envelope(msgspec.Struct):
    """The two fields that are read before all others."""

    type: str
    version: int


_envelopes: msgspec.msgpack.Decoder[_Envelope] = msgspec.msgpack.Decoder(_Envelope)
_records: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Return `record` as a msgpack map."""
    return msgspec.msgpack.encode(record)


def decode_record(data: bytes | memoryview) -> Record:
    """Read one record.

    Raises:
        UnknownRecordError: its type, or this version of its type, is not known here.
        MalformedMessageError: it is no metadata record at all.
    """
    try:
        envelope = _envelopes.decode(data)
        known = VERSIONS.get(envelope.type)
        if known is None:
            raise UnknownRecordError(
                f"metadata record of unknown type {envelope.type!r} (version {envelope.version}): "
                "it was written by a newer version of Barnabas; upgrade this node"
            )
        if not 1 <= envelope.version <= known:
            raise UnknownRecordError(
                f"metadata record {envelope.type!r} has version {envelope.version}, this node knows up to {known}: "
                "it was written by a newer version of Barnabas; upgrade this node"
            )
        return _records.decode(data)
    except UNREADABLE as error:
        raise MalformedMessageError(f"not a metadata record: {error}") from error
