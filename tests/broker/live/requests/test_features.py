"""Features as clients see them: ApiVersions tells those that are finalized, UpdateFeatures changes them."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC
from barnabas_broker.server.handlers.update_features import FEATURES_MAX
from barnabas_broker.server.offer import Offer
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.api_versions import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas_metadata_quorum.controller.features import TRANSACTION_VERSION, levels_of, transaction_version
from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import FeatureFinalized, ProducerIdsAllocated
from barnabas_raftlog.records.header import TRANSACTIONAL
from broker.live.transactions.producing import until_decided
from broker.wire_client import Wire, batch, produce_request

from .feature_updates import FEATURE, GROUPS, METADATA, STEPS, Outcome, features_of, taken

SUPPORTED = [
    SupportedFeatureKey(name=GROUPS, min_version=0, max_version=1),
    SupportedFeatureKey(name=METADATA, min_version=7, max_version=33),
    SupportedFeatureKey(name=FEATURE, min_version=0, max_version=2),
]
FINALIZED = [
    FinalizedFeatureKey(name=GROUPS, max_version_level=1, min_version_level=1),
    FinalizedFeatureKey(name=METADATA, max_version_level=33, min_version_level=33),
    FinalizedFeatureKey(name=FEATURE, max_version_level=2, min_version_level=2),
]


@pytest.fixture(scope="module")
def three() -> Iterator[RunningCluster]:
    with RunningCluster(3) as running:
        yield running


@pytest.fixture
def wires(three: RunningCluster) -> Iterator[list[Wire]]:
    wires = [Wire("127.0.0.1", node.port) for _, node in sorted(three.cluster.nodes.items())]
    yield wires
    for wire in wires:
        wire.close()


def test_a_new_cluster_has_the_newest_level_and_every_broker_says_so(wires: list[Wire]) -> None:
    for wire in wires:
        for version in range(3):
            assert not features_of(wire, version).supported_features
        third, fourth = features_of(wire, 3), features_of(wire, 4)
        assert (third.supported_features, fourth.supported_features) == (SUPPORTED[1:2], SUPPORTED)
        assert third.finalized_features == fourth.finalized_features == FINALIZED
        assert third.finalized_features_epoch >= 1


def test_updates_end_as_they_do_in_kafka_at_every_broker(wires: list[Wire]) -> None:
    for wire in wires:
        for version in range(3):
            for step in STEPS:
                if version in step.versions:
                    results = len(step.updates) if version < 2 and step.code == ErrorCode.NONE else 0
                    expected = Outcome(step.code, results, step.level)
                    assert taken(wire, step, version) == expected, (version, step)


def test_a_refusal_says_why(wires: list[Wire]) -> None:
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=FEATURE, max_version_level=1)])
    answer = wires[2].ask(request, 2)
    assert answer.error_message == "transaction.version is at level 2; ask for a downgrade to get to 1"


def test_a_change_has_a_later_epoch(wires: list[Wire]) -> None:
    down = next(step for step in STEPS if step.level == 1 and step.code == ErrorCode.NONE)
    before = features_of(wires[0])
    assert taken(wires[0], down, 2).level == 1
    assert features_of(wires[0]).finalized_features_epoch > before.finalized_features_epoch
    assert taken(wires[0], STEPS[0], 2).level == 2


def test_a_request_that_names_very_many_is_refused_before_anybody_looks_at_them(wires: list[Wire]) -> None:
    updates = [FeatureUpdateKey(feature=f"f{number}") for number in range(FEATURES_MAX + 1)]
    answer = wires[0].ask(UpdateFeaturesRequest(feature_updates=updates), 2)
    assert (answer.error_code, "at most 100" in answer.error_message) == (ErrorCode.INVALID_REQUEST, True)


async def restarted(cluster: Cluster) -> None:
    await cluster.stop(1)
    await cluster.start(1)
    await cluster.wait_ready()


def test_levels_outlive_a_restart() -> None:
    with RunningCluster(1) as running:
        cluster = running.cluster
        wire = Wire("127.0.0.1", cluster.nodes[1].port)
        assert taken(wire, next(step for step in STEPS if step.level == 1), 2).level == 1
        wire.close()
        running.run(restarted)
        assert transaction_version(cluster.nodes[1].metadata.image) == 1
        wire = Wire("127.0.0.1", cluster.nodes[1].port)
        levels = {one.name: one.max_version_level for one in features_of(wire).finalized_features}
        assert levels == {GROUPS: 1, METADATA: 33, FEATURE: 1}
        wire.close()


def test_at_level_0_there_are_no_transactions_and_an_upgrade_brings_them() -> None:
    """So it is where older brokers were upgraded: before, one of them may be left that knows no marker."""
    with RunningCluster(1) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create("t")
        assert taken(wire, next(step for step in STEPS if step.level == 0), 2).level == 0
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert found(wire).error_code == denied
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
        assert wire.ask(request, 5).error_code == denied
        produce = produce_request("t", batch(producer_id=1, epoch=0, sequence=0, attributes=TRANSACTIONAL))
        produce.transactional_id = "x"
        refused = wire.ask(produce, 11).responses[0].partition_responses[0]
        assert (refused.error_code, "transaction.version" in refused.error_message) == (ErrorCode.INVALID_RECORD, True)
        assert TRANSACTION_TOPIC not in running.cluster.nodes[1].partitions.topics
        assert taken(wire, STEPS[0], 2).level == 2
        assert until_decided(lambda: found(wire)).node_id == 1
        assert until_decided(lambda: wire.ask(request, 5)).producer_epoch == 0
        wire.close()


def found(wire: Wire) -> Any:
    return wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4).coordinators[0]


class Owner:
    def __init__(self) -> None:
        self.image = Image("cluster")

    def now(self) -> Image:
        return self.image

    def apply(self, *records: FeatureFinalized | ProducerIdsAllocated) -> None:
        self.image = apply_all(self.image, records)


def decoded(offer: Offer, version: int = 4) -> ApiVersionsResponse:
    return ApiVersionsResponse.decode(offer.body(version, ErrorCode.NONE), version)


def test_an_answer_is_encoded_once_for_an_image() -> None:
    owner = Owner()
    offer = Offer({18: range(5)}, {TRANSACTION_VERSION: levels_of(TRANSACTION_VERSION)}, owner.now)
    first = offer.body(4, ErrorCode.NONE)
    assert offer.body(4, ErrorCode.NONE) is first
    assert offer.body(3, ErrorCode.NONE) is not first
    owner.apply(ProducerIdsAllocated(7))
    later = decoded(offer)
    assert (later.finalized_features_epoch, later.finalized_features) == (1, [])
    owner.apply(FeatureFinalized(TRANSACTION_VERSION, 2))
    assert decoded(offer).finalized_features == FINALIZED[2:]
    assert decoded(offer).finalized_features_epoch == 2


def test_what_is_finalized_is_no_business_of_a_broker_without_features() -> None:
    owner = Owner()
    offer = Offer({18: range(5)}, {}, owner.now)
    first = offer.body(4, ErrorCode.NONE)
    owner.apply(FeatureFinalized(TRANSACTION_VERSION, 2))
    assert offer.body(4, ErrorCode.NONE) is first
    answer = decoded(offer)
    assert (answer.finalized_features_epoch, answer.finalized_features, answer.supported_features) == (-1, [], [])
