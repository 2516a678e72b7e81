"""Changes of a group's members through its driver."""

import pytest

from barnabas_raftlog.errors import ChangeInProgressError, NotLeaderError
from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.membership import Configuration, Member, configuration_of

from .fakes import Network, Node, data_frame, group_id


async def elected(count: int, members: frozenset[int]) -> tuple[Network, Node]:
    """Return a network whose nodes `members` are voters of group 1, led by node 1."""
    network = Network(count)
    for node_id in sorted(members):
        network.nodes[node_id].add(1, configuration=configuration_of(members))
    network.connect()
    await network.pass_ms(1_000)
    assert network.nodes[1].group(1).confirmed
    return network, network.nodes[1]


def is_outside(node: Node) -> bool:
    return node.group(1).core.is_outside


def of(voters: set[int], learners: frozenset[int] | set[int] = frozenset()) -> Configuration:
    return configuration_of(frozenset(voters), frozenset(learners))


async def test_a_learner_is_added_catches_up_is_promoted_and_votes() -> None:
    network, leader = await elected(4, frozenset({1, 2, 3}))
    group = leader.group(1)
    for _ in range(5):
        group.propose(data_frame())
    newcomer = network.nodes[4]
    joining = newcomer.add(1, nobody=True)
    assert joining.configuration.voters == ()
    assert not group.has_caught_up(4)
    group.change(of({1, 2, 3}, {4}))
    await network.pass_ms(500)
    assert joining.configuration == of({1, 2, 3}, {4})
    assert joining.high_watermark == 5
    assert group.has_caught_up(4)
    group.change(of({1, 2, 3, 4}))
    await network.pass_ms(500)
    assert newcomer.heard(1).count(("configuration", [1, 2, 3], [4])) == 1
    assert ("configuration", [1, 2, 3, 4], []) in newcomer.heard(1)
    assert joining.core.is_voter
    network.connect((1, 4), live=False)
    network.connect((1, 2), (1, 3), live=False)
    network.cut |= {(1, n) for n in (2, 3, 4)} | {(n, 1) for n in (2, 3, 4)}
    joining.campaign()
    await network.pass_ms(1_000)
    assert joining.confirmed, "it stood for election, and won with two other votes of four"


async def test_a_leader_that_leaves_itself_out_leads_until_that_is_committed_and_hands_over() -> None:
    network, leader = await elected(3, frozenset({1, 2, 3}))
    group = leader.group(1)
    entry = group.change(of({2, 3}))
    group.propose(data_frame())
    await network.settle()
    assert leader.heard(1)[-1][:3] == ("leadership", 1, None)
    await network.pass_ms(500)
    heirs = [node for node in (network.nodes[2], network.nodes[3]) if node.group(1).confirmed]
    assert len(heirs) == 1
    assert heirs[0].group(1).commit_index > entry.index
    assert not group.is_leader
    assert is_outside(leader)
    assert heirs[0].group(1).high_watermark == 1, "what was proposed behind the change was not lost"


async def test_one_change_at_a_time_and_only_by_a_leader() -> None:
    network, leader = await elected(4, frozenset({1, 2, 3}))
    group = leader.group(1)
    with pytest.raises(ValueError, match="one voter at a time"):
        group.change(of({1}))
    with pytest.raises(ValueError, match="nothing would change"):
        group.change(of({1, 2, 3}))
    group.change(of({1, 2, 3}, {4}))
    with pytest.raises(ChangeInProgressError, match="not committed yet"):
        group.change(of({1, 2, 3, 4}))
    with pytest.raises(NotLeaderError):
        network.nodes[2].group(1).change(of({1, 2}))
    await network.settle()
    group.change(of({1, 2}, {4}))


async def test_no_change_before_an_entry_of_the_own_term_is_committed() -> None:
    network = Network(3)
    for node in network.nodes.values():
        node.add(1, is_lazy=True)  # its entries are not durable before `sync`
    network.connect()
    await network.pass_ms(500)
    leader = network.nodes[1]
    assert leader.group(1).is_leader
    with pytest.raises(ChangeInProgressError, match="no entry of term 1 is committed yet"):
        leader.group(1).change(of({1, 2}))
    for node in network.nodes.values():
        node.logs[group_id(1)].sync()
        node.storage.moved = [group_id(1)]
        node.raft.on_durable()
    await network.settle()
    leader.group(1).change(of({1, 2}))


async def test_who_was_removed_is_told_and_asks_nobody_any_more() -> None:
    network, leader = await elected(3, frozenset({1, 2, 3}))
    leader.group(1).change(of({1, 2}))
    await network.pass_ms(500)
    gone = network.nodes[3].group(1)
    assert is_outside(network.nodes[3])
    steps = leader.raft.stats.steps
    network.connect((1, 3), (2, 3), live=False)
    network.connect((1, 3), (2, 3))
    await network.pass_ms(5_000)
    assert leader.raft.stats.steps == steps, "its coming and going concerns nobody"
    assert gone.core.role is Role.FOLLOWER


async def test_who_missed_its_removal_finds_out_by_asking_and_disturbs_nobody() -> None:
    network, leader = await elected(3, frozenset({1, 2, 3}))
    network.connect((1, 3), (2, 3), live=False)
    network.cut |= {(1, 3), (2, 3), (3, 1), (3, 2)}
    leader.group(1).change(of({1, 2}))
    await network.pass_ms(3_000)
    term = leader.group(1).core.term
    assert not is_outside(network.nodes[3])
    network.cut.clear()
    network.connect()
    await network.pass_ms(3_000)
    assert is_outside(network.nodes[3])
    assert (leader.group(1).confirmed, leader.group(1).core.term) == (True, term)


async def test_a_node_with_an_empty_disk_neither_votes_nor_acknowledges_as_the_lost_one() -> None:
    network = Network(3, disks={1: 1, 2: 2, 3: 3})
    founders = Configuration(tuple(Member(n, network.nodes[n].storage.directory_id) for n in (1, 2, 3)))
    for node in network.nodes.values():
        node.add(1, configuration=founders)
    network.connect()
    await network.pass_ms(1_000)
    leader = network.nodes[1].group(1)
    network.connect((1, 3), (2, 3), (1, 2), live=False)
    network.replace(3, disk=9)
    network.nodes[3].add(1, configuration=founders)
    assert network.nodes[3].group(1).core.is_outside
    network.cut |= {(1, 2), (2, 1)}
    network.connect((1, 3))
    before = leader.commit_index
    leader.propose(data_frame())
    await network.pass_ms(500)
    assert leader.commit_index == before, "two disks of three do not hold it"
    assert leader.core.progress[3].is_lost
    await network.pass_ms(1_500)
    assert not leader.is_leader, "no majority answers it: the new node does not count for the lost one"
    network.cut.clear()
    network.connect()
    await network.pass_ms(2_000)
    (led,) = [node.group(1) for node in network.nodes.values() if node.group(1).confirmed]
    led.change(Configuration(founders.voters[:2]))
    await network.settle()
    led.change(Configuration(founders.voters[:2], (Member(3, network.nodes[3].storage.directory_id),)))
    await network.pass_ms(500)
    assert led.has_caught_up(3)
    led.change(Configuration((*founders.voters[:2], Member(3, network.nodes[3].storage.directory_id))))
    await network.pass_ms(500)
    assert network.nodes[3].group(1).core.is_voter
    assert network.nodes[3].group(1).high_watermark == led.high_watermark == 1


async def test_a_snapshot_brings_the_members_to_a_new_learner() -> None:
    network, leader = await elected(4, frozenset({1, 2, 3}))
    log = leader.logs[group_id(1)]
    leader.group(1).change(of({1, 2, 3}, {4}))
    leader.group(1).propose(data_frame())
    await network.settle()
    log.drop_prefix(log.last_index)
    leader.listeners[group_id(1)].state = (log.last_index, log.last_term, b"image")
    joining = network.nodes[4].add(1, nobody=True)
    await network.pass_ms(3_000)
    assert joining.configuration == of({1, 2, 3}, {4})
    assert network.nodes[4].listeners[group_id(1)].state == (log.last_index, log.last_term, b"image")


async def test_a_new_learner_trusts_a_leader_that_it_did_not_know_and_notices_its_silence() -> None:
    network, leader = await elected(2, frozenset({1}))
    joining = network.nodes[2].add(1, nobody=True)
    leader.group(1).change(of({1}, {2}))
    await network.pass_ms(500)
    assert joining.leader_id == 1
    network.connect((1, 2), live=False)
    await network.pass_ms(100)
    assert joining.leader_id is None


@pytest.mark.parametrize("is_connected_first", [False, True])
async def test_a_learner_that_was_away_when_it_was_added_is_found_when_it_comes(is_connected_first: bool) -> None:
    network, leader = await elected(4, frozenset({1, 2, 3}))
    pairs = [(1, 4), (2, 4), (3, 4)]
    network.connect(*pairs, live=False)
    leader.group(1).change(of({1, 2, 3}, {4}))
    await network.pass_ms(2_000)
    assert leader.group(1).core.quiescent
    if is_connected_first:
        network.connect(*pairs)
        await network.pass_ms(500)
    joining = network.nodes[4].add(1, nobody=True)
    await network.pass_ms(500)
    network.connect(*pairs)
    await network.pass_ms(2_000)
    assert joining.configuration == of({1, 2, 3}, {4})
    assert joining.leader_id == 1


@pytest.mark.parametrize("known", [frozenset[int](), frozenset({3, 4})], ids=["nobody", "others"])
@pytest.mark.parametrize("is_connected_first", [False, True])
async def test_a_learner_that_was_there_first_is_found_by_members_that_it_does_not_know(
    known: frozenset[int], is_connected_first: bool
) -> None:
    """Each tells the other where it stands, but one is not there yet, and the other has not heard of the first."""
    network = Network(4)
    pairs = [(1, 3), (2, 3)]
    network.connect()
    network.connect(*pairs, live=is_connected_first)
    joining = network.nodes[3].add(1, configuration=configuration_of(known) if known else None, nobody=not known)
    await network.pass_ms(500)
    for node_id in (1, 2):
        network.nodes[node_id].add(1, configuration=of({1, 2}, {3}))
    await network.pass_ms(1_000)
    network.connect(*pairs)
    await network.pass_ms(1_000)
    assert network.nodes[1].group(1).confirmed
    assert joining.leader_id == 1
    assert network.nodes[1].group(1).has_caught_up(3)


async def test_a_new_leader_finds_a_voter_that_it_has_not_heard_of() -> None:
    """One that knows only older members asks those for votes; they follow the leader, and tell nobody."""
    network, before = await elected(3, frozenset({1, 2, 3}))
    await network.pass_ms(2_000)
    network.nodes[2].group(1).core.silent.add(3)
    network.cut |= {(2, 3), (3, 2), (1, 3), (3, 1)}
    before.group(1).transfer(2)
    await network.pass_ms(50)
    network.cut.clear()
    await network.pass_ms(2_000)
    new = network.nodes[2].group(1)
    assert new.confirmed
    new.propose(data_frame())
    await network.pass_ms(500)
    assert network.nodes[3].group(1).leader_id == 2
    assert network.nodes[3].group(1).high_watermark == 1
