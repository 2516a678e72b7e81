"""What group.version lets clients see: at level 0 nothing of groups of KIP-848, and nothing is written of any."""

from collections.abc import Iterator
from typing import Any

import pytest
from broker.coordinators.groups.conftest import QUICK
from broker.wire_client import Wire

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas_metadata_quorum.controller.features import GROUP_VERSION

from .consumer_client import ConsumerClient

KEYS = {68, 69}
UP, DOWN = 1, 2
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


@pytest.fixture(scope="module")
def one_broker() -> Iterator[RunningCluster]:
    with RunningCluster(1, settings=QUICK) as running:
        yield running


@pytest.fixture
def wire(one_broker: RunningCluster) -> Iterator[Wire]:
    wire = Wire("127.0.0.1", one_broker.cluster.nodes[1].port)
    yield wire
    wire.close()


def set_level(wire: Wire, level: int, kind: int) -> None:
    update = FeatureUpdateKey(feature=GROUP_VERSION, max_version_level=level, upgrade_type=kind)
    assert wire.ask(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == ErrorCode.NONE


def offered(wire: Wire, version: int) -> set[int]:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    return KEYS & {one.api_key for one in wire.ask(request, version).api_keys}


def written(running: RunningCluster) -> dict[str, Any]:
    shards = running.cluster.nodes[1].broker.coordinator.runtime.shards.values()
    return {name: kept for shard in shards for name, kept in shard.standby.table.consumers.items()}


def test_g12_groups_are_offered_and_written_from_level_1_on(one_broker: RunningCluster, wire: Wire) -> None:
    wire.create("t")
    set_level(wire, 0, DOWN)
    assert [offered(wire, version) for version in range(5)] == [set()] * 5
    member = ConsumerClient(one_broker.bootstrap, "g", "t", member_id="a")
    assert [member.beat(version).error_code for version in (0, 1)] == [UNSUPPORTED] * 2
    described = member.ask(ConsumerGroupDescribeRequest(group_ids=["g", "h"]), 1).groups
    assert [(one.group_id, one.error_code) for one in described] == [("g", UNSUPPORTED), ("h", UNSUPPORTED)]
    assert written(one_broker) == {}
    set_level(wire, 1, UP)
    assert [offered(wire, version) for version in range(5)] == [KEYS] * 5
    assert member.beat_surely().member_epoch == 1
    assert written(one_broker).keys() == {"g"}
    set_level(wire, 0, DOWN)
    assert member.beat().error_code == member.leave_group().error_code == UNSUPPORTED
    assert offered(wire, 4) == set()
    set_level(wire, 1, UP)
    member.lose()
