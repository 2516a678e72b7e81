"""Batches as clients send them: real headers and checksums, bodies that mean nothing."""

import struct

from barnabas_raftlog.wire.crc32c import crc32c


def data_frame(record_count: int, body_bytes: int, timestamp_ms: int = 1000, fill: int = 7) -> bytearray:
    """Return a batch with base offset 0 and epoch 0, ready to be stamped."""
    tail = struct.pack(">hiqqqhii", 0, record_count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, record_count)
    tail += bytes((fill % 256,)) * body_bytes
    return bytearray(struct.pack(">qiibI", 0, 9 + len(tail), 0, 2, crc32c(tail)) + tail)
