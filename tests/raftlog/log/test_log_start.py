"""The start of a replicated log, through deaths, cuts, slow disks and new leaders: nothing else is ever lost."""

import pytest

from barnabas_raftlog.log.append_log import Mode

from .replicas import World

STEPS = 120


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", range(12))
async def test_no_acknowledged_record_at_or_above_the_start_is_lost(seed: int, mode: Mode) -> None:
    world = World(seed, mode)
    for member in world.members.values():
        await member.boot()
    world.connect()
    for _ in range(STEPS):
        await world.step()
    world.check_all(await world.recover())
