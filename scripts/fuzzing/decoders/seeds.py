"""The inputs of each target where a search begins: they are nearly right."""

import random
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from barnabas_clients.protocol.registry import APIS
from barnabas_metadata_quorum.controller.commands import Answer, Command, Reply
from barnabas_metadata_quorum.image.records import Record
from barnabas_metadata_quorum.leaders.table import Announcement
from barnabas_raftlog.links.liveness import cluster_mark, encode_datagram
from fuzzing.batches import lying_batch
from fuzzing.boundaries import Names, lying_request
from fuzzing.frames import PAIRS, frames
from fuzzing.peer_frames import HANDSHAKE_KINDS, KINDS, PeerLies

from .targets import SECRET

__all__ = ["seeds"]

BATCHES = 200
ROUNDS = 4
SIMPLE: dict[type[msgspec.inspect.Type], object] = {
    msgspec.inspect.IntType: 1,
    msgspec.inspect.StrType: "topic",
    msgspec.inspect.BytesType: bytes(16),
    msgspec.inspect.BoolType: True,
    msgspec.inspect.FloatType: 1.0,
}
NAMES = Names(("one", "two"), ("group",), {"one": bytes(range(16))})


def seeds(target: str, seed: int) -> list[bytes]:
    """Return inputs for a target, the same for the same seed."""
    chance = random.Random(f"{target}/{seed}")
    makers = {"requests": _requests, "responses": _responses, "records": _records, "peers": _peers, "quorum": _quorum}
    return list(makers[target](chance))


def _requests(chance: random.Random) -> Iterator[bytes]:
    for frame in frames(chance.randrange(1 << 30), ROUNDS * len(PAIRS), NAMES):
        yield frame.data[4:]


def _responses(chance: random.Random) -> Iterator[bytes]:
    for place, key in enumerate(sorted(APIS)):
        api = APIS[key]
        for version in api.versions:
            for _ in range(ROUNDS):
                answer = lying_request(api.response, version, NAMES, chance)
                try:
                    yield bytes((place, version - api.versions[0])) + answer.to_bytes(version)
                except ValueError:
                    continue  # a text that this version has no room for


def _records(chance: random.Random) -> Iterator[bytes]:
    for _ in range(BATCHES):
        yield lying_batch(chance, (0, 1, 1_000))


def _peers(chance: random.Random) -> Iterator[bytes]:
    """Yield inputs whose first byte names the decoder that they are for."""
    lies = PeerLies((bytes(20), bytes(19) + b"\1"), 2, 1)
    for number in range(BATCHES):
        for kind in KINDS:
            frame = lies.frame(kind, chance)
            yield bytes((number % 2,)) + frame[4 * (number % 2 == 0) :]
        for kind in HANDSHAKE_KINDS:
            yield b"\2" + lies.handshake(kind, chance)[8:]
        secret = (None, SECRET)[number % 2]
        yield b"\3" + encode_datagram(lies.datagram(chance), 1, cluster_mark("cluster"), secret)
        yield b"\4" + lies.body(chance)


def _quorum(chance: random.Random) -> Iterator[bytes]:
    lies = PeerLies((bytes(20), bytes(19) + b"\1"), 2, 1)
    for union in (*get_args(Command), *get_args(Answer), *get_args(Record), Reply, Announcement):
        yield msgspec.msgpack.encode(_example(msgspec.inspect.type_info(union)))
        yield msgspec.msgpack.encode([_example(msgspec.inspect.type_info(union))])
    for _ in range(BATCHES):
        yield lies.body(chance)


def _example(kind: msgspec.inspect.Type) -> Any:
    """Return the smallest msgpack value of a type, with one element in everything that has elements."""
    match kind:
        case msgspec.inspect.StructType():
            values = {field.encode_name: _example(field.type) for field in kind.fields}
            return list(values.values()) if kind.array_like else {kind.tag_field: kind.tag, **values}
        case msgspec.inspect.NamedTupleType():
            return [_example(field.type) for field in kind.fields]
        case msgspec.inspect.UnionType(types):
            return _example(types[0])
        case msgspec.inspect.TupleType(item_types):
            return [_example(item) for item in item_types]
        case msgspec.inspect.CollectionType(item_type):
            return [_example(item_type)]
        case msgspec.inspect.DictType(key_type, value_type):
            return {_example(key_type): _example(value_type)}
        case msgspec.inspect.EnumType(cls):
            return next(iter(cls)).value
        case _:
            return SIMPLE.get(type(kind))
