"""Risk: a controller with an empty disk elects another without its acknowledged entries."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas_raftlog.multiraft.multiraft import METADATA_GROUP
from barnabas_raftlog.raft.membership import Member
from sim.cluster.clients.admin import create_topic
from sim.cluster.judges.observer import observing
from sim.cluster.machines.machine import Machine

from .scenario import Run, quiet
from .stage import Stage, calm, on_stage
from .world import SECOND


@contextmanager
def switched_off(nodes: int) -> Iterator[Stage]:
    """Yield machines that have never been on."""
    with quiet():
        run = Run(calm()._replace(nodes=nodes, drift=(1.0,) * nodes, replication_factor=min(nodes, 3)))
        try:
            with observing(run.observer):
                yield Stage(run, run.client())
        finally:
            run.close()


def is_in_charge(machine: Machine) -> bool:
    return machine.node is not None and machine.node.metadata.is_active


def has_controller(stage: Stage, within_us: int) -> bool:
    world = stage.run.world
    machines = stage.run.machines.values()
    return world.run_until(world.now_us + within_us, lambda: any(map(is_in_charge, machines)))


def knows_all_voters(stage: Stage, machine: Machine) -> bool:
    """Tell whether this one takes every controller that is up, on its present disk, for a voter, and nobody else."""
    nodes = [other.node for other in stage.run.machines.values()]
    present = {Member(node.config.node_id, node.storage.directory_id) for node in nodes if node is not None}
    node = machine.node
    return node is not None and set(node.multiraft.groups[METADATA_GROUP].log.configuration.voters) == present


def until_all_vote(stage: Stage) -> None:
    world = stage.run.world
    machines = stage.run.machines.values()
    done = world.run_until(world.now_us + 20 * SECOND, lambda: all(knows_all_voters(stage, one) for one in machines))
    assert done, "a new disk does not vote"


def waits(stage: Stage) -> list[str]:
    return [what for _, _, what in stage.run.world.notes if "waiting for controllers" in what]


def test_it_elects_nobody_with_one_that_lacks_what_it_had_acknowledged() -> None:
    with on_stage() as stage:
        machines = stage.run.machines
        behind = machines[1]
        keeper = machines[2]
        replaced = machines[3]
        behind.kill()
        assert has_controller(stage, 10 * SECOND)
        stage.do(create_topic(stage.client, "kept", 1, 1, {}))
        stage.wait(1 * SECOND)
        keeper.kill()
        replaced.replace_disk()
        replaced.boot()
        behind.boot()
        assert not has_controller(stage, 20 * SECOND)
        assert "it does not know this directory" in waits(stage)[0]
        keeper.boot()
        assert has_controller(stage, 5 * SECOND)
        assert is_in_charge(keeper)
        until_all_vote(stage)
        for machine in machines.values():
            assert machine.node is not None
            assert machine.node.metadata.image.topic_named("kept") is not None


def test_a_leader_that_was_overruled_commits_nothing_with_one_that_has_forgotten_the_newer_term() -> None:
    """The leader is cut off, the others elect another and store something; then one of them loses its disk."""
    with on_stage() as stage:
        machines = stage.run.machines
        assert has_controller(stage, 10 * SECOND)
        old = next(machine for machine in machines.values() if is_in_charge(machine))
        replaced, newer = (machine for machine in machines.values() if machine is not old)
        cut = stage.run.network.cut
        mend = stage.run.network.mend
        for other in (replaced, newer):
            cut(old.name, other.name)
            cut(other.name, old.name)
        world = stage.run.world
        assert world.run_until(world.now_us + 10 * SECOND, lambda: is_in_charge(replaced) or is_in_charge(newer))
        stage.wait(1 * SECOND)
        newer.kill()
        replaced.replace_disk()
        mend()
        replaced.boot()
        assert not has_controller(stage, 10 * SECOND)
        newer.boot()
        assert has_controller(stage, 5 * SECOND)
        until_all_vote(stage)


def test_it_counts_again_when_it_has_caught_up_and_also_after_a_crash() -> None:
    with on_stage() as stage:
        machines = stage.run.machines
        machines[3].replace_disk()
        machines[3].boot()
        stage.wait(2 * SECOND)
        until_all_vote(stage)
        for machine in machines.values():
            machine.kill()
        machines[2].boot()
        machines[3].boot()
        assert has_controller(stage, 5 * SECOND)


def test_the_disks_of_all_controllers_may_be_replaced_one_after_the_other() -> None:
    with on_stage() as stage:
        stage.do(create_topic(stage.client, "kept", 1, 3, {}))
        for machine in stage.run.machines.values():
            machine.replace_disk()
            machine.boot()
            stage.wait(2 * SECOND)
            until_all_vote(stage)
        for machine in stage.run.machines.values():
            assert machine.node is not None
            assert machine.node.metadata.image.topic_named("kept") is not None


def test_a_disk_that_is_given_back_is_let_in_again_and_brings_no_old_vote_along() -> None:
    with on_stage() as stage:
        machine = stage.run.machines[3]
        machine.kill()
        first = machine.disk.root
        machine.replace_disk()
        machine.boot()
        stage.wait(2 * SECOND)
        until_all_vote(stage)
        machine.kill()
        machine.disk.root = first
        machine.boot()
        stage.wait(2 * SECOND)
        until_all_vote(stage)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_a_new_cluster_begins_when_all_of_its_controllers_are_up_and_says_for_whom_it_waits(nodes: int) -> None:
    with switched_off(nodes) as stage:
        *first, last = stage.run.machines.values()
        for machine in first:
            machine.boot()
        assert not has_controller(stage, 20 * SECOND)
        assert len(waits(stage)) == len(first)
        assert all(f"controllers [{nodes}] answer" in line for line in waits(stage)), waits(stage)
        last.boot()
        assert has_controller(stage, 2 * SECOND)
        stage.wait(1 * SECOND)
        assert all(knows_all_voters(stage, machine) for machine in stage.run.machines.values())


@pytest.mark.parametrize("crash_us", [*range(20_000, 200_000, 20_000)])
def test_a_disk_that_is_lost_while_the_cluster_begins_is_replaced_like_any_other(crash_us: int) -> None:
    """The founder's, at one moment after the other: before it has asked, when it has given, when it leads."""
    with switched_off(3) as stage:
        machines = stage.run.machines
        for machine in machines.values():
            machine.boot()
        stage.wait(crash_us)
        machines[1].replace_disk()
        stage.wait(100_000)
        machines[1].boot()
        assert has_controller(stage, 10 * SECOND)
        until_all_vote(stage)
