from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

class OpenRecords:
    buffer: bytearray
    limit_bytes: int
    count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    def __init__(self, limit_bytes: int, head_bytes: int) -> None: ...
    def add(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
    ) -> int: ...
    def trim(self) -> None: ...

def murmur2(data: Buffer) -> int: ...
def partition_of(key: Buffer, partition_count: int) -> int: ...
