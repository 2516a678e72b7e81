"""A broker that hears nobody sends clients elsewhere at once, without waiting for an election."""

import pytest

from barnabas_broker.leadership.cut_off import is_cut_off, somebody_else
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire_client import Wire


@pytest.mark.parametrize(
    ("replicas", "silent", "expected"),
    [
        ((1, 2, 3), set(), False),
        ((1, 2, 3), {2}, False),
        ((1, 2, 3), {2, 3}, True),
        ((1, 2), {2}, True),
        ((1,), {2, 3}, False),
        ((1, 2, 3, 4, 5), {2, 3}, False),
        ((1, 2, 3, 4, 5), {2, 3, 4}, True),
        ((2, 3, 4), {2, 3, 4}, False),
    ],
)
def test_cut_off_is_who_hears_no_majority_of_replicas_that_it_belongs_to(
    replicas: tuple[int, ...], silent: set[int], expected: bool
) -> None:
    assert is_cut_off(1, replicas, silent.__contains__) is expected


def test_guess_is_the_last_leader_or_one_who_was_in_sync_and_never_oneself() -> None:
    assert somebody_else(1, 3, (1, 2, 3), (1, 2, 3)) == 3
    assert somebody_else(1, 1, (1, 3), (1, 2, 3)) == 3
    assert somebody_else(1, -1, (), (1, 2, 3)) == 2
    assert somebody_else(1, 9, (1,), (1,)) == -1


def test_clients_of_a_cut_off_broker_are_sent_elsewhere_without_waiting(three_brokers: RunningCluster) -> None:
    nodes = three_brokers.cluster.nodes
    wires = {node_id: Wire("127.0.0.1", node.port) for node_id, node in nodes.items()}
    wires[1].create("cut-off", factor=3)
    question = MetadataRequest(topics=[MetadataRequestTopic(name="cut-off")])
    leader_id = wires[1].ask(question, 9).topics[0].partitions[0].leader_id
    deaf = next(node for node_id, node in nodes.items() if node_id != leader_id)
    others = [node_id for node_id in nodes if nodes[node_id] is not deaf]

    async def hear(*, live: bool) -> bool:
        for other in others:
            deaf.partitions.on_peer(other, live)
        return deaf.partitions.known_leaders.expects_leader(deaf.partitions.topics["cut-off"].topic)

    assert not three_brokers.run(lambda _: hear(live=False)), "nobody is made to wait"
    try:
        answer = wires[deaf.config.node_id].ask(question, 9)
        assert answer.topics[0].partitions[0].leader_id == leader_id
    finally:
        three_brokers.run(lambda _: hear(live=True))
        for wire in wires.values():
            wire.close()
