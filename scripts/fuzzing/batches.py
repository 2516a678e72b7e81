"""Record batches with a right checksum whose header lies about the rest."""

import random
import struct
from collections.abc import Sequence

from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import CRC_POSITION, CRC_START, HEADER_BYTES
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["lying_batch", "sealed"]

FIELDS = (  # format, position, values at the edge
    ("q", 0, (-1, 0, 1, 2**63 - 1, -(2**63))),  # base offset
    ("i", 8, (-1, 0, 48, 49, 2**31 - 1, -(2**31))),  # batch length
    ("i", 12, (-1, 0, 1, 2**31 - 1)),  # leader epoch
    ("b", 16, (0, 1, 2, 3, -1)),  # magic
    ("h", 21, (0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 64, -1, 0x7FFF)),  # attributes
    ("i", 23, (-1, 0, 1, 4, 2**31 - 1, -(2**31))),  # last offset delta
    ("q", 27, (-1, 0, 2**63 - 1, -(2**63))),  # base timestamp
    ("q", 35, (-1, 0, 2**63 - 1, -(2**63))),  # maximum timestamp
    ("q", 43, (-2, -1, 0, 1, 2**63 - 1, -(2**63))),  # producer id
    ("h", 51, (-2, -1, 0, 1, 0x7FFF)),  # producer epoch
    ("i", 53, (-2, -1, 0, 1, 2**31 - 1)),  # base sequence
    ("i", 57, (-1, 0, 1, 2, 5, 2**31 - 1, -(2**31))),  # record count
)
COMPRESSIONS = (Compression.NONE, Compression.NONE, *Compression)


def sealed(frame: bytes | bytearray) -> bytes:
    """Return a batch with the checksum of its bytes; one that is too short stays as it is."""
    if len(frame) < HEADER_BYTES:
        return bytes(frame)
    whole = bytearray(frame)
    struct.pack_into(">I", whole, CRC_POSITION, crc32c(bytes(whole[CRC_START:])))
    return bytes(whole)


def lying_batch(chance: random.Random, producer_ids: Sequence[int]) -> bytes:
    """Return a batch of a few records, most often with one thing wrong with it."""
    producer = (chance.choice(producer_ids), chance.choice((0, 0, 1)), chance.choice((0, 0, 1, 2)))
    producer_id, producer_epoch, base_sequence = producer if chance.random() < 0.5 else (-1, -1, -1)
    timestamp = chance.choice((-1, 0, 1_700_000_000_000, 2**62))
    values = chance.choices((None, b"", b"value", b"x" * 300), k=chance.choice((1, 1, 2, 5)))
    records = [NewRecord(chance.choice((None, b"key")), value, timestamp) for value in values]
    frame = build_batch(
        records,
        compression=chance.choice(COMPRESSIONS),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    fate = chance.randrange(8)
    if fate < 3:
        return bytes(frame)
    if fate == 3:
        frame = frame[: chance.randrange(len(frame))]
    elif fate == 4:
        frame += chance.choice((bytes(frame), b"\0", chance.randbytes(20)))
    elif fate == 5 and len(frame) > HEADER_BYTES:
        frame[chance.randrange(HEADER_BYTES, len(frame))] ^= 1 << chance.randrange(8)
    else:
        for code, position, values_at_edge in chance.sample(FIELDS, chance.choice((1, 1, 2))):
            struct.pack_into(f">{code}", frame, position, chance.choice(values_at_edge))
    return bytes(frame) if chance.random() < 0.05 else sealed(frame)
