"""Plays one group member that says exactly what a test wants said.

It finds its coordinator again when that is lost.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from broker.wire_client import Wire

from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas_clients.protocol.registry import Message
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

DEADLINE_S = 20.0
LOST = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
Subscription = bytes


def subscription(*topics: str) -> bytes:
    """Return a ConsumerProtocolSubscription of version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class GroupClient:
    """Asks the coordinator of one group. `member_id` and `generation_id` are those of the last join."""

    def __init__(self, bootstrap: str, group_id: str, *topics: str, instance_id: str | None = None) -> None:
        self.addresses = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in bootstrap.split(","))]
        self.group_id = group_id
        self.topics = topics
        self.instance_id = instance_id
        self.timeout_s = 10.0
        self.member_id = ""
        self.generation_id = -1
        self.coordinator_id = -1
        self.joined: Any = None
        self._wire: Wire | None = None

    # The way to the coordinator.

    def find(self) -> Wire:
        """Return a connection to the coordinator; ask whoever answers, until somebody names it."""
        until_s = time.monotonic() + DEADLINE_S
        while self._wire is None and time.monotonic() < until_s:
            for address in self.addresses:
                try:
                    with closing(Wire(*address)) as wire:
                        found = wire.ask(FindCoordinatorRequest(coordinator_keys=[self.group_id]), 4).coordinators[0]
                    if found.error_code == ErrorCode.NONE:
                        self._wire = Wire(found.host, found.port)
                        self._wire.socket.settimeout(self.timeout_s)
                        self.coordinator_id = found.node_id
                        return self._wire
                except OSError:
                    continue
        assert self._wire is not None, "nobody names a coordinator"
        return self._wire

    def lose(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def ask(self, request: Message, version: int) -> Any:
        """Ask the present coordinator once, and return any answer."""
        return self.find().ask(request, version)

    def until_known(self, act: Callable[[], Any], error_of: Callable[[Any], int]) -> Any:
        """Return what a coordinator that knows itself to be one answers; find it again as often as necessary."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                answer = act()
                if error_of(answer) not in LOST:
                    return answer
            except CoordinatorError as error:
                if error.code not in LOST:
                    raise
            except OSError:
                pass
            assert time.monotonic() < until_s, "no coordinator answers"
            self.lose()

    def commit_surely(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit, with whichever broker coordinates by now; everything must be stored."""
        codes = self.until_known(lambda: self.commit(topic, offsets), lambda found: int(found[0]))
        assert codes == [ErrorCode.NONE] * len(offsets)

    def delete_surely(self) -> None:
        """Delete the group, with whichever broker coordinates by now."""
        request = DeleteGroupsRequest(groups_names=[self.group_id])
        assert self.until_known(lambda: self.ask(request, 2).results[0].error_code, int) == ErrorCode.NONE

    # Requests of members.

    def send_join(
        self, *, member_id: str | None = None, version: int = 9, client_id: str = "test", **fields: Any
    ) -> JoinGroupRequest:
        """Send JoinGroup and do not wait."""
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(*self.topics))]
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": self.member_id if member_id is None else member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        request = JoinGroupRequest(**values | fields)
        self.find().send(request, version, client_id)
        return request

    def receive_join(self, request: JoinGroupRequest, version: int = 9) -> Any:
        """Return the answer, and remember who one is now."""
        answer = self.find().receive(request, version)
        if answer.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id = answer.member_id
            self.generation_id = answer.generation_id
        self.joined = answer
        return answer

    def enter(self) -> None:
        """Send JoinGroup with a member id, fetched before if there is none; the answer is still to come."""
        if not self.member_id and self.instance_id is None:
            first = self.receive_join(self.send_join())
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED, first
        self._request = self.send_join()

    def entered(self) -> Any:
        answer = self.receive_join(self._request)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    @property
    def leads(self) -> bool:
        return bool(self.joined.leader == self.member_id)

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5, **fields: Any) -> Any:
        """Ask for the assignment, and hand in `assignments` if one leads."""
        given = [SyncGroupRequestAssignment(member_id=key, assignment=one) for key, one in (assignments or {}).items()]
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": given,
        }
        return self.ask(SyncGroupRequest(**values | fields), version)

    def heartbeat(self, **fields: Any) -> ErrorCode:
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        return ErrorCode(self.ask(HeartbeatRequest(**values | fields), 4).error_code)

    def hear_of_a_rebalance(self) -> None:
        """Send heartbeats until one is answered that it is time to join again."""
        until_s = time.monotonic() + DEADLINE_S
        while (code := self.heartbeat()) != ErrorCode.REBALANCE_IN_PROGRESS:
            assert code == ErrorCode.NONE
            assert time.monotonic() < until_s, "no rebalance"

    def leave(self, *others: str) -> list[ErrorCode]:
        leaving = [MemberIdentity(member_id=one, reason="test") for one in others or (self.member_id,)]
        answer = self.ask(LeaveGroupRequest(group_id=self.group_id, members=leaving), 5)
        return [ErrorCode(one.error_code) for one in answer.members] or [ErrorCode(answer.error_code)]

    def commit(self, topic: str, offsets: Mapping[int, int], *, version: int = 9, **fields: Any) -> list[ErrorCode]:
        """Commit offsets by partition; return the partitions' errors in their order."""
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=5,
                committed_metadata=f"at {offset}",
            )
            for index, offset in offsets.items()
        ]
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "topics": [OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        }
        answer = self.ask(OffsetCommitRequest(**values | fields), version)
        return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]

    def committed(self, topic: str | None = None, partitions: Sequence[int] = ()) -> dict[tuple[str, int], int]:
        """Return committed offsets by (topic, partition), all of them if no topic is named; -1 is none."""
        topics = None if topic is None else [OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
        asked = OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
        group = self.ask(OffsetFetchRequest(groups=[asked]), 9).groups[0]
        if group.error_code:
            raise CoordinatorError(ErrorCode(group.error_code))
        return {
            (found.name, one.partition_index): one.committed_offset
            for found in group.topics
            for one in found.partitions
        }


class CoordinatorError(Exception):
    """A whole answer that says why there is none."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def rebalance(first: GroupClient, *others: GroupClient) -> list[bytes]:
    """Bring all of them into one generation, and give each a share with its name; return what they got.

    The first is in the group already, or begins it; it hears of the others by its heartbeats.
    """
    if others and first.generation_id < 0:
        rebalance(first)
    for other in others:
        other.enter()
    if others:
        first.hear_of_a_rebalance()
    first.enter()
    members = (first, *others)
    for member in members:
        member.entered()
    leader = next(member for member in members if member.leads)
    assert {one.member_id for one in leader.joined.members} == {member.member_id for member in members}
    given = {member.member_id: f"share of {member.member_id}".encode() for member in members}
    found = {leader.member_id: leader.sync(given)} | {
        member.member_id: member.sync() for member in members if member is not leader
    }
    assert not any(one.error_code for one in found.values()), found
    return [bytes(found[member.member_id].assignment) for member in members]


def topic_metadata(wire: Wire, topic: str) -> Any:
    """Return the metadata of a topic."""
    return wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0]
