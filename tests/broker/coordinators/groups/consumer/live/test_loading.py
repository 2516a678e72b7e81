"""Consumer groups while their coordinator cannot answer."""

from functools import partial

from broker.wire_client import Wire

from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode

from .consumer_client import ConsumerClient

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_g11_a_coordinator_that_loads_says_nothing_that_ends_a_client(brokers: RunningCluster, topic: str) -> None:
    one = ConsumerClient(brokers.bootstrap, topic, topic, member_id="a")
    one.beat_surely()

    async def enter(cluster: Cluster, state: ShardState) -> None:
        coordinator = cluster.nodes[one.coordinator_id].broker.coordinator
        coordinator.runtime.load_s = 0.0 if state is ShardState.LOADING else 0.5
        for runtime in coordinator.runtime.shards.values():
            if one.group_id in runtime.shard.consumers.groups:
                runtime.state = state

    brokers.run(partial(enter, state=ShardState.LOADING))
    try:
        stranger = ConsumerClient(brokers.bootstrap, topic, topic, member_id="b")
        stranger._wire = one.find()
        answers = [one.beat(), one.leave_group(), stranger.beat(), stranger.beat(member_epoch=3)]
        assert [answer.error_code for answer in answers] == [LOADING] * 4
        wrong = ConsumerClient(brokers.bootstrap, topic, topic, member_id="c")
        other = next(node for number, node in brokers.cluster.nodes.items() if number != one.coordinator_id)
        wrong._wire = Wire("127.0.0.1", other.port)
        assert wrong.beat().error_code == ErrorCode.NOT_COORDINATOR
        wrong.lose()
    finally:
        brokers.run(partial(enter, state=ShardState.ACTIVE))
    one.epoch = 1
    assert one.beat().error_code == ErrorCode.NONE
    one.lose()
