"""Elections of many groups at once: which wait, for what, and how long at most."""

import asyncio

import pytest

from barnabas_raftlog.multiraft import candidacies
from barnabas_raftlog.multiraft import multiraft as groups
from barnabas_raftlog.multiraft.multiraft import HELD_MS
from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import VoteRequest

from .fakes import Network


def opening(count: int, numbers: range) -> Network:
    """Return a network whose nodes have opened groups `numbers`, and are not done; node 1 is preferred everywhere."""
    network = Network(count)
    for node in network.nodes.values():
        node.raft.hold_elections()
        for number in numbers:
            node.add(number)
    network.connect()
    return network


def campaigns(network: Network, node_id: int) -> int:
    return sum(fact.kind == "campaign" for _, fact in network.nodes[node_id].facts)


async def test_nobody_stands_while_groups_are_being_opened() -> None:
    network = opening(3, range(1, 4))
    for number in range(4, 8):
        await network.pass_ms(HELD_MS - 100)
        for node in network.nodes.values():
            node.add(number)
    assert not any(campaigns(network, node_id) for node_id in network.nodes)
    for node in network.nodes.values():
        node.raft.release_elections()
    await network.pass_ms(300)
    assert all(network.nodes[1].group(number).confirmed for number in range(1, 8))


async def test_many_groups_are_released_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "RELEASED_AT_ONCE", 10)
    network = opening(3, range(1, 35))
    held = [network.nodes[1].group(number) for number in range(1, 35)]
    network.nodes[1].raft.release_elections()
    left = [sum(group.is_held for group in held)]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(sum(group.is_held for group in held))
    assert left == [24, 14, 4, 0]
    await network.pass_ms(300)
    assert all(group.confirmed for group in held)


async def test_a_group_that_takes_long_to_open_holds_up_the_others_for_a_second() -> None:
    network = opening(3, range(1, 4))
    await network.pass_ms(HELD_MS + 300)
    assert all(network.nodes[1].group(number).confirmed for number in range(1, 4))


async def test_a_held_group_votes_and_follows() -> None:
    network = opening(3, range(1, 2))
    network.nodes[1].raft.release_elections()
    await network.pass_ms(300)
    assert network.nodes[1].group(1).confirmed
    assert network.nodes[2].group(1).leader_id == 1


async def test_a_held_group_that_knew_a_leader_does_not_wait_to_replace_it() -> None:
    network = opening(3, range(1, 2))
    network.nodes[1].raft.release_elections()
    await network.pass_ms(300)
    network.connect((1, 2), (1, 3), live=False)
    await network.pass_ms(300)
    assert network.nodes[2].group(1).is_leader or network.nodes[3].group(1).is_leader


async def test_a_lone_voter_is_not_held() -> None:
    network = opening(1, range(1, 2))
    await network.settle()
    assert network.nodes[1].group(1).confirmed


async def test_others_leave_the_preferred_replica_its_time() -> None:
    network = opening(3, range(1, 4))
    await network.pass_ms(500)  # All their deadlines have passed.
    for node_id in (2, 3):
        network.nodes[node_id].raft.release_elections()
    await network.pass_ms(125)
    assert not campaigns(network, 2) + campaigns(network, 3)
    network.nodes[1].raft.release_elections()
    await network.pass_ms(100)
    assert all(network.nodes[1].group(number).confirmed for number in range(1, 4))


async def test_without_the_preferred_replica_others_stand() -> None:
    network = opening(3, range(1, 4))
    network.connect((1, 2), (1, 3), live=False)
    await network.pass_ms(500)
    for node_id in (2, 3):
        network.nodes[node_id].raft.release_elections()
    await network.pass_ms(900)
    assert all(network.nodes[2].group(n).confirmed or network.nodes[3].group(n).confirmed for n in range(1, 4))


async def test_a_few_groups_stand_at_a_time_and_all_get_their_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidacies, "STANDING_MAX", 3)
    network = opening(3, range(1, 41))
    node = network.nodes[1]
    most = 0
    for one in network.nodes.values():
        one.raft.release_elections()
    for _ in range(40):
        await network.pass_ms(25)
        most = max(most, sum(group.core.role is Role.CANDIDATE for group in node.raft.groups.values()))
    assert most <= 3
    assert all(node.group(number).confirmed for number in range(1, 41))
    assert sum(one.raft.stats.elections_won for one in network.nodes.values()) == 40


async def test_groups_without_a_majority_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidacies, "STANDING_MAX", 3)
    network = Network(3)
    for number in range(1, 31):
        network.nodes[1].add(number)  # The others do not have these.
    for node in network.nodes.values():
        node.add(31)
    network.connect()
    await network.pass_ms(3_000)
    assert network.nodes[1].group(31).confirmed
    assert campaigns(network, 1) == 31


async def test_groups_of_which_no_majority_is_live_stand_last_and_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidacies, "STANDING_MAX", 4)
    network = Network(5)
    for number in range(1, 41):
        for node_id in (1, 4, 5):
            network.nodes[node_id].add(number, configuration=configuration_of(frozenset({1, 4, 5})))
    for node_id in (1, 2, 3):
        network.nodes[node_id].add(41, configuration=configuration_of(frozenset({1, 2, 3})))
    network.connect((1, 2), (1, 3), (2, 3))
    node = network.nodes[1]
    await network.pass_ms(500)
    assert node.group(41).confirmed
    assert node.raft.status()["groups_waiting_to_stand"] == 39
    # Once there is a majority again, all of them have a leader soon.
    network.connect((1, 4), (1, 5), (4, 5))
    await network.pass_ms(3_000)
    leaders = [network.nodes[node_id].group(number).is_leader for node_id in (1, 4, 5) for number in range(1, 41)]
    assert sum(leaders) == 40


async def test_the_groups_of_a_lost_node_are_shared_out_and_nobody_stands_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidacies, "STANDING_MAX", 4)
    network = Network(3)
    for number in range(1, 61):
        for node in network.nodes.values():
            node.add(number)
    network.connect()
    await network.pass_ms(1_500)
    assert all(network.nodes[1].group(number).confirmed for number in range(1, 61))
    network.connect((1, 2), (1, 3), live=False)
    await network.pass_ms(2_000)
    won = [network.nodes[node_id].raft.stats.elections_won for node_id in (2, 3)]
    assert all(network.nodes[2].group(n).confirmed or network.nodes[3].group(n).confirmed for n in range(1, 61))
    assert sum(won) == 60
    assert min(won) >= 20, won


async def test_who_waited_and_heard_of_a_leader_gives_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidacies, "STANDING_MAX", 3)
    network = opening(3, range(1, 41))
    await network.pass_ms(500)
    for node_id in (3, 2, 1):  # So that all three want to stand in the same groups.
        network.nodes[node_id].raft.release_elections()
    await network.pass_ms(3_000)
    for node in network.nodes.values():
        assert all(node.group(number).leader_id for number in range(1, 41))
        assert node.raft.status()["groups_waiting_to_stand"] == 0
    network.connect((1, 2), (1, 3), live=False)
    await network.pass_ms(3_000)
    others = (network.nodes[2], network.nodes[3])
    assert all(any(node.group(number).confirmed for node in others) for number in range(1, 41))


async def test_a_cluster_that_starts_asks_for_votes_without_pre_votes() -> None:
    network = opening(3, range(1, 4))
    await network.settle()
    for node in network.nodes.values():
        node.raft.release_elections()
    await network.pass_ms(300)
    assert all(network.nodes[1].group(number).confirmed for number in range(1, 4))
    messages = [message for _, sent in network.nodes[1].links.frames for _, message in sent]
    requests = [message for message in messages if isinstance(message, VoteRequest)]
    assert len(requests) == 6
    assert not any(request.pre for request in requests)
