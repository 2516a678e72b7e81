"""The driver on fake storage and virtual time: sends, news, and the cost of idleness."""

import asyncio
import itertools

import msgspec
import pytest
from raftlog.messages import acknowledgement, append_entries, install_snapshot, vote_request, vote_response

from barnabas_raftlog.errors import MalformedMessageError, NotLeaderError, StorageFailedError
from barnabas_raftlog.links.raft_frames import METADATA_GROUP
from barnabas_raftlog.log.errors import DiskFullError
from barnabas_raftlog.multiraft import driver as driver_module
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import (
    TERM_HONEST_MAX,
    TERM_JUMP_MAX,
    AppendEntries,
    Entry,
    HardState,
    LeadershipEnded,
    Message,
    TransferLeadership,
    VoteRequest,
    VoteResponse,
)
from barnabas_raftlog.records.header import stamp

from .fakes import Network, Node, data_frame, group_id


async def elected(count: int, groups: int = 1) -> tuple[Network, Node]:
    """Return a network whose node 1 leads groups 1 to `groups`, all quiet."""
    network = Network(count)
    for number in range(1, groups + 1):
        for node in network.nodes.values():
            node.add(number)
    network.connect()
    await network.settle()
    await network.pass_ms(300)
    leader = network.nodes[1]
    assert all(leader.group(number).confirmed for number in range(1, groups + 1))
    return network, leader


async def test_the_preferred_replica_leads_and_everybody_hears_of_it() -> None:
    network, leader = await elected(3)
    assert leader.heard(1)[-1][:4] == ("leadership", 1, 1, True)
    for node in (network.nodes[2], network.nodes[3]):
        assert ("leadership", 1, 1, False, False) in node.heard(1)
        assert not node.group(1).confirmed
    assert leader.raft.stats.elections_won == 1


async def test_a_proposal_is_appended_at_once_and_committed_everywhere() -> None:
    network, leader = await elected(3)
    first = leader.group(1).propose(data_frame())
    second = leader.group(1).propose(data_frame())
    assert (first.index, second.index) == (2, 3)
    assert ("appended", 2, 3) not in leader.heard(1), "listeners hear of it after the drive, not within the call"
    await network.pass_ms(100)
    for node in network.nodes.values():
        assert node.group(1).high_watermark == 2
        assert node.heard(1)[-1] == ("committed", 3)
        assert node.logs[group_id(1)].shown() == leader.logs[group_id(1)].shown()
    heard = leader.heard(1)
    assert heard.index(("appended", 2, 3)) < heard.index(("committed", 3))


async def test_only_a_leader_proposes() -> None:
    network, _ = await elected(3)
    with pytest.raises(NotLeaderError, match="led by node 1"):
        network.nodes[2].group(1).propose(data_frame())


async def test_a_lone_voter_elects_itself_and_commits_alone() -> None:
    network = Network(1)
    group = network.nodes[1].add(1)
    await network.settle()
    assert group.confirmed
    group.propose(data_frame())
    await network.settle()
    assert group.high_watermark == 1


async def test_a_term_that_no_election_can_have_reached_is_refused_and_not_kept() -> None:
    network, _ = await elected(3)
    node = network.nodes[2]
    assert node.links.on_messages is not None
    term = node.group(1).core.term
    highest = vote_request(term=term + TERM_JUMP_MAX, source=3, target=2, last_index=9, last_term=1)
    with pytest.raises(MalformedMessageError, match="node 3 is in term"):
        node.links.on_messages(3, [(group_id(1), msgspec.structs.replace(highest, term=highest.term + 1_000))])
    await network.settle()
    assert node.group(1).core.term == node.storage.saved[group_id(1)].term == term
    node.links.on_messages(3, [(group_id(1), highest)])
    await network.settle()
    assert node.group(1).core.term >= highest.term


async def test_not_even_by_many_steps_is_a_group_led_through_all_terms() -> None:
    network, _ = await elected(3)
    node = network.nodes[2]
    assert node.links.on_messages is not None
    first = node.group(1).core.term
    for quarter in range(1, 5):
        step = vote_request(term=first + quarter * TERM_JUMP_MAX // 4, source=3, target=2, last_index=9, last_term=1)
        node.links.on_messages(3, [(group_id(1), step)])
        await network.settle()
    reached = node.group(1).core.term
    assert reached >= first + TERM_JUMP_MAX
    beyond = vote_request(term=reached + TERM_JUMP_MAX // 4, source=3, target=2, last_index=9, last_term=1)
    with pytest.raises(MalformedMessageError, match="node 3 is in term"):
        node.links.on_messages(3, [(group_id(1), beyond)])


async def test_who_has_heard_nothing_yet_learns_any_honest_term() -> None:
    network = Network(3)
    node = network.nodes[2]
    node.add(1)
    assert node.links.on_messages is not None
    highest = vote_request(term=TERM_HONEST_MAX, source=3, target=2, last_index=9, last_term=1)
    with pytest.raises(MalformedMessageError, match="node 3 is in term"):
        node.links.on_messages(3, [(group_id(1), msgspec.structs.replace(highest, term=highest.term + 1))])
    node.links.on_messages(3, [(group_id(1), highest)])
    await network.settle()
    assert node.group(1).core.term == TERM_HONEST_MAX


def entry(index: int, term: int, base_offset: int) -> Entry:
    frame = data_frame()
    stamp(frame, base_offset, term)
    return Entry(index, term, frame)


@pytest.mark.parametrize(
    ("target", "message", "complaint"),
    [
        (
            1,
            acknowledgement(term=1, source=2, target=1, match_index=10**6, round=1),
            "acknowledges entry 1000000 of a leader whose log ends",
        ),
        (
            1,
            append_entries(term=1, source=2, target=1, prev_index=3, prev_term=1, commit_index=3, round=1),
            "leads in term 1, in which node 1 leads",
        ),
        (
            2,
            append_entries(
                term=1,
                source=1,
                target=2,
                prev_index=3,
                prev_term=1,
                commit_index=3,
                round=9,
                entries=[entry(4, 1, 99)],
            ),
            "entries that cannot follow: entry 4",
        ),
        (
            2,
            append_entries(term=1, source=1, target=2, prev_index=3, commit_index=3, round=9, entries=[entry(4, 0, 2)]),
            "entries that cannot follow: entry 4",
        ),
        (
            2,
            install_snapshot(term=1, source=1, target=2, snapshot_index=9, snapshot_term=1, data=b"short"),
            "a snapshot of 5 bytes",
        ),
        (
            2,
            install_snapshot(term=1, source=1, target=2, snapshot_index=9, snapshot_term=1, data=b"\x7f" + bytes(9)),
            "ends at entry 9 and offset 9151314442816847872",
        ),
        (
            2,
            install_snapshot(term=1, source=1, target=2, snapshot_index=(1 << 63) - 1, snapshot_term=1, data=bytes(9)),
            "ends at entry 9223372036854775807",
        ),
    ],
)
async def test_a_peer_that_breaks_the_protocol_loses_its_link_and_nothing_else_happens(
    target: int, message: Message, complaint: str
) -> None:
    network, leader = await elected(3, groups=2)
    leader.group(1).propose(data_frame())
    leader.group(1).propose(data_frame())
    await network.pass_ms(100)
    node = network.nodes[target]
    refused_before = node.raft.stats.messages_refused
    shown = node.logs[group_id(1)].shown()
    assert node.links.on_messages is not None
    node.links.on_messages(message.source, [(group_id(1), message)])
    await network.settle()
    ((source, text),) = node.links.refused
    assert source == message.source
    assert text.startswith(f"of group {group_id(1).hex()}: ")
    assert complaint in text
    assert node.raft.stats.messages_refused == refused_before + 1
    assert node.logs[group_id(1)].shown() == shown
    leader.group(1).propose(data_frame())
    leader.group(2).propose(data_frame())
    await network.pass_ms(3_000)
    for other in network.nodes.values():
        assert (other.group(1).high_watermark, other.group(2).high_watermark) == (3, 1)
        assert other.group(1).failed is None


async def test_no_vote_leaves_before_it_is_on_disk() -> None:
    network = Network(3, is_lazy=True)
    for node in network.nodes.values():
        node.add(1)
    network.connect()
    voter = network.nodes[2]
    request = vote_request(term=5, source=3, target=2)
    assert voter.links.on_messages is not None
    voter.links.on_messages(3, [(group_id(1), request)])
    await network.settle()
    voter.links.on_messages(3, [(group_id(1), request)])  # The same question again, while the disk still works.
    await network.settle()

    def votes() -> list[object]:
        sent = [message for _, messages in voter.links.frames for _, message in messages]
        return [message for message in sent if isinstance(message, VoteResponse) and not message.pre]

    assert voter.storage.saved[group_id(1)] == HardState(5, 3)
    assert votes() == []
    voter.storage.sync()
    voter.raft.on_durable()
    await network.settle()
    assert votes() == [vote_response(term=5, source=2, target=3)] * 2


async def test_a_follower_acknowledges_when_its_disk_has_it() -> None:
    network = Network(3)
    for node in network.nodes.values():
        node.add(1, is_lazy=node.node_id != 1)
    network.connect()
    await network.pass_ms(100)
    leader = network.nodes[1]
    follower = network.nodes[2]
    assert leader.group(1).is_leader
    assert leader.group(1).commit_index == 0
    follower.logs[group_id(1)].sync()
    follower.storage.moved = [group_id(1)]
    follower.raft.on_durable()
    await network.settle()
    assert leader.group(1).commit_index == 1


async def test_all_groups_share_one_frame_for_each_peer_and_one_flush() -> None:
    _, leader = await elected(3, groups=50)
    frames = len(leader.links.frames)
    flushes = leader.storage.flushes
    for number in range(1, 51):
        leader.group(number).propose(data_frame())
    await asyncio.sleep(0)
    sent = leader.links.frames[frames:]
    assert sorted(target for target, _ in sent) == [2, 3]
    assert [len(messages) for _, messages in sent] == [50, 50]
    assert leader.storage.flushes == flushes + 1


async def test_idle_groups_cost_nothing() -> None:
    network, leader = await elected(3, groups=20)
    await network.pass_ms(2_000)
    before = [(node.raft.stats.drives, len(node.links.frames)) for node in network.nodes.values()]
    await network.pass_ms(10_000)
    assert [(node.raft.stats.drives, len(node.links.frames)) for node in network.nodes.values()] == before
    assert leader.raft.status()["groups_awake"] == 0
    assert all(leader.group(number).confirmed for number in range(1, 21))


async def test_a_silent_leader_is_replaced_and_catches_up_when_it_returns() -> None:
    network, old = await elected(3)
    old.group(1).propose(data_frame())
    await network.pass_ms(500)
    network.connect((1, 2), (1, 3), live=False)
    network.cut = {(1, 2), (1, 3), (2, 1), (3, 1)}
    old.group(1).propose(data_frame(b"nobody will see this"))
    await network.pass_ms(1_500)
    new = network.nodes[2] if network.nodes[2].group(1).is_leader else network.nodes[3]
    assert new.group(1).confirmed
    assert not old.group(1).is_leader, "it cannot reach a majority"
    new.group(1).propose(data_frame(b"this survives"))
    await network.pass_ms(100)
    network.cut = set()
    network.connect((1, 2), (1, 3))
    await network.pass_ms(500)
    assert any(heard[0] == "truncated" for heard in old.heard(1))
    for node in network.nodes.values():
        assert node.logs[group_id(1)].shown() == new.logs[group_id(1)].shown()
        assert node.group(1).high_watermark == 2


async def test_after_a_stall_no_leadership_is_confirmed_until_asked_again() -> None:
    network, leader = await elected(3)
    await network.pass_ms(2_000)
    network.now_ms += 600
    assert not leader.group(1).confirmed, "the tick is late, though nobody has noticed yet"
    network.cut = {(2, 1), (3, 1)}
    leader.raft.tick()
    await network.settle()
    assert not leader.group(1).confirmed
    assert leader.raft.stats.stalls == 1
    assert ("stall", METADATA_GROUP) in [(fact.kind, group) for group, fact in leader.facts]
    network.cut = set()
    for node in network.nodes.values():
        node.raft.tick()
    await network.pass_ms(300)
    assert leader.group(1).confirmed
    assert leader.group(1).core.term == 1, "a stall is no reason for an election"


async def test_the_only_voter_is_confirmed_through_a_stall() -> None:
    network, leader = await elected(1)
    group = leader.group(1)
    assert group.confirmed
    told = [what for what in leader.listeners[group_id(1)].heard if what[0] == "leadership"]
    network.now_ms += 600
    assert not leader.raft.is_punctual
    assert group.confirmed, "nobody else can have been elected"
    leader.raft.tick()
    while leader.raft._driver.is_paused:
        assert group.confirmed
        await asyncio.sleep(0)
    await network.settle()
    assert group.confirmed
    assert leader.raft.stats.stalls == 1
    assert [what for what in leader.listeners[group_id(1)].heard if what[0] == "leadership"] == told


async def test_a_silent_peer_is_told_to_its_groups_in_slices_its_own_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "BULK_PER_DRIVE", 10)
    network, _ = await elected(2, groups=35)
    follower = network.nodes[2]
    follower.add(0)
    await network.pass_ms(1_000)
    drives = follower.raft.stats.drives
    steps = follower.raft.stats.steps
    for callback in follower.links.on_peer:
        callback(1, False)
    await asyncio.sleep(0)
    assert 10 <= follower.raft.stats.steps - steps <= 21
    await network.settle()
    assert follower.raft.stats.drives - drives >= 4
    assert all(follower.group(number).core.deadline_ms is not None for number in range(1, 36))


async def test_a_follower_reads_its_queue_before_it_judges_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "EVENTS_PER_DRIVE", 1)
    network = Network(3)
    follower = network.nodes[2]
    follower.add(1)
    follower.add(2)
    network.connect()
    await network.settle()

    def heartbeat(number: int) -> None:
        message = append_entries(term=1, source=1, target=2)
        assert follower.links.on_messages is not None
        follower.links.on_messages(1, [(group_id(number), message)])

    heartbeat(1)
    await network.settle()
    deadline_ms = follower.group(1).core.deadline_ms
    assert deadline_ms is not None
    while network.now_ms < deadline_ms:
        await network.pass_ms(25)
        heartbeat(2)
        await network.settle()
        if network.now_ms + 25 >= deadline_ms:
            break
    network.now_ms += 25
    for number in (2, 2, 2, 1):
        heartbeat(number)
    follower.raft.tick()
    await network.settle()
    assert follower.group(1).core.leader_id == 1
    assert not any(isinstance(message, VoteRequest) for _, sent in follower.links.frames for _, message in sent)


async def test_a_question_that_comes_before_its_group_is_kept_for_it() -> None:
    network = Network(3)
    network.connect()
    network.nodes[1].add(1)
    await network.pass_ms(50)
    assert network.nodes[2].links.frames == []
    network.nodes[2].add(1)
    await network.settle()
    assert network.nodes[1].group(1).is_leader, "the pre-vote was waiting, no new one was needed"


async def test_a_removed_leader_says_so_and_hears_no_more() -> None:
    network, leader = await elected(3)
    await network.pass_ms(1_000)
    leader.raft.remove_group(group_id(1))
    await network.settle()
    sent = [message for _, messages in leader.links.frames[-2:] for _, message in messages]
    assert sent == [LeadershipEnded(1, 1, 2), LeadershipEnded(1, 1, 3)]
    await network.pass_ms(500)
    assert network.nodes[2].group(1).is_leader or network.nodes[3].group(1).is_leader
    assert leader.raft.status()["groups_awake"] == 0
    leader.add(1)
    await network.pass_ms(1_000)
    assert leader.group(1).core.leader_id in {2, 3}


async def test_a_failed_log_resigns_and_harms_no_other_group() -> None:
    network, leader = await elected(3, groups=2)
    await network.pass_ms(500)
    leader.logs[group_id(1)].broken = StorageFailedError("bad sector")
    with pytest.raises(StorageFailedError):
        leader.group(1).propose(data_frame())
    await network.pass_ms(500)
    assert leader.group(1).failed is not None
    assert ("replica failed", "bad sector") in [(fact.kind, fact.cause) for _, fact in leader.facts]
    assert network.nodes[2].group(1).confirmed or network.nodes[3].group(1).confirmed
    assert leader.group(2).confirmed


async def test_a_failed_log_of_a_follower_takes_only_itself_out() -> None:
    network, leader = await elected(3)
    network.nodes[2].logs[group_id(1)].broken = StorageFailedError("full")
    leader.group(1).propose(data_frame())
    await network.pass_ms(200)
    assert network.nodes[2].group(1).failed is not None
    assert leader.group(1).high_watermark == 1


async def test_a_full_disk_refuses_a_proposal_and_costs_no_leadership() -> None:
    network, leader = await elected(3)
    leader.logs[group_id(1)].broken = DiskFullError("no room")
    with pytest.raises(DiskFullError):
        leader.group(1).propose(data_frame())
    leader.logs[group_id(1)].broken = None
    leader.group(1).propose(data_frame())
    await network.pass_ms(100)
    assert leader.group(1).high_watermark == 1
    assert leader.group(1).core.term == 1


async def test_a_node_without_room_stands_for_no_election_before_it_has_some() -> None:
    network, old = await elected(3)
    full = [node for node in network.nodes.values() if node is not old]
    for node in full:
        node.storage.lacks_room = True
    term = old.group(1).core.term
    network.connect((1, 2), (1, 3), live=False)
    network.cut = {(1, 2), (1, 3), (2, 1), (3, 1)}
    await network.pass_ms(5_000)
    assert {node.group(1).core.term for node in full} == {term}, "neither could begin to lead"
    full[0].storage.lacks_room = False
    await network.pass_ms(3_000)
    assert [node.group(1).confirmed for node in full] == [True, False]


async def test_a_lone_voter_without_room_leads_all_the_same() -> None:
    network = Network(1)
    network.nodes[1].storage.lacks_room = True
    group = network.nodes[1].add(1)
    await network.pass_ms(500)
    assert group.is_leader


async def test_a_follower_without_room_catches_up_when_there_is_some() -> None:
    network, leader = await elected(3)
    behind = network.nodes[2]
    behind.logs[group_id(1)].broken = DiskFullError("no room")
    leader.group(1).propose(data_frame())
    await network.pass_ms(1_000)
    assert leader.group(1).high_watermark == 1
    assert behind.logs[group_id(1)].last_index == 1
    assert "append refused" in {fact.kind for _, fact in behind.facts}
    behind.logs[group_id(1)].broken = None
    await network.pass_ms(2_000)
    assert behind.group(1).high_watermark == 1
    assert leader.group(1).core.term == 1, "nobody was disturbed"


async def test_a_group_without_room_may_have_more_to_do_in_the_same_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by filling a real disk: the new core had a later time than the drive that went on stepping it."""
    network, leader = await elected(3)
    behind = network.nodes[2]
    receive = behind.links.on_messages
    now = behind.raft._driver._clock
    assert receive is not None
    monkeypatch.setattr(behind.links, "on_messages", lambda source, messages: receive(source, messages * 2))
    broken: list[BaseException] = []
    monkeypatch.setattr(behind.raft._driver, "_on_broken", broken.append)
    reads = itertools.count()
    monkeypatch.setattr(behind.raft._driver, "_clock", lambda: now() + next(reads))
    behind.logs[group_id(1)].broken = DiskFullError("no room")
    leader.group(1).propose(data_frame())
    await network.pass_ms(500)
    behind.logs[group_id(1)].broken = None
    await network.pass_ms(2_000)
    assert not broken
    assert behind.group(1).high_watermark == 1


async def test_a_failed_storage_leaves_every_group() -> None:
    network, leader = await elected(3, groups=3)
    assert leader.storage.on_failed is not None
    leader.storage.on_failed(StorageFailedError("journal"))
    await network.pass_ms(1_000)
    for number in range(1, 4):
        assert not leader.group(number).is_leader
        assert network.nodes[2].group(number).confirmed or network.nodes[3].group(number).confirmed


async def test_groups_come_back_by_themselves_when_their_storage_does() -> None:
    network, leader = await elected(3, groups=3)
    leader.group(1).propose(data_frame())
    await network.pass_ms(100)
    assert leader.storage.on_failed is not None
    assert leader.storage.on_recovered is not None
    leader.storage.failed = StorageFailedError("journal")
    leader.storage.on_failed(leader.storage.failed)
    await network.pass_ms(1_000)
    new = next(node for node in network.nodes.values() if node.group(1).is_leader)
    new.group(1).propose(data_frame())
    await network.pass_ms(500)
    assert leader.logs[group_id(1)].last_index < new.logs[group_id(1)].last_index
    assert all(leader.group(number).is_suspended for number in range(1, 4))
    terms = [new.group(number).core.term for number in range(1, 4)]
    leader.storage.failed = None
    leader.storage.on_recovered()
    await network.pass_ms(3_000)
    assert leader.logs[group_id(1)].shown() == new.logs[group_id(1)].shown()
    assert leader.group(1).high_watermark == 2
    assert not any(leader.group(number).failed for number in range(1, 4))
    assert [new.group(number).core.term for number in range(1, 4)] == terms, "nobody was disturbed"


async def test_a_log_that_failed_while_the_storage_was_down_stays_out() -> None:
    network, leader = await elected(3, groups=1)
    assert leader.storage.on_failed is not None
    assert leader.storage.on_recovered is not None
    leader.storage.on_failed(StorageFailedError("journal"))
    on_failed = leader.logs[group_id(1)].on_failed
    assert on_failed is not None
    on_failed(group_id(1), StorageFailedError("segment"))
    leader.storage.on_recovered()
    await network.pass_ms(500)
    assert str(leader.group(1).failed) == "segment"


async def test_a_log_that_had_failed_before_takes_no_part() -> None:
    network = Network(3)
    for node in network.nodes.values():
        node.add(1)
    node = network.nodes[1]
    node.raft.remove_group(group_id(1))
    log = node.logs[group_id(1)]
    log.failed = StorageFailedError("bad since yesterday")
    configuration = configuration_of(frozenset({1, 2, 3}))
    node.raft.add_group(group_id(1), log, configuration, node.listeners[group_id(1)], preferred=True)
    network.connect()
    await network.pass_ms(1_500)
    assert log.last_index == 0
    assert network.nodes[2].group(1).confirmed or network.nodes[3].group(1).confirmed


async def test_a_reader_waits_for_a_round_and_fails_when_leadership_ends() -> None:
    network, leader = await elected(3)
    reading = [asyncio.ensure_future(leader.group(1).confirm()) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(leader.group(1).readers) == 1, "readers of one iteration share a round"
    await network.settle()
    assert all(read.done() for read in reading)
    network.cut = {(2, 1), (3, 1)}
    late = asyncio.ensure_future(leader.group(1).confirm())
    await network.pass_ms(1_500)
    with pytest.raises(NotLeaderError):
        await late
    with pytest.raises(NotLeaderError):
        await leader.group(1).confirm()


async def test_a_reader_that_comes_after_a_round_began_waits_for_a_later_one() -> None:
    """The round before it proves nothing: by now somebody else may lead, and have committed something."""
    network, leader = await elected(3)
    await network.pass_ms(1_000)
    group = leader.group(1)
    core = leader.group(1).core
    before = core.round
    early = asyncio.ensure_future(group.confirm())
    for _ in range(3):  # It is asked, the round begins, its messages arrive.
        await asyncio.sleep(0)
    assert core.answered_round <= before < core.round
    network.cut = {(1, 2), (1, 3)}  # Nothing that is asked from now on arrives; the answers of before do.
    late = asyncio.ensure_future(group.confirm())
    await asyncio.wait([early])
    assert early.result() is None
    await network.settle()
    assert not late.done()
    network.cut = set()
    await network.pass_ms(200)
    assert late.done()
    assert late.result() is None


async def test_entries_for_a_congested_peer_are_dropped_and_heartbeats_are_not() -> None:
    network, leader = await elected(3)
    leader.links.buffered = 40 << 20
    sent = len(leader.links.frames)
    leader.group(1).propose(data_frame())
    await network.pass_ms(200)
    for _, messages in leader.links.frames[sent:]:
        for _, message in messages:
            assert not (isinstance(message, AppendEntries) and message.entries)
    assert leader.raft.status()["messages_dropped"] > 0
    leader.links.buffered = 0
    await network.pass_ms(1_000)
    assert network.nodes[2].group(1).high_watermark == 1


async def test_leadership_can_be_handed_on() -> None:
    network, leader = await elected(3)
    await network.pass_ms(1_000)
    leader.group(1).transfer(3)
    await network.pass_ms(200)
    assert network.nodes[3].group(1).confirmed


async def test_nothing_is_proposed_while_leadership_is_handed_on() -> None:
    network, leader = await elected(3)
    await network.pass_ms(1_000)
    leader.group(1).core.step(TransferLeadership(3), network.now_ms)
    with pytest.raises(NotLeaderError) as refused:
        leader.group(1).propose(data_frame())
    assert refused.value.leader_id == 3


async def test_a_follower_too_far_behind_gets_a_snapshot_with_its_offset() -> None:
    network = Network(3)
    for node_id in (1, 2):
        network.nodes[node_id].add(1)
        log = network.nodes[node_id].logs[group_id(1)]
        log.install_snapshot(10, 1, 7)
        network.nodes[node_id].raft.remove_group(group_id(1))
        voters = frozenset({1, 2, 3})
        listener = network.nodes[node_id].listeners[group_id(1)]
        listener.state = (10, 1, b"image")
        preferred = node_id == 1
        network.nodes[node_id].raft.add_group(group_id(1), log, configuration_of(voters), listener, preferred=preferred)
    network.nodes[3].add(1)
    network.connect()
    await network.pass_ms(500)
    behind = network.nodes[3]
    assert behind.listeners[group_id(1)].state == (10, 1, b"image")
    assert behind.logs[group_id(1)].first_index == 11
    network.nodes[1].group(1).propose(data_frame())
    await network.pass_ms(200)
    assert behind.group(1).high_watermark == 8


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_bug_in_a_listener_ends_run(is_early: bool, caplog: pytest.LogCaptureFixture) -> None:
    network = Network(1)
    node = network.nodes[1]
    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)

    def broken(commit_index: int) -> None:
        raise AssertionError(f"applied {commit_index} twice")

    node.add(1)
    node.listeners[group_id(1)].on_committed = broken  # type: ignore[method-assign]
    if is_early:
        await asyncio.sleep(0)
    with pytest.raises(AssertionError, match="twice"):
        await node.raft.run()
    assert "the Raft driver is broken" in caplog.text


async def test_close_ends_run() -> None:
    network = Network(1)
    running = asyncio.ensure_future(network.nodes[1].raft.run())
    await asyncio.sleep(0)
    network.nodes[1].add(1)
    await network.nodes[1].raft.close()
    await running
    await network.settle()
    assert network.nodes[1].raft.groups == {}
