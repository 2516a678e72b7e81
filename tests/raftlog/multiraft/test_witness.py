"""A witness through its driver: it votes, forgets, hands on, and is nobody's leader."""

import pytest

from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.multiraft.candidacies import Line
from barnabas_raftlog.multiraft.group import WITNESS_SEGMENT_BYTES
from barnabas_raftlog.raft.membership import Configuration, Member

from .fakes import Network, Node, data_frame, group_id

ALL = tuple(map(Member, (1, 2, 3)))
WITNESSED = Configuration(ALL, (), (3,))


async def elected() -> tuple[Network, dict[int, Node]]:
    """Return a network with group 1 on full voters 1, which leads, and 2, and on the witness 3."""
    network = Network(3)
    for node in network.nodes.values():
        node.add(1, configuration=WITNESSED)
    network.connect()
    await network.pass_ms(1_000)
    assert network.nodes[1].group(1).confirmed
    return network, network.nodes


def separate(network: Network, node_id: int) -> None:
    """Let nothing through to or from a node, and have everybody told."""
    others = [other for other in network.nodes if other != node_id]
    network.cut |= {link for other in others for link in ((node_id, other), (other, node_id))}
    network.connect(*((node_id, other) for other in others), live=False)


async def test_it_forgets_what_both_replicas_have() -> None:
    network, nodes = await elected()
    for _ in range(5):
        nodes[1].group(1).propose(data_frame())
    await network.pass_ms(500)
    log = nodes[3].logs[group_id(1)]
    assert [node.group(1).is_witness for node in nodes.values()] == [False, False, True]
    assert (log.items, log.last_index) == ([], nodes[1].group(1).commit_index)
    assert log.partial_since is not None
    assert log.segment_bytes == WITNESS_SEGMENT_BYTES
    assert nodes[3].group(1).high_watermark == 5


async def test_it_gives_a_replica_what_the_dead_leader_had_and_never_shows_as_the_leader() -> None:
    network, nodes = await elected()
    network.cut |= {(1, 2)}
    nodes[1].group(1).propose(data_frame())
    await network.settle()
    assert nodes[1].group(1).high_watermark == 1, "the witness and the leader are a majority"
    separate(network, 1)
    await network.pass_ms(2_000)
    assert [fact.kind for _, fact in nodes[3].facts].count("leader elected") == 1
    with pytest.raises(NotLeaderError):
        nodes[3].group(1).propose(data_frame())
    assert nodes[2].group(1).confirmed
    assert nodes[2].group(1).high_watermark == 1
    told = [what for what in (*nodes[2].heard(1), *nodes[3].heard(1)) if what[0] == "leadership"]
    assert not [what for what in told if what[2] == 3], "nobody was told that the witness leads"
    assert not [what for what in nodes[3].heard(1) if what[0] == "leadership" and what[3]]


async def test_one_that_becomes_a_replica_begins_anew_and_gets_everything() -> None:
    network, nodes = await elected()
    for _ in range(5):
        nodes[1].group(1).propose(data_frame())
    await network.pass_ms(500)
    leader = nodes[1].group(1)
    log = nodes[3].logs[group_id(1)]
    with pytest.raises(ValueError, match="remove it first"):
        leader.change(Configuration(ALL[:2], ALL[2:]))
    leader.change(Configuration(ALL[:2]))
    await network.settle()
    leader.change(Configuration(ALL[:2], ALL[2:]))
    await network.pass_ms(2_000)
    assert leader.has_caught_up(3)
    assert log.shown() == nodes[1].logs[group_id(1)].shown()
    assert log.partial_since is None
    leader.change(Configuration(ALL))
    await network.pass_ms(500)
    assert nodes[3].group(1).core.is_voter
    assert not nodes[3].group(1).is_witness


async def test_two_witnesses_that_are_left_alone_serve_nobody_until_the_replica_is_back() -> None:
    network = Network(3)
    for node in network.nodes.values():
        node.add(1, configuration=Configuration(ALL, (), (2, 3)))
    network.connect()
    await network.pass_ms(1_000)
    nodes = network.nodes
    assert nodes[1].group(1).confirmed
    nodes[1].group(1).propose(data_frame())
    await network.pass_ms(500)
    separate(network, 1)
    await network.pass_ms(5_000)
    assert [nodes[peer].group(1).leader_id for peer in (2, 3)] == [None, None]
    assert nodes[2].group(1).line(2, {2, 3}) is Line.OTHERS
    network.cut.clear()
    network.connect()
    await network.pass_ms(5_000)
    assert nodes[1].group(1).confirmed
    assert {node.group(1).leader_id for node in nodes.values()} == {1}
