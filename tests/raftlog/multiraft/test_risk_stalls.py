"""Risk: a stall, or a long queue, costs a leadership whose followers have answered."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from raftlog.messages import acknowledgement, append_entries

from barnabas_raftlog.multiraft import driver as driver_module
from barnabas_raftlog.raft.messages import LeadershipEnded

from .fakes import Network, Node, data_frame, group_id
from .test_groups import elected


async def at_work(network: Network, leader: Node) -> None:
    """Let the leader wait for answers that do not come, from now on."""
    await network.pass_ms(500)
    network.cut = {(2, 1), (3, 1)}
    leader.group(1).propose(data_frame())
    await network.pass_ms(100)
    assert leader.group(1).core.deadline_ms is not None


async def test_a_leader_that_stalled_gives_its_followers_a_timeout_to_answer_before_it_judges_them() -> None:
    network, leader = await elected(3)
    await at_work(network, leader)
    network.now_ms += 3_000
    leader.raft.tick()
    await network.settle()
    assert leader.group(1).is_leader
    assert not leader.group(1).confirmed
    network.cut.clear()
    await network.pass_ms(400)
    assert leader.group(1).confirmed
    assert leader.group(1).core.term == 1
    assert not any(isinstance(message, LeadershipEnded) for _, sent in leader.links.frames for _, message in sent)


async def test_a_leader_reads_its_queue_before_it_judges_its_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    network, leader = await elected(3)
    leader.add(2, preferred=False)
    await at_work(network, leader)
    core = leader.group(1).core
    while network.now_ms - core.active_since_ms < core.timing.election_timeout_ms - 25:
        await network.pass_ms(25)
    monkeypatch.setattr(driver_module, "EVENTS_PER_DRIVE", 1)
    assert leader.links.on_messages is not None
    # The answers of group 1 wait behind three messages of another group.
    for _ in range(3):
        leader.links.on_messages(2, [(group_id(2), append_entries(term=1, source=2, target=1))])
    for node in (2, 3):
        answer = acknowledgement(term=1, source=node, target=1, match_index=core.log.last_index, round=core.round)
        leader.links.on_messages(node, [(group_id(1), answer)])
    for _ in range(4):  # the next heartbeat is among them
        network.now_ms += 25
        leader.raft.tick()
    await network.settle()
    assert leader.group(1).is_leader
    network.cut.clear()
    await network.pass_ms(400)
    assert leader.group(1).confirmed
    assert core.term == 1


async def test_it_does_not_lead_for_ever_because_it_is_always_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    network, leader = await elected(3)
    leader.add(2, preferred=False)
    await at_work(network, leader)
    monkeypatch.setattr(driver_module, "EVENTS_PER_DRIVE", 1)
    began_ms = network.now_ms
    while leader.group(1).is_leader:
        assert network.now_ms - began_ms < 2_500
        assert leader.links.on_messages is not None
        for _ in range(3):
            leader.links.on_messages(2, [(group_id(2), append_entries(term=1, source=2, target=1))])
        await network.pass_ms(25)


SLOW_MS = 700  # between two ticks: more than half an election timeout, so each of them is taken for a stall


async def tick_slowly(network: Network, nodes: Sequence[Node], claim: Callable[[], bool]) -> int:
    """Let these nodes run, but slowly, until it is so; return how long that takes."""
    began_ms = network.now_ms
    while not claim():
        assert network.now_ms - began_ms < 20_000, "it never comes to that"
        network.now_ms += SLOW_MS
        for node in nodes:
            node.raft.tick()
        await network.settle()
    return network.now_ms - began_ms


def is_committed(node: Node, index: int) -> bool:
    return node.group(1).commit_index >= index


def is_paused(node: Node) -> bool:
    return node.raft._driver.is_paused


@pytest.mark.parametrize("is_noticed", [True, False], ids=["its links are lost", "it says nothing"])
async def test_nodes_that_are_slow_all_the_time_elect_another_leader(is_noticed: bool) -> None:
    """Each stall used to give everybody another election timeout, which is longer than until the next stall."""
    network, leader = await elected(3)
    await at_work(network, leader)
    network.cut = {(a, b) for a in network.nodes for b in network.nodes if leader.node_id in {a, b}}
    others = [node for node in network.nodes.values() if node is not leader]
    assert all(other.group(1).core.deadline_ms is not None for other in others)
    if is_noticed:
        network.connect(*((leader.node_id, other.node_id) for other in others), live=False)
    await tick_slowly(network, others, lambda: any(other.group(1).is_leader for other in others))


async def test_slow_nodes_keep_a_leader_that_is_there() -> None:
    network, leader = await elected(3)
    await network.pass_ms(500)
    nodes = list(network.nodes.values())
    for _ in range(40):
        leader.group(1).propose(data_frame())
        index = leader.logs[group_id(1)].last_index
        await tick_slowly(network, nodes, partial(is_committed, leader, index))
    assert leader.group(1).is_leader
    assert leader.group(1).core.term == 1


async def test_a_loop_that_is_slow_and_always_has_messages_judges_after_a_few_iterations() -> None:
    """Until then no leader sends a heartbeat: fifty slow iterations would be a minute."""
    network, leader = await elected(3)
    await at_work(network, leader)
    core = leader.group(1).core
    loop = asyncio.get_running_loop()
    goes_on = True

    def iterate() -> None:
        network.now_ms += SLOW_MS
        answer = acknowledgement(term=1, source=2, target=1, match_index=core.log.last_index, round=core.round)
        assert leader.links.on_messages is not None
        leader.links.on_messages(2, [(group_id(1), answer)])
        if goes_on:
            loop.call_soon(iterate)

    network.now_ms += SLOW_MS
    began_ms = network.now_ms
    leader.raft.tick()
    assert is_paused(leader)
    iterate()
    while is_paused(leader):  # noqa: ASYNC110 - iterations are counted here, by the clock
        await asyncio.sleep(0)
    goes_on = False
    assert network.now_ms - began_ms <= 4 * SLOW_MS
    await network.settle()


async def test_a_reader_is_answered_by_a_round_that_was_begun_before_a_stall() -> None:
    """A majority has followed this node after it was asked: more was not claimed. The next stall is never far."""
    network, leader = await elected(3)
    await network.pass_ms(500)
    asking = asyncio.ensure_future(leader.group(1).confirm())
    network.cut = {(2, 1), (3, 1)}
    await network.settle()
    answered = leader.group(1).core.round
    network.now_ms += SLOW_MS
    leader.raft.tick()
    await network.settle()
    assert not asking.done()
    assert leader.group(1).core.round > answered
    assert leader.links.on_messages is not None
    last_index = leader.logs[group_id(1)].last_index
    answer = acknowledgement(term=1, source=2, target=1, match_index=last_index, round=answered)
    leader.links.on_messages(2, [(group_id(1), answer)])
    await network.settle()
    assert not leader.group(1).confirmed, "what it reads later, it might read as a deposed leader"
    await asking
