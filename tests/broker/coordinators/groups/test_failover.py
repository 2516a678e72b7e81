"""A group goes on when its coordinator goes, and no acknowledged offset is taken back."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest
from broker.wire_client import Wire
from machines import cluster_handle

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest

from .conftest import QUICK
from .group_client import CoordinatorError, GroupClient, rebalance

NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def own_brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, settings=QUICK) as cluster:
        yield cluster


def test_members_and_offsets_outlive_a_coordinator_that_stops(own_brokers: RunningCluster) -> None:
    member = GroupClient(own_brokers.bootstrap, "g", "t")
    static = GroupClient(own_brokers.bootstrap, "g-static", "t", instance_id="i-1")
    visitor = GroupClient(own_brokers.bootstrap, "g", "t")
    member.find().create("t", 4, 3)
    shares = rebalance(member) + rebalance(static)
    for round_number in range(1, 4):
        member.commit_surely("t", {0: round_number})
        visitor.enter()  # Parked: it is told that this broker coordinates no more.
        stopped = member.coordinator_id
        own_brokers.run(partial(Cluster.stop, node_id=stopped))
        assert visitor.receive_join(visitor._request).error_code == ErrorCode.NOT_COORDINATOR
        for client in (member, static, visitor):
            client.lose()
        assert member.until_known(member.heartbeat, int) in {NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        assert static.until_known(static.heartbeat, int) == NONE
        assert member.coordinator_id != stopped
        assert member.committed() == {("t", 0): round_number}
        assert [bytes(one.sync().assignment) for one in (member, static)] == shares, "the generation is the same"
        visitor.member_id = ""
        own_brokers.run(partial(Cluster.start, node_id=stopped))
        own_brokers.run(Cluster.wait_ready)
    for client in (member, static, visitor):
        client.lose()


def test_everything_is_there_after_the_whole_cluster_has_stopped(own_brokers: RunningCluster) -> None:
    member = GroupClient(own_brokers.bootstrap, "g-restart", "t", instance_id="i-2")
    share = rebalance(member)
    member.commit_surely("t", {1: 7})
    numbers = list(own_brokers.cluster.nodes)
    for act in (Cluster.stop, Cluster.start):
        own_brokers.run(partial(all_at_once, act, numbers))
    own_brokers.run(Cluster.wait_ready)
    member.lose()
    assert member.until_known(member.heartbeat, int) == NONE
    assert member.committed() == {("t", 1): 7}
    heir = GroupClient(own_brokers.bootstrap, "g-restart", "t", instance_id="i-2")
    heir.enter()
    assert heir.entered().generation_id == member.generation_id, "a static member is known again"
    assert [bytes(heir.sync().assignment)] == share
    for client in (member, heir):
        client.lose()


def test_without_a_majority_nobody_waits_for_ever_and_nothing_is_answered_from_memory(
    own_brokers: RunningCluster,
) -> None:
    member = GroupClient(own_brokers.bootstrap, "g-alone", "t")
    member.commit_surely("t", {2: 7})
    left, *others = [member.coordinator_id, *({1, 2, 3} - {member.coordinator_id})]
    own_brokers.run(partial(all_at_once, Cluster.stop, others))
    refused = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert member.commit("t", {2: 8})[0] in refused
    with pytest.raises(CoordinatorError):
        member.committed()
    wire = Wire("127.0.0.1", own_brokers.cluster.nodes[left].port)
    found = wire.ask(FindCoordinatorRequest(coordinator_keys=["g-alone"]), 4).coordinators[0]
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    wire.close()
    own_brokers.run(partial(all_at_once, Cluster.start, others))
    own_brokers.run(Cluster.wait_ready)
    member.lose()
    # The refused commit may have been stored all the same, but it may not take the older one back.
    assert member.until_known(member.committed, lambda _: NONE)["t", 2] in {7, 8}
    member.lose()


async def all_at_once(act: Callable[[Cluster, int], Awaitable[object]], numbers: list[int], cluster: Cluster) -> None:
    await asyncio.gather(*(act(cluster, number) for number in numbers))


@pytest.mark.process
@pytest.mark.slow
def test_a_deposed_coordinator_answers_nothing_and_a_killed_one_loses_nothing() -> None:
    settings = {name: str(value) for name, value in (QUICK | {"raft.election.timeout.ms": 400}).items()}
    with cluster_handle.cluster(3, settings) as cluster:
        member = GroupClient(cluster.bootstrap, "g", "t")
        member.timeout_s = 1.0
        member.find().create("t", 4, 3)
        rebalance(member)
        member.commit_surely("t", {0: 1})

        # Frozen, it does not know that somebody else coordinates by now.
        pids = cluster.pids()
        frozen = member.coordinator_id
        deposed = GroupClient(cluster.bootstrap, "g", "t")
        deposed._wire = Wire("127.0.0.1", cluster.port + frozen - 1)
        deposed.member_id = member.member_id
        deposed.generation_id = member.generation_id
        os.kill(pids[frozen], signal.SIGSTOP)
        member.addresses = [address for address in member.addresses if address[1] != cluster.port + frozen - 1]
        member.lose()
        member.commit_surely("t", {0: 2})
        os.kill(pids[frozen], signal.SIGCONT)
        assert deposed.heartbeat() == ErrorCode.NOT_COORDINATOR
        assert deposed.commit("t", {0: 0}) == [ErrorCode.NOT_COORDINATOR]
        with pytest.raises(CoordinatorError, match="NOT_COORDINATOR"):
            deposed.committed()
        deposed.lose()

        # Killed, it takes nothing with it.
        killed = member.coordinator_id
        os.kill(pids[killed], signal.SIGKILL)
        member.lose()
        member.addresses = [("127.0.0.1", cluster.port + node_id - 1) for node_id in pids if node_id != killed]
        assert member.until_known(member.heartbeat, int) == NONE
        assert member.until_known(member.committed, lambda _: NONE) == {("t", 0): 2}
        member.commit_surely("t", {0: 3})
        assert member.committed() == {("t", 0): 3}
        member.lose()
