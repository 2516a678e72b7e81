"""Makes frames and datagrams as other nodes send them, with lies or mutated bytes.

The project's own codecs build them. Raft believes the members of a group, and any owner of the cluster's secret may be
one of them, so the lies are about groups that are given, and about groups that nobody has: see `peer_run`.
"""

import random
from collections.abc import Callable, Sequence

import msgpack
import msgspec

from barnabas_metadata_quorum.controller.commands import AllocateProducerIds, ReadIndex, encode_command
from barnabas_raftlog.catch_up import messages as catch_up
from barnabas_raftlog.links.byte_counts import ByteCounts
from barnabas_raftlog.links.digests import encode_digests
from barnabas_raftlog.links.framing import FrameKind, encode_frame
from barnabas_raftlog.links.liveness import Datagram
from barnabas_raftlog.links.raft_frames import encode_messages
from barnabas_raftlog.raft.membership import Configuration, Member
from barnabas_raftlog.raft.messages import (
    TERM_MAX,
    AppendEntries,
    AppendResponse,
    Entry,
    GroupId,
    InstallSnapshot,
    LeadershipEnded,
    Message,
    PeerDigest,
    Removed,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from barnabas_raftlog.records.header import ControlKind, control_frame, stamp

from .batches import lying_batch, sealed

__all__ = ["HANDSHAKE_KINDS", "KINDS", "PeerLies"]

METHODS = (
    "status",
    "ping",
    "replica failed",
    "lost voter",
    "metadata.formation",
    "leaders",
    "leaders.check",
    "nobody's",
    "leaders.checked",
    "controller",
    catch_up.MANIFEST,
    catch_up.READ,
    catch_up.ENTRIES,
    catch_up.DAMAGED,
)
TERMS = (0, 1, 1, 2, 3, 5, 1 << 20, (1 << 20) + 5, TERM_MAX - 1, TERM_MAX)
INDEXES = (0, 0, 1, 1, 2, 3, 10, 1_000, 1 << 40, (1 << 63) - 2, (1 << 63) - 1)
INTEGERS = (-(1 << 63), -1, 0, 1, 2, 127, 128, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)
DIRECTORIES = (bytes(16), b"\1" * 16, b"\xff" * 16)


class PeerLies:
    """Words of node `source` to node `target`, about `groups` and about groups that there are not."""

    def __init__(self, groups: Sequence[bytes], source: int, target: int) -> None:
        self._groups = groups
        self._source = source
        self._target = target

    def frame(self, kind: str, chance: random.Random) -> bytes:
        """Return a well-formed frame of a kind, its size in front."""
        return b"".join(KINDS[kind](self, chance))

    def handshake(self, kind: str, chance: random.Random) -> bytes:
        """Return a frame of a handshake as nobody would send it; with odd types in it now and then."""
        number = FrameKind[kind]
        odd = [self._odd(chance) for _ in range(chance.randrange(8))]
        nonce = chance.choice((bytes(16), chance.randbytes(16), b"", chance.randbytes(40)))
        ids = (
            chance.choice(("", "cluster", "x" * 300)),
            chance.choice((*INTEGERS, 1, 2, 3, 4)),
            chance.choice(INTEGERS),
        )
        right = {
            FrameKind.HELLO: (chance.choice((0, 1, 1, 2, 2, 3, -1)), *ids, chance.choice((-1, 1, 2, 3, 4)), nonce),
            FrameKind.WELCOME: chance.choice(((1, *ids, nonce, b""), (2, nonce))),
            FrameKind.PROOF: (chance.choice((b"", chance.randbytes(32), None, "text")),),
            FrameKind.ACCEPTED: chance.choice(((), (*ids, chance.randbytes(32)))),
            FrameKind.REFUSED: (chance.choice(("no", "\x1b[31m", "x" * 3_000, None)),),
        }.get(number, ())
        fields: list[object] = [*right] if chance.random() < 0.7 else odd
        if fields and chance.random() < 0.3:
            fields[chance.randrange(len(fields))] = self._odd(chance)
        return b"".join(encode_frame((number, *fields)))

    def datagram(self, chance: random.Random) -> Datagram:
        """Return a datagram whose numbers are at their edges; `node_id` most often the right one."""
        large = (0, 1, 2, 1 << 31, 1 << 63, (1 << 64) - 1)
        counts = [ByteCounts(chance.choice((0, 1, (1 << 32) - 1)), *chance.choices(large, k=2)) for _ in range(2)]
        node_id = chance.choice((self._source, self._source, self._source, -1, 0, (1 << 31) - 1))
        return Datagram(
            node_id=node_id,
            incarnation=chance.choice((*large, 7)),
            sequence=chance.choice(large),
            echo_incarnation=chance.choice(large),
            echo_sequence=chance.choice(large),
            echo_delay_ms=chance.choice((-1, 0, 1, 1_000, (1 << 31) - 1)),
            dialled=counts[0],
            accepted=counts[1],
            is_busy=chance.random() < 0.5,
        )

    def body(self, chance: random.Random) -> bytes:
        """Return the body of a call."""
        return self._body(chance.choice(METHODS), chance)

    # One function for each kind of frame.

    def raft(self, chance: random.Random, kind: type[Message]) -> list[bytes | bytearray | memoryview]:
        messages = [(self._group(chance), self._message(kind, chance)) for _ in range(chance.choice((1, 1, 1, 2, 5)))]
        frames, _ = encode_messages(messages, chance.choice(DIRECTORIES))
        return [buffer for frame in frames for buffer in frame]

    def digest(self, chance: random.Random) -> list[bytes | bytearray | memoryview]:
        said = []
        for _ in range(chance.choice((1, 1, 3, 50))):
            term = chance.choice(TERMS)
            digest = PeerDigest(
                peer=self._source,
                term=term,
                leader_id=chance.choice((None, 0, 1, 2, 3, 4, 1 << 31)),
                last_index=chance.choice(INDEXES),
                last_term=min(term, chance.choice(TERMS)),
                round=chance.choice((0, 1, 1 << 30)),
                at_rest=chance.random() < 0.5,
                wants_answer=False,
            )
            said.append((self._group(chance), digest))
        wants_answer = chance.random() < 0.5
        directory_id = chance.choice(DIRECTORIES)
        frames = encode_digests(said, wants_answer=wants_answer, directory_id=directory_id)
        return [buffer for frame in frames for buffer in frame]

    def call(self, chance: random.Random) -> list[bytes | bytearray | memoryview]:
        method = chance.choice(METHODS)
        body = self._body(method, chance)
        return encode_frame((FrameKind.CALL, chance.choice((0, 1, 1 << 40, -1)), method), [body], len(body))

    def post(self, chance: random.Random) -> list[bytes | bytearray | memoryview]:
        method = chance.choice(METHODS)
        body = self._body(method, chance)
        return encode_frame((FrameKind.POST, method), [body], len(body))

    def reply(self, chance: random.Random) -> list[bytes | bytearray | memoryview]:
        error = chance.choice((None, "Odd", 7, b"bytes"))
        return encode_frame((FrameKind.REPLY, chance.choice((0, 1, 1 << 40)), error, "text"), [b"body"], 4)

    # Their parts.

    def _group(self, chance: random.Random) -> GroupId:
        return GroupId(chance.choice((*self._groups, chance.randbytes(20), b"\xff" * 20)))

    def _message(self, kind: type[Message], chance: random.Random) -> Message:
        head = (chance.choice(TERMS), self._source, self._target)
        terms = iter(chance.choices(TERMS, k=2))
        indexes = iter(chance.choices(INDEXES, k=2))
        if kind is VoteRequest:
            return VoteRequest(
                *head,
                pre=chance.random() < 0.5,
                transfer=chance.random() < 0.2,
                is_learner=chance.random() < 0.2,
                last_index=next(indexes),
                last_term=next(terms),
            )
        if kind is VoteResponse:
            return VoteResponse(
                *head,
                granted=chance.random() < 0.5,
                pre=chance.random() < 0.5,
                directory_id=bytes(16),
                uncertain=chance.random() < 0.5,
                blank=chance.random() < 0.5,
                commit_index=next(indexes),
                commit_term=next(terms),
            )
        if kind is AppendEntries:
            return self._append(head, chance)
        if kind is AppendResponse:
            return AppendResponse(
                *head,
                match_index=next(indexes),
                hint_index=next(indexes),
                hint_term=next(terms),
                round=chance.choice((0, 1, 1 << 40)),
                rejected=chance.random() < 0.5,
            )
        if kind is InstallSnapshot:
            data = chance.choice((b"", b"", chance.randbytes(40)))
            voters = chance.choice(((1, 2, 3), (), (self._target,), (1 << 30,)))
            since = chance.choice((None, None, (next(terms), next(indexes))))
            return InstallSnapshot(
                *head,
                snapshot_index=next(indexes),
                snapshot_term=next(terms),
                data=data,
                configuration=Configuration(tuple(Member(node_id) for node_id in voters)),
                witness_since=since,
            )
        if kind is Removed:
            return Removed(*head, index=next(indexes), index_term=next(terms))
        assert kind in {TimeoutNow, LeadershipEnded}
        return kind(*head)

    def _append(self, head: tuple[int, int, int], chance: random.Random) -> AppendEntries:
        previous = chance.choice(INDEXES)
        entries = []
        term = min(head[0], chance.choice(TERMS))
        for number in range(chance.choice((0, 0, 1, 1, 3))):
            if chance.random() < 0.5:
                kind = chance.choice(list(ControlKind))
                body = chance.choice((b"", chance.randbytes(12)))
                frame = bytearray(control_frame(chance.choice((0, 1, 1 << 40)), term, kind, body))
            else:
                frame = bytearray(sealed(lying_batch(chance, (0, 1))))
            if len(frame) >= 16:
                stamp(frame, chance.choice((0, 1, 2, 1 << 40)), term)
            entries.append(Entry(previous + 1 + number, term, bytes(frame)))
        return AppendEntries(
            *head,
            prev_index=previous,
            prev_term=chance.choice(TERMS),
            commit_index=chance.choice(INDEXES),
            round=chance.choice((0, 1, 1 << 40)),
            certain=chance.choice((0, 0, 1, 1 << 40)),
            released_index=chance.choice((0, 0, *INDEXES)),
            quiesce=chance.random() < 0.2,
            entries=entries,
        )

    def _body(self, method: str, chance: random.Random) -> bytes:
        group = self._group(chance)
        numbers = [chance.choice((0, 1, -1, 1 << 20, 1 << 40, (1 << 63) - 1)) for _ in range(5)]
        bodies: dict[str, Callable[[], msgspec.Struct]] = {
            catch_up.MANIFEST: lambda: catch_up.ManifestRequest(group, *numbers[:2]),
            catch_up.READ: lambda: catch_up.ReadRequest(group, *numbers),
            catch_up.ENTRIES: lambda: catch_up.EntriesRequest(group, *numbers[:2]),
            catch_up.DAMAGED: lambda: catch_up.DamagedNotice(group, *numbers[:2]),
        }
        if method in bodies and chance.random() < 0.8:
            return catch_up.encode(bodies[method]())
        if method == "controller" and chance.random() < 0.8:
            return encode_command(chance.choice((ReadIndex(), AllocateProducerIds(numbers[0]))))
        if chance.random() < 0.2:
            return chance.randbytes(chance.randrange(40))
        body: bytes = msgpack.packb(self._odd(chance))
        return body

    def _odd(self, chance: random.Random, depth: int = 3) -> object:
        """Return something that msgpack can encode."""
        simple = (None, True, 1.5, "text", b"bytes", "", bytes(self._group(chance)), *INTEGERS)
        if depth and chance.random() < 0.4:
            values = [self._odd(chance, depth - 1) for _ in range(chance.randrange(5))]
            return values if chance.random() < 0.8 else dict(enumerate(values))
        return chance.choice(simple)


def _raft(kind: type[Message]) -> Callable[[PeerLies, random.Random], list[bytes | bytearray | memoryview]]:
    return lambda lies, chance: lies.raft(chance, kind)


RAFT_KINDS: tuple[type[Message], ...] = (
    VoteRequest,
    VoteResponse,
    AppendEntries,
    AppendResponse,
    InstallSnapshot,
    TimeoutNow,
    LeadershipEnded,
    Removed,
)
KINDS: dict[str, Callable[[PeerLies, random.Random], list[bytes | bytearray | memoryview]]] = {
    **{kind.__name__: _raft(kind) for kind in RAFT_KINDS},
    "digest": PeerLies.digest,
    "call": PeerLies.call,
    "post": PeerLies.post,
    "reply": PeerLies.reply,
}
"""Frames behind a handshake. A Raft frame counts once for each kind of message that can be in it."""
HANDSHAKE_KINDS = ("HELLO", "WELCOME", "PROOF", "ACCEPTED", "REFUSED", "RAFT", "CALL", "POST", "REPLY", "DIGEST")
"""Frames of one who has not shaken hands."""
