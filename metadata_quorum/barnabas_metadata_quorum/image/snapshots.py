"""Encodes the whole image as bytes, and decodes it: versioned, checksummed, in terms of records. Pure.

    "BMDS" | u16 format | u32 crc32c of everything behind it | u64 image version | u64 raft index | u64 raft term |
    u32 size, cluster id | then for each record: u32 size, encoded record

All integers are big endian. The records, applied to an empty image, give the image: there is no second
description of the state that could drift from the first, and a type that only a newer version knows is
noticed in a snapshot just as in the log. Records are those that describe the state, not those that led to it.

`raft_index` and `raft_term` name the last entry that the image contains.
"""

import struct
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

import msgspec

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.crc32c import crc32c

from .image import Founders, Image, ImageBuilder, PartitionPlacement, Topic
from .records import (
    NOBODY,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    CommandAnswered,
    FeatureFinalized,
    NamedSnapshotCreated,
    PartitionMoved,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    ResourceConfigured,
    TopicCreated,
    decode_record,
    encode_record,
)

__all__ = ["Snapshot", "decode_snapshot", "encode_snapshot"]

MAGIC = b"BMDS"
FORMAT = 1

_PREFIX = struct.Struct(">4sHI")
_POSITION = struct.Struct(">QQQ")
_SIZE = struct.Struct(">I")
_NO_DIRECTORIES: Mapping[int, bytes] = {}


class Snapshot(NamedTuple):
    """An image and the last Raft entry that it contains."""

    raft_index: int
    raft_term: int
    image: Image


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the bytes. Reads nothing but immutable values, so it may run in a thread."""
    cluster_id = snapshot.image.cluster_id.encode()
    pieces = [
        _POSITION.pack(snapshot.image.version, snapshot.raft_index, snapshot.raft_term),
        _SIZE.pack(len(cluster_id)),
        cluster_id,
    ]
    for record in _records_of(snapshot.image):
        encoded = encode_record(record)
        pieces += (_SIZE.pack(len(encoded)), encoded)
    body = b"".join(pieces)
    return _PREFIX.pack(MAGIC, FORMAT, crc32c(body)) + body


def decode_snapshot(data: bytes | bytearray | memoryview) -> Snapshot:
    """Read a snapshot.

    Raises:
        MalformedMessageError: the bytes are damaged or no snapshot.
        UnknownRecordError: a newer version wrote it.
    """
    view = memoryview(data)
    if len(view) < _PREFIX.size + _POSITION.size:
        raise MalformedMessageError(f"a metadata snapshot of {len(view)} bytes is cut off")
    magic, version, crc = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise MalformedMessageError(f"a metadata snapshot begins with {MAGIC!r}, not {magic!r}")
    if version != FORMAT:
        raise MalformedMessageError(
            f"a metadata snapshot of format {version}: this version of Barnabas reads {FORMAT}; upgrade this node"
        )
    body = view[_PREFIX.size :]
    if crc32c(body) != crc:
        raise MalformedMessageError("a metadata snapshot does not match its checksum")
    image_version, raft_index, raft_term = _POSITION.unpack_from(body)
    pieces = _pieces(body, _POSITION.size)
    cluster_id = next(pieces, None)
    if cluster_id is None:
        raise MalformedMessageError("a metadata snapshot names no cluster")
    try:
        builder = ImageBuilder(Image(str(cluster_id, "utf-8")))
        for piece in pieces:
            builder.apply(decode_record(piece))
        image = builder.build(image_version)
    except (AssertionError, LookupError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"the records of a metadata snapshot contradict each other: {error!r}") from error
    return Snapshot(raft_index, raft_term, image)


def _pieces(body: memoryview, position: int) -> Iterator[memoryview]:
    while position < len(body):
        if len(body) - position < _SIZE.size:
            raise MalformedMessageError(f"a metadata snapshot ends inside a size at {position}")
        start = position + _SIZE.size
        position = start + int(_SIZE.unpack_from(body, position)[0])
        if position > len(body):
            raise MalformedMessageError(f"a metadata snapshot ends inside a record at {start}")
        yield body[start:position]


def _records_of(image: Image) -> Iterator[Record]:
    """Yield records that turn an empty image into `image`, but for its version."""
    for _, broker in sorted(image.brokers.items()):
        yield BrokerRegistered(
            node_id=broker.node_id,
            incarnation=broker.incarnation,
            epoch=broker.epoch,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            directory_id=broker.directory_id,
            listeners=broker.listeners or msgspec.UNSET,
            record_level=broker.record_level or msgspec.UNSET,
        )
        if broker.has_served:
            yield BrokerUnfenced(broker.node_id, broker.epoch)
            if broker.fenced:
                yield BrokerFenced(broker.node_id, broker.epoch, "before this snapshot")
        if broker.shutting_down:
            yield BrokerShuttingDown(broker.node_id, broker.epoch)
    # Topics keep their order of creation: equal images also list their topics equally.
    for topic in image.topics.values():
        yield from _records_of_topic(topic)
    if image.next_producer_id:
        yield ProducerIdsAllocated(image.next_producer_id)
    for snapshot in image.named_snapshots.values():
        yield NamedSnapshotCreated(snapshot)
    for name, level in sorted(image.features.items()):
        yield FeatureFinalized(name, level)
    for (kind, name), configs in sorted(image.resource_configs.items()):
        yield ResourceConfigured(kind, name, configs)
    for command_id, answer in image.answers.items():
        yield CommandAnswered(command_id, answer)


def _records_of_topic(topic: Topic) -> Iterator[Record]:
    """Yield the partitions as they were founded, in runs that share their directories, then those that have moved."""
    founders = [
        partition.founders or Founders(partition.replicas, NOBODY, _NO_DIRECTORIES) for partition in topic.partitions
    ]
    created = False
    for directories, run in groupby(founders, key=lambda one: one.directories):
        together = list(run)
        assignments = tuple(tuple(voter for voter in one.voters if voter != one.witness) for one in together)
        witnesses = tuple(one.witness for one in together)
        if all(witness == NOBODY for witness in witnesses):
            witnesses = ()
        if created:
            yield PartitionsAdded(topic.topic_id, assignments, directories, witnesses)
        else:
            yield TopicCreated(
                topic_id=topic.topic_id,
                name=topic.name,
                assignments=assignments,
                configs=topic.configs,
                directories=directories,
                witnesses=witnesses,
            )
        created = True
    for index, partition in enumerate(topic.partitions):
        voters = founders[index].voters
        witness = founders[index].witness
        as_founded = tuple(voter for voter in voters if voter != witness)
        if partition != PartitionPlacement(as_founded, None, witness, founders[index]):
            target, original = (partition.move.target, partition.move.original) if partition.move else ((), ())
            yield PartitionMoved(
                topic_id=topic.topic_id,
                partition=index,
                epoch=partition.epoch,
                replicas=partition.replicas,
                target=target,
                original=original,
                witness=partition.witness,
                has_founders=partition.founders is not None,
                former_witnesses=partition.former_witnesses,
            )
