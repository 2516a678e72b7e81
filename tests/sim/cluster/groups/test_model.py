"""The model of a group sees what must not be, and allows what may be."""

from collections.abc import Callable

import pytest

from sim.cluster.world import MS, SECOND, InvariantError, World

from .model import GroupModel, Place, Stay

SESSION_US = 3 * SECOND
ONE: Place = (b"t" * 16, 0)
OTHER: Place = (b"t" * 16, 1)


class Scene:
    """A group with two members in epoch 1, the first of which has a partition."""

    def __init__(self, *, is_classic: bool = False, is_mixed: bool = False) -> None:
        self.world = World(0)
        self.model = GroupModel(self.world, "g", SESSION_US, is_classic=is_classic, is_mixed=is_mixed)
        self.first, self.second = self.joined("a"), self.joined("b")
        self.model.give(self.first, [ONE])

    def joined(self, name: str, instance_id: str | None = None, epoch: int = 1) -> Stay:
        stay = Stay(name, instance_id, 4 * SECOND)
        self.model.heard(stay, epoch, self.world.now_us, None)
        return stay

    def wait(self, us: int) -> None:
        self.world.now_us += us

    def sees(self) -> bool:
        return isinstance(self.world.failure, InvariantError)


def dropped(scene: Scene) -> None:
    scene.model.drop(scene.first, [ONE])


def silent(scene: Scene) -> None:
    scene.wait(SESSION_US)
    scene.model.heard(scene.second, 1, scene.world.now_us, None)


def unwilling(scene: Scene) -> None:
    scene.first.asked_us = scene.world.now_us
    scene.wait(4 * SECOND)
    for stay in (scene.first, scene.second):
        scene.model.heard(stay, 1, scene.world.now_us, None)


def gone(scene: Scene) -> None:
    scene.model.end(scene.first)


def told_late(scene: Scene) -> None:
    scene.wait(SESSION_US)
    scene.model.heard(scene.first, 1, scene.world.now_us, None)


@pytest.mark.parametrize("before", [dropped, silent, unwilling, gone, told_late])
def test_a_partition_may_be_given_on(before: Callable[[Scene], None]) -> None:
    scene = Scene()
    before(scene)
    scene.model.give(scene.second, [ONE])
    assert not scene.sees()


def test_a_partition_that_somebody_has_is_given_to_nobody() -> None:
    scene = Scene()
    scene.wait(SESSION_US // 2)
    scene.model.heard(scene.second, 1, scene.world.now_us, None)
    scene.model.give(scene.second, [OTHER])
    assert not scene.sees()
    scene.model.give(scene.second, [ONE])
    assert scene.sees()


def test_an_answer_of_an_older_epoch_that_comes_too_late_takes_nothing_from_its_owner() -> None:
    scene = Scene()
    late = scene.joined("c")
    scene.wait(SESSION_US)
    scene.model.heard(scene.first, 2, scene.world.now_us, None)
    scene.model.give(late, [ONE])
    assert ONE in scene.first.has
    scene.model.end(late)
    scene.model.heard(scene.second, 2, scene.world.now_us, None)
    scene.model.give(scene.second, [ONE])
    assert scene.sees()


def test_a_generation_has_one_owner_of_a_partition_and_instances_go_on_in_it() -> None:
    scene = Scene(is_classic=True)
    third = scene.joined("c", "i")
    scene.model.drop(scene.first, [ONE])
    fourth = scene.joined("d", "i")
    for stay in (third, fourth):
        scene.model.give(stay, [OTHER])
        scene.model.drop(stay, [OTHER])
    assert not scene.sees()
    scene.model.give(scene.second, [ONE])
    assert scene.sees()


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_a_static_member_comes_back_for_is_kept(is_seen: bool) -> None:
    scene = Scene()
    static = scene.joined("c", "i")
    scene.model.give(static, [OTHER])
    scene.model.end(static)
    scene.model.keep(static, [OTHER])
    if not is_seen:
        scene.model.come_back("i", "e", is_classic=False)
    scene.model.give(scene.second, [OTHER])
    assert scene.sees() == is_seen


def test_an_instance_may_hear_that_it_may_go_after_its_successor_has_come() -> None:
    scene = Scene()
    static = scene.joined("c", "i")
    scene.model.give(static, [OTHER])
    scene.model.end(static)
    scene.model.come_back("i", "e", is_classic=False)
    scene.model.keep(static, [OTHER])
    scene.model.give(scene.second, [OTHER])
    assert not scene.sees()


def test_epochs_do_not_go_back() -> None:
    scene = Scene()
    scene.model.heard(scene.first, 5, scene.world.now_us, None)
    scene.model.heard(scene.second, 2, scene.world.now_us, None)
    assert not scene.sees()
    stay = Stay("c", None, SECOND)
    scene.model.heard(stay, 4, scene.world.now_us, scene.model.know())
    assert scene.sees()


@pytest.mark.parametrize("is_mixed", [False, True])
def test_where_both_protocols_come_epochs_begin_anew_behind_those_who_are_gone(is_mixed: bool) -> None:
    scene = Scene(is_mixed=is_mixed)
    scene.joined("b", epoch=8)
    scene.wait(SESSION_US)
    known = scene.model.know()
    assert scene.model.is_there(known) != is_mixed
    scene.model.heard(Stay("c", None, SECOND), 1, scene.world.now_us, known)
    assert scene.sees() != is_mixed


def test_where_both_protocols_come_epochs_do_not_go_back_while_somebody_stays() -> None:
    scene = Scene(is_mixed=True)
    known = scene.model.know()
    scene.wait(MS)
    scene.joined("d", epoch=8)  # Behind that, and perhaps behind the answer.
    scene.model.heard(Stay("c", None, SECOND), 1, scene.world.now_us, known)
    assert not scene.sees()
    assert scene.model.is_there(known)
    scene.model.heard(Stay("e", None, SECOND), 4, scene.world.now_us, scene.model.know())
    assert scene.sees()


@pytest.mark.parametrize("later", [("b", True), ("b", False)])
@pytest.mark.parametrize("is_classic", [True, False])
def test_an_instance_is_gone_over_at_once_where_either_is_classic(later: tuple[str, bool], is_classic: bool) -> None:
    scene = Scene(is_mixed=True)
    static = Stay("c", "i", 4 * SECOND, is_classic=is_classic)
    for process, speaks_classic in (("c", is_classic), later):
        scene.model.come_back("i", process, is_classic=speaks_classic)
    scene.model.heard(static, 1, scene.world.now_us, None)
    scene.model.give(static, [OTHER])
    scene.model.give(scene.joined("b", "i"), [OTHER])
    assert scene.sees() != (is_classic or later[1])


def test_who_is_told_too_late_takes_nothing_from_its_successor() -> None:
    scene = Scene(is_mixed=True)
    static, other = Stay("c", "i", 4 * SECOND), Stay("d", "i", 4 * SECOND, is_classic=True)
    scene.model.come_back("i", "c", is_classic=False)
    scene.model.come_back("i", "d", is_classic=True)
    for stay in (other, static):
        scene.model.heard(stay, 1, scene.world.now_us, None)
        scene.model.give(stay, [OTHER])
    assert not scene.sees()
    assert OTHER in other.has


def test_what_was_acknowledged_is_there() -> None:
    scene = Scene()
    for offset in (3, 8):
        scene.model.acknowledge(scene.model.send_commit(scene.first, ONE, offset))
    asked = scene.model.ask(scene.second, ONE)
    scene.model.tell(scene.second, asked, 8)
    assert not scene.sees()
    scene.model.tell(scene.second, asked, 3)
    assert scene.sees()


def test_nothing_is_told_that_nobody_has_committed() -> None:
    scene = Scene()
    scene.model.tell(None, scene.model.ask(None, ONE), 8)
    assert scene.sees()


def test_a_commit_without_an_answer_may_come_until_the_next_owner_has_looked() -> None:
    scene = Scene()
    model = scene.model
    model.send_commit(scene.first, ONE, 3)
    model.acknowledge(model.send_commit(scene.first, ONE, 8))
    assert model.ask(scene.second, ONE).at_least == 3
    model.drop(scene.first, [ONE])
    model.give(scene.second, [ONE])
    model.heard(scene.first, 2, scene.world.now_us, None)  # Nobody takes a commit of its first epoch any more.
    model.tell(scene.second, model.ask(scene.second, ONE), 8)
    scene.wait(MS)
    assert model.ask(scene.first, ONE).at_least == 8
    assert not scene.sees()


def test_what_is_described_has_one_owner() -> None:
    scene = Scene()
    known = scene.model.know()
    scene.model.look(2, known, {"a": {ONE}, "b": {OTHER}})
    assert not scene.sees()
    scene.model.look(2, known, {"a": {ONE}, "b": {ONE, OTHER}})
    assert scene.sees()
