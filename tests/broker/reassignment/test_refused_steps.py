"""A step that the leader's log refuses is tried again and stops nothing else."""

import asyncio
from types import SimpleNamespace
from typing import cast

from barnabas_broker.replicas.reassignment import Movable, Moves
from barnabas_metadata_quorum.controller.commands import FinishMoves
from barnabas_metadata_quorum.image.image import Move, PartitionPlacement
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.raft.membership import Configuration, configuration_of
from barnabas_raftlog.raft.messages import Fact, GroupId

GROUP = GroupId(bytes(20))
ON_ITS_WAY = PartitionPlacement((1, 2), Move((2,), (1,)))


class FullDisk:
    """A group of one voter whose log has no room until `has_room`."""

    def __init__(self) -> None:
        self.group_id = GROUP
        self.configuration = configuration_of(frozenset({1}))
        self.has_room = False
        self.log = SimpleNamespace(configuration_index=0)
        self.commit_index = 1

    def has_caught_up(self, _: int) -> bool:
        return False

    def change(self, configuration: Configuration) -> None:
        if not self.has_room:
            raise DiskFullError("no room for /data")
        self.configuration = configuration

    def repeat_members(self) -> None:
        if not self.has_room:
            raise DiskFullError("no room for /data")
        self.log.configuration_index = self.commit_index = 2


def partition_with(group: FullDisk) -> Movable:
    return cast("Movable", SimpleNamespace(topic_id=bytes(16), index=0, group=group, can_serve=True, term=1))


async def _submit(_command: object, _timeout_s: float) -> None:
    raise AssertionError("nothing is finished")


def test_a_full_disk_is_what_a_move_waits_for_and_it_goes_on_when_there_is_room() -> None:
    facts = list[Fact]()
    moves = Moves(1, lambda _: True, _submit, lambda _, fact: facts.append(fact))
    group = FullDisk()
    partition = partition_with(group)
    assert moves.review(partition, ON_ITS_WAY, ())
    assert moves.waiting == {GROUP: "the leader cannot write it down: no room for /data"}
    group.has_room = True
    assert moves.review(partition, ON_ITS_WAY, ())
    assert group.configuration.learner_ids == {2}
    assert not moves.waiting
    assert [fact.kind for fact in facts] == ["members waiting", "members changing"]


def test_a_move_that_changed_nothing_ends_when_the_log_names_its_members() -> None:
    """The controller forgets the founders then."""

    async def run() -> list[object]:
        told = list[object]()
        is_told = asyncio.Event()

        async def submit(command: object, _timeout_s: float) -> None:
            told.append(command)
            is_told.set()

        moves = Moves(1, lambda _: True, submit, lambda *_: None)
        group = FullDisk()
        partition = partition_with(group)
        called_off = PartitionPlacement((1,), Move((1,), (1,)), epoch=7)
        assert moves.review(partition, called_off, ())
        assert moves.waiting == {GROUP: "the leader cannot write it down: no room for /data"}
        group.has_room = True
        assert moves.review(partition, called_off, ())
        await asyncio.sleep(0)
        assert not told, "the entry is not committed yet, for all that this review knows"
        assert moves.review(partition, called_off, ())
        await is_told.wait()
        await moves.close()
        return told

    assert asyncio.run(run()) == [FinishMoves(((bytes(16), 0, 7),))]
