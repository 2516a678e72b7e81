"""The counters of a consumer. Pure."""

from typing import NamedTuple

__all__ = ["ConsumerMetrics"]


class ConsumerMetrics(NamedTuple):
    """Counts since a consumer was made, and what it holds and knows now. No broker is asked for them."""

    assigned_partitions: int
    fetches: int
    """Fetches that were answered."""
    fetched_bytes: int
    """Record batches on the wire, compressed as they are."""
    refusals: int
    """Partitions that a broker refused to serve, or did not serve in time, and that were asked for again."""
    buffered_bytes: int
    """At most `buffer_bytes`, or one larger batch."""
    records: int
    """Records that the application was handed."""
    polls: int
    """How often it asked for records and none were decoded: a `for` takes up to 500 of one."""
    lag: int | None
    """Offsets from the positions to the ends of the partitions, as of the last fetches; None if one is unknown."""
    rebalances: int
    """Generations of the group that this consumer was in."""
    commits: int
    commit_failures: int
    fetch_latency_s: float
    """From a fetch that brought records to its answer, smoothed; 0.0 before the first."""
