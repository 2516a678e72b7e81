"""Whole answers are those of Apache Kafka 4.4, for each API and version that both offer, but for a few rows."""

from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from broker.live.administration.admin_questions import QUESTIONS, Surroundings
from broker.live.administration.topic_questions import TOPIC_QUESTIONS
from broker.wire_client import Wire
from confluent_kafka.admin import AdminClient
from interop import test_usual_errors
from interop.administration import test_configs, test_features
from interop.conftest import wait_for_leaders

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.server.dispatch import ROUTES
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.registry import APIS

from .cluster_talks import CLUSTER, TOPICS
from .consumer_talks import CONSUMERS
from .group_talks import GROUPS, MEMBERS, OFFSETS, STATIC_MEMBERS
from .left_out import LEFT_OUT
from .talks import Conversation, Peer, differences, offered_by
from .transaction_talks import MARKERS, PRODUCERS, TRANSACTIONS

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TALKS = (
    Conversation("offsets", OFFSETS),
    Conversation("groups", GROUPS),
    Conversation("members", MEMBERS),
    Conversation("static members", STATIC_MEMBERS, from_age=5),
    Conversation("producers", PRODUCERS),
    Conversation("transactions", TRANSACTIONS),
    Conversation("markers", MARKERS),
    Conversation("cluster", CLUSTER),
    Conversation("topics", TOPICS),
    Conversation("consumers", CONSUMERS),
)
REQUIRED: dict[str, str | int | float] = {
    "cluster.id": "c",
    "node.id": 1,
    "cluster.nodes": "1@127.0.0.1:1",
    "log.dir": "d",
}
ADVERTISED_ONLY = {(0, version) for version in range(3)}
"""Produce below version 3, which both say for old librdkafka's sake, and serve nobody."""
SETTINGS: dict[str, str | int | bool] = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def barnabas() -> Iterator[str]:
    with RunningCluster(1, settings=SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def peers(kafka_alone: str, barnabas: str, name: str) -> Iterator[tuple[Peer, Peer]]:
    """Kafka and we, each with a topic of one partition of the same name."""
    found = []
    with closing(wire_to(kafka_alone)) as theirs, closing(wire_to(barnabas)) as ours:
        for wire, address in ((theirs, kafka_alone), (ours, barnabas)):
            topic_id = wire.create(name, retention_ms="-1")  # The records are of 1970.
            wait_for_leaders(AdminClient({"bootstrap.servers": address}), name, 1)
            found.append(Peer(wire, name, topic_id))
        yield found[0], found[1]


def wire_to(address: str) -> Wire:
    host, port = address.rsplit(":", 1)
    return Wire(host, int(port))


def common(theirs: Mapping[int, range]) -> dict[int, range]:
    """Return the versions that Kafka offers and we can serve, by API; what stands behind a gate is among them."""
    return {
        key: range(max(them.start, ROUTES[key].served_from), min(them.stop, ROUTES[key].advertised.stop))
        for key, them in theirs.items()
        if key in ROUTES
    }


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.name)
def test_whole_answers_are_kafkas(peers: tuple[Peer, Peer], talk: Conversation) -> None:
    offered = common(offered_by(peers[0].wire))
    found = [row for age in talk.ages(offered) for row in differences(talk, peers, offered, age)]
    assert found == [], "\n".join(map(str, dict.fromkeys(found)))


def compared_elsewhere() -> set[tuple[int, int]]:
    """Return the APIs, and their versions, that other lists of questions compare."""
    keys = {api.name: key for key, api in APIS.items()}
    here = Surroundings("/x", "x")
    asked = [(question.make(here).api_key, question.versions) for question in QUESTIONS]
    asked += [(question.request.api_key, question.versions) for question in TOPIC_QUESTIONS]
    asked += [(keys[api], probe.versions) for api, (probes, _) in test_usual_errors.CASES.items() for probe in probes]
    asked += [*test_configs.COMPARED.items(), *test_features.COMPARED.items()]
    return {(key, version) for key, versions in asked for version in versions}


def test_all_that_both_offer_is_compared_and_the_rest_is_left_out_for_a_reason(kafka_alone: str) -> None:
    with closing(wire_to(kafka_alone)) as wire:
        theirs = offered_by(wire)
    offered = {key: route.offered(BrokerConfig.from_settings(REQUIRED)) for key, route in ROUTES.items()}
    left_out = {row.key: row.since for row in LEFT_OUT}
    compared = compared_elsewhere().union(*(talk.versions(common(theirs)) for talk in TALKS))
    pairs = {(key, version) for key, versions in theirs.items() for version in versions}
    missing = {(key, version) for key, version in pairs if version not in offered.get(key, ())}
    excused = {(key, version) for key, version in pairs if version >= left_out.get(key, 99)}
    assert sorted(missing ^ excused) == []
    assert sorted(pairs - missing - compared - ADVERTISED_ONLY) == []
    assert left_out.keys() <= theirs.keys()
