"""Nodes meet again: equal groups sleep on, and no trust outlasts a leadership."""

import asyncio

import pytest
from raftlog.messages import peer_digest

from barnabas_raftlog.multiraft import driver as driver_module
from barnabas_raftlog.multiraft.multiraft import MultiRaft
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import AppendEntries, PeerDigest, VoteRequest

from .fakes import Network, Node, data_frame, group_id
from .test_groups import elected


def awake(network: Network) -> list[int]:
    return [node.raft.status()["groups_awake"] for node in network.nodes.values()]


def sent_since(node: Node, count: int) -> list[type]:
    return [type(message) for _, messages in node.links.frames[count:] for _, message in messages]


def leaders(network: Network, number: int) -> list[int]:
    return [node_id for node_id, node in network.nodes.items() if node.group(number).is_leader]


async def test_equal_groups_sleep_on_when_two_followers_meet_again() -> None:
    network, _ = await elected(3, groups=300)
    await network.pass_ms(2_000)
    before = {node_id: len(node.links.frames) for node_id, node in network.nodes.items()}
    network.connect((2, 3), live=False)
    await network.settle()
    network.connect((2, 3))
    await network.settle()
    assert awake(network) == [0, 0, 0]
    for node_id in (2, 3):
        assert set(sent_since(network.nodes[node_id], before[node_id])) == {PeerDigest}
        status = network.nodes[node_id].raft.status()
        assert status["digests_out"] >= 300
        # Eight bytes a group, and those of a frame.
        assert status["digest_bytes_out"] <= 9 * status["digests_out"] + 64 * 8


async def test_followers_that_missed_their_leader_for_a_moment_trust_it_again_without_an_election() -> None:
    network, leader = await elected(3, groups=100)
    await network.pass_ms(2_000)
    before = {node_id: len(node.links.frames) for node_id, node in network.nodes.items()}
    network.connect((1, 2), live=False)
    await network.settle()
    assert all(network.nodes[2].group(number).leader_id is None for number in range(1, 101))
    network.connect((1, 2))
    await network.settle()
    assert awake(network) == [0, 0, 0]
    assert all(network.nodes[2].group(number).leader_id == 1 for number in range(1, 101))
    assert all(leader.group(number).core.progress[2].live for number in range(1, 101))
    for node_id, node in network.nodes.items():
        assert set(sent_since(node, before[node_id])) <= {PeerDigest}


async def test_a_group_whose_term_is_on_its_way_to_the_disk_is_woken_and_not_told_of() -> None:
    """Its digest would tell of a term that a crash could still take back, were it only by one record."""
    network, leader = await elected(3, groups=2)
    await network.pass_ms(2_000)
    for number, missing in ((1, 1), (2, 0)):
        leader.group(number).promise_ticket = leader.storage.durable_ticket + missing
    before = len(leader.links.frames)
    network.connect((1, 2), live=False)
    await network.settle()
    del leader.links.frames[before:]
    network.connect((1, 2))
    told = [
        group for _, heard in leader.links.frames[before:] for group, message in heard if type(message) is PeerDigest
    ]
    assert told == [group_id(2)]
    leader.group(1).promise_ticket = 0
    await network.settle()
    assert leader.group(1).core.progress[2].live


async def test_a_silence_that_was_not_heard_of_before_its_end_leaves_nobody_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that stood still is back while others still tell their groups that it fell silent, which it never knew."""
    monkeypatch.setattr(driver_module, "BULK_PER_DRIVE", 10)
    network, leader = await elected(3, groups=100)
    await network.pass_ms(2_000)
    (tell,) = leader.links.on_peer
    tell(2, False)
    await asyncio.sleep(0)
    assert 0 < sum(leader.group(number).core.progress[2].live for number in range(1, 101)) < 100
    tell(2, True)
    for callback in network.nodes[2].links.on_peer:
        callback(1, True)
    await network.settle()
    await network.pass_ms(2_000)
    assert all(leader.group(number).core.progress[2].live for number in range(1, 101))
    assert awake(network) == [0, 0, 0]


async def test_only_the_group_that_differs_is_woken() -> None:
    network, leader = await elected(3, groups=20)
    await network.pass_ms(2_000)
    network.connect((1, 2), live=False)
    network.cut = {(1, 2), (2, 1)}
    leader.group(7).propose(data_frame())
    await network.settle()
    before = len(leader.links.frames)
    network.cut = set()
    network.connect((1, 2))
    await network.settle()
    appends = {
        group
        for _, messages in leader.links.frames[before:]
        for group, message in messages
        if isinstance(message, AppendEntries)
    }
    assert appends == {group_id(7)}
    await network.pass_ms(200)
    assert network.nodes[2].logs[group_id(7)].shown() == leader.logs[group_id(7)].shown()
    assert awake(network) == [0, 0, 0]


async def test_a_one_way_cut_leaves_no_two_silent_leaders_behind() -> None:
    """Node 1 hears nobody and is heard; the others elect somebody; then the cut ends with both sides asleep."""
    network, old = await elected(3)
    await network.pass_ms(2_000)
    network.connect((1, 2), (1, 3), live=False)
    network.cut = {(2, 1), (3, 1)}
    # Before any of its timers: node 1 still believes that it leads, and the others have replaced it.
    for node_id in (2, 3):
        network.nodes[node_id].group(1).campaign()
    for _ in range(20):
        network.now_ms += 25
        for node_id in (2, 3):
            network.nodes[node_id].raft.tick()
        await network.settle()
    assert old.group(1).is_leader
    assert len(leaders(network, 1)) == 2
    network.cut = set()
    network.connect((1, 2), (1, 3))
    await network.settle()
    assert len(leaders(network, 1)) == 1
    assert not old.group(1).is_leader
    await network.pass_ms(500)
    assert old.group(1).leader_id == leaders(network, 1)[0]
    assert awake(network) == [0, 0, 0]


async def test_who_stopped_leading_while_away_is_trusted_no_more_when_it_is_back() -> None:
    """Node 2 trusts node 1, which comes back as another life that leads nothing, before node 2 heard of any silence."""
    network, _ = await elected(3)
    await network.pass_ms(2_000)
    trusting = network.nodes[2]
    receive = trusting.links.on_messages
    assert receive is not None
    receive(1, [(group_id(1), peer_digest(peer=1, term=1, leader_id=None, last_index=1, last_term=1))])
    await network.settle()
    assert trusting.group(1).leader_id is None
    assert any(fact.kind == "leader lost" for _, fact in trusting.facts)
    await network.pass_ms(1_000)
    assert leaders(network, 1) != []
    assert trusting.group(1).leader_id is not None


async def test_a_node_that_begins_late_is_told_who_leads_without_asking_for_votes() -> None:
    network = Network(3)
    for node_id in (1, 2):
        for number in range(1, 31):
            network.nodes[node_id].add(number)
    network.connect()
    await network.pass_ms(2_000)
    late = network.nodes[3]
    terms = [network.nodes[1].group(number).core.term for number in range(1, 31)]
    before = len(late.links.frames)
    for number in range(1, 31):
        late.add(number, preferred=False)
    await network.settle()
    assert all(late.group(number).leader_id == 1 for number in range(1, 31))
    assert VoteRequest not in sent_since(late, before)
    await network.pass_ms(500)
    assert [network.nodes[1].group(number).core.term for number in range(1, 31)] == terms
    assert all(late.logs[group_id(n)].shown() == network.nodes[1].logs[group_id(n)].shown() for n in range(1, 31))
    assert awake(network) == [0, 0, 0]


async def test_a_node_that_begins_again_finds_a_leader_that_its_old_log_does_not_know() -> None:
    network = Network(4)
    for node in network.nodes.values():
        node.add(1)
    network.connect()
    await network.pass_ms(2_000)
    with_it = [(node_id, 4) for node_id in (1, 2, 3)]
    network.connect(*with_it, live=False)
    await network.pass_ms(2_000)
    network.replace(4, disk=0)
    network.connect(*with_it)
    await network.settle()
    late = network.nodes[4].add(1, configuration=configuration_of(frozenset({2, 3, 4})), preferred=False)
    await network.pass_ms(100)  # Else the others would have found out for it, by an election.
    assert late.leader_id == 1
    assert late.members == {1, 2, 3, 4}


async def test_a_group_that_has_not_heard_of_the_silence_yet_is_woken_after_it() -> None:
    network, leader = await elected(3, groups=10)
    await network.pass_ms(2_000)
    network.connect((1, 2), live=False)
    network.connect((1, 2))
    await network.settle()
    await network.pass_ms(500)
    assert awake(network) == [0, 0, 0]
    assert all(leader.group(number).core.progress[2].live for number in range(1, 11))
    assert all(leader.group(number).core.term == 1 for number in range(1, 11))


async def test_frames_that_cannot_be_sent_wake_the_groups_instead() -> None:
    network, leader = await elected(3, groups=5)
    await network.pass_ms(2_000)
    network.connect((2, 3), live=False)
    await network.settle()
    raft: MultiRaft = leader.raft
    steps = raft.stats.steps
    leader.links.is_congested = True
    for callback in leader.links.on_peer:
        callback(2, True)
    await network.settle()
    assert raft.stats.steps - steps >= 5
    leader.links.is_congested = False
    await network.pass_ms(500)
    assert awake(network) == [0, 0, 0]


async def test_a_disk_that_is_slow_with_votes_deposes_no_leader() -> None:
    """Followers whose terms take seconds to reach the disk answer heartbeats all the same."""
    network, leader = await elected(3)
    for node_id in (2, 3):
        network.nodes[node_id].storage.is_lazy = True
    leader.group(1).transfer(2)
    await network.settle()
    new = network.nodes[2]
    new.storage.sync()
    new.raft.on_durable()
    await network.settle()
    assert new.group(1).is_leader
    assert leader.storage.durable_ticket == leader.storage.queued
    leader.storage.is_lazy = True
    await network.pass_ms(5_000)
    assert leaders(network, 1) == [2]
    assert new.group(1).core.term == 2


async def test_a_node_that_stood_still_loses_no_leader_because_its_links_are_made_anew() -> None:
    network, _ = await elected(3, groups=30)
    await network.pass_ms(2_000)
    away = network.nodes[2]
    network.now_ms += 600
    for node_id in (1, 3):
        network.nodes[node_id].raft.tick()
    network.connect((1, 2), (2, 3), live=False)
    await network.settle()
    assert all(away.group(number).leader_id == 1 for number in range(1, 31))
    network.connect((1, 2), (2, 3))
    await network.pass_ms(3_000)
    assert all(away.group(number).leader_id == 1 for number in range(1, 31))
    assert all(away.group(number).core.term == 1 for number in range(1, 31))
    assert awake(network) == [0, 0, 0]


async def test_a_silence_that_lasts_is_told_after_a_stall_too() -> None:
    network, _ = await elected(3)
    await network.pass_ms(2_000)
    network.now_ms += 600
    network.connect((1, 2), (1, 3), live=False)
    network.cut = {(1, 2), (1, 3), (2, 1), (3, 1)}
    await network.pass_ms(3_000)
    assert set(leaders(network, 1)) & {2, 3}


async def test_the_metadata_group_does_not_wait_behind_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "EVENTS_PER_DRIVE", 1)
    network, leader = await elected(3, groups=20)
    for node in network.nodes.values():
        node.add(0)
    metadata = leader.group(0)
    await network.pass_ms(2_000)
    for number in range(1, 21):
        leader.group(number).propose(data_frame())
    metadata.propose(data_frame())
    await leader.listeners[group_id(0)].until(lambda: metadata.commit_index >= 2)
    assert sum(leader.group(number).commit_index < 2 for number in range(1, 21)) >= 10
