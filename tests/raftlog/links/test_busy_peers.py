"""A node whose disk is behind says so, and is sent no entries meanwhile."""

from raftlog.conftest import Runner, cluster
from raftlog.multiraft.fakes import Network, Node, data_frame, group_id

from barnabas_raftlog.links.raft_frames import METADATA_GROUP
from barnabas_raftlog.raft.messages import AppendEntries, GroupId

GROUP = group_id(1)


def entries_sent(node: Node, target: int, group: GroupId, since: int) -> list[int]:
    """Return how many entries each append of a group to `target` had, since so many frames had been sent."""
    return [
        len(message.entries)
        for node_id, messages in node.links.frames[since:]
        for named, message in messages
        if node_id == target and named == group and isinstance(message, AppendEntries)
    ]


async def elected(number: int) -> tuple[Network, Node]:
    """Return a network of three whose node 1 leads this group, which is quiet."""
    network = Network(3)
    for node in network.nodes.values():
        node.add(number)
    network.connect()
    await network.pass_ms(1_000)
    assert network.nodes[1].group(number).confirmed
    return network, network.nodes[1]


async def test_a_busy_peer_is_sent_no_entries_and_stays_with_its_leader() -> None:
    network, leader = await elected(1)
    sent = len(leader.links.frames)
    leader.links.busy_peers.add(2)
    for _ in range(3):
        leader.group(1).propose(data_frame())
        await network.pass_ms(1_000)
    assert set(entries_sent(leader, 2, GROUP, sent)) == {0}, "heartbeats go on"
    # The other one makes up the majority, and nothing has to be done again: it is as if the window were full.
    assert leader.group(1).high_watermark == network.nodes[3].group(1).high_watermark == 3
    assert network.nodes[2].group(1).high_watermark == 0
    assert leader.group(1).confirmed
    assert leader.raft.stats.elections_won == 1
    assert leader.raft.status()["messages_dropped"] == 0
    leader.links.busy_peers.clear()
    await network.pass_ms(200)
    assert network.nodes[2].group(1).high_watermark == 3
    assert network.nodes[2].logs[GROUP].shown() == leader.logs[GROUP].shown()


async def test_metadata_is_sent_to_a_busy_peer_all_the_same() -> None:
    network, leader = await elected(0)
    leader.links.busy_peers |= {2, 3}
    sent = len(leader.links.frames)
    leader.group(0).propose(data_frame())
    await network.pass_ms(200)
    assert entries_sent(leader, 2, METADATA_GROUP, sent)[0] == 1
    last_index = leader.logs[METADATA_GROUP].last_index
    assert network.nodes[2].group(0).commit_index == leader.group(0).commit_index == last_index


def test_peers_hear_that_a_disk_is_behind_and_when_it_is_no_more(run: Runner) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await nodes[1].until_live(2)
            here = nodes[1]
            is_busy = True
            nodes[2].links.is_busy = lambda: is_busy
            await here.until(lambda: 2 in here.links.busy_peers)
            is_busy = False
            await here.until(lambda: 2 not in here.links.busy_peers)
            said = [(fact.kind, fact.cause) for fact in here.facts if "busy" in fact.kind]
            assert said == [
                ("peer busy", "node 2 is behind with its disk, or has no room: it is sent no entries"),
                ("peer not busy", "node 2 is sent entries again"),
            ]
            is_busy = True
            await here.until(lambda: 2 in here.links.busy_peers)
            await nodes[2].links.close()
            await here.until(lambda: not here.links.is_live(2))
            assert 2 not in here.links.busy_peers, "nobody knows"

    run(main())
