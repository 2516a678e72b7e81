"""Elections between far nodes cost round trips, not one attempt after the other.

Two that stand within half a round trip of each other have both voted for themselves before they hear of it, and the
longer the way, the likelier that is. Time is virtual.
"""

import pytest

from barnabas_raftlog.raft.messages import LeadershipEnded, PeerSilent
from barnabas_raftlog.raft.state import Role

from .test_latency import SYNC_MS, Distant

LATENCIES_MS = pytest.mark.parametrize("latency_ms", [1, 10, 50, 80])
TURNS_MS = 40  # how long members wait for their turn at most, beside round trips
SEEDS = range(25)


class Electing(Distant):
    """Members 1 to 3, of which 1 has led an idle group until now."""

    def __init__(self, latency_ms: int, lot: int, seed: int, *, preferred: int = 1) -> None:
        super().__init__(latency_ms, every_ms=1)
        self.is_loaded = False
        self.run(1_000)
        self.round_trip.ms = 2 * latency_ms
        for core in self.cores.values():
            core.lot = lot
            core.preferred = core.node_id == preferred
        self.rng.seed(seed)
        self.lost_term = self.leader.term
        self.lost_ms = self.now_ms

    def next_leader(self, start_ms: int = 0) -> int:
        """Run until a member is confirmed as the next leader, and return which."""
        while not (found := [n for n in (2, 3) if self.cores[n].role is Role.LEADER and self.cores[n].confirmed]):
            self.run(1)
            waited_ms = self.now_ms - self.lost_ms
            # To be asked, to be voted for, to be confirmed; a vote and an entry are on two disks first.
            assert waited_ms <= start_ms + TURNS_MS + 8 * self.latency_ms + 4 * SYNC_MS, (
                f"nobody leads in {waited_ms} ms"
            )
        assert self.cores[found[0]].term == self.lost_term + 1, "an election was lost"
        return found[0]


@LATENCIES_MS
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_dies_costs_one_election_however_long_a_round_trip_is(latency_ms: int, seed: int) -> None:
    group = Electing(latency_ms, lot=seed, seed=seed)
    group.die(1)
    group.next_leader()


@LATENCIES_MS
@pytest.mark.parametrize("seed", SEEDS)
def test_the_preferred_replica_wins_that_election_if_it_is_there(latency_ms: int, seed: int) -> None:
    group = Electing(latency_ms, lot=seed, seed=seed, preferred=3)
    group.die(1)
    assert group.next_leader() == 3


@LATENCIES_MS
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_gives_up_costs_one_election(latency_ms: int, seed: int) -> None:
    group = Electing(latency_ms, lot=seed, seed=seed)
    group.dead.add(1)
    for node in (2, 3):
        group.step(node, LeadershipEnded(group.lost_term, 1, node))
    group.next_leader(start_ms=71)


@LATENCIES_MS
def test_groups_of_one_dead_leader_are_led_by_all_that_are_left(latency_ms: int) -> None:
    leaders = []
    for lot in range(8):
        group = Electing(latency_ms, lot=lot, seed=1)
        group.die(1)
        leaders.append(group.next_leader())
    assert leaders.count(2) == leaders.count(3) == 4


@LATENCIES_MS
def test_where_the_first_to_stand_lacks_an_entry_the_next_one_leads_in_its_turn(latency_ms: int) -> None:
    group = Electing(latency_ms, lot=0, seed=1)
    group.dead.add(2)
    group.propose(1, "on one follower")
    group.run(3 * latency_ms + 2 * SYNC_MS)
    group.dead.discard(2)
    group.dead.add(1)
    group.run(latency_ms)  # A connection ends behind the bytes that were sent over it.
    group.lost_ms = group.now_ms
    for node in (2, 3):
        group.step(node, PeerSilent(1))
    assert group.next_leader(start_ms=40 + 2 * latency_ms) == 3


def test_the_lot_says_who_of_those_that_are_left_stands_first() -> None:
    for lot, first in enumerate((2, 3, 2, 3)):
        group = Electing(50, lot=lot, seed=1)
        group.die(1)
        assert group.next_leader() == first
