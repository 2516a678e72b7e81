"""APIs that are not finished: offered by brokers whose settings say so, unknown to all others."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas_broker.server import dispatch
from barnabas_broker.server.dispatch import ROUTES, UNSTABLE, Gate
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.describe_cluster import DescribeClusterRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.list_groups import ListGroupsRequest
from barnabas_clients.protocol.push_telemetry import PushTelemetryRequest
from broker.wire_client import Wire

WHOLE, PARTLY = DescribeClusterRequest.api_key, ListGroupsRequest.api_key
OPEN = "unstable.api.versions.enable"


@pytest.fixture
def gated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Wire, Any]]:
    """A broker, gates open or shut, to which all of one API is unstable, and of another what follows version 2."""
    monkeypatch.setitem(ROUTES, WHOLE, ROUTES[WHOLE]._replace(gate=UNSTABLE))
    monkeypatch.setitem(ROUTES, PARTLY, ROUTES[PARTLY]._replace(gate=Gate(3, UNSTABLE.is_open)))
    with RunningCluster(1, settings={OPEN: request.param}) as running:
        node = running.cluster.nodes[1]
        wire = Wire("127.0.0.1", node.port)
        yield wire, node.dispatcher
        wire.close()


def offered(wire: Wire) -> dict[int, tuple[int, int]]:
    return {key.api_key: (key.min_version, key.max_version) for key in wire.ask(ApiVersionsRequest(), 0).api_keys}


@pytest.mark.parametrize("gated", [True], indirect=True)
def test_an_open_gate_offers_and_serves_all(gated: tuple[Wire, Any]) -> None:
    wire, dispatcher = gated
    assert offered(wire)[WHOLE] == (0, 2)
    assert offered(wire)[PARTLY] == (0, 5)
    assert wire.ask(DescribeClusterRequest(), 0).error_code == ErrorCode.NONE
    assert wire.ask(ListGroupsRequest(), 5).error_code == ErrorCode.NONE
    assert dispatcher.counts["DescribeCluster"] == 1


@pytest.mark.parametrize("gated", [False], indirect=True)
def test_behind_a_shut_gate_an_api_is_unknown_and_a_version_is_none(
    gated: tuple[Wire, Any], caplog: pytest.LogCaptureFixture
) -> None:
    wire, dispatcher = gated
    assert WHOLE not in offered(wire)
    assert offered(wire)[PARTLY] == (0, 2)
    assert "DescribeCluster" not in dispatcher.counts
    assert wire.ask(ListGroupsRequest(), 2).error_code == ErrorCode.NONE
    with caplog.at_level(logging.WARNING):
        for request, version in ((DescribeClusterRequest(), 0), (ListGroupsRequest(), 3)):
            other = Wire(*wire.socket.getpeername())
            other.send(request, version)
            assert other.is_closed_by_peer()
            other.close()
    assert "API key 60 v0 is not supported" in caplog.text
    assert "ListGroups v3 is not supported" in caplog.text


def test_only_what_is_unfinished_or_has_a_setting_of_its_own_stands_behind_a_gate() -> None:
    metrics = {GetTelemetrySubscriptionsRequest.api_key, PushTelemetryRequest.api_key}
    gates = dict.fromkeys(metrics, dispatch.COLLECTED)
    assert {InitProducerIdRequest.api_key: dispatch.TWO_PHASE, **gates} == dispatch._GATES
