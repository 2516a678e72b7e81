from collections.abc import Sequence

from barnabas_raftlog.records.walker.arrow_parts import Cut, RowParts

def arrow_records(
    rows: RowParts, run_ends: Sequence[int], room_bytes: int, header_bytes: int
) -> tuple[bytearray, list[Cut]]: ...
