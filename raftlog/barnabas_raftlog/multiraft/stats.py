"""Counts what the groups of a node have done so far. Pure."""

import msgspec

__all__ = ["MultiRaftStats"]


class MultiRaftStats(msgspec.Struct):
    """Plain counters."""

    drives: int = 0
    steps: int = 0
    proposals: int = 0
    messages_in: int = 0
    messages_refused: int = 0
    elections_won: int = 0
    stalls: int = 0
    loop_lag_ms_max: int = 0
    held_max: int = 0
