"""Hands leaderships of a stopping broker on, also after a transfer that fails."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.leadership import hand_over as hand_over_module
from barnabas_broker.leadership.hand_over import hand_over
from barnabas_broker.partition.partition import Partition


class Led:
    """A partition that node 1 leads; the other replicas are 2, 3 and 4. The first `failing` transfers are given up."""

    def __init__(self, *, caught_up: tuple[int, ...] = (), isr: tuple[int, ...] = (1,), failing: int = 0) -> None:
        self.caught_up = caught_up
        self.isr = isr
        self.failing = failing
        self.electable: tuple[int, ...] = (2, 3, 4)
        self.term = 5
        self.leader_id = 1
        self.group = SimpleNamespace(is_leader=True)
        self.is_handing_over = False
        self.asked: list[int] = []

    def has_caught_up(self, node_id: int) -> bool:
        return node_id in self.caught_up

    def transfer(self, node_id: int) -> None:
        self.asked.append(node_id)
        if len(self.asked) > self.failing:
            self.group.is_leader = False
            self.leader_id = node_id


async def handed_over(*partitions: Any, able: frozenset[int] = frozenset({2, 3, 4})) -> None:
    """Hand over; nobody tells of anything, so each further look is one that the clock brought."""
    await hand_over(
        cast("list[Partition]", list(partitions)), lambda: set(able), asyncio.get_running_loop().create_future, 10
    )


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over_module, "AGAIN_S", 0.01)


async def test_it_goes_to_who_has_caught_up_else_to_who_is_in_sync_else_to_the_first() -> None:
    """One that is in sync may be half a minute behind, and producers would wait until the transfer is given up."""
    quick = Led(caught_up=(4,), isr=(1, 3, 4))
    slow = Led(isr=(1, 3))
    behind = Led()
    await handed_over(quick, slow, behind)
    assert (quick.asked, slow.asked, behind.asked) == ([4], [3], [2])


async def test_only_to_a_node_that_is_there() -> None:
    partition = Led(caught_up=(2, 3), isr=(1, 2, 3))
    nobody = Led()
    nobody.electable = (2,)
    await handed_over(partition, nobody, able=frozenset({3}))
    assert (partition.asked, nobody.asked) == ([3], [])


async def test_a_transfer_that_fails_is_begun_again() -> None:
    """The term and the target are the same as before, and nothing is said when a leader gives a transfer up."""
    partition = Led(caught_up=(3,), failing=2)
    await handed_over(partition)
    assert partition.asked == [3, 3, 3]


async def test_one_that_is_under_way_is_not_asked_for_again() -> None:
    partition = Led(caught_up=(3,), failing=1)
    looks = 0

    def able() -> set[int]:
        nonlocal looks
        looks += 1
        partition.is_handing_over = 1 < looks < 5
        return {2, 3, 4}

    future = asyncio.get_running_loop().create_future
    await hand_over(cast("list[Partition]", [partition]), able, future, 10)
    assert (partition.asked, looks) == ([3, 3], 6)
