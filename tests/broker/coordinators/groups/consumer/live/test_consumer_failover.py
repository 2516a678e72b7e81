"""A group of KIP-848 goes on when its coordinator goes: nobody loses its partitions or its offsets."""

from collections.abc import Iterator
from functools import partial

import pytest
from broker.coordinators.groups.conftest import QUICK
from broker.coordinators.groups.group_client import GroupClient

from barnabas_broker.coordinators.groups.consumer.embedded import read_assignment, write_assignment
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode

from .consumer_client import ConsumerClient, settle
from .test_both_protocols import share

NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def own_brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, settings=QUICK) as cluster:
        yield cluster


def test_members_partitions_and_offsets_outlive_a_coordinator(own_brokers: RunningCluster) -> None:
    one, two = (ConsumerClient(own_brokers.bootstrap, "g", "t", member_id=name) for name in "ab")
    static = ConsumerClient(own_brokers.bootstrap, "g", "t", member_id="c", instance_id="i")
    one.find().create("t", 6, 3)
    for member in (one, two, static):
        member.beat_surely()
    settle(one, two, static, partitions=6)
    had = [one.numbers, two.numbers, static.numbers]
    epoch = one.epoch
    one.commit_surely("t", {one.numbers[0]: 7})
    assert static.until_known(lambda: static.leave_group(-2), lambda found: int(found.error_code)).error_code == NONE
    stopped = one.coordinator_id
    own_brokers.run(partial(Cluster.stop, node_id=stopped))
    for member in (one, two, static):
        member.lose()
    assert one.beat_surely().member_epoch == two.beat_surely().member_epoch == epoch
    assert one.coordinator_id != stopped
    assert [one.numbers, two.numbers] == had[:2]
    again = ConsumerClient(own_brokers.bootstrap, "g", "t", member_id="c2", instance_id="i")
    again.beat_surely()
    assert (again.epoch, again.numbers) == (epoch, had[2])
    assert one.committed("t", [had[0][0]]) == {("t", had[0][0]): 7}
    # It knows what it needs to go on: who leaves now leaves its part to the others.
    assert two.leave_group().error_code == NONE
    settle(one, again, partitions=6)
    own_brokers.run(partial(Cluster.start, node_id=stopped))
    own_brokers.run(Cluster.wait_ready)
    assert one.beat_surely().member_epoch == one.epoch > epoch
    for member in (one, two, static, again):
        member.lose()


def test_a_group_of_both_protocols_outlives_a_coordinator_too(own_brokers: RunningCluster) -> None:
    new = ConsumerClient(own_brokers.bootstrap, "mixed", "u", member_id="a")
    old = GroupClient(own_brokers.bootstrap, "mixed", "u")
    old.find().create("u", 4, 3)
    old.enter()
    old.entered()
    assert old.sync({old.member_id: write_assignment(0, {"u": range(4)})}).error_code == NONE
    new.beat_surely()
    had = share(new, old)
    new.beat_surely()
    assert sorted([*new.numbers, *had]) == [0, 1, 2, 3]
    stopped = new.coordinator_id
    own_brokers.run(partial(Cluster.stop, node_id=stopped))
    for member in (new, old):
        member.lose()
    assert old.until_known(old.heartbeat, int) == NONE
    assert new.beat_surely().member_epoch == old.generation_id
    assert sorted(read_assignment(bytes(old.sync().assignment))[0]["u"]) == had
    old.commit_surely("u", {had[0]: 9})
    assert new.leave_group().error_code == NONE
    own_brokers.run(partial(Cluster.start, node_id=stopped))
    own_brokers.run(Cluster.wait_ready)
    assert old.until_known(old.heartbeat, int) == ErrorCode.REBALANCE_IN_PROGRESS
    old.enter()
    assert old.entered().leader == old.member_id
    assert old.committed("u", [had[0]]) == {("u", had[0]): 9}
    for member in (new, old):
        member.lose()
