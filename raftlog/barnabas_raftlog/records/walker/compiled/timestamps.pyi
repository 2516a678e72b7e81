from typing import TypeAlias

from barnabas_raftlog.records.walker.faults import Fault
from barnabas_raftlog.records.walker.key_parts import Timed

Buffer: TypeAlias = bytes | bytearray | memoryview

class TimeSearch:
    is_done: bool
    fault: Fault
    bytes_due: int
    def __init__(
        self,
        *,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_timestamp: int | None,
        start_offset: int,
        wanted: int | None,
    ) -> None: ...
    def feed(self, data: Buffer) -> int: ...
    def end(self, *, is_left: bool) -> Timed | None: ...
