from typing import TypeAlias

from barnabas_raftlog.records.walker.faults import Walked

Buffer: TypeAlias = bytes | bytearray | memoryview

def check(body: Buffer, count: int, base_timestamp: int, last_offset_delta: int, *, is_dense: bool) -> Walked: ...
