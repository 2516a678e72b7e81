"""A batch waits between two leaders until it can be told the new one."""

import threading
from typing import Any

import pytest

from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_raftlog.errors import NotLeaderError
from barnabas_raftlog.multiraft.group import RaftGroup
from broker.wire_client import Wire, batch, produce_request

VERSION = 10  # the first with the leader in the answer (KIP-951)


class Vacant:
    """A topic of one partition, and a broker that takes its leader for lost until it is told otherwise."""

    def __init__(self, running: RunningCluster, name: str, patch: pytest.MonkeyPatch) -> None:
        nodes = running.cluster.nodes
        any_wire = Wire("127.0.0.1", nodes[1].port)
        any_wire.create(name, factor=3)
        question = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        self.leader_id = any_wire.ask(question, 9).topics[0].partitions[0].leader_id
        any_wire.close()
        self.running = running
        self.name = name
        self.node = next(node for node_id, node in nodes.items() if node_id != self.leader_id)
        self.is_vacant = True
        self.waits = threading.Event()
        self.times_asked = 0
        patch.setattr(self.node.partitions.known_leaders, "expects_leader_of", self.expects_leader_of)

    def expects_leader_of(self, *_: Any) -> bool:
        self.times_asked += 1
        if self.times_asked == 2:  # once to decide, and then by who waits
            self.waits.set()
        return self.is_vacant

    def end(self) -> None:
        async def hear(_: Any) -> None:
            self.is_vacant = False
            self.node.partitions.on_peer(self.leader_id, True)

        self.running.run(hear)


@pytest.mark.parametrize("acks", [-1, 1])
def test_the_refusal_names_the_new_leader(
    three_brokers: RunningCluster, acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vacant = Vacant(three_brokers, f"vacant{acks}", monkeypatch)
    wire = Wire("127.0.0.1", vacant.node.port)
    request = produce_request(vacant.name, batch(), acks=acks)
    wire.send(request, VERSION)
    assert vacant.waits.wait(20)
    vacant.end()
    response = wire.receive(request, VERSION)
    result = response.responses[0].partition_responses[0]
    assert (result.error_code, result.current_leader.leader_id) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        vacant.leader_id,
    )
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [vacant.leader_id]
    wire.close()


def test_nobody_waits_longer_than_an_election_may_take(
    three_brokers: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    vacant = Vacant(three_brokers, "vacant-for-long", monkeypatch)
    monkeypatch.setattr("barnabas_broker.server.handlers.produce.ELECTION_S", 0.02)
    wire = Wire("127.0.0.1", vacant.node.port)
    assert wire.produce(vacant.name, batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert vacant.waits.is_set()
    wire.close()


def test_without_acks_there_is_nothing_to_wait_for(
    three_brokers: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    vacant = Vacant(three_brokers, "vacant-for-nobody", monkeypatch)
    wire = Wire("127.0.0.1", vacant.node.port)
    wire.send(produce_request(vacant.name, batch(), acks=0), VERSION)
    assert wire.is_closed_by_peer()
    assert not vacant.waits.is_set()
    wire.close()


def test_a_leader_that_hands_over_refuses_when_that_has_come_to_something(
    three_brokers: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = three_brokers.cluster.nodes
    any_wire = Wire("127.0.0.1", nodes[1].port)
    any_wire.create("handed-over", factor=3)
    question = MetadataRequest(topics=[MetadataRequestTopic(name="handed-over")])
    leader_id = any_wire.ask(question, 9).topics[0].partitions[0].leader_id
    any_wire.close()
    leader = nodes[leader_id]
    target_id = leader_id % 3 + 1
    partition = leader.partitions.topics["handed-over"].partitions[0]
    begins = RaftGroup.check_may_propose
    waits = threading.Event()
    is_held = [True]

    def check_may_propose(group: RaftGroup) -> None:
        begins(group)
        if group is partition.group and is_held[0]:
            raise NotLeaderError(target_id)

    def is_handing_over(asked: Partition) -> bool:
        if asked is partition and is_held[0]:
            waits.set()
            return True
        return asked.is_leader and asked.group.core.transfer_target is not None

    monkeypatch.setattr(RaftGroup, "check_may_propose", check_may_propose)
    monkeypatch.setattr(Partition, "is_handing_over", property(is_handing_over))
    wire = Wire("127.0.0.1", leader.port)
    request = produce_request("handed-over", batch(producer_id=5, epoch=0, sequence=0))
    wire.send(request, VERSION)
    assert waits.wait(20)

    async def hand_over(_: Cluster) -> None:
        # A leader that has just stood still, on a busy machine, hands nothing over before it has asked a majority.
        await partition.group.confirm()
        is_held[0] = False
        partition.transfer(target_id)

    three_brokers.run(hand_over)
    result = wire.receive(request, VERSION).responses[0].partition_responses[0]
    assert (result.error_code, result.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, target_id)
    wire.close()
