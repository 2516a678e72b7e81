"""Risk: a stall, or a long queue, costs a leadership whose followers have answered."""

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
