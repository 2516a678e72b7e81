from collections.abc import Callable
from typing import TypeAlias, TypeVar

from barnabas_raftlog.records.walker.batch_frame import BatchFrame

Buffer: TypeAlias = bytes | bytearray | memoryview
_R = TypeVar("_R")

def take_records(
    taken: list[_R],
    count: int,
    headers_max: int,
    data: Buffer,
    position: int,
    frame: BatchFrame,
    first: int,
    delta_min: int,
    new: Callable[..., _R],
) -> tuple[int, int]: ...
def skip_records(count: int, data: Buffer, position: int, frame: BatchFrame, offset: int) -> tuple[int, int, int]: ...
