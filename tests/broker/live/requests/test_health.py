"""DescribeHealth, OpenChallenge and DescribeEvents against brokers of this process, and their bytes."""

import dataclasses
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.access.client_proof import Challenge, proof_of_asker, proof_of_broker
from barnabas_broker.server.handlers import describe_events, describe_health
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.describe_events import BrokerEvent, DescribeEventsRequest, DescribeEventsResponse
from barnabas_clients.protocol.describe_health import (
    BrokerState,
    DescribeHealthRequest,
    DescribeHealthResponse,
    HealthBroker,
    HealthTopic,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.open_challenge import OpenChallengeRequest, OpenChallengeResponse
from barnabas_raftlog.version import __version__
from broker.wire_client import Wire

SECRET = "not correct horse battery staple"  # noqa: S105 - of this test


@pytest.fixture(scope="module")
def keyed() -> Iterator[RunningCluster]:
    with RunningCluster(1, settings={"cluster.secret": SECRET}) as cluster:
        yield cluster


@pytest.fixture
def keyed_wire(keyed: RunningCluster) -> Iterator[Wire]:
    wire = Wire("127.0.0.1", keyed.cluster.nodes[1].port)
    yield wire
    wire.close()


# Bytes.


def test_health_has_these_bytes() -> None:
    assert DescribeHealthRequest(topics_max=7).to_bytes(0) == bytes.fromhex("00000007 00")
    response = DescribeHealthResponse(
        cluster_id="c",
        node_id=1,
        software_version="2",
        controller_id=3,
        voters=(1, 3),
        waiting="w",
        brokers=[HealthBroker(node_id=1, host="h", port=9, state=BrokerState.SILENT, state_ms=5, leaders=2)],
        topics_count=1,
        partitions_count=4,
        without_leader=1,
        under_replicated=2,
        topics=[HealthTopic(name="t", partitions=4, without_leader=1, under_replicated=2)],
        topics_left_out=6,
    )
    expected = (
        "00000000 0000 00 0263 00000001 0232 00000003 03 00000001 00000003 01 0277"
        "02 00000001 0268 00000009 00 03 0000000000000005 00000002 00"
        "00000001 00000004 00000001 00000002 02 0274 00000004 00000001 00000002 00 00000006 00"
    )
    assert response.to_bytes(0) == bytes.fromhex(expected)


def test_challenges_and_events_have_these_bytes() -> None:
    assert OpenChallengeRequest().to_bytes(0) == b"\0"
    challenge = OpenChallengeResponse(cluster_id="c", node_id=1, nonce=b"n")
    assert challenge.to_bytes(0) == bytes.fromhex("00000000 0000 00 0263 00000001 026e 00")
    request = DescribeEventsRequest(nonce=b"n", proof=b"p", topic="t", since_ms=5, events_max=3)
    assert request.to_bytes(0) == bytes.fromhex("026e 0270 0274 00 0000000000000005 00000003 00")
    event = BrokerEvent(time_ms=1, kind="k", subject="s", cause="c")
    response = DescribeEventsResponse(node_id=1, proof=b"p", events=[event], events_left_out=2)
    expected = "00000000 0000 00 00000001 0270 02 0000000000000001 026b 0273 0263 00 00000002 00"
    assert response.to_bytes(0) == bytes.fromhex(expected)


# Health.


def test_one_broker_is_well(wire: Wire, one_broker: RunningCluster, topic: str) -> None:
    health = wire.ask(DescribeHealthRequest(), 0)
    assert health.error_code == ErrorCode.NONE
    assert health.cluster_id == one_broker.cluster.configs[1].cluster_id
    assert (health.node_id, health.controller_id, health.voters, health.waiting) == (1, 1, (1,), "")
    assert health.software_version == __version__
    assert health.topics == []
    assert (health.without_leader, health.under_replicated) == (0, 0)
    assert health.partitions_count >= health.topics_count >= 1
    (known,) = health.brokers
    assert (known.node_id, known.port) == (1, one_broker.cluster.nodes[1].port)
    assert (known.state, known.leaders) == (BrokerState.LIVE, health.partitions_count)


def test_a_stopped_broker_is_silent_and_what_it_should_have_is_told() -> None:
    with RunningCluster(3) as cluster:
        wire = Wire("127.0.0.1", cluster.cluster.nodes[1].port)
        wire.create("whole", partitions=3, factor=3)
        wire.create("alone", partitions=3, factor=1)
        wire.create("whole-2", partitions=1, factor=3)

        async def stop(of: Cluster) -> None:
            await of.stop(2)
            node = of.nodes[1]
            whole = [node.partitions.topics[name] for name in ("whole", "whole-2")]
            # A leader says itself that a follower has fallen behind, and when it has another one.
            while any(
                2 in node.broker.leader_of(hosted, index).isr or node.broker.leader_of(hosted, index).leader_id < 0
                for hosted in whole
                for index in range(len(hosted.topic.partitions))
            ):
                await node.partitions.known_leaders.leaders_changed()

        cluster.run(stop)
        health = wire.ask(DescribeHealthRequest(topics_max=2), 0)
        assert [broker.state for broker in health.brokers] == [0, BrokerState.SILENT, 0]
        assert health.brokers[1].leaders == 0
        assert health.brokers[1].state_ms >= 0
        assert (health.partitions_count, health.without_leader, health.under_replicated) == (7, 1, 4)
        rows = [(row.name, row.partitions, row.without_leader, row.under_replicated) for row in health.topics]
        assert rows == [("alone", 3, 1, 0), ("whole", 3, 0, 3)]
        assert health.topics_left_out == 1
        for wanted in (0, -1):
            health = wire.ask(DescribeHealthRequest(topics_max=wanted), 0)
            assert (health.topics, health.topics_left_out) == ([], 3)
        wire.close()


def test_a_broker_of_the_configuration_that_never_came_is_missing(
    one_broker: RunningCluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = one_broker.cluster.nodes[1].broker
    nodes = {**broker.config.cluster_nodes, 3: "127.0.0.1:1"}
    monkeypatch.setattr(broker, "config", dataclasses.replace(broker.config, cluster_nodes=nodes))
    _, missing = wire.ask(DescribeHealthRequest(), 0).brokers
    assert (missing.node_id, missing.state, missing.host, missing.port) == (3, BrokerState.MISSING, None, -1)
    assert missing.state_ms == -1


def test_many_partitions_are_looked_at_in_pieces(one_broker: RunningCluster, wire: Wire) -> None:
    wire.create("many-pieces", partitions=3 * describe_health.PIECE)
    node = one_broker.cluster.nodes[1]

    async def yields(_: Cluster) -> int:
        exchange: Any = SimpleNamespace(listener_name="PLAINTEXT")
        steps = describe_health.handle(node.broker, exchange, DescribeHealthRequest())
        return sum(1 for _ in steps)

    assert one_broker.run(yields) >= 3


# Events.


def question_of(wire: Wire, secret: str, **fields: object) -> tuple[DescribeEventsRequest, Challenge]:
    """Return a question with its proof, and the challenge that it answers."""
    opened = wire.ask(OpenChallengeRequest(), 0)
    assert opened.error_code == ErrorCode.NONE
    challenge = Challenge(opened.cluster_id, opened.node_id, opened.nonce)
    request = DescribeEventsRequest(nonce=os.urandom(16), **fields)  # type: ignore[arg-type]
    request.proof = proof_of_asker(secret.encode(), challenge, request.nonce, request.to_bytes(0))
    return request, challenge


def test_who_knows_the_secret_is_told_events_and_that_the_broker_knows_it_too(keyed_wire: Wire) -> None:
    request, challenge = question_of(keyed_wire, SECRET)
    answer = keyed_wire.ask(request, 0)
    assert answer.error_code == ErrorCode.NONE
    assert answer.node_id == 1
    assert answer.proof == proof_of_broker(SECRET.encode(), challenge, request.nonce)
    assert "serving" in {event.kind for event in answer.events}
    times = [event.time_ms for event in answer.events]
    assert times == sorted(times)


def refused(answer: DescribeEventsResponse) -> str:
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (answer.events, answer.proof, answer.node_id) == ([], b"", -1)
    assert answer.error_message is not None
    return answer.error_message


def test_who_does_not_know_the_secret_is_told_nothing(keyed: RunningCluster, keyed_wire: Wire) -> None:
    for secret in ("x", SECRET[:-1], f"{SECRET} "):
        request, _ = question_of(keyed_wire, secret)
        assert "secrets differ" in refused(keyed_wire.ask(request, 0))
    for proof in (b"", bytes(32)):
        request, _ = question_of(keyed_wire, SECRET)
        request.proof = proof
        refused(keyed_wire.ask(request, 0))
    noted = [event for event in keyed.cluster.nodes[1].events.to_list() if event["kind"] == "message refused"]
    assert len(noted) == 1, "a flood of wrong proofs must not drive all else out of the history"


def test_a_proof_is_good_once_and_on_its_own_connection_only(keyed: RunningCluster, keyed_wire: Wire) -> None:
    request, _ = question_of(keyed_wire, SECRET)
    assert keyed_wire.ask(request, 0).error_code == ErrorCode.NONE
    assert "OpenChallenge" in refused(keyed_wire.ask(request, 0)), "the same once more"
    keyed_wire.ask(OpenChallengeRequest(), 0)
    refused(keyed_wire.ask(request, 0))  # to another challenge
    other = Wire("127.0.0.1", keyed.cluster.nodes[1].port)
    request, _ = question_of(keyed_wire, SECRET)
    other.ask(OpenChallengeRequest(), 0)
    refused(other.ask(request, 0))
    other.close()
    assert keyed_wire.ask(request, 0).error_code == ErrorCode.NONE


def test_a_failed_proof_uses_the_challenge_up(keyed_wire: Wire) -> None:
    request, _ = question_of(keyed_wire, SECRET)
    right, request.proof = request.proof, bytes(32)
    refused(keyed_wire.ask(request, 0))
    request.proof = right
    refused(keyed_wire.ask(request, 0))


def test_a_question_that_was_changed_on_its_way_is_refused(keyed_wire: Wire) -> None:
    for name, value in (("topic", "other"), ("kind", None), ("since_ms", 6), ("events_max", 8), ("nonce", bytes(16))):
        request, _ = question_of(keyed_wire, SECRET, topic="t", kind="k", since_ms=5, events_max=7)
        setattr(request, name, value)
        refused(keyed_wire.ask(request, 0))


def test_a_cluster_without_a_secret_tells_nobody(wire: Wire) -> None:
    opened = wire.ask(OpenChallengeRequest(), 0)
    assert (opened.error_code, opened.nonce) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, b"")
    assert "cluster.secret" in opened.error_message
    for request in (DescribeEventsRequest(), DescribeEventsRequest(nonce=bytes(16), proof=bytes(32))):
        refused(wire.ask(request, 0))


def test_events_are_chosen_by_topic_kind_and_time_and_the_newest_are_told(
    keyed: RunningCluster, keyed_wire: Wire
) -> None:
    node = keyed.cluster.nodes[1]

    async def add(_: Cluster) -> None:
        for subject in ("chosen-0", "chosen-11", "chosen-too-1", "chosen", "other-0"):
            node.events.add("kind one", subject, "cause")
            node.events.add("kind two", subject, "cause")
        node.broker.coordinator.group_events.add("kind one", "group chosen", "cause")

    keyed.run(add)

    def told(**fields: object) -> list[tuple[str, str]]:
        request, _ = question_of(keyed_wire, SECRET, **fields)
        return [(event.kind, event.subject) for event in keyed_wire.ask(request, 0).events]

    assert told(topic="chosen", kind="kind one") == [("kind one", each) for each in ("chosen-0", "chosen-11", "chosen")]
    assert told(kind="kind", topic="other") == [("kind one", "other-0"), ("kind two", "other-0")]
    assert told(kind="kind", topic="nowhere") == []
    assert ("kind one", "group chosen") in told(kind="kind one")
    assert told(since_ms=1 << 62) == []
    request, _ = question_of(keyed_wire, SECRET, kind="kind two", events_max=2)
    answer = keyed_wire.ask(request, 0)
    assert [event.subject for event in answer.events] == ["chosen", "other-0"]
    assert answer.events_left_out == 3


def test_an_answer_has_no_more_bytes_than_it_may(
    keyed: RunningCluster, keyed_wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_events, "BYTES_MAX", 1_000)
    node = keyed.cluster.nodes[1]

    async def add(_: Cluster) -> None:
        for number in range(5):
            node.events.add("long", f"n{number}", "ü" * (400 if number == 2 else 100))

    keyed.run(add)
    request, _ = question_of(keyed_wire, SECRET, kind="long")
    answer = keyed_wire.ask(request, 0)
    assert [event.subject for event in answer.events] == ["n3", "n4"], "no gap is left where one was too long"
    assert answer.events_left_out == 3
