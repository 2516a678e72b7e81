"""Encodes metadata records as frames of the log: one record batch per atomic change. Pure.

A frame of the metadata log is an ordinary data frame (records/builder.py): each record's value is one encoded
metadata record, keys are null. So the tools that read partitions read the metadata log as well.
"""

from collections.abc import Sequence

from barnabas_raftlog.errors import CorruptBatchError, MalformedMessageError
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import COMPRESSION_MASK, parse_header
from barnabas_raftlog.records.reader import read_batch

from .records import Record, decode_record, encode_record

__all__ = ["decode_frame", "encode_frame"]

Buffer = bytes | bytearray | memoryview


def encode_frame(records: Sequence[Record], timestamp_ms: int) -> bytearray:
    """Return one writable frame; `timestamp_ms` is wall-clock time, for people who read the log."""
    return build_batch(NewRecord(None, encode_record(record), timestamp_ms) for record in records)


def decode_frame(frame: Buffer) -> list[Record]:
    """Return the records of one frame; none for a control frame. Its checksum was verified when it arrived.

    Raises:
        UnknownRecordError: a newer version wrote it.
        MalformedMessageError: it is no frame of the metadata log.
    """
    try:
        header = parse_header(frame)
        if header.is_raft_control:
            return []
        if header.attributes & COMPRESSION_MASK:  # Never written, and a few bytes could ask for a great many.
            raise MalformedMessageError(f"a metadata frame at offset {header.base_offset} is compressed")
        values = [record.value for record in read_batch(header, memoryview(frame))]
    except CorruptBatchError as error:
        raise MalformedMessageError(f"a metadata frame cannot be read: {error}") from error
    records = [decode_record(value) for value in values if value is not None]
    if len(records) != len(values):
        raise MalformedMessageError(f"a metadata frame at offset {header.base_offset} holds a record without a value")
    return records
