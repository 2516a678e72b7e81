"""Hands all leaderships of a broker on before it stops."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from barnabas_broker.partition.partition import Partition

__all__ = ["hand_over"]


AGAIN_S = 1.0
"""When to look again without being told: a leader gives a transfer up after an election timeout, and leads on."""


async def hand_over(
    partitions: Sequence[Partition],
    targets: Callable[[], set[int]],
    leaders_changed: Callable[[], Awaitable[None]],
    timeout_s: float,
) -> None:
    """Transfer every leadership to one of `targets()`, if possible one that has caught up; return when all are away.

    A transfer that fails is begun again. If nobody is left to take over, as when a whole cluster stops, or if the time
    is up, elections decide about the rest.
    """
    moving = [partition for partition in partitions if partition.group.is_leader]
    transferred: dict[Partition, tuple[int, int]] = {}
    try:
        async with asyncio.timeout(timeout_s):
            while moving:
                able = targets()
                moving = [one for one in moving if one.group.is_leader or one.leader_id is None]
                moving = [one for one in moving if able.intersection(one.electable)]
                for partition in moving:
                    if partition.group.is_leader and not partition.is_handing_over:
                        target = _target(partition, able)
                        # One that was asked for in this turn of the loop is not under way yet.
                        if transferred.get(partition) != (partition.term, target):
                            transferred[partition] = (partition.term, target)
                            partition.transfer(target)
                if moving:
                    try:
                        async with asyncio.timeout(AGAIN_S):
                            await leaders_changed()
                    except TimeoutError:
                        transferred.clear()  # A transfer that is not under way now has failed.
    except TimeoutError:
        return


def _target(partition: Partition, able: set[int]) -> int:
    """Return the next leader: the first that has caught up, else the first in sync, else the first."""
    best = [node_id for node_id in partition.electable if node_id in able]
    ready = [node_id for node_id in best if partition.has_caught_up(node_id)]
    return (ready or [node_id for node_id in best if node_id in partition.isr] or best)[0]
