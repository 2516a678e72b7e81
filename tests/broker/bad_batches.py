"""The batches that no sound producer sends: each field wrong in turn, with what Apache Kafka and we answer.

`live/requests/test_bad_batches.py` holds us to the list, `tests/interop/test_validation.py` a real Kafka, and the page
`docs/validation.md` shows it. Where we answer something else than Kafka, the reason stands beside it.

A batch of three records with keys, values and headers is spoilt in one place. What is spoilt inside of it is spoilt
before compression, and once for each codec.
"""

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import cramjam
from raftlog.records.bombs import BOMBS

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.wire.crc32c import crc32c

from .wire_client import varint

__all__ = ["TOPICS", "BadBatch", "bad_batches", "bombs", "record", "sent"]

THEN_MS = 1_700_000_000_000  # long ago
FAR_MS = 10_000_000_000_000  # in the year 2286
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
CODECS = {codec: codec.name.lower() if codec else "plain" for codec in Compression}
TOPICS: dict[str, dict[str, str]] = {
    "any": {},
    "compacted": {"cleanup.policy": "compact"},
    "recent": {"message.timestamp.before.max.ms": "60000"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "large": {"max.message.bytes": str(8 << 20)},
}
"""The kinds of topics that batches are sent to, with their configurations."""

TAKEN = ErrorCode.NONE
INVALID = ErrorCode.INVALID_RECORD
CORRUPT = ErrorCode.CORRUPT_MESSAGE
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
COMPRESSION = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class BadBatch(NamedTuple):
    """One of the list.

    Attributes:
        what: What is wrong.
        codec: How it is compressed.
        frame: What is sent as the records of a partition.
        kafka: The code with which Kafka answers; None: it does not.
        ours: That with which we do.
        reason: Why ours is another one.
        topic: The kind of topic, of `TOPICS`.
        named: The records that we name, and for which.
        version: Of the produce request.
    """

    what: str
    codec: str
    frame: bytes | None
    kafka: ErrorCode | None
    ours: ErrorCode
    reason: str = ""
    topic: str = "any"
    named: tuple[int, ...] = ()
    version: int = 9

    @property
    def name(self) -> str:
        return f"{self.what}, {self.codec}"


def record(
    number: int,
    *,
    attributes: int = 0,
    timestamp_delta: bytes = varint(0),
    offset_delta: bytes | None = None,
    key: bytes = varint(3) + b"key",
    value: bytes = varint(5) + b"value",
    headers: bytes = varint(1) + varint(4) + b"name" + varint(4) + b"text",
    behind: bytes = b"",
    length_more: int = 0,
    length: bytes | None = None,
) -> bytes:
    """Return one record, whose parts can be given as bytes."""
    inside = bytes([attributes]) + timestamp_delta + (varint(number) if offset_delta is None else offset_delta)
    inside += key + value + headers + behind
    return (varint(len(inside) + length_more) if length is None else length) + inside


SOUND = tuple(record(number) for number in range(3))


def sent(
    body: bytes,
    *,
    base_offset: int = 0,
    length_more: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    crc_more: int = 0,
    attributes: int = 0,
    last_offset_delta: int = 2,
    base_timestamp: int = THEN_MS,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    count: int = 3,
) -> bytes:
    """Return a batch around the body, with the fields of its header."""
    max_timestamp = base_timestamp if max_timestamp is None else max_timestamp
    fields = (attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, count)
    tail = struct.pack(">hiqqqhii", *fields) + body
    crc = (crc32c(tail) + crc_more) & 0xFFFFFFFF
    return struct.pack(">qiibI", base_offset, len(tail) + 9 + length_more, leader_epoch, magic, crc) + tail


def packed(codec: Compression, body: bytes) -> bytes:
    return bytes(compress(codec, body))


_CUT_OFF = "it may have been cut off on its way, and a second attempt may succeed"
_NO_ANSWER = "Kafka does not answer"
_NOTHING = "nobody says what it means"
_LASTING = "it is the client's doing, so another attempt would end alike"
_OTHERS = "only some clients could read it"
_READERS = "no consumer could read it"
_OFFSETS = "consumers would see offsets twice, or miss some"
_NULL = "-1 is null, and nothing else is"


def bombs(*, records_max: int = INT32_MAX, with_frames: bool = True) -> Iterator[BadBatch]:
    """Yield batches that are small as sent, and large or much work inside. Those of many records take time to make."""
    for what, bomb in BOMBS.items():
        if bomb.records > records_max:
            continue
        ours = _OF_BOMBS.get(bomb.answer, INVALID)
        kafka, reason = _KAFKA_OF_BOMBS.get(what, (ours, ""))
        is_counted = ours is INVALID and bomb.answer not in {"BEHIND", "CorruptBatchError"}
        named = (1 if bomb.answer == "OFFSET" else 0,) if is_counted else ()
        frame = bomb.batch() if with_frames else None
        yield BadBatch(what, CODECS[bomb.codec], frame, kafka, ours, reason, "large", named)


_OF_BOMBS = {"NONE": TAKEN, "TooLargePlainError": TOO_LARGE}
_128_MIB = "decompressed it is more than 128 MiB, or says so"
_MANY_HEADERS = "Kafka has no limit; 65,536 headers are the most, since each is an object of every consumer's"
_KAFKA_OF_BOMBS: dict[str, tuple[ErrorCode | None, str]] = {
    "zstd of 10 GiB of zeros": (INVALID, _128_MIB),
    "zstd of a value of 128 MiB": (TAKEN, _128_MIB),
    "zstd of a value that claims 2 GiB": (INVALID, _128_MIB),
    "zstd of 127 MiB in a window of 128": (TAKEN, "to read it takes twice the memory"),
    "zstd in a window of 2 GiB": (UNKNOWN, _LASTING),
    "zstd that claims 10 GiB": (UNKNOWN, _LASTING),
    "zstd of 100,000 skippable frames": (TAKEN, "it is work for nothing, of each reader"),
    "zstd of 300,000 empty blocks": (INVALID, "it is work for nothing, however large"),
    "zstd of 9 million times the first record": (None, "Kafka takes six seconds over it"),
    "zstd of 63 million headers": (TAKEN, _MANY_HEADERS),
    "zstd of 65,537 headers": (TAKEN, _MANY_HEADERS),
    "lz4 of 63 million headers": (TAKEN, _MANY_HEADERS),
    "gzip of 63 million headers": (TAKEN, _MANY_HEADERS),
    "snappy in blocks, of 10 million headers": (TAKEN, _MANY_HEADERS),
    "lz4 of a value of 250 MiB": (TAKEN, _128_MIB),
    "lz4 that claims 10 GiB": (UNKNOWN, _LASTING),
    "gzip of a value of 1 GiB": (None, f"{_128_MIB}; Kafka's heap may not suffice"),
    "gzip of 50,000 empty members": (UNKNOWN, _LASTING),
    "snappy of a value of 60 MiB, in 3 MiB": (TAKEN, "a block of more than 48 MiB has to be held as a whole"),
    "snappy that claims 4 GiB": (UNKNOWN, _LASTING),
    "snappy that claims 20 MiB of 19": (UNKNOWN, _LASTING),
}


@cache
def bad_batches() -> tuple[BadBatch, ...]:
    """Return all of them. No two have the same name."""
    found = (*_not_one_batch(), *_headers(), *_records(), *_streams(), *_topics())
    assert len({one.name for one in found}) == len(found)
    return found


def _not_one_batch() -> Iterator[BadBatch]:
    body = b"".join(SOUND)
    one = sent(body)

    def bad(what: str, frame: bytes | None, kafka: ErrorCode | None, ours: ErrorCode, reason: str = "") -> BadBatch:
        return BadBatch(what, "plain", frame, kafka, ours, reason)

    yield bad("no bytes", b"", INVALID, INVALID)
    yield bad("null", None, None, INVALID, _NO_ANSWER)
    yield bad("two batches", one + one, INVALID, INVALID)
    yield bad("a byte behind the batch", one + b"\0", TAKEN, CORRUPT, "Kafka leaves it out; it may be a sign of damage")
    yield bad("the last byte is missing", one[:-1], INVALID, CORRUPT, _CUT_OFF)
    yield bad("half a header", one[:30], INVALID, CORRUPT, _CUT_OFF)
    yield bad("a length of a byte more", sent(body, length_more=1), INVALID, CORRUPT, _CUT_OFF)
    yield bad("a length of a byte less", sent(body, length_more=-1), CORRUPT, CORRUPT)
    yield bad("a negative length", sent(body, length_more=-(1 << 20)), CORRUPT, CORRUPT)
    yield bad("a length of 2 GiB", sent(body, length_more=INT32_MAX - len(one) - 9), INVALID, CORRUPT, _CUT_OFF)
    yield bad("a length of a header less a byte", sent(body, length_more=37 - len(one)), CORRUPT, CORRUPT)
    yield bad("a wrong checksum", sent(body, crc_more=1), CORRUPT, CORRUPT)
    for magic in (0, 1):
        yield bad(f"format {magic}", sent(body, magic=magic), INVALID, INVALID)
    yield bad("format 3", sent(body, magic=3), CORRUPT, CORRUPT)
    yield bad("format -1", sent(body, magic=-1), CORRUPT, CORRUPT)


def _headers() -> Iterator[BadBatch]:
    def bad(
        what: str, kafka: ErrorCode, ours: ErrorCode, reason: str = "", named: tuple[int, ...] = (), **fields: Any
    ) -> BadBatch:
        return BadBatch(what, "plain", sent(b"".join(SOUND), **fields), kafka, ours, reason, named=named)

    yield bad("nothing is wrong", TAKEN, TAKEN)
    yield bad("base offset 5", INVALID, INVALID, base_offset=5)
    yield bad("base offset -1", INVALID, INVALID, base_offset=-1)
    yield bad("leader epoch 5", TAKEN, TAKEN, leader_epoch=5)
    for codec in (5, 6, 7):
        yield bad(f"codec {codec}", UNKNOWN, COMPRESSION, _LASTING, attributes=codec)
    yield bad("a control batch", INVALID, INVALID, attributes=0x20)
    yield bad("a transactional batch without an id", DENIED, DENIED, attributes=0x10, producer=(903, 0, 0))
    why = "only a broker knows when a batch arrives"
    yield bad("the time of arrival for timestamps", TAKEN, TIMESTAMP, why, attributes=0x08)
    for bit in (0x40, 0x80, -0x8000):
        yield bad(f"attribute {bit & 0xFFFF:#06x}", TAKEN, INVALID, _NOTHING, attributes=bit)
    for delta in (1, 3, -1, -2, INT32_MAX, -(2**31)):
        yield bad(f"last offset {delta} of three records", INVALID, INVALID, last_offset_delta=delta)
    for count in (0, -1, INT32_MAX):
        yield bad(f"{count} for three records", INVALID, INVALID, count=count)
    yield bad("three records that are called two", INVALID, INVALID, count=2, last_offset_delta=1)
    yield bad("three records that are called four", INVALID, INVALID, named=(3,), count=4, last_offset_delta=3)
    last = INT32_MAX - 1
    yield bad("three records that are called 2^31-1", INVALID, INVALID, count=INT32_MAX, last_offset_delta=last)
    yield bad("three records that are called none", INVALID, INVALID, count=0, last_offset_delta=-1)
    yield bad("largest timestamp too small", TAKEN, TAKEN, max_timestamp=5)
    yield bad("largest timestamp too large", TAKEN, TAKEN, max_timestamp=INT64_MAX)
    yield bad("largest timestamp -1", TAKEN, TAKEN, max_timestamp=-1)
    for stamp, words in ((FAR_MS, "far ahead"), (INT64_MAX, "2^63-1"), (-(2**63), "-2^63")):
        yield bad(f"timestamps {words}", TIMESTAMP, TIMESTAMP, named=(0, 1, 2), base_timestamp=stamp)
    for stamp in (-1, -2):
        yield bad(f"timestamps {stamp}", TAKEN, TAKEN, base_timestamp=stamp)
    yield bad("producer -2", TAKEN, INVALID, "-1 is none, and nothing else is", producer=(-2, 0, 0))
    yield bad("epoch -1 of a producer", TAKEN, INVALID, _NOTHING, producer=(901, -1, 0))
    yield bad("sequence -1 of a producer", INVALID, INVALID, producer=(902, 0, -1))
    yield bad("epoch and sequence of no producer", TAKEN, TAKEN, producer=(-1, 5, 5))


def _records() -> Iterator[BadBatch]:
    """Yield what is wrong in the second of three records, and around them, for each codec."""
    for codec, name in CODECS.items():
        for what, second, ours, kafka, kafka_packed, reason in _SECOND:
            frame = sent(packed(codec, SOUND[0] + second + SOUND[2]), attributes=codec)
            theirs = kafka_packed if codec else kafka
            yield BadBatch(
                what, name, frame, theirs, ours, reason if theirs != ours else "", named=() if ours is TAKEN else (1,)
            )
        for what, body, named in _AROUND:
            is_counted = not codec and len(body) < 21  # so few bytes cannot be three records, as the header alone says
            frame = sent(packed(codec, body), attributes=codec)
            yield BadBatch(what, name, frame, INVALID, INVALID, named=() if is_counted else named)


_LONG = b"\xff" * 5 + b"\x00"  # a varint of more than 32 bits
_LONGER = b"\xff" * 10 + b"\x00"  # of more than 64
_NEGATIVE = ((-2, "-2"), (-(2**31), "-2^31"))


def _size(size: int) -> bytes:
    return varint(size)


def _name(size: int, name: bytes = b"n") -> bytes:
    return varint(1) + varint(size) + name


_Spoilt = tuple[str, bytes, ErrorCode, ErrorCode, ErrorCode, str]


def _refused(
    what: str, second: bytes, kafka: ErrorCode = INVALID, packed: ErrorCode | None = None, why: str = ""
) -> _Spoilt:
    return what, second, INVALID, kafka, kafka if packed is None else packed, why


_SECOND: tuple[_Spoilt, ...] = (
    _refused("record length 0", record(1, length=_size(0)), INVALID, TAKEN, _READERS),
    *(
        _refused(f"record length {words}", record(1, length=_size(size)))
        for size, words in ((-1, "-1"), (-(2**31), "-2^31"), (INT32_MAX, "2^31-1"))
    ),
    _refused("record length of a byte more", record(1, length_more=1), INVALID, TAKEN, _READERS),
    _refused("record length of a byte less", record(1, length_more=-1), INVALID, TAKEN, _READERS),
    _refused("record length of too many bits", record(1, length=_LONG), UNKNOWN, INVALID, _LASTING),
    ("attributes of a record", record(1, attributes=0xFF), TAKEN, TAKEN, TAKEN, ""),
    _refused("timestamp delta of too many bits", record(1, timestamp_delta=_LONGER)),
    _refused(
        "timestamp beyond 64 bits", record(1, timestamp_delta=varint(INT64_MAX)), TIMESTAMP, why="it has no timestamp"
    ),
    ("timestamp below 0", record(1, timestamp_delta=varint(-THEN_MS - 5)), TAKEN, TAKEN, TAKEN, ""),
    ("timestamp far ahead", record(1, timestamp_delta=varint(FAR_MS)), TIMESTAMP, TIMESTAMP, TIMESTAMP, ""),
    *(
        _refused(words, record(number), TAKEN, UNKNOWN, _OFFSETS)
        for number, words in (
            (0, "an offset twice"),
            (2, "a gap in the offsets"),
            (3, "an offset beyond the last"),
            (-1, "offset -1"),
            (-(2**31), "offset -2^31"),
            (INT32_MAX, "offset 2^31-1"),
        )
    ),
    _refused("offset of too many bits", record(1, offset_delta=_LONG)),
    *(_refused(f"key of {words} bytes", record(1, key=_size(size)), TAKEN, why=_NULL) for size, words in _NEGATIVE),
    _refused("key of 2^31-1 bytes", record(1, key=_size(INT32_MAX) + b"key")),
    _refused("size of a key of too many bits", record(1, key=_LONG + b"key")),
    _refused("key up to beyond its record", record(1, key=_size(30) + b"key")),
    *(_refused(f"value of {words} bytes", record(1, value=_size(size)), TAKEN, why=_NULL) for size, words in _NEGATIVE),
    _refused("value of 2^31-1 bytes", record(1, value=_size(INT32_MAX) + b"value")),
    _refused("size of a value of too many bits", record(1, value=_LONG + b"value")),
    _refused("value up to beyond its record", record(1, value=_size(30) + b"value")),
    *(
        _refused(f"{words} headers", record(1, headers=_size(number)))
        for number, words in ((-1, "-1"), (-(2**31), "-2^31"), (INT32_MAX, "2^31-1"))
    ),
    _refused("a header that is not there", record(1, headers=_size(1))),
    _refused("number of headers of too many bits", record(1, headers=_LONG)),
    _refused("null for the name of a header", record(1, headers=_name(-1, b"") + _size(0))),
    _refused("name of a header of -2 bytes", record(1, headers=_name(-2, b"") + _size(0))),
    _refused("name of a header of 2^31-1 bytes", record(1, headers=_name(INT32_MAX))),
    _refused("name of a header up to beyond its record", record(1, headers=_name(30))),
    ("name of a header that is not UTF-8", record(1, headers=_name(1, b"\xff") + _size(0)), TAKEN, TAKEN, TAKEN, ""),
    _refused("value of a header of -2 bytes", record(1, headers=_name(1) + _size(-2)), TAKEN, why=_NULL),
    _refused("value of a header of 2^31-1 bytes", record(1, headers=_name(1) + _size(INT32_MAX))),
    _refused("value of a header up to beyond its record", record(1, headers=_name(1) + _size(30))),
    _refused("a byte behind the headers", record(1, behind=b"\0")),
    _refused("a record that ends behind its attributes", _size(1) + b"\0"),
    _refused("a record that ends within its offset", _size(3) + b"\0\0\xff"),
    _refused("a record that ends behind its key", _size(4) + b"\0\0" + _size(1) + _size(-1)),
)
_AROUND = (
    ("no bytes for three records", b"", (0,)),
    ("a byte for three records", b"\0", (0,)),
    ("zeros for three records", bytes(40), (0,)),
    ("text for three records", b"this is text, and no records are in it", (0,)),
    ("two records that are called three", b"".join(SOUND[:2]), (2,)),
    ("the last record is cut off", b"".join(SOUND)[:-1], (2,)),
    ("a byte behind the last record", b"".join(SOUND) + b"\0", ()),
    ("a record behind the last record", b"".join(SOUND) + record(3), ()),
)


def _streams() -> Iterator[BadBatch]:
    """Yield what is wrong with a compressed stream as a whole."""
    body = b"".join(SOUND)

    def bad(
        what: str, codec: Compression, stream: bytes, ours: ErrorCode = INVALID, kafka: ErrorCode = UNKNOWN
    ) -> BadBatch:
        frame = sent(stream, attributes=codec)
        return BadBatch(what, CODECS[codec], frame, kafka, ours, _LASTING if kafka != ours else "")

    for codec in list(Compression)[1:]:
        stream = packed(codec, body)
        yield bad("half of the stream is missing", codec, stream[: len(stream) // 2])
        yield bad("the stream is not compressed", codec, body)
        yield bad("a damaged beginning of the stream", codec, bytes([stream[0] ^ 0xFF]) + stream[1:])
        yield bad("ones for a stream", codec, b"\xff" * 40)
        for other in list(Compression)[1:]:
            if other is not codec:
                yield bad(f"the stream is of {CODECS[other]}", codec, packed(other, body))
        frame = sent(stream + b"\0\0\0\0\0", attributes=codec)
        is_taken = codec in {Compression.GZIP, Compression.LZ4}
        codes = (TAKEN, INVALID, _OTHERS) if is_taken else (UNKNOWN, INVALID, _LASTING)
        yield BadBatch("bytes behind the stream", CODECS[codec], frame, *codes)
    yield from _two_streams()
    gzip = packed(Compression.GZIP, body)
    yield bad("a wrong checksum of the stream", Compression.GZIP, gzip[:-5] + bytes([gzip[-5] ^ 1]) + gzip[-4:])
    lz4 = packed(Compression.LZ4, body)
    yield bad("a wrong checksum of the stream's header", Compression.LZ4, lz4[:6] + bytes([lz4[6] ^ 1]) + lz4[7:])
    yield bad("linked blocks", Compression.LZ4, bytes(cramjam.lz4.compress(body)))
    snappy = packed(Compression.SNAPPY, body)
    for size in (-1, 0, 1 << 20):
        yield bad(f"a block of {size} bytes", Compression.SNAPPY, snappy[:16] + struct.pack(">i", size) + snappy[20:])
    yield bad("a stream without blocks", Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(body)), TAKEN, TAKEN)
    old = sent(packed(Compression.ZSTD, body), attributes=Compression.ZSTD)
    yield BadBatch("a request of version 6", "zstd", old, COMPRESSION, COMPRESSION, version=6)


def _two_streams() -> Iterator[BadBatch]:
    """Yield one stream behind the other: the first has one record, the second two."""
    for codec, kafka, ours, reason, named in (
        (Compression.GZIP, TAKEN, TAKEN, "", ()),
        (Compression.SNAPPY, TAKEN, INVALID, _OTHERS, ()),
        (Compression.LZ4, INVALID, INVALID, "", ()),
        (Compression.ZSTD, TAKEN, TAKEN, "", ()),
    ):
        frame = sent(packed(codec, SOUND[0]) + packed(codec, SOUND[1] + SOUND[2]), attributes=codec)
        yield BadBatch("two streams", CODECS[codec], frame, kafka, ours, reason, named=named)


def _topics() -> Iterator[BadBatch]:
    """Yield what only some topics do not take."""
    body = b"".join(SOUND)
    keyless = SOUND[0] + record(1, key=_size(-1)) + record(2, key=_size(-1))
    for codec, name in CODECS.items():

        def bad(
            what: str, plain: bytes, topic: str, code: ErrorCode = TAKEN, named: tuple[int, ...] = (), **fields: Any
        ) -> BadBatch:
            frame = sent(packed(codec, plain), attributes=codec, **fields)  # noqa: B023 - called at once
            return BadBatch(what, name, frame, code, code, topic=topic, named=named)  # noqa: B023

        yield bad("records without keys", keyless, "any")
        yield bad("records without keys, compacted", keyless, "compacted", INVALID, (1, 2))
        yield bad("timestamps too far back", body, "recent", TIMESTAMP, (0, 1, 2))
        yield bad("timestamps -1, where some are too far back", body, "recent", base_timestamp=-1)
        yield bad("timestamps far back, where the broker stamps", body, "stamped")
        yield bad("timestamps far ahead, where the broker stamps", body, "stamped", base_timestamp=FAR_MS)
    arrival = sent(body, attributes=0x08)
    what = "the time of arrival for timestamps, where the broker stamps"
    yield BadBatch(what, "plain", arrival, TIMESTAMP, TIMESTAMP, topic="stamped")
