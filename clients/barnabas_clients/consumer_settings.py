"""What a consumer can be told, checked when it is made. Pure.

Meanings are told where people look for them, at `Consumer` (consumer.py).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from .assignors import ASSIGNORS, Assignor
from .fetch_plan import FetchSettings

__all__ = ["EARLIEST", "LATEST", "RESETS", "ConsumerSettings", "assignors_of"]

LATEST, EARLIEST = -1, -2
"""The ends of a log, as ListOffsets names them."""

RESETS: Final[Mapping[str, int | None]] = {"latest": LATEST, "earliest": EARLIEST, "none": None}
"""What `auto_offset_reset` may be, and where it leads; None leaves it to the application."""


class ConsumerSettings(NamedTuple):
    """See `Consumer`."""

    group_id: str | None
    group_instance_id: str | None
    auto_offset_reset: Literal["latest", "earliest", "none"]
    auto_commit: bool
    auto_commit_interval_s: float
    assignors: tuple[Assignor, ...]
    session_timeout_s: float
    heartbeat_interval_s: float
    max_poll_interval_s: float
    metadata_max_age_s: float
    request_timeout_s: float
    timeout_s: float
    fetch: FetchSettings

    def check(self) -> None:
        """Raise ValueError for the first setting that is impossible, naming it."""
        if self.auto_offset_reset not in RESETS:
            raise ValueError(f"auto_offset_reset is {self.auto_offset_reset!r}; choose from {', '.join(RESETS)}")
        for name in self._fields:
            if name.endswith("_s") and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be more than 0")
        if self.heartbeat_interval_s >= self.session_timeout_s:
            raise ValueError("heartbeat_interval_s must be less than session_timeout_s")
        if self.group_instance_id is not None and self.group_id is None:
            raise ValueError("group_instance_id without a group_id")
        if not self.assignors:
            raise ValueError("assignors is empty")
        fetch = self.fetch
        if fetch.max_wait_s < 0 or fetch.min_bytes < 0:
            raise ValueError("fetch_max_wait_s and fetch_min_bytes cannot be negative")
        if min(fetch.max_bytes, fetch.partition_bytes, fetch.buffer_bytes) <= 0:
            raise ValueError("fetch_max_bytes, partition_fetch_bytes and buffer_bytes must be more than 0")

    @property
    def commits(self) -> bool:
        """Whether finished offsets are committed for the application."""
        return self.auto_commit and self.group_id is not None


def assignors_of(given: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """Return assignors, looking up those that are named.

    Raises:
        ValueError: a name is not one of ours.
    """
    found = []
    for one in given:
        if not isinstance(one, str):
            found.append(one)
        elif one in ASSIGNORS:
            found.append(ASSIGNORS[one])
        else:
            raise ValueError(f"there is no assignor {one!r}; choose from {', '.join(ASSIGNORS)}, or give an object")
    return tuple(found)
