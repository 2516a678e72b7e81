"""Packs where a node stands in many groups, in a few bytes each. Pure.

Two nodes tell each other so when they meet. The header of a DIGEST frame is ``[kind, wants answer, [prefix, numbers,
prefix, numbers, ...]]``. Group ids of one topic share their first 16 bytes, so these are said once; `numbers` are six
for each group: the last four bytes of its id, the term, the leader's node id plus one (0: nobody is known to lead), the
last index, its term, and the leader's round times two, plus one if the group is at rest there. Small numbers are one
byte each in msgpack: 7 to 9 bytes a group, against 30 and a wake-up for a heartbeat.

Decoding trusts nothing: a contradiction raises `MalformedMessageError`, which closes that connection.

Limit: `DIGESTS_PER_FRAME` groups in one frame; a node that has more sends more frames.
"""

from collections.abc import Sequence
from typing import Any

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.raft.membership import DIRECTORY_ID_BYTES, UNKNOWN_DIRECTORY
from barnabas_raftlog.raft.messages import TERM_MAX, GroupId, PeerDigest

from .framing import Buffer, FrameKind, encode_frame

__all__ = ["DIGESTS_PER_FRAME", "decode_digests", "encode_digests"]

DIGESTS_PER_FRAME = 1_000  # Decoded and queued in three milliseconds.
NUMBERS = 6
PREFIX_BYTES = 16
SUFFIX_MAX = (1 << 32) - 1
INT_MAX = (1 << 63) - 1
_DIGEST = int(FrameKind.DIGEST)


def encode_digests(
    digests: Sequence[tuple[GroupId, PeerDigest]], *, wants_answer: bool, directory_id: bytes = UNKNOWN_DIRECTORY
) -> list[list[Buffer]]:
    """Return the frames that carry `digests`, with the sender's directory in each.

    Those of one topic take the least room when they follow each other.
    """
    frames: list[list[Buffer]] = []
    for first in range(0, len(digests), DIGESTS_PER_FRAME):
        columns: list[bytes | list[int]] = []
        prefix = b""
        numbers = list[int]()
        for group_id, digest in digests[first : first + DIGESTS_PER_FRAME]:
            if group_id[:PREFIX_BYTES] != prefix:
                prefix = group_id[:PREFIX_BYTES]
                numbers = []
                columns += (prefix, numbers)
            leader = 0 if digest.leader_id is None else digest.leader_id + 1
            numbers += (int.from_bytes(group_id[PREFIX_BYTES:], "big"), digest.term, leader)
            numbers += (digest.last_index, digest.last_term, digest.round << 1 | digest.at_rest)
        frames.append(encode_frame((_DIGEST, int(wants_answer), columns, directory_id)))
    return frames


def decode_digests(header: tuple[Any, ...], source: int) -> list[tuple[GroupId, PeerDigest]]:
    """Return the digests in a DIGEST frame of node `source`.

    Raises:
        MalformedMessageError: it is none.
    """
    if len(header) != 4 or type(header[2]) is not tuple or len(header[2]) % 2:
        raise MalformedMessageError("digest frame is not [kind, wants answer, columns, directory id]")
    wants_answer = header[1] == 1
    columns = header[2]
    directory_id = header[3]
    if type(directory_id) is not bytes or len(directory_id) != DIRECTORY_ID_BYTES:
        raise MalformedMessageError(f"directory id {directory_id!r} is not {DIRECTORY_ID_BYTES} bytes")
    decoded: list[tuple[GroupId, PeerDigest]] = []
    for prefix, numbers in zip(columns[::2], columns[1::2], strict=True):
        if type(prefix) is not bytes or len(prefix) != PREFIX_BYTES or type(numbers) is not tuple:
            raise MalformedMessageError(f"digests are for a topic and its numbers, not {prefix!r}")
        if len(numbers) % NUMBERS or not all(type(number) is int and 0 <= number <= INT_MAX for number in numbers):
            raise MalformedMessageError(f"digests are {NUMBERS} numbers from 0 to 2**63-1 each")
        for place in range(0, len(numbers), NUMBERS):
            suffix, term, leader, last_index, last_term, last = numbers[place : place + NUMBERS]
            if suffix > SUFFIX_MAX or not last_term <= term <= TERM_MAX:
                raise MalformedMessageError(f"no group {suffix}, or an entry of term {last_term} in term {term}")
            digest = PeerDigest(
                peer=source,
                term=term,
                leader_id=leader - 1 if leader else None,
                last_index=last_index,
                last_term=last_term,
                round=last >> 1,
                at_rest=last & 1 == 1,
                wants_answer=wants_answer,
                directory_id=directory_id,
            )
            decoded.append((GroupId(prefix + suffix.to_bytes(4, "big")), digest))
    return decoded
