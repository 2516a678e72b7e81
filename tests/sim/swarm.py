"""The faults that a seed switches on. Swarm testing: runs that lack a fault go deeper into the others."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Swarm:
    """One choice of cluster, network, disk and fault rates. Intervals are means; 0 means never.

    `ambush_rate`: how often a fault waits for the worst moment instead of coming at random: a crash while a promise
    is on its way to the disk, a cut just before a leader takes values in.
    """

    voter_count: int
    learner_count: int
    drop_rate: float
    duplicate_rate: float
    delay_ms_min: int
    delay_ms_max: int
    reorder: bool
    sync_ms_max: int
    page_cache: bool
    bytes_per_append: int
    bytes_in_flight_max: int
    propose_interval_ms: int
    burst_max: int
    ambush_rate: float
    crash_interval_ms: int
    cut_interval_ms: int
    stall_interval_ms: int
    mistake_interval_ms: int
    campaign_interval_ms: int
    transfer_interval_ms: int
    compact_interval_ms: int
    spare_count: int
    change_interval_ms: int
    replace_interval_ms: int
    power_interval_ms: int = 0  # of power cuts in page-cache mode
    witness_count: int = 0  # of the voters
    busy_interval_ms: int = 0  # of disks that are behind

    @classmethod
    def chosen_by(cls, rng: Random) -> "Swarm":
        """Even cluster sizes too: ties live there. Small windows too: full ones live there."""
        return cls(
            voter_count=rng.choice([1, 2, 3, 3, 3, 4, 5]),
            learner_count=rng.choice([0, 1]),
            drop_rate=rng.choice([0.0, 0.0, 0.02, 0.1, 0.3]),
            duplicate_rate=rng.choice([0.0, 0.0, 0.1, 0.3]),
            delay_ms_min=rng.choice([0, 1]),
            delay_ms_max=rng.choice([1, 5, 40, 150]),
            reorder=rng.choice([False, True]),
            sync_ms_max=rng.choice([0, 2, 20, 200]),
            page_cache=rng.choice([False, False, True]),
            bytes_per_append=rng.choice([1, 200, 1 << 20]),
            bytes_in_flight_max=rng.choice([1, 500, 1500]),
            propose_interval_ms=rng.choice([5, 20, 100, 700]),
            burst_max=rng.choice([1, 1, 8]),
            ambush_rate=rng.choice([0.0, 0.0, 0.1, 0.5]),
            crash_interval_ms=rng.choice([0, 400, 1500, 4000]),
            cut_interval_ms=rng.choice([0, 400, 1500, 4000]),
            stall_interval_ms=rng.choice([0, 0, 800, 3000]),
            mistake_interval_ms=rng.choice([0, 0, 300, 1500]),
            campaign_interval_ms=rng.choice([0, 0, 200, 1500]),
            transfer_interval_ms=rng.choice([0, 0, 500, 2000]),
            compact_interval_ms=rng.choice([0, 0, 300, 1500]),
            spare_count=rng.choice([0, 0, 1, 2]),
            change_interval_ms=rng.choice([0, 0, 150, 600]),
            replace_interval_ms=rng.choice([0, 0, 1000, 3000]),
        )
