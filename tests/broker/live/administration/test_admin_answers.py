"""What administrators ask for: each question of the list is answered in every version as the list says."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.elect_leaders import ElectLeadersRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.wire.schema import NO_UUID
from broker.wire_client import Wire

from .admin_questions import (
    PREFERRED,
    QUESTIONS,
    QUORUM_REQUEST,
    TOPIC,
    UNCLEAN,
    Question,
    Surroundings,
    elect,
    move,
    told,
)
from .leading import knows, lead
from .topic_questions import TOPIC_QUESTIONS, TopicQuestion, codes

SETTINGS = {"auto.leader.rebalance.enable": False}  # Nothing else moves leaderships.


@pytest.fixture(scope="module")
def alone() -> Iterator[RunningCluster]:
    with RunningCluster(1) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create(TOPIC)
        wire.close()
        yield running


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_every_question_is_answered_as_the_list_says(alone: RunningCluster, question: Question) -> None:
    config = alone.cluster.configs[1]
    here = Surroundings(str(Path(config.log_dir).absolute()), config.cluster_id)
    wire = Wire("127.0.0.1", alone.cluster.nodes[1].port)
    for version in question.versions:
        assert told(wire, question.make(here), version) == question.ours, version
    wire.close()


@pytest.mark.parametrize("question", TOPIC_QUESTIONS, ids=lambda question: question.name)
def test_topics_and_partitions_are_checked_as_the_list_says(alone: RunningCluster, question: TopicQuestion) -> None:
    with closing(Wire("127.0.0.1", alone.cluster.nodes[1].port)) as wire:
        for version in question.versions:
            assert codes(wire, question.request, version) == question.codes, version


def test_members_of_the_quorum_are_told_with_directories_and_addresses(three_brokers: RunningCluster) -> None:
    """By every broker alike, but for how far they have come; the leader's own moment is now."""
    wires = [Wire("127.0.0.1", node.port) for node in three_brokers.cluster.nodes.values()]
    for wire in wires:
        answer = wire.ask(QUORUM_REQUEST, 2)
        (partition,) = answer.topics[0].partitions
        assert [one.replica_id for one in partition.current_voters] == [1, 2, 3]
        assert len({one.replica_directory_id for one in partition.current_voters} - {NO_UUID}) == 3
        assert all(one.log_end_offset > 0 for one in partition.current_voters)
        leader = next(one for one in partition.current_voters if one.replica_id == partition.leader_id)
        assert leader.log_end_offset >= partition.high_watermark > 0
        assert leader.last_fetch_timestamp == leader.last_caught_up_timestamp
        assert [(one.node_id, one.listeners[0].port) for one in answer.nodes] == [
            (node_id, node.port) for node_id, node in sorted(three_brokers.cluster.nodes.items())
        ]
        wire.close()


def test_a_replica_elsewhere_is_not_available(three_brokers: RunningCluster, own_name: str) -> None:
    wires = {node_id: Wire("127.0.0.1", node.port) for node_id, node in three_brokers.cluster.nodes.items()}
    topic_id = wires[1].create(own_name, 1, 1)
    (holder,) = three_brokers.cluster.nodes[1].partitions.topics[own_name].topic.partitions[0].replicas
    other = holder % 3 + 1
    path = str(Path(three_brokers.cluster.configs[other].log_dir).absolute())
    code = {(own_name, 0): ErrorCode.REPLICA_NOT_AVAILABLE}
    until_hosted = three_brokers.cluster.nodes[other].metadata.wait_until(lambda image: topic_id in image.topics, 10)
    three_brokers.run(lambda _: until_hosted)
    assert told(wires[other], move(path, 0, topic=own_name), 2) == code
    for wire in wires.values():
        wire.close()


def test_a_leadership_goes_where_it_is_preferred_whoever_is_asked() -> None:
    fate = {(TOPIC, 0): ErrorCode.NONE, (TOPIC, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with RunningCluster(3, settings=SETTINGS) as running:
        wires = {node_id: Wire("127.0.0.1", node.port) for node_id, node in running.cluster.nodes.items()}
        wires[1].create(TOPIC, 1, 3)
        replicas = running.cluster.nodes[1].partitions.topics[TOPIC].topic.partitions[0].replicas
        first, second, third = replicas

        def move() -> None:
            running.run(lambda cluster: lead(cluster, TOPIC, 0, first))
            running.run(lambda cluster: lead(cluster, TOPIC, 0, second))

        for asked in replicas:
            move()
            assert told(wires[asked], elect(PREFERRED, 0, 9), 2) == (ErrorCode.NONE, fate)
            assert told(wires[asked], elect(PREFERRED, 0), 2)[1] == {(TOPIC, 0): ErrorCode.ELECTION_NOT_NEEDED}
        move()
        assert told(wires[third], ElectLeadersRequest(timeout_ms=10_000), 2)[1] == {(TOPIC, 0): ErrorCode.NONE}
        move()
        running.run(lambda cluster: cluster.stop(first))
        away = {(TOPIC, 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        for asked in (second, third):
            assert told(wires[asked], elect(PREFERRED, 0), 2) == (ErrorCode.NONE, away)
            assert told(wires[asked], elect(UNCLEAN, 0), 2)[1] == {(TOPIC, 0): ErrorCode.ELECTION_NOT_NEEDED}
        running.run(lambda cluster: cluster.stop(second))
        assert running.run(lambda cluster: knows(cluster, third, TOPIC, 0, -1))
        nobody = {(TOPIC, 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        assert told(wires[third], elect(UNCLEAN, 0), 2)[1] == nobody
        assert told(wires[third], elect(PREFERRED, 0), 2)[1] == away
        for wire in wires.values():
            wire.close()
