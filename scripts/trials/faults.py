"""The faults of `scripts/torture`: their victims, their lengths, and their mending.

A *promise* is about the time after a fault within which every partition has acknowledged a record that was sent after
it. Faults under a promise have more cards, so that a hundred rounds say something about 99 of a hundred. `needs` names
the ability of a computer that a fault needs (`machines.machines.missing`).
"""

import dataclasses
import random
import signal
from collections.abc import Callable, Mapping

from machines.machines import Machines

HOUR_MS = 3_600_000


@dataclasses.dataclass
class Scene:
    """The things that a fault may look at. `leaders`: node id by partition, as clients were told just before."""

    machines: Machines
    chance: random.Random
    leaders: Mapping[int, int]

    def a_leader(self) -> int:
        return self.chance.choice(sorted({leader for leader in self.leaders.values() if leader > 0}))

    def a_broker(self) -> int:
        return self.chance.choice(self.machines.others())


@dataclasses.dataclass(frozen=True)
class Promise:
    """The limit for 99 of 100 rounds of the faults under it, with the brokers' default settings."""

    what: str
    p99_s: float


KILLED_LEADER = Promise("kill -9 of a leader", 0.5)
CUT_LINK = Promise("cut link between brokers", 1.5)
PROMISES = (KILLED_LEADER, CUT_LINK)


@dataclasses.dataclass(frozen=True)
class Fault:
    """One kind of fault. `strike` returns the nodes that it struck; `mend` heals those.

    `cards`: how often it lies in the deck that the rounds are dealt from.
    """

    name: str
    strike: Callable[[Scene], list[int]]
    mend: Callable[[Scene, list[int]], None]
    hold_s: tuple[float, float] = (2.0, 4.0)
    needs: str = ""
    promise: Promise | None = None
    cards: int = 1


def _kill(scene: Scene, node_ids: list[int]) -> list[int]:
    # All signals first: `kill` waits for the end of each.
    for node_id in node_ids:
        scene.machines[node_id].signal(signal.SIGKILL)
    for node_id in node_ids:
        scene.machines[node_id].kill()
    return node_ids


def _restart(scene: Scene, node_ids: list[int]) -> None:
    scene.machines.start(*node_ids)


def _suspend(scene: Scene) -> list[int]:
    node_id = scene.a_leader()
    scene.machines[node_id].signal(signal.SIGSTOP)
    return [node_id]


def _resume(scene: Scene, node_ids: list[int]) -> None:
    for node_id in node_ids:
        scene.machines[node_id].signal(signal.SIGCONT)


def _cut_one_way(scene: Scene) -> list[int]:
    """The leader's words reach nobody; it hears everybody."""
    leader = scene.a_leader()
    for other in scene.machines.others(leader):
        scene.machines.cut(leader, other)
    return [leader]


def _cut_other_way(scene: Scene) -> list[int]:
    """The leader is heard by everybody and hears nobody."""
    leader = scene.a_leader()
    for other in scene.machines.others(leader):
        scene.machines.cut(other, leader)
    return [leader]


def _cut_both_ways(scene: Scene) -> list[int]:
    """The leader and the other brokers do not hear each other; clients reach all of them."""
    leader = scene.a_leader()
    for other in scene.machines.others(leader):
        scene.machines.cut(leader, other)
        scene.machines.cut(other, leader)
    return [leader]


def _cut_one_link(scene: Scene) -> list[int]:
    """Two of three brokers do not hear each other; the third hears both."""
    leader = scene.a_leader()
    other = scene.chance.choice(scene.machines.others(leader))
    scene.machines.cut(leader, other)
    scene.machines.cut(other, leader)
    return [leader, other]


def _cut_off(scene: Scene) -> list[int]:
    """Nothing that the leader sends arrives anywhere, clients included."""
    leader = scene.a_leader()
    scene.machines.cut_off(leader)
    return [leader]


def _mend_links(scene: Scene, _: list[int]) -> None:
    scene.machines.mend_links()


def _fill_disk(scene: Scene) -> list[int]:
    leader = scene.a_leader()
    scene.machines[leader].fill_disk()
    return [leader]


def _empty_disk(scene: Scene, node_ids: list[int]) -> None:
    for node_id in node_ids:
        scene.machines[node_id].empty_disk()


def _jump_clock(scene: Scene) -> list[int]:
    node_id = scene.a_broker()
    hours = scene.chance.choice([-24 * 400, -72, -1, 1, 72, 24 * 400])
    scene.machines[node_id].move_clock(hours * HOUR_MS)
    return [node_id]


def _set_clock(scene: Scene, node_ids: list[int]) -> None:
    for node_id in node_ids:
        scene.machines[node_id].move_clock(0)


def _lose_power(scene: Scene, node_ids: list[int]) -> list[int]:
    scene.machines.lose_power(*node_ids)
    return node_ids


def _restore_power(scene: Scene, node_ids: list[int]) -> None:
    scene.machines.restore_power(node_ids)
    scene.machines.start(*node_ids)


SHORT = (1.0, 2.0)
FAULTS = (
    Fault(
        name="kill-leader",
        strike=lambda scene: _kill(scene, [scene.a_leader()]),
        mend=_restart,
        hold_s=SHORT,
        needs="",
        promise=KILLED_LEADER,
        cards=5,
    ),
    Fault(
        name="kill-any",
        strike=lambda scene: _kill(scene, [scene.a_broker()]),
        mend=_restart,
        hold_s=SHORT,
    ),
    Fault(
        name="kill-all",
        strike=lambda scene: _kill(scene, scene.machines.others()),
        mend=_restart,
        hold_s=(0.0, 0.5),
    ),
    Fault(name="suspend-leader", strike=_suspend, mend=_resume, hold_s=(2.0, 6.0)),
    Fault(
        name="cut-leader-unheard",
        strike=_cut_one_way,
        mend=_mend_links,
        hold_s=(3.0, 5.0),
        needs="links",
        promise=CUT_LINK,
    ),
    Fault(
        name="cut-leader-deaf",
        strike=_cut_other_way,
        mend=_mend_links,
        hold_s=(3.0, 5.0),
        needs="links",
        promise=CUT_LINK,
    ),
    Fault(
        name="cut-leader-both-ways",
        strike=_cut_both_ways,
        mend=_mend_links,
        hold_s=(3.0, 5.0),
        needs="links",
        promise=CUT_LINK,
        cards=2,
    ),
    Fault(
        name="cut-one-link", strike=_cut_one_link, mend=_mend_links, hold_s=(3.0, 5.0), needs="links", promise=CUT_LINK
    ),
    # Under no promise: its clients know it only by the time, of which librdkafka looks once a second.
    Fault(name="cut-off-leader", strike=_cut_off, mend=_mend_links, hold_s=(3.0, 5.0), needs="links"),
    Fault(name="disk-full", strike=_fill_disk, mend=_empty_disk, hold_s=(2.0, 4.0), needs="disks"),
    Fault(name="clock-jump", strike=_jump_clock, mend=_set_clock, hold_s=(1.0, 3.0), needs="clock and syncs"),
    Fault(
        name="power-cut-leader",
        strike=lambda scene: _lose_power(scene, [scene.a_leader()]),
        mend=_restore_power,
        hold_s=SHORT,
        needs="disks",
    ),
    Fault(
        name="power-cut-all",
        strike=lambda scene: _lose_power(scene, scene.machines.others()),
        mend=_restore_power,
        hold_s=(0, 0.5),
        needs="disks",
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


def deck(chance: random.Random, faults: list[Fault], rounds: int) -> list[Fault]:
    """Return a fault for each round: every kind as often as it has cards, in an order that the seed decides."""
    cards = [fault for fault in faults for _ in range(fault.cards)]
    dealt: list[Fault] = []
    while len(dealt) < rounds:
        dealt += chance.sample(cards, len(cards))
    return dealt[:rounds]
