"""Risk: brokers that hardly get the processor find no controller, or none that answers, however long they try.

Every iteration of their loops takes so long that a tick always comes late, and an answer takes seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from sim.cluster.judges.observer import observing
from sim.cluster.scenario import Run, quiet
from sim.cluster.stage import calm
from sim.cluster.world import MS, SECOND

from barnabas_raftlog.raft import election
from barnabas_raftlog.raft.state import RaftState

SLOW_US = (200 * MS, 500 * MS)
VERY_SLOW_US = (200 * MS, 2_000 * MS)


@contextmanager
def slow_cluster(slow_us: tuple[int, int], seed: int) -> Iterator[Run]:
    with quiet():
        run = Run(calm()._replace(seed=seed))
        try:
            with observing(run.observer):
                for machine in run.machines.values():
                    machine.slow_us = slow_us
                    machine.boot()
                yield run
        finally:
            run.close()


def leader_of(run: Run) -> int:
    """Return the controller that all who run agree on; 0 if there is none."""
    nodes = [machine.node for machine in run.machines.values()]
    found = {node.metadata.leader_id for node in nodes if node is not None}
    return (found.pop() or 0) if len(found) == 1 else 0


def all_know_all(run: Run) -> bool:
    images = run._images()
    return len(images) == len(run.machines) and all(len(image.brokers) == len(images) for image in images)


def finds_another_controller(run: Run, within_us: int) -> bool:
    """Kill the controller for good, and tell whether the others agree on another one in time."""
    killed = leader_of(run)
    run.machines[killed].kill()
    return run.world.run_until(run.world.now_us + within_us, lambda: leader_of(run) not in {0, killed})


@pytest.mark.parametrize("seed", [0, 1])
def test_slow_brokers_begin_a_cluster_and_lose_a_controller(seed: int) -> None:
    with slow_cluster(SLOW_US, seed) as run:
        world = run.world
        assert world.run_until(60 * SECOND, lambda: leader_of(run) != 0), "nobody leads"
        assert world.run_until(world.now_us + 120 * SECOND, lambda: all_know_all(run)), "they do not register"
        assert finds_another_controller(run, 60 * SECOND), "the controller has no successor"


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_brokers_that_run_once_in_a_second_elect_a_controller(seed: int) -> None:
    """Each of their ticks is late, and counts as a stall; deadlines are judged all the same."""
    with slow_cluster(VERY_SLOW_US, seed) as run:
        assert run.world.run_until(300 * SECOND, lambda: leader_of(run) != 0), "nobody leads"


def test_the_control() -> None:
    """A wait that begins anew at each stall never ends: these brokers stall at each tick."""
    with slow_cluster(SLOW_US, 0) as run:
        world = run.world
        assert world.run_until(60 * SECOND, lambda: leader_of(run) != 0)

        def wait_anew(raft: RaftState) -> None:
            if raft.deadline_ms is not None:
                raft.expect_leader()

        with patch.object(election, "on_stalled", wait_anew):
            assert not finds_another_controller(run, 120 * SECOND)
