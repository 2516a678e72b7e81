"""How much a coordinator may hold for its clients, and who gets the last of it. Pure.

All shards of a coordinator on one broker have one `Room`. The coordinator says what it counts: everything that a client
can make longer, byte for byte, and a flat sum for each thing beside it.

*A reserve:* newcomers may use all but an eighth, and what those who are there add, all but a sixteenth. So there is
room for what lets them go on, and for what lets them go.
"""

__all__ = ["Room"]


class Room:
    """The room of one coordinator. A shard that holds something changes `held_bytes`, up and down by the same."""

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    @property
    def left_bytes(self) -> int:
        """All that is left; 0 or less: nothing."""
        return self.limit_bytes - self.held_bytes

    @property
    def for_newcomers_bytes(self) -> int:
        """Bytes that newcomers may take; 0 or less: none."""
        return self.left_bytes - self.limit_bytes // 8

    @property
    def for_additions_bytes(self) -> int:
        """Bytes that those who are there may add; 0 or less: none."""
        return self.left_bytes - self.limit_bytes // 16
