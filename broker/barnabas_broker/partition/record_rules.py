"""Judges a batch that a client wants to append: its header first, then the records in it. Pure.

`check_header` is cheap and comes before anything else. `check_records` walks over the records, which takes as long as
there are bytes to walk over; it touches nothing but its arguments, and so may run in a thread.

- *Framing* (`record.validation=framing`): the records are as many as the header says, number themselves 0, 1, 2 ...,
  and every length in them stays within what is around it, also when they are compressed. So whatever is stored can be
  read. What cannot is INVALID_RECORD, which no client repeats; CORRUPT_MESSAGE, which they all do, is for damage on the
  way: a checksum or a size that is not the batch's.
- *Keys*: a compacted topic takes no record without one.
- *Timestamps*: each is between `message.timestamp.before.max.ms` behind the clock and `.after.max.ms` ahead of it; -1
  says that a record has none. The largest one in the header is what look-ups and retention go by, so one that is not
  that of the records is put right. With `message.timestamp.type=LogAppendTime` the time of arrival takes the place of
  all of them.
- *Compression*: with `compression.type` another codec than that of the batch, the records are compressed anew, once
  they were found right (`raftlog/records/recompression.py`).
- `record.validation=none` takes the header's word for all this. Of the timestamps the largest one is compared then.

Records that are refused for what is in them are named (`RefusedBatchError.record_errors`), up to `NAMED_MAX`. To name
records of a compressed batch it is decompressed once more, as a whole; so none are named of one beyond
`NAMED_BYTES_MAX`.
"""

from typing import NamedTuple

from barnabas_broker.config.topic import TopicSettings
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    TIMESTAMP_LOG_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
    restamp,
    verify,
)
from barnabas_raftlog.records.inside import PLAIN_BYTES_MAX, Inside, TooLargePlainError, check_inside
from barnabas_raftlog.records.reader import RECORD_BYTES_MIN, batch_body
from barnabas_raftlog.records.recompression import TooLargeResultError, recompress
from barnabas_raftlog.records.walker.faults import Fault, Walked
from barnabas_raftlog.records.walker.twins import misfits
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = [
    "NAMED_MAX",
    "NO_TIMESTAMP",
    "Checked",
    "RecordRules",
    "RefusedBatchError",
    "check_header",
    "check_records",
    "rules_of",
]

LZ4 = 3
ZSTD = 4
ZSTD_SINCE = 7
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
NO_TIMESTAMP = -1
NAMED_MAX = 100
"""Records of a batch that are named for what is wrong with them; the answer has 100 bytes for each."""
NAMED_BYTES_MAX = 8 << 20
"""Plain size of a compressed batch beyond which none are."""
_NO_KEY = "no key, and the topic is compacted"
_LZ4_FLAGS = HEADER_BYTES + 4  # behind the magic number of the frame
_UNLINKED = 0x20
_VALIDATED = "framing"
_CODECS = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_STAMPED = "LogAppendTime"


class RecordRules(NamedTuple):
    """What a topic asks of batches.

    Attributes:
        message_bytes_max: The largest batch, as sent.
        is_validated: The records in it are looked at.
        is_compacted: Each of them needs a key.
        is_stamped: They get the time at which the broker appends them.
        compression: The codec that batches are stored with; None: what they came with.
        level: Kafka's, of that codec.
        before_max_ms, after_max_ms: How far their timestamps may be behind the broker's clock, and ahead of it.
    """

    message_bytes_max: int
    is_validated: bool = True
    is_compacted: bool = False
    is_stamped: bool = False
    before_max_ms: int = INT64_MAX
    after_max_ms: int = INT64_MAX
    compression: Compression | None = None
    level: int = 0

    def must_recompress(self, header: BatchHeader) -> bool:
        """Tell whether a batch is to be compressed anew: not for another level of the same codec, as in Kafka."""
        return self.compression is not None and self.compression != header.attributes & COMPRESSION_MASK


class RefusedBatchError(Exception):
    """A batch is not appended: an answer, not a fault.

    Attributes:
        code: What clients go by.
        text: Why, for people.
        record_errors: The records for which it is refused: the number in the batch, from 0, and why.
    """

    def __init__(self, code: ErrorCode, text: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.record_errors = record_errors


class Checked(NamedTuple):
    """A batch as it is to be appended."""

    header: BatchHeader
    frame: memoryview


def rules_of(settings: TopicSettings) -> RecordRules:
    """Return what a topic with these settings asks of batches."""
    levels = {
        Compression.GZIP: settings.compression_gzip_level,
        Compression.LZ4: settings.compression_lz4_level,
        Compression.ZSTD: settings.compression_zstd_level,
    }
    compression = _CODECS[settings.compression_type]
    return RecordRules(
        message_bytes_max=settings.max_message_bytes,
        is_validated=settings.record_validation == _VALIDATED,
        is_compacted=settings.is_compacted,
        is_stamped=settings.timestamp_type == _STAMPED,
        before_max_ms=settings.timestamp_before_max_ms,
        after_max_ms=settings.timestamp_after_max_ms,
        compression=compression,
        level=0 if compression is None else levels.get(compression, 0),
    )


def check_header(frame: memoryview, rules: RecordRules, version: int, wall_ms: int) -> BatchHeader:
    """Check all that a header says, and return it.

    Args:
        frame: What stands in a produce request for one partition, not empty.
        rules: The topic's.
        version: The request's.
        wall_ms: The broker's clock.

    Raises:
        RefusedBatchError: it is not one intact batch, or not one that a client may send, or too large.
    """
    try:
        header = verify(frame)
    except CorruptBatchError as error:
        raise RefusedBatchError(_code_of(frame), str(error)) from error
    if len(frame) > rules.message_bytes_max:
        raise RefusedBatchError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {len(frame)} bytes; {rules.message_bytes_max} are accepted"
        )
    attributes = header.attributes
    compression = attributes & COMPRESSION_MASK
    if attributes != compression:
        _check_attributes(attributes, header.producer_id)
    if compression > ZSTD or (compression == ZSTD and version < ZSTD_SINCE):
        about = f"compression type {compression} in version {version}"
        raise RefusedBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, about)
    body_bytes_max = PLAIN_BYTES_MAX if compression else len(frame) - HEADER_BYTES
    if not 0 < header.record_count == header.last_offset_delta + 1 <= body_bytes_max // RECORD_BYTES_MIN:
        about = f"{header.record_count} records with last offset {header.last_offset_delta} in {len(frame)} bytes"
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, about)
    if header.base_offset:
        about = f"base offset {header.base_offset}; a producer's batches begin at 0"
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, about)
    if not rules.is_validated and not rules.is_stamped:
        _check_timestamps(header.max_timestamp, header.max_timestamp, rules, wall_ms)
    if header.producer_id != NO_PRODUCER_ID and min(header[-4:-1]) < 0:
        raise RefusedBatchError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}",
        )
    return header


def check_records(
    header: BatchHeader, frame: memoryview, rules: RecordRules, wall_ms: int, plain_bytes_max: int = PLAIN_BYTES_MAX
) -> Checked:
    """Check the records of a batch whose header is right, and return it as it is to be appended.

    Args:
        header: The frame's.
        frame: Writable: what a broker changes of a batch is changed in place.
        rules: The topic's.
        wall_ms: The broker's clock, and the time of arrival.
        plain_bytes_max: Goes no further than so many bytes of records.

    Raises:
        RefusedBatchError: the records cannot be read, or are not such as the topic takes.
        TooLargePlainError: there are more than `plain_bytes_max`, which are less than a batch may have.
    """
    max_timestamp = header.max_timestamp
    plain_bytes = 0
    if rules.is_validated:
        inside = _walk(header, frame, plain_bytes_max)
        plain_bytes = inside.plain_bytes
        walked = inside.walked
        if rules.is_compacted and walked.null_keys:
            _refuse_misfits(header, frame, rules, wall_ms, inside)
        if not rules.is_stamped:
            if (
                walked.max_timestamp - wall_ms > rules.after_max_ms
                or wall_ms - walked.min_timestamp > rules.before_max_ms
            ):
                _refuse_misfits(header, frame, rules, wall_ms, inside)
            # As in Kafka: a batch of which no record has a timestamp has none.
            max_timestamp = max(walked.max_timestamp, NO_TIMESTAMP)
    if rules.is_stamped:
        attributes = header.attributes | TIMESTAMP_LOG_APPEND
        header = restamp(frame, header, attributes=attributes, max_timestamp=wall_ms)
    elif max_timestamp != header.max_timestamp:
        header = restamp(frame, header, attributes=header.attributes, max_timestamp=max_timestamp)
    return _recompressed(header, frame, rules, plain_bytes) if rules.must_recompress(header) else Checked(header, frame)


def _recompressed(header: BatchHeader, frame: memoryview, rules: RecordRules, plain_bytes: int) -> Checked:
    compression, level, bytes_max = rules.compression, rules.level, rules.message_bytes_max
    assert compression is not None
    try:
        result = recompress(header, frame, compression, level, plain_bytes=plain_bytes, bytes_max=bytes_max)
    except (TooLargeResultError, TooLargePlainError) as error:
        raise RefusedBatchError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except CorruptBatchError as error:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, str(error)) from error
    return Checked(parse_header(result), result)


def _code_of(frame: memoryview) -> ErrorCode:
    """Return the code for bytes that are no batch, or one that contradicts itself.

    CORRUPT_MESSAGE is for damage: who sends an older format, several batches, or negative counts would do it again.
    """
    if len(frame) > MAGIC_POSITION and frame[MAGIC_POSITION] < MAGIC:
        return ErrorCode.INVALID_RECORD
    try:
        header = parse_header(frame)
        if header.size_bytes < len(frame):
            verify(frame[: header.size_bytes])
            verify(frame[header.size_bytes :])
            return ErrorCode.INVALID_RECORD
    except CorruptBatchError:
        return ErrorCode.CORRUPT_MESSAGE
    is_intact = header.size_bytes == len(frame) and header.crc == crc32c(frame[CRC_START:])
    return ErrorCode.INVALID_RECORD if is_intact else ErrorCode.CORRUPT_MESSAGE


def _check_attributes(attributes: int, producer_id: int) -> None:
    """Refuse a batch for what is among its attributes beside a compression type, unless that is a transaction's."""
    if attributes & CONTROL:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, "a control batch, which only brokers write")
    if attributes & ~COMPRESSION_MASK == TRANSACTIONAL:
        if producer_id == NO_PRODUCER_ID:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "a transactional batch of no producer")
        return
    if attributes & TIMESTAMP_LOG_APPEND:
        about = "only a broker may stamp records with the time of their arrival"
        raise RefusedBatchError(ErrorCode.INVALID_TIMESTAMP, about)
    raise RefusedBatchError(ErrorCode.INVALID_RECORD, f"attributes {attributes:#06x}, of which some mean nothing")


def _walk(header: BatchHeader, frame: memoryview, plain_bytes_max: int) -> Inside:
    """Walk over all records, and refuse the batch at the first that cannot be read."""
    if header.attributes & COMPRESSION_MASK == LZ4 and len(frame) > _LZ4_FLAGS and not frame[_LZ4_FLAGS] & _UNLINKED:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, "LZ4 with linked blocks, which Java's clients cannot read")
    try:
        inside = check_inside(header, frame, is_dense=True, plain_bytes_max=plain_bytes_max)
    except TooLargePlainError as error:
        if plain_bytes_max < PLAIN_BYTES_MAX:
            raise
        raise RefusedBatchError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except CorruptBatchError as error:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, str(error)) from error
    walked = inside.walked
    if walked.fault:
        named = () if walked.fault is Fault.BEHIND else ((walked.record, walked.words),)
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, walked.words, named)
    return inside


def _check_timestamps(min_timestamp: int, max_timestamp: int, rules: RecordRules, wall_ms: int) -> None:
    """Refuse a batch for the first or the last of its timestamps; -1 is none."""
    if max_timestamp - wall_ms > rules.after_max_ms:
        raise RefusedBatchError(ErrorCode.INVALID_TIMESTAMP, _about_time(max_timestamp, rules, wall_ms))
    if wall_ms - min_timestamp > rules.before_max_ms and min_timestamp != NO_TIMESTAMP:
        raise RefusedBatchError(ErrorCode.INVALID_TIMESTAMP, _about_time(min_timestamp, rules, wall_ms))


def _about_time(timestamp: int, rules: RecordRules, wall_ms: int) -> str:
    if timestamp > wall_ms:
        return f"a timestamp {timestamp - wall_ms} ms ahead; {rules.after_max_ms} are accepted"
    return f"a timestamp {wall_ms - timestamp} ms behind; {rules.before_max_ms} are accepted"


def _refuse_misfits(header: BatchHeader, frame: memoryview, rules: RecordRules, wall_ms: int, inside: Inside) -> None:
    """Refuse a batch for what is in some of its records; return if only some that have no timestamp seemed too old."""
    if header.attributes & COMPRESSION_MASK and inside.plain_bytes > NAMED_BYTES_MAX:
        _refuse_unnamed(rules, wall_ms, inside.walked)
        return
    body = batch_body(header, frame, inside.plain_bytes)
    found = misfits(
        body,
        header.record_count,
        header.base_timestamp,
        needs_key=rules.is_compacted,
        timestamp_min=INT64_MIN if rules.is_stamped else max(wall_ms - rules.before_max_ms, INT64_MIN),
        timestamp_max=INT64_MAX if rules.is_stamped else min(wall_ms + rules.after_max_ms, INT64_MAX),
        limit=NAMED_MAX,
    )
    if not found:
        return
    errors = tuple(
        (number, _NO_KEY if is_keyless else _about_time(timestamp, rules, wall_ms))
        for number, timestamp, is_keyless in found
    )
    is_late = any(not is_keyless for _, _, is_keyless in found)
    text = f"record {errors[0][0]}: {errors[0][1]}"
    if len(errors) > 1:
        many = f"at least {NAMED_MAX}" if len(errors) == NAMED_MAX else f"{len(errors)}"
        text = f"{many} records are refused, the first is {text}"
    raise RefusedBatchError(ErrorCode.INVALID_TIMESTAMP if is_late else ErrorCode.INVALID_RECORD, text, errors)


def _refuse_unnamed(rules: RecordRules, wall_ms: int, walked: Walked) -> None:
    if not rules.is_stamped:
        _check_timestamps(walked.min_timestamp, walked.max_timestamp, rules, wall_ms)
    if rules.is_compacted and walked.null_keys:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, f"{walked.null_keys} records have {_NO_KEY}")
