"""Metadata records and frames: round trips, pinned bytes, and records of newer versions."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_metadata_quorum.image.frames import decode_frame, encode_frame
from barnabas_metadata_quorum.image.image import Founders, Image, apply_all
from barnabas_metadata_quorum.image.records import (
    NOBODY,
    UNKNOWN_DIRECTORY,
    VERSIONS,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    CommandAnswered,
    FeatureFinalized,
    ListenerAddress,
    NamedSnapshot,
    NamedSnapshotCreated,
    NamedSnapshotDeleted,
    PartitionMoved,
    PartitionsAdded,
    PinnedTopic,
    ProducerIdsAllocated,
    Record,
    ResourceConfigured,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    UnknownRecordError,
    decode_record,
    encode_record,
)
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import ControlKind, control_frame

ints = st.integers(0, 2**63 - 1)
names = st.text(max_size=9)
ids = st.binary(min_size=16, max_size=16)
replicas = st.lists(ints, min_size=1, max_size=3).map(tuple)
assignments = st.lists(replicas, max_size=3).map(tuple)
directories = st.dictionaries(ints, ids, max_size=3)
listeners = st.lists(st.builds(ListenerAddress, names, names, ints), min_size=1, max_size=3).map(tuple)
pinned = st.lists(st.builds(PinnedTopic, ids, names, st.binary()), max_size=3).map(tuple)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(BrokerRegistered, ints, ints, ints, names, ints, st.none() | names, ids),
    st.builds(BrokerRegistered, *([ints] * 3), names, ints, st.none(), ids, listeners=listeners),
    st.builds(BrokerRegistered, *([ints] * 3), names, ints, st.none(), ids, record_level=ints),
    st.builds(BrokerUnfenced, ints, ints),
    st.builds(BrokerUnfenced, ints, ints, record_level=ints),
    st.builds(BrokerFenced, ints, ints, names),
    st.builds(BrokerShuttingDown, ints, ints),
    st.builds(TopicCreated, ids, names, assignments, st.dictionaries(names, names), directories, replicas),
    st.builds(PartitionsAdded, ids, assignments, directories, replicas),
    st.builds(PartitionMoved, ids, ints, ints, replicas, replicas, replicas, ints, st.booleans()),
    st.builds(TopicConfigured, ids, st.dictionaries(names, names)),
    st.builds(TopicDeleted, ids),
    st.builds(ProducerIdsAllocated, ints),
    st.builds(NamedSnapshotCreated, st.builds(NamedSnapshot, ids, names, ints, pinned, st.booleans())),
    st.builds(NamedSnapshotDeleted, names, ids),
    st.builds(FeatureFinalized, names, ints),
    st.builds(ResourceConfigured, ints, names, st.dictionaries(names, names)),
    st.builds(CommandAnswered, ids, st.binary()),
)


@settings(max_examples=50)
@given(records)
def test_every_record_survives_a_round_trip(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@settings(max_examples=50)
@given(st.lists(records, min_size=1, max_size=5))
def test_every_frame_survives_a_round_trip(several: list[Record]) -> None:
    assert decode_frame(encode_frame(several, 1_700_000_000_000)) == several


def test_a_record_is_a_map_with_type_and_version() -> None:
    fields = msgspec.msgpack.decode(encode_record(BrokerUnfenced(3, 17)))
    assert fields == {"type": "broker_unfenced", "node_id": 3, "epoch": 17, "version": 1}


def test_the_bytes_of_a_record_never_change() -> None:
    assert encode_record(TopicDeleted(bytes(range(16)))).hex() == (
        "83a474797065ad746f7069635f64656c65746564a8746f7069635f6964c410000102030405060708090a0b0c0d0e0f"
        "a776657273696f6e01"
    )


def test_a_broker_of_one_nameless_listener_is_registered_in_the_bytes_of_before() -> None:
    """Nodes of versions that know no listeners read it, and what they have written is read here."""
    before = (
        "89a474797065b162726f6b65725f72656769737465726564a76e6f64655f696401ab696e6361726e6174696f6e02a565706f636803"
        "a4686f7374a168a4706f727404a47261636bc0ac6469726563746f72795f6964c41000000000000000000000000000000000"
        "a776657273696f6e02"
    )
    record = BrokerRegistered(1, 2, 3, "h", 4, None)
    assert encode_record(record).hex() == before
    assert decode_record(bytes.fromhex(before)) == record
    [broker] = apply_all(Image("c"), [decode_record(bytes.fromhex(before))]).brokers.values()
    assert broker.address_on("PLAINTEXT") == broker.address_on("INSIDE") == ("h", 4)


def test_a_broker_with_names_is_found_by_them_only() -> None:
    both = (ListenerAddress("INSIDE", "b1", 9092), ListenerAddress("OUTSIDE", "localhost", 19092))
    [broker] = apply_all(Image("c"), [BrokerRegistered(1, 2, 3, "b1", 9092, None, listeners=both)]).brokers.values()
    assert broker.address_on("OUTSIDE") == ("localhost", 19092)
    assert broker.address_on("PLAINTEXT") is None


def test_a_later_version_may_say_more_of_each_listener() -> None:
    fields = msgspec.msgpack.decode(encode_record(BrokerRegistered(1, 2, 3, "h", 4, None)))
    later = msgspec.msgpack.encode(fields | {"listeners": [["INSIDE", "b1", 9092, "SSL"]]})
    record = decode_record(later)
    assert isinstance(record, BrokerRegistered)
    assert record.listeners == (ListenerAddress("INSIDE", "b1", 9092),)


def test_an_unknown_type_says_that_this_node_needs_an_upgrade() -> None:
    newer = msgspec.msgpack.encode({"type": "acl_added", "version": 1, "principal": "alice"})
    with pytest.raises(UnknownRecordError, match=r"unknown type 'acl_added' \(version 1\).*upgrade this node"):
        decode_record(newer)


def test_what_was_written_before_directories_is_read_as_unknown_ones() -> None:
    topic = {"topic_id": bytes(16), "assignments": [[1, 2]], "version": 1}
    old = (
        {"type": "broker_registered", "version": 1, "node_id": 1, "incarnation": 2, "epoch": 3}
        | {"host": "h", "port": 4, "rack": None},
        {"type": "topic_created", "name": "t", "configs": {}} | topic,
        {"type": "partitions_added"} | topic,
    )
    broker, created, added = (decode_record(msgspec.msgpack.encode(fields)) for fields in old)
    assert isinstance(broker, BrokerRegistered)
    assert broker.directory_id == UNKNOWN_DIRECTORY
    assert isinstance(created, TopicCreated)
    assert isinstance(added, PartitionsAdded)
    image = apply_all(Image("cluster"), (broker, created, added))
    for partition in image.topics[bytes(16)].partitions:
        assert partition.replicas == partition.hosts == (1, 2)
        assert partition.founders == Founders((1, 2), NOBODY, {})
    # And it is written anew in the present version.
    assert decode_record(encode_record(broker)) == broker


def test_a_newer_version_of_a_known_type_says_so_even_if_its_fields_changed() -> None:
    newer = msgspec.msgpack.encode({"type": "broker_fenced", "version": 2, "node_id": "a name now"})
    with pytest.raises(UnknownRecordError, match="'broker_fenced' has version 2, this node knows up to 1"):
        decode_record(newer)


def test_a_field_added_without_a_new_version_is_ignored() -> None:
    fields = msgspec.msgpack.decode(encode_record(BrokerFenced(1, 2, "why")))
    assert decode_record(msgspec.msgpack.encode(fields | {"operator": "bob"})) == BrokerFenced(1, 2, "why")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xc1", msgspec.msgpack.encode({"type": "broker_fenced"})])
def test_what_is_no_record_is_called_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_record(data)


def test_a_known_type_with_wrong_fields_is_malformed() -> None:
    with pytest.raises(MalformedMessageError):
        decode_record(msgspec.msgpack.encode({"type": "broker_fenced", "version": 1, "node_id": "x"}))


def test_a_control_frame_holds_no_records() -> None:
    assert decode_frame(control_frame(7, 2, ControlKind.NO_OP)) == []


def test_a_damaged_frame_is_malformed() -> None:
    frame = encode_frame([BrokerRegistered(node_id=1, incarnation=2, epoch=3, host="h", port=4, rack=None)], 0)
    with pytest.raises(MalformedMessageError):
        decode_frame(frame[:-1])


def test_a_compressed_frame_is_malformed() -> None:
    """None is ever written, and a few bytes could ask for as much memory as decompression may take."""
    value = encode_record(BrokerRegistered(node_id=1, incarnation=2, epoch=3, host="h", port=4, rack=None))
    frame = build_batch([NewRecord(None, value, 0)], compression=Compression.ZSTD)
    with pytest.raises(MalformedMessageError, match="compressed"):
        decode_frame(frame)


def test_every_type_states_the_version_it_understands() -> None:
    types = {member.__struct_config__.tag for member in get_args(Record)}
    assert types == set(VERSIONS)
