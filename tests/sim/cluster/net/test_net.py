"""The net catches fish: lying disks, broken promises; and the tools around a failing seed."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from barnabas_raftlog.catch_up.repair import SegmentRepair
from sim.cluster.judges.history import ClientHistory
from sim.cluster.machines import disk
from sim.cluster.machines.loop import Clock, VirtualLoop
from sim.cluster.machines.network import Conditions, Network
from sim.cluster.scenario import SimulationError, run_choice
from sim.cluster.shrink import shrink
from sim.cluster.swarm import Choice, Fault, at_ease, choose
from sim.cluster.world import SECOND, InvariantError, World


def three_nodes(*faults: Fault, flush_mode: str = "fsync") -> Choice:
    return at_ease()._replace(
        nodes=3,
        replication_factor=3,
        partitions=1,
        members=0,
        moves=False,
        observers=False,
        segment_ms=0,
        flush_mode=flush_mode,
        drift=(1.0,) * 3,
        safety_us=5 * SECOND,
        kinds=(),
        faults=faults,
    )


@pytest.mark.slow
def test_a_bit_that_rots_where_a_replica_must_read_to_be_opened_is_mended_from_another_replica() -> None:
    rot = Fault(at_us=7 * SECOND, kind="rot", nodes=(2, 2), duration_us=SECOND // 2, detail=1)
    calm = three_nodes(rot)._replace(record_bytes=6_000, pause_ms=60, deletes=False, safety_us=8 * SECOND)
    counts = run_choice(calm).world.counts
    assert counts["event replica suspended"] == counts["event segment repaired"] == 1


@pytest.mark.slow
def test_one_that_nobody_can_mend_is_made_anew_if_its_leader_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have deleted what was in the segment, for example: it would wait for a copy for ever."""

    async def nobody(*_: object) -> AsyncGenerator[str, None]:
        for path in list[str]():
            yield path

    monkeypatch.setattr(SegmentRepair, "__call__", nobody)
    rot = Fault(at_us=7 * SECOND, kind="rot", nodes=(2, 2), duration_us=SECOND // 2, detail=1)
    calm = three_nodes(rot)._replace(record_bytes=6_000, pause_ms=60, deletes=False, safety_us=8 * SECOND)
    counts = run_choice(calm).world.counts
    assert counts["event replica suspended"] == counts["event replica made anew"] == 1
    assert counts["event segment repaired"] == 0


@pytest.mark.slow
def test_a_stop_that_a_stalled_broker_has_not_heard_of_is_waited_for_before_all_is_well() -> None:
    stall = Fault(4 * SECOND, "stall", (1, 1), 3 * SECOND)
    restart = Fault(4_100_000, "restart", (1, 1), 2 * SECOND)
    counts = run_choice(three_nodes(stall, restart)).world.counts
    assert counts["clean stops"] == 1


EVERYBODY_LOSES_POWER = Fault(at_us=4 * SECOND, kind="power_all", nodes=(1, 1), duration_us=SECOND // 2, detail=0)


@pytest.mark.slow
def test_power_cuts_of_all_machines_lose_nothing_that_was_synced() -> None:
    run = run_choice(three_nodes(EVERYBODY_LOSES_POWER))
    assert run.world.counts["recoveries"] == 3


@pytest.mark.slow
def test_a_journal_that_is_never_synced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    sync = disk.VirtualFiles.sync

    def lie(files: disk.VirtualFiles, fd: int) -> None:
        if len(files._open[fd].data) < 1 << 20:
            sync(files, fd)  # Journal files alone are preallocated to so much.

    monkeypatch.setattr(disk.VirtualFiles, "sync", lie)
    with pytest.raises(SimulationError):
        run_choice(three_nodes(EVERYBODY_LOSES_POWER))


@pytest.mark.slow
def test_what_was_only_in_the_page_cache_is_missed_when_everybody_loses_power() -> None:
    with pytest.raises(SimulationError):
        run_choice(three_nodes(EVERYBODY_LOSES_POWER, flush_mode="page-cache"))


P = ("t", 0)
A = b"c1-t-0-0"
B = b"c1-t-0-1"


def history(*values: bytes) -> tuple[World, ClientHistory]:
    world = World(0)
    told = ClientHistory(world)
    for value in values:
        told.on_sent(value, P, "c1", is_idempotent=True)
    told.judge.positioned("r", P, 0)
    return world, told


def test_a_record_that_changes_its_place_or_its_value_is_noticed() -> None:
    for offset, value in ((1, A), (0, B)):
        world, told = history(A, B)
        told.on_acknowledged([A], 0)
        told.on_read("r", P, offset, value)
        assert isinstance(world.failure, InvariantError)


def test_a_lost_record_and_a_hole_are_noticed() -> None:
    world, told = history(A, B)
    told.on_acknowledged([A, B], 0)
    told.check_complete("r", P, 1)
    assert world.failure is not None
    world, told = history(A, B)
    told.on_read("r", P, 1, B)
    told.check_complete("r", P, 2)
    assert world.failure is not None


def test_an_older_acknowledgement_behind_a_newer_one_is_noticed() -> None:
    world, told = history(A, B)
    told.on_acknowledged([A], 5)
    told.on_acknowledged([B], 3)
    assert world.failure is not None


def test_a_commit_goes_back_only_as_far_as_an_unanswered_one() -> None:
    world, told = history()
    told.on_commit_sent("g", P, 5)  # never answered
    told.on_commit_sent("g", P, 7)
    told.on_committed("g", P, 7)
    assert told.on_commit_asked("m", "g", P) == 5
    told.on_fetched_commit("m", "g", P, 5, 5, 1)
    assert world.failure is None
    told.on_fetched_commit("m", "g", P, 4, 5, 2)
    assert world.failure is not None


def test_two_owners_in_one_generation_are_noticed() -> None:
    world, told = history()
    told.on_assigned("g", 1, P, "a")
    told.on_assigned("g", 2, P, "b")
    assert world.failure is None
    told.on_assigned("g", 2, P, "c")
    assert world.failure is not None


def test_a_record_that_is_there_although_it_was_refused_is_noticed_whatever_comes_first() -> None:
    world, told = history(A)
    told.on_refused(A)
    told.on_read("r", P, 0, A)
    assert world.failure is not None
    world, told = history(A)
    told.on_read("r", P, 0, A)
    told.on_refused(A)
    assert world.failure is not None


def test_an_end_that_was_told_and_does_not_exist_is_noticed() -> None:
    world, told = history(A)
    told.on_read("r", P, 0, A)
    told.on_told_end(P, 2)
    told.check_complete("r", P, 1)
    assert world.failure is not None


def test_a_record_that_is_not_of_the_time_that_was_told_is_noticed() -> None:
    world, told = history(A)
    told.on_told_record(P, 0, 5)
    told.on_read("r", P, 0, A)
    told.check_complete("r", P, 1)
    assert world.failure is not None


def test_a_group_that_passes_over_a_record_is_noticed() -> None:
    world, told = history()
    told.on_handed_out("g", P, 0, None)
    told.on_handed_out("g", P, 1, 1)
    told.on_handed_out("g", P, 1, None)  # another member, once more from the last commit
    assert world.failure is None
    told.on_handed_out("g", P, 4, None)
    assert world.failure is not None


def test_a_hole_within_a_membership_is_noticed() -> None:
    world, told = history()
    told.on_handed_out("g", P, 0, None)
    told.on_handed_out("g", P, 0, 1)
    assert world.failure is not None


def test_an_offset_that_is_stored_beyond_what_was_handed_out_is_noticed() -> None:
    world, told = history()
    told.on_handed_out("g", P, 0, None)
    told.on_group_stored("g", P, 1)
    assert world.failure is None
    told.on_group_stored("g", P, 2)
    assert world.failure is not None


def test_shrinking_leaves_the_faults_that_matter() -> None:
    faults = tuple(
        Fault(at_us=number * SECOND, kind="crash", nodes=(1, 1), duration_us=0, detail=number) for number in range(16)
    )
    wanted = {3, 11}

    def fails(choice: Choice) -> bool:
        return wanted <= {fault.detail for fault in choice.faults}

    small = shrink(choose(5)._replace(faults=faults, plain_producers=2, partitions=3, safety_us=60 * SECOND), fails)
    assert {fault.detail for fault in small.faults} == wanted
    assert (small.plain_producers, small.partitions) == (0, 1)
    assert small.safety_us < 12 * SECOND


def test_what_is_buried_begins_nothing() -> None:
    """It would begin on a loop that never runs, and complain when the garbage is collected."""
    world = World(0)
    loop = VirtualLoop(world, Network(world, Conditions()), "a", Clock(world), lambda _: None)
    begun = list[asyncio.Task[None]]()

    async def goodbye() -> None:
        pass

    async def work() -> None:
        try:
            await loop.create_future()
        finally:
            begun.append(asyncio.ensure_future(goodbye()))

    loop.arrive(lambda: loop.create_task(work()))
    world.run_until(SECOND)
    loop.kill()
    idle = asyncio.new_event_loop()
    asyncio.set_event_loop(idle)
    world.bury()
    idle.close()
    assert begun == []
