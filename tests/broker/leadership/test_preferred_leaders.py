"""Leaderships go back to the first replica once its node has been back long enough."""

import asyncio
from collections.abc import Iterable

import pytest

from barnabas_broker.leadership import preferred_leaders
from barnabas_broker.leadership.preferred_leaders import TRANSFERS_PER_TURN, PreferredLeaders
from barnabas_raftlog.steps import at_once

INTERVAL_MS = 5_000


class Led:
    """A partition that this node, number 2, leads unless told otherwise."""

    def __init__(self, replicas: tuple[int, ...], caught_up: tuple[int, ...], *, can_serve: bool = True) -> None:
        self.replicas = replicas
        self.caught_up = caught_up
        self.can_serve = can_serve
        self.transferred: list[int] = []

    def has_caught_up(self, node_id: int) -> bool:
        return node_id in self.caught_up

    def transfer(self, node_id: int) -> None:
        self.transferred.append(node_id)


class Leaders:
    def __init__(self, partitions: Iterable[Led]) -> None:
        self.now_ms = 20_000
        self.live_since_ms = {1: 0}
        found = list(partitions)
        self.leaders = PreferredLeaders(2, lambda: found, self.live_since_ms.get, lambda: self.now_ms, INTERVAL_MS)

    def move(self) -> bool:
        return at_once(self.leaders.move())


def test_a_partition_goes_to_its_first_replica() -> None:
    away = Led((1, 2, 3), (1, 2, 3))
    assert Leaders([away]).move()
    assert away.transferred == [1]


def test_what_belongs_here_or_is_not_led_here_stays() -> None:
    home = Led((2, 1, 3), (1, 2, 3))
    not_led = Led((1, 2, 3), (1, 2, 3), can_serve=False)
    assert not Leaders([home, not_led]).move()
    assert home.transferred == not_led.transferred == []


def test_a_node_that_just_came_back_or_has_not_caught_up_has_to_wait() -> None:
    recent = Led((1, 2, 3), (1, 2, 3))
    behind = Led((3, 2, 1), (1, 2))
    leaders = Leaders([recent, behind])
    leaders.live_since_ms |= {1: 16_000, 3: 0}
    assert leaders.move()
    assert recent.transferred == behind.transferred == []
    leaders.now_ms = 21_000
    assert leaders.move()
    assert recent.transferred == [1]


def test_a_node_that_is_gone_is_not_waited_for() -> None:
    gone = Led((3, 2, 1), (1, 2))
    assert not Leaders([gone]).move()


def test_thousands_of_partitions_take_several_turns() -> None:
    partitions = [Led((1, 2), (1, 2)) for _ in range(TRANSFERS_PER_TURN + 1)]
    assert Leaders(partitions).move()
    assert sum(len(partition.transferred) for partition in partitions) == TRANSFERS_PER_TURN


async def test_a_turn_goes_through_many_partitions_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preferred_leaders, "LOOKED_AT_ONCE", 10)
    away = [Led((1, 2, 3), (1, 2, 3)) for _ in range(35)]
    leaders = Leaders(away)
    leaders.leaders._turn()
    moved = list[int]()
    for _ in range(6):
        moved.append(sum(len(one.transferred) for one in away))
        leaders.leaders.look_soon()  # A leadership that comes meanwhile begins no second turn.
        await asyncio.sleep(0)
    assert moved == [9, 19, 29, 35, 35, 35]
    leaders.leaders.close()
