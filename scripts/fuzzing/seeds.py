"""Where a search begins: inputs of each target that are nearly right."""

import random
from collections.abc import Iterator

from barnabas_clients.protocol.registry import APIS
from barnabas_metadata_quorum.commands import AllocateProducerIds, CheckSessions, ReadIndex, encode_command
from barnabas_metadata_quorum.records import BrokerUnfenced, encode_record
from barnabas_raftlog.multiraft.liveness import cluster_mark, encode_datagram

from .batches import lying_batch
from .boundaries import Names, lying_request
from .frames import PAIRS, frames
from .peer_frames import HANDSHAKE_KINDS, KINDS, PeerLies
from .targets import SECRET

__all__ = ["seeds"]

BATCHES = 200
ROUNDS = 4
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
    """Yield inputs of which the first byte says which decoder they are for."""
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
    yield from (encode_command(command) for command in (AllocateProducerIds(1), ReadIndex(), CheckSessions()))
    yield encode_record(BrokerUnfenced(1, 7))
    for _ in range(BATCHES):
        yield lies.body(chance)
