from collections.abc import Sequence

from barnabas_raftlog.records.walker.arrow_parts import ArrowParts, Part, Wanted

def arrow_columns(parts: Sequence[Part], start_offset: int, end_offset: int, wanted: Wanted) -> ArrowParts: ...
