"""The beginning of a metadata group, and controllers with empty disks: whole quorums, real storage."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from metadata_quorum.harness import Node, Plan, Quorum, RealDisk, quorum, run

from barnabas_metadata_quorum.controller.commands import NewTopic, Refused
from barnabas_metadata_quorum.controller.controller import ControllerConfig
from barnabas_metadata_quorum.voters import formation
from barnabas_raftlog.links.raft_frames import METADATA_GROUP
from barnabas_raftlog.raft.membership import Configuration, Member, configuration_of


@contextlib.asynccontextmanager
async def switched_off(
    directory: Path, voters: tuple[int, ...], learners: tuple[int, ...] = ()
) -> AsyncIterator[Quorum]:
    config = ControllerConfig(session_timeout_ms=600_000)
    nodes = Quorum(directory, Plan(voters, learners, config, RealDisk))
    try:
        yield nodes
    finally:
        await nodes.stop(*nodes.nodes)


def configuration(node: Node) -> Configuration:
    return node.multiraft.groups[METADATA_GROUP].log.configuration


def directory_of(nodes: Quorum, node_id: int) -> bytes:
    disk = nodes.disks[node_id]
    assert isinstance(disk, RealDisk)
    return disk.opened.directory_id


def new_disk(nodes: Quorum, node_id: int) -> None:
    shutil.rmtree(nodes.disks[node_id].directory)
    Path(nodes.disks[node_id].directory).mkdir()


async def until(node: Node, claim: str, nodes: Quorum, voters: tuple[int, ...]) -> None:
    """Wait until `node` knows exactly these voters, with the directories that they have now."""
    wanted = {Member(node_id, directory_of(nodes, node_id)) for node_id in voters}
    while set(configuration(node).voters) != wanted:
        await node.service._changed.wait()
    assert set(configuration(node).voters) == wanted, claim


async def nobody_leads(*nodes: Node) -> None:
    with pytest.raises(Refused, match="no answer"):
        await nodes[0].service.create_topics([NewTopic("never")], 1.5)
    assert not any(node.service.is_active for node in nodes)


def test_the_controllers_found_the_group_with_the_directories_that_they_have(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3), (4,), disk=RealDisk) as nodes:
            for node in nodes:
                await until(node, "founded", nodes, (1, 2, 3))

    run(main())


def test_a_new_group_begins_when_all_controllers_are_there_and_says_for_whom_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formation, "PATIENT_S", 0)

    async def main() -> None:
        async with switched_off(tmp_path, (1, 2, 3)) as nodes:
            await nodes.start(1, 2)
            await nobody_leads(nodes.nodes[1], nodes.nodes[2])
            assert "controllers [3] answer" in nodes.nodes[1].saw("waiting for controllers")[-1]
            assert "controllers [3] answer" in nodes.nodes[1].service.status()["waiting"]
            await nodes.start(3)
            await nodes.until_up()
            assert nodes.nodes[1].service.status()["waiting"] == ""
            # From then on a majority is enough.
            await nodes.stop(1, 2, 3)
            await nodes.start(2, 3)
            await nodes.nodes[3].create("later")

    run(main())


def test_a_controller_with_an_empty_disk_becomes_a_voter_again_and_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, disk=RealDisk, session_timeout_ms=600_000) as nodes:
            await nodes.nodes[1].create("kept")
            await nodes.stop(3)
            new_disk(nodes, 3)
            await nodes.start(3)
            for node in nodes:
                await until(node, "replaced", nodes, (1, 2, 3))
            [leader] = [node for node in nodes if node.service.is_active]
            await nodes.stop(next(iter({1, 2} - {leader.node_id})))
            await nodes.nodes[3].create("more")
            await nodes.nodes[3].until(lambda image: image.topic_named("kept") is not None)

    run(main())


def test_one_with_an_empty_disk_elects_nobody_who_lacks_what_it_had_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, disk=RealDisk, session_timeout_ms=600_000) as nodes:
            await nodes.stop(1)
            await nodes.nodes[2].create("kept")
            await nodes.stop(2, 3)
            new_disk(nodes, 3)
            await nodes.start(1, 3)
            await nobody_leads(nodes.nodes[1], nodes.nodes[3])
            await nodes.start(2)
            for node in nodes:
                await until(node, "replaced", nodes, (1, 2, 3))
                await node.until(lambda image: image.topic_named("kept") is not None)

    run(main())


def test_a_lone_controller_begins_no_new_cluster_beside_a_broker_that_has_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formation, "PATIENT_S", 0)

    async def main() -> None:
        async with switched_off(tmp_path, (1,), (2,)) as nodes:
            await nodes.start(1, 2)
            await nodes.until_up()
            await nodes.stop(1)
            new_disk(nodes, 1)
            await nodes.start(1)
            await nobody_leads(nodes.nodes[1], nodes.nodes[2])
            assert "nodes [2] have this cluster's metadata" in nodes.nodes[1].saw("waiting for controllers")[-1]

    run(main())


def test_a_new_cluster_does_not_wait_for_ever_for_a_node_that_only_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formation, "LEARNERS_S", 0.1)
    monkeypatch.setattr(formation, "RETRY_S", 0.05)

    async def main() -> None:
        async with switched_off(tmp_path, (1, 2), (3,)) as nodes:
            await nodes.start(1, 2)
            await nodes.until_up()
            await nodes.start(3)
            await nodes.until_up()

    run(main())


def test_a_log_from_before_directories_were_written_down_gets_them_from_its_leader(tmp_path: Path) -> None:
    async def main() -> None:
        async with switched_off(tmp_path, (1, 2, 3)) as nodes:
            for disk in nodes.disks.values():
                log = await disk.open(lambda: None)
                log.begin_with(configuration_of(frozenset({1, 2, 3})))
                await disk.close()
            await nodes.start(1, 2, 3)
            await nodes.until_up()
            for node in nodes:
                await until(node, "identified", nodes, (1, 2, 3))

    run(main())


def test_what_one_controller_has_begun_with_the_others_take_from_it_though_the_founder_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with switched_off(tmp_path, (1, 2, 3)) as nodes:
            for disk in nodes.disks.values():
                await disk.open(lambda: None)
                await disk.close()
            members = tuple(Member(node_id, directory_of(nodes, node_id)) for node_id in (1, 2, 3))
            log = await nodes.disks[2].open(lambda: None)
            log.begin_with(Configuration(members))
            await nodes.disks[2].close()
            new_disk(nodes, 1)
            await nodes.start(2, 3, 1)
            await nodes.until_up()
            for node in nodes:
                await until(node, "replaced", nodes, (1, 2, 3))

    run(main())


def test_other_controllers_are_brought_in_by_configuring_the_nodes_one_after_the_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3), (4, 5), disk=RealDisk, session_timeout_ms=600_000) as nodes:
            await nodes.nodes[1].create("kept")
            nodes.plan.voters = frozenset({3, 4, 5})
            nodes.plan.learners = frozenset({1, 2})
            for node_id in (4, 5, 3, 2, 1):
                await nodes.stop(node_id)
                await nodes.start(node_id)
                await nodes.until_up()
            for node in nodes:
                await until(node, "walked there", nodes, (3, 4, 5))
            await nodes.stop(1, 2)
            await nodes.nodes[4].create("more")

    run(main())
