"""Scenes of consumer groups: large, many, restless, and with names that forge log lines."""

import time
from functools import partial

from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_clients.protocol.list_groups import ListGroupsRequest
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.registry import Message
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from hostile.frames import Address, Wire, frame_of, send_some

from .scene import Attack, counted, scene

ODD_NAMES = (
    "x\n2026-01-01 00:00:00 CRITICAL __main__: node 1 is broken",
    "\x1b[2J\x1b[31mgroup",
    "\u202egroup\u2066",
    "a\r\nb\0c",
    "g" * 30_000,
    "",
)


def coordinator(attack: Attack, group: str) -> Address:
    """Return the coordinator of a group.

    Raises:
        TimeoutError: nobody does.
    """
    for _ in range(100):
        with Wire(attack.brokers[0]) as wire:
            found = wire.ask(FindCoordinatorRequest(coordinator_keys=(group,)), 4).coordinators[0]
        if found.error_code == 0:
            return found.host, found.port
        time.sleep(0.1)
    raise TimeoutError(f"no coordinator for {group}")


def _join(group: str, metadata: bytes = b"", member: str = "", protocols: int = 1) -> JoinGroupRequest:
    offered = [JoinGroupRequestProtocol(name=f"p{k}", metadata=metadata) for k in range(protocols)]
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=2_000,
        member_id=member,
        protocol_type="consumer",
        protocols=offered,
    )


def _commit(group: str, topic: str, partitions: int, note: str) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition_index=k, committed_offset=1, committed_metadata=note)
        for k in range(partitions)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)])


def _pipelined(attack: Attack, address: Address, requests: list[Message], version: int) -> str:
    """Send them on one connection, each as it fits, and say how many of their bytes were taken."""
    one = attack.open(address, timeout_s=1.0)
    sent = 0
    for request in requests:
        data = frame_of(request, version)
        if send_some(one, data) < len(data):
            break
        sent += 1
    return f"{sent} of {len(requests)} sent"


@scene("A9")
def group_of_huge_members(attack: Attack) -> str:
    """400 members of one group with a megabyte of metadata each."""
    address = coordinator(attack, attack.name)
    data = attack.chance.randbytes(1_000_000)
    ends = attack.at_once(
        [partial(_pipelined, attack, address, [_join(attack.name, data)], 3) for _ in range(attack.many(400))]
    )
    attack.wait()
    return f"members of a megabyte: {counted(ends)}"


@scene("like A9")
def groups_of_huge_members(attack: Attack) -> str:
    """300 groups of one member with half a megabyte of metadata."""
    data = attack.chance.randbytes(500_000)
    names = [f"{attack.name}-{k}" for k in range(attack.many(300))]
    homes = [coordinator(attack, name) for name in names[:20]]
    ends = attack.at_once(
        [partial(_pipelined, attack, homes[k % len(homes)], [_join(name, data)], 3) for k, name in enumerate(names)]
    )
    attack.wait()
    return f"groups of half a megabyte: {counted(ends)}"


@scene("A9")
def groups_by_the_thousand(attack: Attack) -> str:
    """10,000 groups of one member each, joined at the same time; then asked for and listed."""
    names = [f"{attack.name}-{k}" for k in range(attack.many(10_000))]
    made = attack.open_many(90, timeout_s=1.0)
    sent = 0
    for k, name in enumerate(names):
        sent += send_some(made[k % len(made)], frame_of(_join(name, b"m"), 3)) > 0
    attack.wait()
    described = attack.ask_each(DescribeGroupsRequest(groups=tuple(names)), 0, 2)
    listed = attack.ask_each(ListGroupsRequest(), 4, 2)
    return f"{sent} joins; described: {counted(described)}; listed: {counted(listed)}"


@scene("A9")
def join_storm(attack: Attack) -> str:
    """2,000 newcomers of one group, again and again, that leave as soon as they are there."""
    address = coordinator(attack, attack.name)
    made = attack.open_many(2_000, [address], timeout_s=0.5)
    joins = 0
    leaves = 0
    for turn in attack.turns():
        for one in made[turn % 4 :: 4]:
            joins += send_some(one, frame_of(_join(attack.name, b"m" * 50, protocols=10), 3)) > 0
        gone = [MemberIdentity(member_id=f"nobody-{k}") for k in range(100)]
        leaves += send_some(made[0], frame_of(LeaveGroupRequest(group_id=attack.name, members=gone), 3)) > 0
    return f"{joins} joins, {leaves} leaves of a hundred"


@scene("like A9")
def connections_of_members_that_end(attack: Attack) -> str:
    """1,000 members of a group whose connections all end at once, again and again."""
    address = coordinator(attack, attack.name)
    count = 0
    for _ in attack.turns():
        made = attack.open_many(500, [address], timeout_s=0.5)
        for one in made:
            count += send_some(one, frame_of(_join(attack.name, b"m"), 3)) > 0
        attack.close()
    return f"{count} members whose connections ended"


@scene("like A9")
def offsets_without_end(attack: Attack) -> str:
    """Commits with notes of 4 KB, each for a new group, without end."""
    homes = [coordinator(attack, f"{attack.name}-{k}") for k in range(6)]
    made = attack.pool(6, homes)
    note = "n" * 4_000
    sent = 0
    for turn in attack.turns():
        for number in range(20):
            commit = _commit(f"{attack.name}-{turn}-{number}", attack.topic, 3, note)
            sent += made.say(turn, frame_of(commit, 8), 0) > 0
        made.say(turn, b"", 1 << 20)
    return f"{sent} groups committed to"


@scene("like A9")
def commits_into_one_group(attack: Attack) -> str:
    """Commits of 2,000 partitions with long notes into one group, over and over."""
    address = coordinator(attack, attack.name)
    leaders = attack.create(f"{attack.name}-wide", partitions=100)
    data = frame_of(_commit(attack.name, f"{attack.name}-wide", 2_000, "n" * 2_000), 8)
    made = attack.pool(8, [address], timeout_s=0.5)
    taken = sum(made.say(turn, data) for turn in attack.turns())
    return f"{taken >> 20} MiB of commits, of {len(leaders)} partitions that are and many that are not"


@scene("like A9")
def members_that_are_none(attack: Attack) -> str:
    """Heartbeats and syncs of members that are none, for groups that are none and for the client's own."""
    made = attack.pool(30)
    sent = 0
    for turn in attack.turns():
        for k in range(50):
            group = attack.chance.choice(("beside", attack.name, ""))
            many = [SyncGroupRequestAssignment(member_id=f"m{k}", assignment=b"a" * 50)] * 20
            sync = SyncGroupRequest(group_id=group, generation_id=k, member_id="nobody", assignments=many)
            beat = HeartbeatRequest(group_id=group, generation_id=attack.chance.getrandbits(31), member_id=f"m{k}")
            sent += made.say(turn, frame_of(sync, 3) + frame_of(beat, 3), 0) > 0
        made.say(turn, b"")
    return f"{2 * sent} requests of members that are none"


@scene("A12")
def odd_group_names(attack: Attack) -> str:
    """Groups, members and protocols whose names hold line ends, escapes and 30,000 characters."""
    made = attack.pool(30)
    sent = 0
    for turn in attack.turns():
        name = ODD_NAMES[turn % len(ODD_NAMES)]
        request = _join(name, b"m", member=attack.chance.choice(("", name)))
        request.protocols = [JoinGroupRequestProtocol(name=name, metadata=b"m")]
        sent += made.say(turn, frame_of(request, 5, client_id=name) + frame_of(_commit(name, name, 1, name), 7)) > 0
    return f"{sent} groups of odd names"
