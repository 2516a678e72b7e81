"""A failed replica is recreated only once its leader says that nothing is lost."""

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.bad_disks import BadDisks, consumed, kinds, storage_status, until
from raftlog.quiet_links import QuietLinks

from barnabas_broker.node import Node
from barnabas_broker.partition.in_sync import is_held_without
from barnabas_broker.partition.partition import Partition
from barnabas_broker.replicas import failed_replicas
from barnabas_broker.replicas.failed_replicas import AGAIN_MS, METHOD, FailedReplicas
from barnabas_broker.replicas.hosted_topic import group_id_of
from barnabas_clients import Admin, Producer
from barnabas_metadata_quorum.leaders.table import NO_LEADER, Leadership
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.links.rpc import RemoteError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.raft.membership import Configuration, configuration_of
from barnabas_raftlog.raft.messages import GroupId

TOPIC_ID = bytes(range(16))
GROUP = group_id_of(TOPIC_ID, 3)
BROKEN = StorageFailedError("t-3: a bit has flipped")


async def end_of_round(failed: FailedReplicas) -> None:
    """Let a round of questions end; one that has not begun begins now."""
    if not failed._asking:
        assert failed._timer is not None
        failed._timer.cancel()
        failed._begin()
    assert failed._asking
    await asyncio.wait(failed._asking._running)
    await asyncio.sleep(0)  # for its callbacks


class World(QuietLinks):
    """The world of `FailedReplicas` on node 1: the leader, its answer, the time."""

    def __init__(self) -> None:
        super().__init__()
        self.leader_id = 2
        self.live = {2, 3}
        self.answers: list[bytes | Exception] = []
        self.asked: list[int] = []
        self.made: list[tuple[GroupId, int]] = []
        self.time_ms = 0
        self.happened = asyncio.Event()
        self.failed = FailedReplicas(1, self, self.leadership, lambda *_: None, lambda: self.time_ms, self.make_anew)

    def leadership(self, topic_id: bytes, partition: int) -> Leadership | None:
        assert (topic_id, partition) == (TOPIC_ID, 3)
        return Leadership(5, 1, self.leader_id, (2, 3))

    def is_live(self, node_id: int) -> bool:
        return node_id in self.live

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        assert (method, body) == (METHOD, GROUP)
        self.asked.append(node_id)
        self.happened.set()
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def make_anew(self, group_id: GroupId, leader_id: int) -> None:
        self.made.append((group_id, leader_id))
        self.happened.set()

    async def turn(self) -> None:
        await end_of_round(self.failed)


async def test_what_a_leader_can_do_without_is_made_anew() -> None:
    world = World()
    world.answers = [b"\1"]
    world.failed.note(GROUP, BROKEN)
    assert world.failed.status() == {GROUP: str(BROKEN)}
    await world.turn()
    assert world.made == [(GROUP, 2)]
    assert world.failed.status() == {}
    assert world.failed._timer is None, "there is nothing to wait for"


@pytest.mark.parametrize("answer", [b"\0", RemoteError("NotLeaderError", ""), TimeoutError()])
async def test_the_leader_is_asked_again_until_it_says_so(answer: bytes | Exception) -> None:
    world = World()
    world.answers = [answer, b"\1"]
    world.failed.note(GROUP, BROKEN)
    await world.turn()
    assert world.made == []
    await world.turn()
    assert (world.asked, world.made) == ([2, 2], [(GROUP, 2)])


@pytest.mark.parametrize(("leader_id", "live"), [(NO_LEADER, {2, 3}), (1, {2, 3}), (2, {3})])
async def test_nobody_is_asked_without_a_live_leader_elsewhere(leader_id: int, live: set[int]) -> None:
    world = World()
    world.leader_id = leader_id
    world.live = live
    world.failed.note(GROUP, BROKEN)
    await world.turn()
    assert (world.asked, world.made) == ([], [])
    assert world.failed._timer is not None
    await world.failed.close()


async def test_one_that_fails_again_and_again_is_made_anew_once_in_a_minute() -> None:
    world = World()
    world.answers = [b"\1", b"\1"]
    for now_ms in (0, 1_000, AGAIN_MS - 1, AGAIN_MS):
        world.time_ms = now_ms
        world.failed.note(GROUP, BROKEN)
        await world.turn()
        assert len(world.made) == (2 if now_ms == AGAIN_MS else 1)


async def test_what_was_deleted_or_moved_away_meanwhile_is_forgotten() -> None:
    world = World()
    world.answers = [b"\1"]
    world.failed.note(GROUP, BROKEN)
    await world.happened.wait()
    world.failed.forget(GROUP)
    await world.turn()
    assert world.made == []


async def test_who_does_not_lead_says_so_to_whoever_asks() -> None:
    world = World()
    for body in (GROUP, b"", bytes(21)):
        with pytest.raises(NotLeaderError):
            await world.failed.answer(2, body)


@pytest.mark.parametrize(
    ("voters", "witness", "matches", "is_held"),
    [
        ({1, 2, 3}, 0, {2: 10, 3: 10}, True),
        ({1, 2, 3}, 0, {2: 10, 3: 9}, False),
        ({1, 2, 3, 4, 5}, 0, {2: 10, 3: 10, 4: 0, 5: 10}, True),
        ({1, 2, 3, 4, 5}, 0, {2: 10, 3: 0, 4: 0, 5: 10}, False),
        ({1, 2}, 0, {2: 10}, True),
        ({1, 2, 3}, 3, {2: 10, 3: 0}, True),
        ({1, 2, 3}, 2, {2: 10, 3: 10}, True),
    ],
)
def test_a_majority_holds_what_is_committed_or_all_others_where_they_are_fewer(
    voters: set[int], witness: int, matches: dict[int, int], is_held: bool
) -> None:
    """Node 1 leads, node 2 asks."""
    progress = {peer: SimpleNamespace(match_index=index, uncertain=0) for peer, index in matches.items()}
    configuration = configuration_of(frozenset(voters))
    if witness:
        configuration = Configuration(configuration.voters, witnesses=(witness,))
    core = SimpleNamespace(commit_index=10, progress=progress)
    group = SimpleNamespace(core=core, configuration=configuration)
    log = SimpleNamespace(durable_index=10)
    assert is_held_without(cast("Any", group), cast("Any", log), 2) == is_held


def test_one_that_may_have_forgotten_holds_nothing() -> None:
    progress = {2: SimpleNamespace(match_index=10, uncertain=7), 3: SimpleNamespace(match_index=10, uncertain=7)}
    core = SimpleNamespace(commit_index=10, progress=progress)
    group = SimpleNamespace(core=core, configuration=configuration_of(frozenset({1, 2, 3})))
    assert not is_held_without(cast("Any", group), cast("Any", SimpleNamespace(durable_index=10)), 2)


def replica_of(node: Node) -> Partition:
    return next(partition for partition in node.partitions if partition.topic_name == "t")


def newest_file(partition: Partition) -> Path:
    return max(Path(cast("ReplicaLog", partition.log).directory).glob("*.log"))


async def filled(cluster: BadDisks, count: int, replicas: int = 3) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", partitions=1, replication_factor=replicas)
    async with Producer(cluster.bootstrap, linger_s=0.0) as producer:
        for number in range(count):
            await producer.send_and_wait("t", b"%04d" % number, partition=0)


def damage(partition: Partition) -> None:
    """Flip a bit in the file that is written to, and forget what of it is in memory, as if much had come since."""
    file = newest_file(partition)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    cast("ReplicaLog", partition.log).tail.drop_before(partition.log.last_index)


def test_damage_in_the_newest_file_of_a_leader_costs_nothing_but_another_leader(tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(3, tmp_path) as cluster:
            await filled(cluster, 40)
            node = next(known for known in cluster.nodes.values() if replica_of(known).is_leader)
            old = replica_of(node)
            await until(lambda: old.log.durable_index == old.log.last_index, node)
            damage(old)
            assert await consumed(cluster.bootstrap, 40) == [b"%04d" % number for number in range(40)]
            await until(lambda: {"replica failed", "replica made anew"} <= kinds(node), node)
            await until(lambda: any(known.high_watermark == 40 for known in node.partitions), node)
            assert replica_of(node) is not old
            assert storage_status(node)["failed_replicas"] == {}
            await until(lambda: not replica_of(node).group.core.uncertain, node)
            # Now it is worth as much as any other.
            leader = next(known for known in cluster.nodes.values() if replica_of(known).is_leader)
            await replica_of(leader).group.confirm()  # one that has just stood still hands nothing over before
            replica_of(leader).transfer(node.config.node_id)
            await until(lambda: replica_of(node).can_serve, node)
            assert await consumed(cluster.bootstrap, 40) == [b"%04d" % number for number in range(40)]

    asyncio.run(main())


def test_a_follower_whose_file_cannot_be_written_is_made_anew_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_replicas, "AGAIN_MS", 0)

    async def main() -> None:
        async with BadDisks(3, tmp_path) as cluster:
            await filled(cluster, 5)
            node = next(known for known in cluster.nodes.values() if not replica_of(known).is_leader)
            disk = cluster.disks[node.config.node_id]
            disk.errors = lambda call, path: errno.EIO if call == "write" and "/t-0-" in path else 0
            async with Producer(cluster.bootstrap, linger_s=0.0) as producer:
                for number in range(5, 10):
                    await producer.send_and_wait("t", b"%04d" % number, partition=0)
            await until(lambda: "replica failed" in kinds(node), node)
            disk.errors = lambda call, path: 0
            await until(lambda: "replica made anew" in kinds(node), node)

            def is_whole() -> bool:
                # One that was made anew before the disk was well has failed once more, and is made anew once more.
                return any(known.high_watermark == 10 and known.group.failed is None for known in node.partitions)

            await until(is_whole, node)
            assert storage_status(node)["failed_replicas"] == {}

    asyncio.run(main())


def test_the_only_replica_is_kept_as_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(1, tmp_path) as cluster:
            await filled(cluster, 40, replicas=1)
            node = cluster.nodes[1]
            partition = replica_of(node)
            file = newest_file(replica_of(node))
            await until(lambda: partition.log.durable_index == partition.log.last_index, node)
            damage(partition)
            data = file.read_bytes()
            with pytest.raises(StorageFailedError):
                await partition.log.read_cold(0, 40, 1 << 20)
            await until(lambda: "replica failed" in kinds(node), node)
            for _ in range(2):
                await end_of_round(node.partitions.failed)
            assert "replica made anew" not in kinds(node)
            assert list(storage_status(node)["failed_replicas"]) == ["t-0"]
            assert file.read_bytes() == data

    asyncio.run(main())
