"""One drive takes a bounded number of steps, and tells a bounded number of groups."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from patching import patch_method
from raftlog.messages import vote_request

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.multiraft import driver as driver_module
from barnabas_raftlog.multiraft import greetings as greetings_module
from barnabas_raftlog.multiraft import multiraft as groups_module
from barnabas_raftlog.multiraft import promises as promises_module
from barnabas_raftlog.multiraft.driver import (
    BULK_PER_DRIVE,
    DRIVES_AT_ONCE,
    EVENTS_PER_DRIVE,
    STEPS_BETWEEN_LOOKS,
    STEPS_MS,
    TICK,
    TOLD_PER_DRIVE,
    TOUCHED_BY_EVENTS,
    Driver,
)
from barnabas_raftlog.multiraft.promises import Promises
from barnabas_raftlog.raft.messages import HardState, PeerDigest

from .fakes import MemoryStorage, Network, Node, data_frame, group_id
from .test_groups import elected

GROUPS = 300


class Counted:
    """The work of each drive of one node: steps, and groups that were told."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = list[int]()
        self.told = list[int]()
        drive = Driver._drive_once
        tell = Driver._tell
        of = node.raft._driver

        def counted(driver: Driver) -> None:
            before = driver.stats.steps
            drive(driver)
            if driver is of:
                self.steps.append(driver.stats.steps - before)

        def told(driver: Driver, touched: Any) -> None:
            groups = list(touched)
            tell(driver, groups)
            if driver is of:
                self.told.append(len(groups))

        monkeypatch.setattr(Driver, "_drive_once", counted)
        monkeypatch.setattr(Driver, "_tell", told)


async def test_a_drive_steps_as_many_groups_as_it_can_tell_and_goes_on_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, node = await elected(1, groups=GROUPS)
    counted = Counted(node, monkeypatch)
    for number in range(1, GROUPS + 1):
        node.group(number).propose(data_frame())
    await network.settle()
    assert max(counted.told) <= TOUCHED_BY_EVENTS
    assert sum(counted.told) == GROUPS
    assert all(node.heard(number)[-2:] == [("appended", 2), ("committed", 2)] for number in range(1, GROUPS + 1))


async def test_a_drive_takes_so_many_events_though_they_are_all_of_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    network, node = await elected(1)
    counted = Counted(node, monkeypatch)
    for _ in range(3 * EVENTS_PER_DRIVE):
        node.raft._driver.post(node.group(1), TICK)
    await network.settle()
    assert [steps for steps in counted.steps if steps] == [EVENTS_PER_DRIVE] * 3


async def test_while_there_is_much_to_do_some_drives_share_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    _, node = await elected(1)
    for _ in range(10 * EVENTS_PER_DRIVE):
        node.raft._driver.post(node.group(1), TICK)
    drives = list[int]()
    for _ in range(6):
        before = node.raft.stats.drives
        await asyncio.sleep(0)
        drives.append(node.raft.stats.drives - before)
    assert drives[:2] == [1, DRIVES_AT_ONCE]
    assert max(drives) == DRIVES_AT_ONCE
    assert node.raft._driver.is_idle


async def test_a_drive_that_has_taken_its_time_leaves_the_rest_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    network, node = await elected(1)
    counted = Counted(node, monkeypatch)
    for _ in range(3 * STEPS_BETWEEN_LOOKS):
        node.raft._driver.post(node.group(1), TICK)

    def later() -> int:
        network.now_ms += STEPS_MS  # Each look at the clock finds that so much has gone by.
        return network.now_ms

    monkeypatch.setattr(node.raft._driver, "_clock", later)
    await network.settle()
    assert counted.steps == [STEPS_BETWEEN_LOOKS] * 3


async def test_what_disks_have_is_told_to_cores_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(1)
    node = network.nodes[1]
    for number in range(1, GROUPS + 1):
        node.add(number, is_lazy=True)
    await network.settle()
    counted = Counted(node, monkeypatch)
    for log in node.logs.values():
        log.sync()
    node.storage.moved = list(node.logs)
    node.raft.on_durable()
    await network.settle()
    assert max(counted.told) <= TOUCHED_BY_EVENTS
    assert sum(counted.told) >= GROUPS
    assert all(node.group(number).confirmed for number in range(1, GROUPS + 1))


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_what_thousands_of_groups_are_due_for_is_done_in_slices(
    is_bulk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, node = await elected(1, groups=GROUPS)
    counted = Counted(node, monkeypatch)
    driver = node.raft._driver
    groups = [node.group(number) for number in range(1, GROUPS + 1)]
    if is_bulk:
        driver.post_bulk(TICK, groups)
    for group in groups if not is_bulk else ():
        driver.deadlines.set(group, network.now_ms)
    driver.on_due(network.now_ms)
    await network.settle()
    assert max(counted.steps) <= 2 * BULK_PER_DRIVE
    assert sum(counted.steps) >= GROUPS


async def test_when_the_storage_fails_its_groups_are_told_in_slices_before_anything_is_stepped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, node = await elected(1, groups=GROUPS)
    counted = Counted(node, monkeypatch)
    assert node.storage.on_failed is not None
    assert node.storage.on_recovered is not None
    node.storage.on_failed(StorageFailedError("pulled"))
    node.storage.on_recovered()  # So there is much to step at once, which must not overtake the news.
    await asyncio.sleep(0)
    assert counted.told == [TOLD_PER_DRIVE]
    assert counted.steps == [0]
    await network.settle()
    assert max(counted.told) <= TOLD_PER_DRIVE
    assert all(node.group(number).confirmed for number in range(1, GROUPS + 1))
    leaderships = [what[3:] for what in node.heard(GROUPS) if what[0] == "leadership"]
    assert leaderships == [(True, True), (False, False), (True, True)], "it heard that it did not lead for a while"


async def test_a_silence_that_concerns_many_groups_is_prepared_in_slices_and_told_first_where_a_leader_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups_module, "TOLD_AT_ONCE", 10)
    network, _ = await elected(3, groups=35)
    node = network.nodes[2]
    for number in (5, 33):
        network.nodes[1].group(number).transfer(3)
    await network.pass_ms(2_000)
    told = list[list[int]]()
    patch_method(
        monkeypatch,
        node.raft._driver,
        "post_bulk",
        lambda _, groups: told.append([int.from_bytes(group.group_id, "big") for group in groups]),
    )
    for callback in node.links.on_peer:
        callback(3, False)
    assert told == [[5]], "of ten groups one has lost its leader"
    await network.settle()
    others = [number for number in range(1, 36) if number not in {5, 33}]
    assert [numbers for numbers in told if numbers] == [[5], [33], others]


async def test_a_silence_that_ends_before_all_have_heard_of_it_is_told_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups_module, "TOLD_AT_ONCE", 10)
    network, leader = await elected(3, groups=35)
    await network.pass_ms(2_000)
    (tell,) = leader.links.on_peer
    tell(2, False)
    tell(2, True)
    await network.settle()
    assert all(leader.group(number).core.progress[2].live for number in range(1, 36))


async def test_after_a_stall_nothing_is_confirmed_before_all_groups_were_gone_through_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups_module, "TOLD_AT_ONCE", 10)
    network, leader = await elected(3, groups=35)
    await network.pass_ms(2_000)
    network.cut = {(2, 1), (3, 1)}
    network.now_ms += 600
    leader.raft.tick()
    marked = list[int]()
    while leader.raft._driver.is_paused:
        marked.append(sum(group.stall_pending for group in leader.raft.groups.values()))
        assert not any(group.confirmed for group in leader.raft.groups.values())
        await asyncio.sleep(0)
    assert [count for count in marked if count] == [10, 20, 30]
    await network.settle()
    assert not any(group.confirmed for group in leader.raft.groups.values())
    network.cut = set()
    for node in network.nodes.values():
        node.raft.tick()
    await network.pass_ms(300)
    assert all(group.confirmed for group in leader.raft.groups.values())


async def test_who_shares_many_groups_is_told_where_they_stand_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greetings_module, "SAID_AT_ONCE", 10)
    network, leader = await elected(3, groups=35)
    await network.pass_ms(2_000)
    network.connect((1, 2), live=False)
    await network.settle()
    before = len(leader.links.frames)
    network.connect((1, 2))
    digests = [len(heard) for _, heard in leader.links.frames[before:]]
    assert digests == [10]
    await network.settle()
    digests = [len(heard) for _, heard in leader.links.frames[before:] if type(heard[0][1]) is PeerDigest]
    assert digests == [10, 10, 10, 5]
    await network.pass_ms(2_000)
    assert [node.raft.status()["groups_awake"] for node in network.nodes.values()] == [0, 0, 0]


async def test_many_facts_are_told_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "FACTS_PER_DRIVE", 10)
    network, node = await elected(1, groups=25)
    node.facts.clear()
    for number in range(1, 26):
        node.raft._driver.fail(node.group(number), StorageFailedError("broken"))
    seen = list[int]()
    while sum(seen) < 25:
        before = len(node.facts)
        await asyncio.sleep(0)
        seen.append(len(node.facts) - before)
    assert seen == [10, 10, 5]
    assert [group for group, _ in node.facts] == [group_id(number) for number in range(1, 26)]
    await network.settle()


def test_what_a_slow_disk_held_back_leaves_in_slices_and_in_the_order_of_each_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(promises_module, "RELEASED_AT_ONCE", 2)
    storage = MemoryStorage(is_lazy=True)
    said = list[tuple[object, int]]()
    outbox = SimpleNamespace(add=lambda group, messages: said.extend((group, one.term) for one in messages))
    promises = Promises(storage, outbox)  # type: ignore[arg-type]
    groups: list[Any] = [SimpleNamespace(group_id=group_id(n), promise_ticket=0, is_removed=False) for n in range(1, 6)]
    for one in groups:
        promises.make(one, HardState(5, 1))
        promises.say_after(one, [vote_request(term=5, source=1, target=2, last_index=7, last_term=4)])
    promises.seal()
    storage.sync()
    promises.release()
    assert said == [(group_id(1), 5), (group_id(2), 5)]
    assert promises.is_behind
    promises.say(groups[4], [vote_request(term=6, source=1, target=2, last_index=7, last_term=4)])
    assert len(said) == 2, "it does not overtake what this group said before"
    other: Any = SimpleNamespace(group_id=group_id(9), promise_ticket=0)
    promises.say(other, [vote_request(term=1, source=1, target=2, last_index=7, last_term=4)])
    assert said.pop() == (group_id(9), 1), "this one has nothing that is held"
    for _ in range(3):
        promises.seal()
        promises.release()
    assert not len(promises)
    assert said == [*((group_id(number), 5) for number in range(1, 6)), (group_id(5), 6)]
