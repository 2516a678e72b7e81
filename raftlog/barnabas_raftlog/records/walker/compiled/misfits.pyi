from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

def misfits(
    body: Buffer,
    count: int,
    base_timestamp: int,
    *,
    needs_key: bool,
    timestamp_min: int,
    timestamp_max: int,
    limit: int,
) -> list[tuple[int, int, bool]]: ...
