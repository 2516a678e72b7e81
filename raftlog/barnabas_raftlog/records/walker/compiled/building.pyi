from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

def append_record(
    buffer: bytearray,
    limit_bytes: int,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]],
) -> bool: ...
def murmur2(data: Buffer) -> int: ...
