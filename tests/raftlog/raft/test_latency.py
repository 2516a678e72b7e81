"""Followers on long links are in sync, and caught up, while entries are appended.

Time is virtual: a message takes `latency_ms` in each direction, a sync `SYNC_MS`, and appends are pipelined as the core
does it. On one machine none of that shows, which is why it is here.
"""

import heapq
from collections.abc import Callable
from itertools import count

import pytest

from barnabas_raftlog.raft.core import RaftCore
from barnabas_raftlog.raft.messages import Entry, Event, Message, PeerLive, PeerSilent, Proposed, Ready, Tick
from barnabas_raftlog.raft.progress import Progress

from .group import Group

SYNC_MS = 3
LAG_MS = 500
LATENCIES_MS = pytest.mark.parametrize("latency_ms", [1, 10, 50])
LOADS = pytest.mark.parametrize("every_ms", [1, 20])


class Distant(Group):
    """Nodes that are `latency_ms` apart; the leader is number 1, and appends an entry every `every_ms`."""

    def __init__(self, latency_ms: int, every_ms: int) -> None:
        self.latency_ms = latency_ms
        self.every_ms = every_ms
        self.is_loaded = False
        self.due = list[tuple[int, int, Callable[[], object]]]()
        self.order = count()
        self.syncing = set[int]()
        self.sync_ms = dict[int, int]()
        super().__init__((1, 2, 3))
        self.slow = set(self.cores)
        self.connect()
        self.run(1_500)
        assert self.leader.confirmed
        self.is_loaded = True

    @property
    def leader(self) -> RaftCore:
        return self.cores[1]

    def follower(self, node: int) -> Progress:
        return self.leader.progress[node]

    def run(self, for_ms: int, check: Callable[[], object] = lambda: None) -> None:
        """Let so much time pass, with `check` in each millisecond."""
        for _ in range(for_ms):
            self.now_ms += 1
            self.step_count = 0
            while self.due and self.due[0][0] <= self.now_ms:
                heapq.heappop(self.due)[2]()
            for node, core in self.cores.items():
                if node not in self.dead and core.deadline_ms is not None and core.deadline_ms <= self.now_ms:
                    self.step(node, Tick())
            if self.is_loaded and self.now_ms % self.every_ms == 0:
                log = self.disks[1].log
                log.append([Entry(log.last_index + 1, self.leader.term, b"x")])
                self.step(1, Proposed())
            check()

    def is_in_sync(self, node: int) -> bool:
        """Tell it as the broker does (`partition.in_sync`)."""
        follower = self.follower(node)
        return follower.live and follower.is_in_sync(self.now_ms, LAG_MS)

    def has_caught_up(self, node: int) -> bool:
        return self.follower(node).has_caught_up(self.now_ms, self.leader.timing.election_timeout_ms)

    def all_in_sync(self) -> None:
        behind = {
            n: p.ends.last_index - p.match_index for n, p in self.leader.progress.items() if not self.is_in_sync(n)
        }
        assert not behind, f"at {self.now_ms} ms out of sync, and so many entries behind: {behind}"

    def step(self, node: int, event: Event) -> Ready:
        ready = super().step(node, event)
        if self.disks[node].queue and node not in self.syncing:
            self.syncing.add(node)
            self._later(self.sync_ms.get(node, SYNC_MS), lambda: self._synced(node))
        return ready

    def _synced(self, node: int) -> None:
        self.syncing.discard(node)
        if node not in self.dead:
            self.sync(node)

    def _send(self, message: Message) -> None:
        self._later(self.latency_ms, lambda: message.target in self.dead or self.step(message.target, message))

    def _later(self, after_ms: int, do: Callable[[], object]) -> None:
        heapq.heappush(self.due, (self.now_ms + after_ms, next(self.order), do))

    def _print(self, node: int, text: str) -> None:
        pass


@LATENCIES_MS
@LOADS
def test_followers_that_keep_up_stay_in_sync(latency_ms: int, every_ms: int) -> None:
    """However long a round trip is, and however many acknowledgements arrive in one."""
    group = Distant(latency_ms, every_ms)
    group.run(4 * LAG_MS, group.all_in_sync)


@LATENCIES_MS
@LOADS
def test_followers_that_keep_up_have_caught_up_all_the_time(latency_ms: int, every_ms: int) -> None:
    group = Distant(latency_ms, every_ms)
    group.run(100)

    def both_have() -> None:
        assert group.has_caught_up(2)
        assert group.has_caught_up(3)

    group.run(3_000, both_have)


@LATENCIES_MS
def test_new_member_catches_up_under_load(latency_ms: int) -> None:
    group = Distant(latency_ms, every_ms=1)
    group.run(1_000)
    group.join(4)
    group.slow.add(4)
    group.change(1, group.configuration({1, 2, 3}, {4}))
    group.step(1, PeerLive(4))
    group.step(4, PeerLive(1))
    assert not group.is_in_sync(4)

    def not_yet() -> None:
        assert group.is_in_sync(4) == group.has_caught_up(4)

    group.run(1_000, not_yet)

    def it_has() -> None:
        assert group.has_caught_up(4)

    group.run(2_000, it_has)


@LATENCIES_MS
def test_follower_that_stalls_leaves_within_the_lag_and_two_round_trips(latency_ms: int) -> None:
    """Its disk answers nothing any more; it goes on answering heartbeats, so nothing else puts it out."""
    group = Distant(latency_ms, every_ms=1)
    group.run(2 * LAG_MS)
    group.sync_ms[3] = 60_000
    group.run(LAG_MS + 2 * (2 * latency_ms + SYNC_MS))
    assert not group.is_in_sync(3)
    assert group.follower(3).live
    assert group.is_in_sync(2)


@LATENCIES_MS
def test_follower_that_is_steadily_twice_the_lag_behind_leaves(latency_ms: int) -> None:
    group = Distant(latency_ms, every_ms=1)
    group.sync_ms[3] = 2 * LAG_MS
    group.run(3 * LAG_MS)

    def out_of_sync() -> None:
        assert not group.is_in_sync(3)

    group.run(4 * LAG_MS, out_of_sync)
    assert group.follower(3).match_index > 0


@LATENCIES_MS
def test_follower_that_comes_back_is_in_sync_once_it_has_what_was_there_lately(latency_ms: int) -> None:
    group = Distant(latency_ms, every_ms=1)
    group.dead.add(3)
    for node in (1, 2):
        group.step(node, PeerSilent(3))
    group.run(4 * LAG_MS)
    assert not group.is_in_sync(3)
    needed_index = group.disks[1].log.last_index
    group.dead.discard(3)
    for node, peer in ((1, 3), (2, 3), (3, 1), (3, 2)):
        group.step(node, PeerLive(peer))
    while group.follower(3).match_index < needed_index:
        group.run(1)
    assert group.is_in_sync(3)
    group.run(2 * LAG_MS, group.all_in_sync)


@LATENCIES_MS
def test_quiet_group_is_in_sync_as_it_wakes(latency_ms: int) -> None:
    """Nothing was said for a minute, and the entry that ends the silence is on its way."""
    group = Distant(latency_ms, every_ms=1)
    group.run(100)
    group.is_loaded = False
    group.run(60_000)
    assert group.leader.quiescent
    group.propose(1, "after a minute")
    group.all_in_sync()
    group.run(200, group.all_in_sync)
